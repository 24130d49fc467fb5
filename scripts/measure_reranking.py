"""Measure reranking: does a search query find the sentence that a person picked for it?

    python scripts/measure_reranking.py --data FOLDER [--reranker SPEC ...] [--candidates NAME ...] [--limit N] [--json]

Queries and sentences are those of Wizard of the Internet's valid split: what the wizard typed before a turn, and the
sentence that the wizard selected from the pages found for it. This is SCG-QP's reranking (Section 3.1) without a model
to make the query. The pages themselves are not published in this form, so the candidates are sentences selected
elsewhere:

| candidates | are |
|---|---|
| dialogue | the sentences selected in the same dialogue: near in subject, and few |
| thirty | these, and others drawn by seed, thirty in all: as many as `scg-qp` reranks |
| all | the sentences selected in the whole split |

| column | is |
|---|---|
| recall@1, @5 | share of the turns whose sentence is first, among the first five |
| mrr | mean of 1 / rank |
| ms | of one reranking, the median |

`--pages` measures what `--set sources.search=corpus:INDEX` finds instead: the sentences selected in one dialogue
stand for a page (with one address), and the sentence looked for is counted where it is among the passages that are
reranked, and where the first of them after reranking holds it; `three passages` takes the three best sentences alone.

`turn` takes the last turn in place of the query: what a search without a query would be. Candidates come in
alphabetical order, so that equal scores earn what chance would.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.datasets import data_set, split_dialogues
from dialore.datasets.base import gold_text
from dialore.dialogue import Dialogue
from dialore.knowledge import Passage
from dialore.retrieval.chunking import Chunking
from dialore.retrieval.documents.indexing import build_documents
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.reranking import load_reranker
from dialore.sources.documents import DocumentIndex
from dialore.sources.web.engines import CorpusEngine
from dialore.sources.web.source import WebSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.retrieval.reranking import Reranker

FILE = "wizard_of_internet/valid.json.gz"
RERANKERS = ("bm25", "dense", "fused")
CANDIDATES = ("dialogue", "thirty", "all")
_MANY = 30


@dataclass(frozen=True)
class Turn:
    """A turn that was searched for.

    Attributes:
        query: what the wizard typed.
        last: the turn that is answered.
        gold: the sentence selected.
        own: the sentences selected in the same dialogue, the gold one among them.
    """

    query: str
    last: str
    gold: str
    own: tuple[str, ...]


def read_turns(path: Path) -> list[Turn]:
    """Return the turns with a query and a selected sentence, in the file's order."""
    made: list[Turn] = []
    for dialogue in data_set("wizard-of-internet").read(path):
        own = tuple(dict.fromkeys(gold_text(item) for one in dialogue.answers or () for item in one.knowledge))
        for history in split_dialogues([dialogue], cut="all"):
            query = history.extra.get("query")
            if isinstance(query, str) and history.knowledge:
                made.append(Turn(query, history.last.text, gold_text(history.knowledge[0]), own))
    return made


def candidates_of(turns: Sequence[Turn], kind: str, seed: int = 0) -> list[list[str]]:
    """For each turn the sentences that are ranked for it, in alphabetical order."""
    everything = sorted({sentence for turn in turns for sentence in turn.own})
    draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
    made: list[list[str]] = []
    for turn in turns:
        if kind == "all":
            made.append(everything)
            continue
        chosen = list(turn.own)
        if kind == "thirty":
            others = draw.sample(everything, min(len(everything), 2 * _MANY))
            chosen += [sentence for sentence in others if sentence not in turn.own][: _MANY - len(chosen)]
        made.append(sorted(chosen))
    return made


def drawn(
    turns: Sequence[Turn], candidates: Sequence[list[str]], limit: int | None
) -> tuple[list[Turn], list[list[str]]]:
    """Return some of the turns with their candidates, drawn by seed; all where there is no limit."""
    pairs = list(zip(turns, candidates, strict=True))
    if limit and limit < len(pairs):
        pairs = random.Random(0).sample(pairs, limit)  # noqa: S311 - a sample, not a secret
    return [turn for turn, _ in pairs], [sentences for _, sentences in pairs]


