"""Measure SAFARI's retrieval (its Table 5) on KBP: with the gold plan, is the first piece of each source the gold one?

    python scripts/measure_persona_retrieval.py FILE [--limit N] [--choose] [--whole] [--expected NAME JSON]

FILE is a split of KBP: dev.json, test.json, kbp.zip:kbp/test.json, compressed or not.

| column | is Recall@1, in percent, of |
|---|---|
| persona | the persona sentence, where the plan is PERSONA (`recall-1-persona-alone`) |
| both: persona | the persona sentence, where the plan is PERSONA, DOCUMENTS (`recall-1-persona-both`) |
| documents | the document, looked for under the retrieved sentence (`recall-1-documents`) |
| documents† | the document, looked for among all of the dialogue, the retrieved sentence joined to the query |
| whole split | the same among all documents of the split (with --whole: some minutes a row) |

Rows are settings of the method `safari`, asked with `planning=gold` and measured by the metrics that `dialore score`
has; the last are what each part of the default, `dialogue`, is worth. Intervals are 95% bootstrap intervals.

The first row is the paper's BM25, as the authors' code has it: rank_bm25's Okapi over jieba's tokens, the query the
whole context with its full-width speaker tags. Their code gives the figures of `TARGET` on the test split; the paper
prints the last two the other way round. On dev it gives 48.00, 53.13, 13.39 and 14.71, and this row 48.00, 53.02, 13.06
and 14.71: of equal scores, which are frequent, numpy's unstable sort takes any, and texts are read here without a space
at their end.

--choose   How the numbers of `DialogueRanker` were chosen, on the training split: one after the other, by the mean of
           all responses' persona recall and of the documents' recall.
--expected Add what was measured to a file, by a name; `tests/methods/expected/safari.json` has dev and its first 200.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dialore.datasets import data_set, split_dialogues
from dialore.evaluation.base import Sample, SampleScore
from dialore.evaluation.registry import Context, load_metric
from dialore.experiments.scoring import score_of
from dialore.methods.safari import Safari
from dialore.methods.stages import StageContext
from dialore.retrieval.dialogue_ranking import DialogueRanker
from dialore.sources.declared import DeclaredSource, DeclaredSources
from dialore.sources.persona import PersonaDocuments, PersonaSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import Score
    from dialore.knowledge import Knowledge
    from dialore.sources.base import KnowledgeSource, SearchResult

TARGET = {"persona": 36.80, "both: persona": 48.97, "documents": 11.38, "documents†": 15.06}
"""The row BM25 by the authors' code, on the test split."""
PAPER = {
    "paper, test: BM25, as printed": (36.80, 48.97, 15.05, 11.37),
    "paper, test: BM25, by its code": tuple(TARGET.values()),
    "paper, test: RocketQAv2, trained": (80.00, 92.31, 50.49, 35.75),
    "paper, test: DPR, trained": (83.20, 93.07, 51.67, 39.33),
}
COLUMNS = {
    "persona": "recall-1-persona-alone",
    "both: persona": "recall-1-persona-both",
    "documents": "recall-1-documents",
}
ROWS: dict[str, dict[str, Any]] = {
    "bm25 of the paper": {"retriever": "okapi", "turns": 0},
    "bm25, whole context": {"retriever": "bm25", "turns": 0},
    "dense, whole context": {"retriever": "dense", "turns": 0},
    "fused, whole context": {"retriever": "fused", "turns": 0},
    "bm25, last turn": {"retriever": "bm25"},
    "dense, last turn": {"retriever": "dense"},
    "fused, last turn": {"retriever": "fused"},
    "dialogue (the default)": {},
}
PARTS: dict[str, dict[str, float]] = {
    "dialogue, last turn's characters alone": {"past": 0, "under": 0, "told": 0, "cosine": 0},
    "dialogue without earlier turns": {"past": 0},
    "dialogue without the documents under a sentence": {"under": 0},
    "dialogue without what was told": {"told": 0},
    "dialogue without cosine": {"cosine": 0},
}
CHOICES = {
    "under": (0.0, 0.5, 1.0, 1.5, 2.0),
    "past": (0.0, 0.05, 0.1, 0.2, 0.3),
    "told": (0.0, 0.1, 0.2, 0.3),
    "cosine": (0.0, 2.5, 5.0, 10.0, 20.0),
}


