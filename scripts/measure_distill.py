"""Measure decisions by cross-validation, and a method whose stages are done in full, by half, and by a trained model.

    python scripts/measure_distill.py decisions --data DATA
    python scripts/measure_distill.py stages --trained FOLDER --full SPEC --data FILE --out FOLDER [--limit N]

`decisions`: whether people searched (Wizard of the Internet, valid) and whether the knowledge of a response is about
another thing than before (KdConv, dev), by five folds of whole dialogues, thresholds chosen on the other folds, with
95% bootstrap intervals over dialogues. `stages`: the calls, seconds and scores of a method on DailyDialog with all
stages by the model SPEC (full), with those before the response by the model of `dialore train stages` (hybrid), and
with all that it was trained for by it (trained).
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata

from dialore.experiments.distill import stages_of
from dialore.experiments.run import run_experiment
from dialore.experiments.store import RunStore
from dialore.learned.classifier import SETTINGS, choose_offsets, context_rows, f1
from dialore.learned.decision import read_decisions
from dialore.learned.features import softmax
from dialore.learned.trees import grow
from dialore.methods.registry import method_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

RESAMPLES = 1000
KDCONV = ("film", "music", "travel")


def interval(figure: Callable[[NDArray[np.int64]], float], numbers: NDArray[np.int64]) -> str:
    """Return a figure of all rows with its 95% interval over whole dialogues, in percent."""
    draw = np.random.default_rng(0)
    rows = [np.flatnonzero(numbers == number) for number in np.unique(numbers)]
    resampled = [
        100 * figure(np.concatenate([rows[at] for at in draw.integers(len(rows), size=len(rows))]))
        for _ in range(RESAMPLES)
    ]
    low, high = np.percentile(resampled, [2.5, 97.5])
    return f"{100 * figure(np.arange(len(numbers))):.1f} ({low:.1f} to {high:.1f})"


def area(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Return the area under the ROC curve."""
    positives = int(labels.sum())
    ranks = rankdata(scores)[labels == 1].sum()
    return float((ranks - positives * (positives + 1) / 2) / (positives * (len(labels) - positives)))


def decision_row(label: str, name: str, path: Path) -> str:
    """Return a row of figures of one decision."""
    examples = read_decisions(name, path, label=label)
    labels, numbers, folds = examples.labels, examples.numbers, examples.folds
    responses = np.arange(len(labels))
    settings = {**SETTINGS, "num_class": 2}
    grown = grow(settings, context_rows(examples), labels, responses, examples, lambda *_: None)
    scores = np.log(softmax(grown.scores))
    decided = np.zeros(len(labels), np.int64)
    for fold in np.unique(folds):
        offsets = choose_offsets(scores[folds != fold], labels[folds != fold])
        decided[folds == fold] = np.argmax(scores[folds == fold] + offsets, 1)
    odds = scores[:, 1] - scores[:, 0]
    cells = [
        interval(lambda at: f1(decided[at], labels[at], 0), numbers),
        interval(lambda at: f1(decided[at], labels[at], 1), numbers),
        interval(lambda at: area(odds[at], labels[at]), numbers),
    ]
    return f"| {label}, {name} | {len(labels):,} | {100 * labels.mean():.1f}% | {' | '.join(cells)} |"


def decisions(data: Path) -> None:
    """Print a row a decision."""
    entries = []
    for name in KDCONV:
        with gzip.open(data / "kdconv" / f"{name}_dev.json.gz") as file:
            entries += json.load(file)
    print("| decision | responses | yes | F1 of no | F1 of yes | area under the ROC curve |\n|---|---|---|---|---|---|")
    print(decision_row("search", "wizard-of-internet", data / "wizard_of_internet" / "valid.json.gz"))
    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder) / "kdconv.json"
        joined.write_text(json.dumps(entries), encoding="utf-8")
        print(decision_row("shift", "kdconv", joined))


async def stages(options: argparse.Namespace) -> None:
    """Run the three systems on the same dialogues and print what each took and how it scored."""
    before = dict.fromkeys(stages_of(options.method), f"trained:{options.trained}")
    trained = set(json.loads((options.trained / "model.json").read_text("utf-8"))["fixed"])
    every = dict.fromkeys(method_class(options.method).stages, f"trained:{options.trained}")
    known = {task.partition(".")[0] for task in trained}
    systems = {"full": {}, "hybrid": before, "trained": every}
    config = {
        "name": "distilled",
        "dataset": {"name": "dailydialog", "path": options.data, "limit": options.limit},
        "systems": [
            {
                "name": name,
                "method": options.method,
                "options": {"thoughts": False},
                "stages": {stage: model for stage, model in of.items() if stage in known},
            }
            for name, of in systems.items()
        ],
        "models": [{"model": options.full}],
        "concurrency": 4,
    }
    await run_experiment(config, options.out)
    with RunStore.open(options.out) as store:
        for system in store.systems():
            counts, spent = store.counts(system.number)
            per = {name: round(spent[name] / store.size, 2) for name in ("calls", "seconds", "completion_tokens")}
            print(system.title, per, {name: count for name, count in counts.items() if count})


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("decisions").add_argument("--data", type=Path, required=True)
    of_stages = commands.add_parser("stages")
    of_stages.add_argument("--trained", type=Path, required=True)
    of_stages.add_argument("--full", required=True)
    of_stages.add_argument("--data", type=Path, required=True)
    of_stages.add_argument("--out", type=Path, required=True, help="where the run is kept")
    of_stages.add_argument("--limit", type=int, default=10)
    of_stages.add_argument("--method", default="dcrag")
    options = parser.parse_args()
    if options.what == "decisions":
        decisions(options.data)
    else:
        asyncio.run(stages(options))
        scoring = [sys.executable, "-m", "dialore", "score", str(options.out), "-x", "f1", "-x", "rouge-l"]
        subprocess.run(scoring, check=True)  # noqa: S603 - our own command


if __name__ == "__main__":
    main()
