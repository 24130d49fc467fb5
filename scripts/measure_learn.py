"""Train the small parts on KBP, measure them on its development split, and write docs/learn.md.

    python scripts/measure_learn.py --data DATA [--models FOLDER] [PART ...] [--only-text]

DATA is the folder of data sets. Parts: planner, ranker, nli, decisions, scratch, generator; all without any. Models
that lie in the folder already are measured as they are. Intervals are 95% bootstrap intervals over whole dialogues;
figures of training are of five folds of whole dialogues. What was measured is kept in `learn_measured.json`; with
--only-text the page is written from that. Its prose is `learn_page.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import gzip
import json
import sys
import tempfile
import time
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.datasets import data_set, split_dialogues
from dialore.learned.classifier import f1
from dialore.learned.examples import read_examples, refuse_leaks
from dialore.learned.nli import train_nli
from dialore.learned.planner import plan_name, train_planner
from dialore.learned.ranker import train_ranker
from dialore.trained import open_trained, read_card
from dialore.training.encoders import train_encoder
from dialore.training.trainer import Job, Tuning

sys.path.insert(0, str(Path(__file__).parent))
from measure_distill import KDCONV, decision_row
from measure_generator import measure_generator
from measure_nli import PAPER as NLI
from measure_nli import measure_nli
from measure_persona_retrieval import PAPER as RETRIEVAL
from measure_persona_retrieval import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


DOCS = Path(__file__).parents[1] / "docs"
MEASURED = Path(__file__).with_name("learn_measured.json")
PROSE = Path(__file__).with_name("learn_page.md")
RESAMPLES = 1000
PLANNING = {
    "SAFARI, test: BELLE-LLAMA-7B-2M, LoRA": (42.67, 14.08, 83.77),
    "SAFARI, test: ChatGLM-6B, LoRA": (47.10, 31.96, 86.59),
    "SAFARI, test: ChatGPT, zero-shot": (11.45, 20.67, 74.88),
}
PROTOCOLS = {
    "persona, random": "persona, with any other (the paper's)",
    "documents, random": "documents, with any other (the paper's)",
    "persona, same persona": "persona, another sentence of the same persona",
    "documents, other document": "documents, another document of the dialogue",
    "documents, swapped": "documents, a number or name exchanged",
}
ENCODERS = {
    "scratch": ("dual", Tuning(epochs=3, batch=32, rate=1e-3, length=96)),
}
GENERATOR = {
    "SAFARI, test: BELLE-LLAMA-7B-2M, supervised": (30.48, 34.61, 75.34, 46.62, "42.7, 14.1, 83.8", ""),
    "SAFARI, test: ChatGLM-6B, LoRA, supervised": (23.81, 26.70, 76.99, 42.39, "47.1, 32.0, 86.6", ""),
    "SAFARI, test: ChatGPT, zero-shot": (12.06, 24.44, 73.47, 38.00, "11.4, 20.7, 74.9", ""),
}


class Bench:
    """Data and models, and what was measured."""

    def __init__(self, data: Path, models: Path) -> None:
        self.data, self.models = data, models
        self.files = {split: data / "kbp" / f"{split}.json.gz" for split in ("train", "dev")}

    def boosted(self, name: str, recipe: Callable[..., Any], **how: bool) -> Path:
        """Return a part made of trees, trained where it is not there."""
        path = self.models / name
        if not (path / "model.json").exists():
            examples = read_examples("kbp", self.files["train"])
            refuse_leaks(examples, self.files["dev"])
            begun = time.process_time()
            recipe(examples, lambda *_: None, **how).save(path, examples)
            print(f"{name}: {time.process_time() - begun:.0f} s of processor time", flush=True)
        return path

    def planner(self) -> dict[str, Any]:
        """F1 of each plan with intervals, of the context alone, too; milliseconds a decision, and calibration."""
        path = self.boosted("planner", train_planner)
        found = self.planned(path)
        context = self.boosted("planner-context", train_planner, context=True)
        alone, folds = self.planned(context)["rows"], "train, cross-validation (least to greatest fold)"
        found["rows"] = {
            f"ours, {folds}": found["rows"]["folds"],
            "**ours, dev**": found["rows"]["dev"],
            "95% interval": found["rows"]["interval"],
            f"ours, the context alone, {folds}": alone["folds"],
            "ours, the context alone, dev": alone["dev"],
            "95% interval, the context alone": alone["interval"],
        }
        return found

    def planned(self, path: Path) -> dict[str, Any]:
        """Return a planner's decisions on the dev split."""
        planner = open_trained(str(path), "planner")
        dialogues = split_dialogues(data_set("kbp").read(self.files["dev"]), cut="all")
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
        bounds = np.percentile(resampled, [2.5, 97.5], axis=0).T
        needed, null = 1 - np.array(sure)[:, planner.plans.index(())], labels != planner.plans.index(())
        bins = np.minimum((needed * 10).astype(int), 9)
        error = sum(abs(needed[bins == b].sum() - null[bins == b].sum()) for b in range(10)) / len(labels)
        return {
            "rows": {
                "folds": spread(path, [f"F1 of {plan_name(plan)}" for plan in planner.plans]),
                "dev": [100 * f1(chosen, labels, plan) for plan in plans],
                "interval": [f"{low:.1f} to {high:.1f}" for low, high in bounds],
            },
            "later": f"{np.median(taken[False]):.1f}",
            "first": f"{np.median(taken[True]):.1f}",
            "error": f"{100 * float(error):.1f}",
        }

    async def recalls(self, retriever: str) -> tuple[list[float], list[str]]:
        """Recall@1 of a retriever on dev, and intervals."""
        dialogues = split_dialogues(data_set("kbp").read(self.files["dev"]), cut="all")
        found = await measure([one for one in dialogues if one.sources], retriever=retriever)
        bounds = [f"{100 * (one.low or 0):.1f} to {100 * (one.high or 0):.1f}" for one in found.values()]
        return [100 * (one.value or 0) for one in found.values()], bounds

    async def ranker(self) -> dict[str, Any]:
        """Recall@1 of the boosted ranker, and of the untrained default."""
        path = self.boosted("ranker", train_ranker)
        columns = ["persona", "both: persona", "documents", "all documents, the gold sentence given"]
        figures, bounds = await self.recalls(f"trained:{path}")
        return {
            "rows": {
                "ours, train, cross-validation (least to greatest fold)*": spread(path, columns),
                "untrained default, dev": (await self.recalls("dialogue"))[0],
                "**ours, dev**": figures,
                "95% interval": bounds,
            }
        }

    async def encoder(self, name: str) -> dict[str, Any]:
        """Recall@1 of a fine-tuned encoder by its int8 export."""
        kind, tuning = ENCODERS[name]
        path, seconds = self.models / name, ""
        if not (path / "model.json").exists():
            begun = time.process_time()
            examples = [read_examples("kbp", each) for each in self.files.values()]
            train_encoder(kind, Job("scratch", path, tuning), *examples)  # type: ignore[arg-type]
            seconds = f"{time.process_time() - begun:.0f}"
        figures, bounds = await self.recalls(f"trained:{path}")
        cells = [f"{figure:.1f} ({bound})" for figure, bound in zip(figures, bounds, strict=True)]
        return {"cells": cells, "epochs": read_card(path)["loss"]["epochs"], "seconds": seconds, "loss": losses(path)}

    def nli(self) -> dict[str, Any]:
        """Accuracy of the consistency model by protocol."""
        path = self.boosted("nli", train_nli)
        paper = self.boosted("nli-random", train_nli, hard=False)
        measured, random = (measure_nli(each, self.files["dev"]) for each in (path, paper))

        def rows(model: Path, figures: Any) -> dict[str, list[Any]]:  # noqa: ANN401 - a mean and its interval by protocol
            return {
                title: [
                    *spread(model, [key]),
                    figures[key][0],
                    f"{figures[key][1]:.1f} to {figures[key][2]:.1f}",
                    NLI.get(key, ""),
                ]
                for key, title in PROTOCOLS.items()
            }

        return {"random": rows(paper, random), "rows": rows(path, measured)}

    def decisions(self) -> dict[str, Any]:
        """Return the search decision on Wizard of the Internet, and the shift of topic on KdConv."""
        entries = []
        for name in KDCONV:
            with gzip.open(self.data / "kdconv" / f"{name}_dev.json.gz") as file:
                entries += json.load(file)
        with tempfile.TemporaryDirectory() as folder:
            joined = Path(folder) / "kdconv.json"
            joined.write_text(json.dumps(entries), encoding="utf-8")
            shift = decision_row("shift", "kdconv", joined)
        return {
            "rows": [
                decision_row("search", "wizard-of-internet", self.data / "wizard_of_internet/valid.json.gz"),
                shift,
            ]
        }

    async def generator(self) -> dict[str, Any]:
        """BLEU-1, ROUGE-L, P.C, K.C and F1 of plans of SAFARI's generator, from random weights."""
        parts = {"planner": self.boosted("planner", train_planner), "ranker": self.boosted("ranker", train_ranker)}
        rows = await measure_generator(self.data, self.models, self.boosted("nli", train_nli), **parts)
        return {"rows": rows, "loss": {name: losses(self.models / name) for name in ("base", "safari")}}


