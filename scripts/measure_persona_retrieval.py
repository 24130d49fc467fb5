"""Measure SAFARI's retrieval (its Table 5) on KBP: with the gold plan, is the first piece of each source the gold one?

    python scripts/measure_persona_retrieval.py --data FOLDER [--split dev] [--nearest] [--choose] [--expected FILE]

| column | is Recall@1, in percent, of |
|---|---|
| persona | the persona sentence, where the plan is PERSONA |
| both: persona | the persona sentence, where the plan is PERSONA, DOCUMENTS |
| documents | the document, looked for under the retrieved sentence |
| documents† | the document, looked for among all of the dialogue ("without dependency") |
| under gold | the document, looked for under the gold sentence |

Rows are settings of the method `safari`, asked with `planning=gold`: what the package's own retrievers make of the last
turn and of the whole context, then the default, `dialogue`, and what each part of it is worth. Intervals are 95%
bootstrap intervals over dialogues.

--nearest  Which BM25 comes nearest to the paper's row? Queries, terms, idf, k1 and b in all combinations, the ten with
           the smallest root mean square difference over the paper's four figures, chosen on --split.
--choose   How the numbers of `DialogueRanker` were chosen: one after the other, on the training split, by the mean of
           all responses' persona recall and of the documents' recall.
--expected Write what was measured into this file; `tests/methods/expected/safari.json` has dev and its first 200.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from kbp_recall import COLUMNS, NEAREST, Recall, documents_of, gold, nearest, read_responses

from dialore.knowledge import Knowledge
from dialore.methods.safari import Safari
from dialore.methods.stages import Stages
from dialore.sources.dialogue_ranking import DialogueRanker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

PAPER = {
    "paper, test: BM25": (36.80, 48.97, 15.05, 11.37),
    "paper, test: RocketQAv2, trained": (80.00, 92.31, 50.49, 35.75),
    "paper, test: DPR, trained": (83.20, 93.07, 51.67, 39.33),
}
ROWS: dict[str, dict[str, Any]] = {
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


async def measure(dialogues: Iterable[Dialogue], **options: Any) -> Recall:  # noqa: ANN401
    """Recall of the method with the gold plan, under some of its options."""
    method, free = Safari(planning="gold", **options), Safari(planning="gold", dependency=False, **options)
    documents = method.declared["documents"].source
    if documents is None:
        raise RuntimeError("the documents under a persona are a source")
    recall = Recall()
    for dialogue in dialogues:
        found = await first(method, dialogue)
        both = len(dialogue.sources) > 1
        hit = found["persona"] in gold(dialogue, "persona")
        recall.add("both: persona" if both else "persona", dialogue, hit)
        if not both:
            continue
        wanted = gold(dialogue, "documents")
        recall.add("documents", dialogue, found["documents"] in wanted)
        recall.add("documents†", dialogue, (await first(free, dialogue))["documents"] in wanted)
        query = " ".join(dialogue.texts[-method.turns :] if method.turns else dialogue.texts)
        owners = [Knowledge(id=text, kind="persona", text=text, source="persona") for text in gold(dialogue, "persona")]
        best = await documents.search(query, dialogue, 1, owners)
        recall.add("under gold", dialogue, best[0].text in wanted)
    return recall


async def first(method: Safari, dialogue: Dialogue) -> dict[str, str]:
    """The piece that the method finds in each planned source; no model is asked."""
    grounds = await method.ground(dialogue, Stages(NoResponder(), "safari", dialogue))
    return {piece.source: piece.text for piece in grounds.knowledge}


class NoResponder:
    """Stands where a language model would; the gold plan asks none."""

    name = "nobody"

    async def answer(self, call: Any, on_text: Any = None) -> Any:  # noqa: ANN401
        """Refuse."""
        raise RuntimeError(f"{call.stage} wants a model")


def measure_ranker(dialogues: Iterable[Dialogue], ranker: DialogueRanker) -> Recall:
    """Recall of a ranker by itself, as the method's default would have it."""
    recall = Recall()
    for dialogue in dialogues:
        under = documents_of(dialogue)
        asked, owners = dialogue.last.text, gold(dialogue, "persona")
        sentence = list(under)[int(np.argmax(ranker.sentences(asked, dialogue, under)))]
        both = len(dialogue.sources) > 1
        recall.add("both: persona" if both else "persona", dialogue, sentence in owners)
        if both:
            for column, owned in (("documents", [sentence]), ("documents†", list(under)), ("under gold", owners)):
                texts = [text for owner in owned for text in under[owner]]
                found = texts[int(np.argmax(ranker.documents(asked, dialogue, texts)))]
                recall.add(column, dialogue, found in gold(dialogue, "documents"))
    return recall


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