def measure(
    turns: Sequence[Turn], candidates: Sequence[Sequence[str]], reranker: Reranker, *, by_turn: bool = False
) -> dict[str, float]:
    """Return the figures of one reranker."""
    ranks: list[int] = []
    seconds: list[float] = []
    for turn, sentences in zip(turns, candidates, strict=True):
        started = time.perf_counter()
        ranked = reranker.rerank(turn.last if by_turn else turn.query, sentences, len(sentences))
        seconds.append(time.perf_counter() - started)
        ranks.append(next(rank for rank, (place, _) in enumerate(ranked, 1) if sentences[place] == turn.gold))
    return {
        "recall@1": round(statistics.mean(rank == 1 for rank in ranks), 4),
        "recall@5": round(statistics.mean(rank <= 5 for rank in ranks), 4),
        "mrr": round(statistics.mean(1 / rank for rank in ranks), 4),
        "ms": round(1000 * statistics.median(seconds), 2),
    }


async def measure_pages(turns: Sequence[Turn], limit: int | None) -> dict[str, dict[str, float]]:
    """Measure retrieval of pages: shares of turns whose sentence is a candidate, and is in the first one."""
    reranker = load_reranker("fused")
    pages = {own: f"https://page-{number}.example" for number, own in enumerate(dict.fromkeys(t.own for t in turns))}
    pieces = [Passage(sentence, url=url) for own, url in pages.items() for sentence in own]
    asked, _ = drawn(turns, [[] for _ in turns], limit)
    counts = {name: [0, 0, 0] for name in ("three passages", "three pages")}
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "pages.index"
        build_documents(
            index, texts=pieces, texts_name="pages", chunking=Chunking("whole"), embedder=load_embedder("static")
        )
        documents = DocumentIndex(index)
        web = WebSource(CorpusEngine(documents), reranker=reranker)
        for turn in asked:
            dialogue = Dialogue(id="query", turns=[turn.last])
            found = {
                "three passages": await documents.search(turn.query, dialogue, 3),
                "three pages": await web.search(turn.query, dialogue, 1000),
            }
            for name, candidates in found.items():
                texts = [" ".join(piece.text.split()) for piece in candidates]
                first = [texts[at] for at, _ in reranker.rerank(turn.query, texts, 1)]
                gold = " ".join(turn.gold.split())
                for at, count in enumerate((any(gold in t for t in texts), any(gold in t for t in first), len(texts))):
                    counts[name][at] += count
        web.close()
    names = ("among candidates", "in the first", "candidates")
    return {
        kind: {name: round(n / len(asked), 4) for name, n in zip(names, some, strict=True)}
        for kind, some in counts.items()
    }


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the published data sets")
    parser.add_argument("--reranker", nargs="+", default=RERANKERS, help="specs, see load_reranker")
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=CANDIDATES)
    parser.add_argument("--limit", type=int, help="turns measured, drawn by seed; candidates stay those of all turns")
    parser.add_argument("--pages", action="store_true", help="measure a search of three pages in an index")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    turns = read_turns(options.data / FILE)
    if options.pages:
        print(json.dumps(asyncio.run(measure_pages(turns, options.limit)), indent=1))
        return
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for kind in options.candidates:
        asked, sentences = drawn(turns, candidates_of(turns, kind), options.limit)
        figures[kind] = {}
        for spec in options.reranker:
            reranker = load_reranker(spec)
            figures[kind][spec] = measure(asked, sentences, reranker)
            figures[kind][f"{spec}, turn"] = measure(asked, sentences, reranker, by_turn=True)
    if options.json:
        print(json.dumps({"data": FILE, "turns": options.limit or len(turns), "figures": figures}, indent=1))
        return
    print(
        f"{len(turns)} turns\n\n| candidates | reranker | recall@1 | recall@5 | mrr | ms |\n|---|---|---|---|---|---|"
    )
    for kind, rows in figures.items():
        for spec, row in rows.items():
            print(f"| {kind} | {spec} | " + " | ".join(str(value) for value in row.values()) + " |")


if __name__ == "__main__":
    main()
