"""Train the planner and the ranker on KBP, measure them on its development split, and write docs/learn.md.

    python scripts/measure_learn.py --data DATA [--models FOLDER]

DATA holds kbp/train.json.gz and kbp/dev.json.gz. Models that lie in the folder already are measured as they are. The
planner is scored by F1 (SAFARI's Table 4), the ranker by Recall@1 with the gold plan, by the protocol of
`measure_persona_retrieval.py` (its Table 5). Intervals are 95% bootstrap intervals over whole dialogues.
"""

from __future__ import annotations

import argparse
import asyncio
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

Both are boosted trees. They look at how the turns so far share words, rare words and embeddings with each persona
sentence and document, at what was told and asked before, at places, and at the past of a piece: the turns that it
answered in the training data, by words, with the dialogue in question left out. The planner adds how near the last turn
is to turns of each plan, and a linear model over words. How many trees, thresholds and the sharpness of probabilities
are chosen by five-fold cross-validation on the training split, by whole dialogues. The development split is measured
once, at the end; the test split is not looked at.

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
    decided, sure, taken = [], [], []
    for one in dialogues:
        begun = time.process_time()
        shares = planner.probabilities(one, one.extra["documents"])
        decided.append(planner.plans.index(planner.choose(shares)))
        taken.append(1000 * (time.process_time() - begun))
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
            "median ms": float(np.median(taken)),
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
    """Train, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--models", type=Path, default=Path("models"), help="where models lie or go")
    options = parser.parse_args()
    files = {split: options.data / "kbp" / f"{split}.json.gz" for split in ("train", "dev")}
    for name, recipe in RECIPES.items():
        if not (options.models / name / "model.json").exists():
            examples = read_examples("kbp", files["train"])
            refuse_leaks(examples, files["dev"])
            begun = time.process_time()
            made = recipe(examples, lambda *_: None)
            save_trained(options.models / name, examples, *made)
            print(f"{name}: {time.process_time() - begun:.0f} s of processor time", flush=True)
    dialogues = split_dialogues(data_set("kbp").read(files["dev"]), cut="all")
    planner, ranker = (options.models / name for name in RECIPES)
    figures, bounds, other = measure_planner(planner, dialogues)
    plans = [f"F1 of {named(plan)}" for plan in TrainedPlanner(planner).plans]
    lines = [HEAD, "## Planner: F1 on KBP", "", row("", ["NULL", "PERSONA", "both"]), "|---|---|---|---|"]
    lines += [row(name, published) for name, published in PLANNING.items()]
    lines.append(row("ours, train, cross-validation (least to greatest fold)", spread(planner, plans)))
    lines += [row("**ours, dev**", figures), row("95% interval", bounds), row("target on dev", TARGETS["planner"]), ""]
    lines.append(
        f"A decision took {other['median ms']:.1f} ms of processor time (median). That anything is needed is predicted"
        f" with an expected calibration error of {100 * other['calibration error']:.1f} points (ten bins)."
    )
    asked = [one for one in dialogues if one.sources]
    columns = ["persona", "both: persona", "documents", "all documents, the gold sentence given"]
    lines += ["", "## Ranker: Recall@1 on KBP, with the gold plan", ""]
    lines += [row("", ["persona", "both: persona", "documents", "documents†"]), "|---|---|---|---|---|"]
    lines += [row(name, published) for name, published in PAPER.items() if "trained" in name]
    lines.append(row("ours, train, cross-validation (least to greatest fold)*", spread(ranker, columns)))
    for name, retriever in (("untrained default, dev", "dialogue"), ("**ours, dev**", f"trained:{ranker}")):
        found = await measure(asked, retriever=retriever)
        lines.append(row(name, [100 * (one.value or 0) for one in found.values()]))
    low_high = [f"{100 * (one.low or 0):.1f} to {100 * (one.high or 0):.1f}" for one in found.values()]
    lines += [row("95% interval", low_high), row("target on dev", TARGETS["ranker"]), ""]
    lines += [
        "† Among all of the dialogue's documents, with the retrieved sentence joined to the query. The ranker is not",
        "told which sentence a document stands under.  ",
        "\\* In cross-validation the gold sentence is joined instead.",
        "",
    ]
    PAGE.write_text("\n".join(lines), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    asyncio.run(main())
