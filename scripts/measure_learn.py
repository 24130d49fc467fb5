"""Train the planner and the ranker on KBP, measure them on its development split, and write docs/learn.md.

    python scripts/measure_learn.py --data DATA [--models FOLDER] [--only-text]

DATA holds kbp/train.json.gz and kbp/dev.json.gz. Models that lie in the folder already are measured as they are. The
planner is scored by F1 (SAFARI's Table 4), the ranker by Recall@1 with the gold plan, by the protocol of
`measure_persona_retrieval.py` (its Table 5). Intervals are 95% bootstrap intervals over whole dialogues.

What was measured is kept in `learn_measured.json`, from which --only-text writes the page again. It also holds the
sections of parts that take longer, as the commands that each of them names made them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dialore.datasets import data_set, split_dialogues
from dialore.sources.trained import TrainedPlanner, describe
from dialore.training import read_examples, refuse_leaks, save_trained, train_planner, train_ranker
from dialore.training.planner import f1, named

sys.path.insert(0, str(Path(__file__).parent))
from measure_persona_retrieval import PAPER, measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

PAGE = Path(__file__).parents[1] / "docs" / "learn.md"
MEASURED = Path(__file__).with_name("learn_measured.json")
RECIPES = {"planner": train_planner, "ranker": train_ranker}
RESAMPLES = 1000
PLANNING = {
    "SAFARI, test: BELLE-LLAMA-7B-2M, LoRA": (42.67, 14.08, 83.77),
    "SAFARI, test: ChatGLM-6B, LoRA": (47.10, 31.96, 86.59),
    "SAFARI, test: ChatGPT, zero-shot": (11.45, 20.67, 74.88),
}
TARGETS = {"planner": (55, 45, 88), "ranker": (90, 95, 68, 66)}
HEAD = """\
<!-- Made by scripts/measure_learn.py: change it there. -->
# Learn: small trained parts

A planner and a ranker that are trained on a data set's own plans by one command each, on a laptop's processor, and used
with numpy alone:

```
dialore train planner kbp --data data/kbp --out models/planner
dialore train retriever kbp --data data/kbp --out models/ranker
dialore models list models
dialore models show models/planner
```

`safari` takes them as `-o planning=trained:models/planner -o retriever=trained:models/ranker`; a declared persona and
the documents under it take the ranker as `retriever: trained:models/ranker`.

Both look at how the turns so far share words, rare words and embeddings with each persona sentence and document, at
what was told and asked before, at places, and at the past of a piece: the turns that it answered in the training data,
by words, with the dialogue in question left out. The ranker is boosted trees. The planner adds how near the last turn
is to turns of each plan, and a linear model over words; its probabilities are the mean of boosted trees and of three
networks with one hidden layer over the same features. How many trees, thresholds and the sharpness of probabilities
are chosen by five-fold cross-validation on the training split, by whole dialogues. The development split is measured
at the end, and nothing was chosen by it; for the planner that was twice, after its first form (55.4 / 42.6 / 86.0) and
after the present one. The test split is not looked at.