def read_responses(path: Path) -> list[Dialogue]:
    """Return every response of a KBP file that stands on a source, as the history before it."""
    histories = split_dialogues(data_set("kbp").read(path), cut="all")
    return [dialogue for dialogue in histories if dialogue.sources]


async def measure(
    dialogues: Sequence[Dialogue], *, retriever: str | DialogueRanker = "dialogue", turns: int = 1, whole: bool = False
) -> dict[str, Score]:
    """Recall@1 of the method with the gold plan, by column."""
    persona = PersonaSource(retriever=retriever)
    declared = declaration(persona, PersonaDocuments(persona))
    found = await scores(Safari(sources=declared, planning="gold", turns=turns), dialogues)
    free = Safari(sources=declared, planning="gold", turns=turns, dependency=False)
    found["documents†"] = (await scores(free, dialogues))["documents"]
    if whole:
        declared = declaration(persona, WholeSplit(dialogues, retriever))
        free = Safari(sources=declared, planning="gold", turns=turns, dependency=False)
        found["whole split"] = (await scores(free, dialogues))["documents"]
    return found


def declaration(persona: KnowledgeSource, documents: KnowledgeSource) -> DeclaredSources:
    """Return the paper's two sources."""
    described = {"en": "-", "zh": "-"}
    return DeclaredSources(
        [
            DeclaredSource("persona", "persona", described, persona),
            DeclaredSource("documents", "documents", described, documents, ("persona",), "filter"),
        ]
    )


async def scores(method: Safari, dialogues: Sequence[Dialogue]) -> dict[str, Score]:
    """Return the metrics of what a method finds; no model is asked."""
    metrics = {column: load_metric(name, Context()) for column, name in COLUMNS.items()}
    measures: dict[str, list[SampleScore]] = {column: [] for column in COLUMNS}
    for dialogue in dialogues:
        grounding = await method.ground(dialogue, StageContext(NoResponder(), "safari", dialogue))
        for column, metric in metrics.items():
            measures[column].append(await metric.measure(Sample(dialogue, grounding.response(""))))
    wholes = dict.fromkeys(dialogue.id.partition("@")[0] for dialogue in dialogues)
    numbers = dict(zip(wholes, range(len(wholes)), strict=True))
    of = [numbers[dialogue.id.partition("@")[0]] for dialogue in dialogues]
    return {column: score_of(metric, measures[column], dialogues=of) for column, metric in metrics.items()}


class WholeSplit(PersonaDocuments):
    """The documents of all dialogues, whoever asks."""

    def __init__(self, dialogues: Iterable[Dialogue], retriever: str | DialogueRanker) -> None:
        persona: dict[str, dict[str, None]] = {}
        for dialogue in dialogues:
            for sentence, texts in dialogue.extra["documents"].items():
                persona.setdefault(sentence, {}).update(dict.fromkeys(texts))
        super().__init__(PersonaSource(persona, retriever=retriever))

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """As the parent's, for a dialogue without a persona of its own."""
        return await super().search(query, dialogue.model_copy(update={"persona": (), "extra": {}}), top)


class NoResponder:
    """Stands where a language model would; the gold plan asks none."""

    name = "nobody"

    async def answer(self, call: Any, step: Any, on_token: Any = None) -> Any:  # noqa: ANN401
        """Refuse."""
        raise RuntimeError(f"{call.prompt} wants a model")


# --- the numbers of the default