def ranker_of(numbers: Mapping[str, float]) -> DialogueRanker:
    """A ranker with some numbers of its own."""
    given: dict[str, Any] = dict(numbers)
    return RememberingRanker(**given)


def choose(dialogues: Sequence[Dialogue]) -> None:
    """Choose the ranker's numbers one after the other, twice round, beginning with none."""
    chosen = dict.fromkeys(CHOICES, 0.0)
    for _ in range(2):
        for name, values in CHOICES.items():
            scored = {}
            for value in values:
                recall = measure_ranker(dialogues, ranker_of({**chosen, name: value}))
                scored[value] = (recall.percent("persona", "both: persona") + recall.percent("documents")) / 2
                print(f"{name} = {value}: {scored[value]:.2f} {recall.scores}", flush=True)
            chosen[name] = max(scored, key=lambda value: scored[value])
            print("chosen so far:", chosen, flush=True)


# --- what is printed


def row(name: str, figures: Iterable[float], note: str = "") -> str:
    """One line of the table."""
    return f"| {name} | " + " | ".join("" if math.isnan(one) else f"{one:.2f}" for one in figures) + f" | {note}"


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with kbp/train.json.gz and dev.json.gz")
    parser.add_argument("--split", choices=["train", "dev"], default="dev")
    parser.add_argument("--limit", type=int, help="responses measured, from the start of the split")
    parser.add_argument("--nearest", action="store_true", help="look for the BM25 that comes nearest to the paper's")
    parser.add_argument("--choose", action="store_true", help="choose the ranker's numbers on the training split")
    parser.add_argument("--expected", type=Path, help="write the scores to this file")
    options = parser.parse_args()
    split = "train" if options.choose else options.split
    dialogues = read_responses(options.data / "kbp" / f"{split}.json.gz")[: options.limit]
    if options.choose:
        choose(dialogues)
        return
    if options.nearest:
        for far, setting, recall in nearest(dialogues)[:10]:
            formula = f"{setting.idf}, k1 {setting.k1}, b {setting.b}"
            print(row(f"{setting.query}; {setting.terms}; {formula}", recall.scores.values(), f"{far:.2f}"))
        return
    counts = Counter(len(dialogue.sources) for dialogue in dialogues)
    print(f"{split}: {counts[1]} responses with PERSONA, {counts[2]} with PERSONA, DOCUMENTS\n")
    print("| setting | " + " | ".join(COLUMNS) + " |\n|" + "---|" * (len(COLUMNS) + 1))
    for name, figures in PAPER.items():
        print(row(name, [*figures, math.nan]))
    scores: dict[str, dict[str, float]] = {}
    for name, given in ROWS.items():
        recall = await measure(dialogues, **given)
        scores[name] = recall.scores
        print(row(name, recall.scores.values()), flush=True)
        if not given:
            ranges = " | ".join("{} to {}".format(*recall.interval(column)) for column in COLUMNS)
            print(f"| 95% interval | {ranges} |")
    further = {name: measure_ranker(dialogues, ranker_of(numbers)) for name, numbers in PARTS.items()}
    further["bm25, nearest to the paper's"] = NEAREST.measure(dialogues)
    for name, recall in further.items():
        scores[name] = recall.scores
        print(row(name, recall.scores.values()))
    if options.expected:
        known = json.loads(options.expected.read_text(encoding="utf-8")) if options.expected.exists() else {}
        part = f"{split}, first {options.limit}" if options.limit else split
        known[part] = {"responses": {"persona": counts[1], "both": counts[2]}, "recall@1": scores}
        options.expected.write_text(json.dumps(known, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