**What these figures are of.** KBP draws its dialogues from 265 persona sentences; nearly all of those in its
development split, and of the documents under them, come in its training split, too, in other dialogues. The figures are
of such known pieces; the paper's retrievers and planners had the same data. A piece that training has not seen is
ranked by its words and place alone, which is not measured here.
"""


def intervals(per_resample: NDArray[np.float64]) -> str:
    """The 95% interval of figures of resamples."""
    low, high = np.percentile(per_resample, [2.5, 97.5])
    return f"{low:.1f} to {high:.1f}"


def measure_planner(path: Path, dialogues: Sequence[Dialogue]) -> tuple[list[float], list[str], dict[str, float]]:
    """F1 of each plan with intervals, and milliseconds a decision and calibration."""
    planner = TrainedPlanner(path)
    labels = np.array([planner.plans.index(tuple(one.sources)) for one in dialogues])
    decided, sure = [], []
    taken: dict[bool, list[float]] = {True: [], False: []}
    for one in dialogues:
        begun = time.process_time()
        shares = planner.probabilities(one, one.extra["documents"])
        decided.append(planner.plans.index(planner.choose(shares)))
        taken[len(one.turns) < 3].append(1000 * (time.process_time() - begun))
        sure.append([shares[plan] for plan in planner.plans])
    chosen, plans = np.array(decided), range(len(planner.plans))
    _, of = np.unique([one.id.partition("@")[0] for one in dialogues], return_inverse=True)
    rows = [np.flatnonzero(of == number) for number in range(of.max() + 1)]
    draw = np.random.default_rng(0)
    resampled = []
    for _ in range(RESAMPLES):
        at = np.concatenate([rows[number] for number in draw.integers(len(rows), size=len(rows))])
        resampled.append([100 * f1(chosen[at], labels[at], plan) for plan in plans])
    figures = [100 * f1(chosen, labels, plan) for plan in plans]
    needed, null = 1 - np.array(sure)[:, planner.plans.index(())], labels != planner.plans.index(())
    bins = np.minimum((needed * 10).astype(int), 9)
    error = sum(abs(needed[bins == b].sum() - null[bins == b].sum()) for b in range(10)) / len(labels)
    return (
        figures,
        [intervals(each) for each in np.array(resampled).T],
        {
            "median ms, first": float(np.median(taken[True])),
            "median ms, later": float(np.median(taken[False])),
            "calibration error": float(error),
        },
    )


def row(name: str, figures: Sequence[object]) -> str:
    """One line of a table."""
    cells = [f"{each:.1f}" if isinstance(each, float) else str(each) for each in figures]
    return f"| {name} | " + " | ".join(cells) + " |"


def spread(path: Path, names: Sequence[str]) -> list[str]:
    """What cross-validation gave, with its least and greatest fold."""
    measured = describe(path)["measured"]
    return [
        f"{measured[name]['mean']:.1f} ({measured[name]['low']:.1f} to {measured[name]['high']:.1f})"
        if name in measured
        else "-"
        for name in names
    ]


async def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("shared/data"), help="the folder of data sets")
    parser.add_argument("--models", type=Path, default=Path("models"), help="where models lie or go")
    parser.add_argument("--only-text", action="store_true", help="write the page from what was measured before")
    options = parser.parse_args()
    if not options.only_text:
        await measure_all(options.data, options.models)
    write()


async def measure_all(data: Path, models: Path) -> None:
    """Train what is not there, and measure it."""
    files = {split: data / "kbp" / f"{split}.json.gz" for split in ("train", "dev")}
    for name, recipe in RECIPES.items():
        if not (models / name / "model.json").exists():
            examples = read_examples("kbp", files["train"])
            refuse_leaks(examples, files["dev"])
            begun = time.process_time()
            made = recipe(examples, lambda *_: None)
            save_trained(models / name, examples, *made)
            print(f"{name}: {time.process_time() - begun:.0f} s of processor time", flush=True)
    dialogues = split_dialogues(data_set("kbp").read(files["dev"]), cut="all")
    planner, ranker = (models / name for name in RECIPES)
    figures, bounds, other = measure_planner(planner, dialogues)
    plans = [f"F1 of {named(plan)}" for plan in TrainedPlanner(planner).plans]
    columns = ["persona", "both: persona", "documents", "all documents, the gold sentence given"]
    ranked = {}
    for name, retriever in (("untrained default, dev", "dialogue"), ("**ours, dev**", f"trained:{ranker}")):
        found = await measure([one for one in dialogues if one.sources], retriever=retriever)
        ranked[name] = [100 * (one.value or 0) for one in found.values()]
    ranked["95% interval"] = [f"{100 * (one.low or 0):.1f} to {100 * (one.high or 0):.1f}" for one in found.values()]
    kept = json.loads(MEASURED.read_text(encoding="utf-8"))
    kept["planner"] = {
        "ours, train, cross-validation (least to greatest fold)": spread(planner, plans),
        "**ours, dev**": figures,
        "95% interval": bounds,
    }
    kept["ranker"] = {"ours, train, cross-validation (least to greatest fold)*": spread(ranker, columns), **ranked}
    kept["decision"] = other
    MEASURED.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def write() -> None:
    """Write the page from what was measured."""
    kept = json.loads(MEASURED.read_text(encoding="utf-8"))
    other = kept["decision"]
    later, first, error = (other[name] for name in ("median ms, later", "median ms, first", "calibration error"))
    lines = [HEAD, "## Planner: F1 on KBP", "", row("", ["NULL", "PERSONA", "both"]), "|---|---|---|---|"]
    lines += [row(name, each) for name, each in {**PLANNING, **kept["planner"]}.items()]
    lines += [
        row("target on dev", TARGETS["planner"]),
        "",
        f"A decision took {later:.1f} ms of processor time (median) where the persona had been asked about before",
        f"and the last two turns were new, {first:.1f} ms at a dialogue's first turn. That anything is needed is",
        f"predicted with an expected calibration error of {100 * error:.1f} points (ten bins).",
        "",
        *kept["planner, notes"],
        "",
        "## Ranker: Recall@1 on KBP, with the gold plan",
        "",
        row("", ["persona", "both: persona", "documents", "documents†"]),
        "|---|---|---|---|---|",
        *[row(name, each) for name, each in PAPER.items() if "trained" in name],
        *[row(name, each) for name, each in kept["ranker"].items()],
        row("target on dev", TARGETS["ranker"]),
        "",
        "† Among all of the dialogue's documents, with the retrieved sentence joined to the query. The ranker is not",
        "told which sentence a document stands under.  ",
        "\\* In cross-validation the gold sentence is joined instead.",
    ]
    for section in kept["sections"]:
        lines += ["", *section]
    PAGE.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