class RememberingRanker(DialogueRanker):
    """Remembers likenesses, so that other weights for them cost little."""

    rows: ClassVar[dict[tuple[str, tuple[str, ...]], tuple[NDArray[np.float64], NDArray[np.float64]]]] = {}

    def likeness(self, queries: Sequence[str], texts: Sequence[str]) -> NDArray[np.float64]:
        """As the parent's."""
        of = tuple(texts)
        new = [query for query in dict.fromkeys(queries) if (query, of) not in self.rows]
        if new:
            lexical = PLAIN.likeness(new, texts)
            cosines = COSINE.likeness(new, texts) - lexical
            self.rows.update({(query, of): (lexical[at], cosines[at]) for at, query in enumerate(new)})
        return np.array([self.rows[query, of][0] + self.cosine * self.rows[query, of][1] for query in queries])


PLAIN, COSINE = DialogueRanker(cosine=0), DialogueRanker(cosine=1)


async def choose(dialogues: Sequence[Dialogue]) -> None:
    """Choose the ranker's numbers one after the other, twice round, beginning with none."""
    chosen = dict.fromkeys(CHOICES, 0.0)
    for _ in range(2):
        for name, values in CHOICES.items():
            scored = {}
            for value in values:
                found = await measure(dialogues, retriever=RememberingRanker(**{**chosen, name: value}))
                persona = [found["persona"], found["both: persona"]]
                recall = sum(one.n * (one.value or 0) for one in persona) / sum(one.n for one in persona)
                scored[value] = 50 * (recall + (found["documents"].value or 0))
                print(f"{name} = {value}: {scored[value]:.2f} {percents(found)}", flush=True)
            chosen[name] = max(scored, key=lambda value: scored[value])
            print("chosen so far:", chosen, flush=True)


# --- what is printed


def percents(found: Mapping[str, Score]) -> dict[str, float]:
    """Return every column in percent."""
    return {column: round(100 * (score.value or 0), 2) for column, score in found.items()}


def row(name: str, figures: Iterable[object]) -> str:
    """One line of the table."""
    return f"| {name} | " + " | ".join(map(str, figures)) + " |"


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="a split of KBP")
    parser.add_argument("--limit", type=int, help="responses measured, from the start of the split")
    parser.add_argument("--whole", action="store_true", help="look for documents in the whole split, too")
    parser.add_argument("--choose", action="store_true", help="choose the ranker's numbers")
    parser.add_argument("--expected", nargs=2, metavar=("NAME", "JSON"), help="add the figures to this file")
    options = parser.parse_args()
    dialogues = read_responses(options.file)[: options.limit]
    if options.choose:
        await choose(dialogues)
        return
    counts = Counter(len(dialogue.sources) for dialogue in dialogues)
    print(f"{counts[1]} responses with PERSONA, {counts[2]} with PERSONA, DOCUMENTS\n")
    columns = [*COLUMNS, "documents†", *(["whole split"] if options.whole else [])]
    print(row("setting", columns) + "\n|" + "---|" * (len(columns) + 1))
    for name, figures in PAPER.items():
        print(row(name, [*figures, *([""] if options.whole else [])]))
    rows = ROWS | {name: {"retriever": RememberingRanker(**numbers)} for name, numbers in PARTS.items()}
    measured: dict[str, dict[str, float]] = {}
    for name, given in rows.items():
        found = await measure(dialogues, whole=options.whole and name in ROWS, **given)
        measured[name] = percents(found)
        print(row(name, measured[name].values()), flush=True)
        if name in {"bm25 of the paper", "dialogue (the default)"}:
            bounds = [f"{100 * (one.low or 0):.1f} to {100 * (one.high or 0):.1f}" for one in found.values()]
            print(row("95% interval", bounds))
    if options.expected:
        part, path = options.expected[0], Path(options.expected[1])
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        known[part] = {"responses": {"persona": counts[1], "both": counts[2]}, "recall@1": measured}
        path.write_text(json.dumps(known, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