def losses(path: Path) -> list[list[float]]:
    """Epoch, training loss and held-out loss of a fine-tuned model."""
    with (path / "loss.csv").open(encoding="utf-8") as file:
        return [[float(cell or "nan") for cell in line] for line in list(csv.reader(file))[1:]]


def spread(path: Path, names: Sequence[str]) -> list[str]:
    """Return what cross-validation gave, with its least and greatest fold."""
    measured = read_card(path)["measured"]
    return [
        f"{measured[name]['mean']:.1f} ({measured[name]['low']:.1f} to {measured[name]['high']:.1f})"
        if name in measured
        else "-"
        for name in names
    ]


# --- the page


def row(name: str, figures: Iterable[object]) -> str:
    """One line of a table."""
    cells = [f"{each:.1f}" if isinstance(each, float) else str(each) for each in figures]
    return f"| {name} | " + " | ".join(cells) + " |"


def table(*parts: dict[str, Any]) -> str:
    """Return the lines of a table, below its head."""
    return "\n".join(row(name, figures) for part in parts for name, figures in part.items())


def write() -> None:
    """Write the page and its picture from what was measured."""
    kept = json.loads(MEASURED.read_text(encoding="utf-8"))
    trained = {name: figures for name, figures in RETRIEVAL.items() if "trained" in name}
    page = Template(PROSE.read_text(encoding="utf-8")).substitute(
        planner=table(PLANNING, kept["planner"]["rows"]),
        **{name: kept["planner"][name] for name in ("later", "first", "error")},
        ranker=table(trained, kept["ranker"]["rows"]),
        nli=table(kept["nli"]["rows"]),
        nli_random=table(kept["nli"]["random"]),
        decisions="\n".join(kept["decisions"]["rows"]),
        encoders=table({title: kept[name]["cells"] for name, title in TITLES.items()}),
        generator=table(GENERATOR, kept["generator"]["rows"]),
    )
    (DOCS / "learn.md").write_text(page, encoding="utf-8")


TITLES = {
    "scratch": "dual encoder, a transformer from scratch",
}


def draw() -> None:
    """Draw the losses of all that was fine-tuned."""
    from matplotlib.figure import Figure

    kept = json.loads(MEASURED.read_text(encoding="utf-8"))
    curves = {title.replace(", ", ",\n"): kept[name]["loss"] for name, title in TITLES.items()}
    curves |= {"language model,\nthe base": kept["generator"]["loss"]["base"]}
    curves |= {"SAFARI's\ngenerator": kept["generator"]["loss"]["safari"]}
    curves = {title: rows for title, rows in curves.items() if len(rows) > 1}
    figure = Figure(figsize=(10, 2.8), layout="constrained")
    for axes, (title, rows) in zip(figure.subplots(1, len(curves)), curves.items(), strict=True):
        for column, name in ((1, "train"), (2, "held out")):
            drawn = [(each[0], each[column]) for each in rows if each[column] == each[column]]
            axes.plot(*zip(*drawn, strict=True), marker="o", label=name)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("epoch")
        axes.set_xticks([each[0] for each in rows])
    figure.axes[0].set_ylabel("loss")
    axes.legend()
    figure.savefig(DOCS / "figures" / "learn-losses.svg", metadata={"Date": None})


async def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help="what is measured; all without any")
    parser.add_argument("--data", type=Path, default=Path("shared/data"), help="the folder of data sets")
    parser.add_argument("--models", type=Path, default=Path("models"), help="where models lie or go")
    parser.add_argument("--only-text", action="store_true", help="write the page from what was measured before")
    given = parser.parse_args()
    if not given.only_text:
        bench = Bench(given.data, given.models)
        parts: dict[str, Callable[[], Any]] = {name: getattr(bench, name) for name in PARTS}
        parts |= {name: lambda name=name: bench.encoder(name) for name in ENCODERS}
        for name in given.parts or parts:
            found = parts[name]()
            found = await found if asyncio.iscoroutine(found) else found
            kept = json.loads(MEASURED.read_text(encoding="utf-8"))
            MEASURED.write_text(
                json.dumps({**kept, name: found}, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
            )
            print(name, found, flush=True)
            if len(kept) + 1 >= len(parts):
                draw()
    write()


PARTS = ("planner", "ranker", "nli", "decisions", "generator")


if __name__ == "__main__":
    asyncio.run(main())
