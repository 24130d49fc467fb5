"""Measure retrieval over the pooled passages of MTRAG (Katsis et al., 2025): Recall@3 and nDCG@5 of the relevant ones.

    python scripts/measure_mtrag_retrieval.py FILE [--run RUN ...] [--queries JSONL ...] [--retriever SPEC ...]

FILE is `human_evaluations.json`, compressed or not: 350 passages of four collections, of which each of 150 turns has 1
to 7 that people found relevant; the other 9 turns have none and are left out. Every turn is looked up in all passages,
so figures are far above those of the paper, whose collections have hundreds of thousands.

Rows are queries, by `last turn` or `whole context` (every turn, the last at the end), and:

--run      the queries that a method asked in a run over this data set (`--set dataset.cut=all`), from
           the traces of its responses: `rag`'s rewritten turn, `weave`'s needs. The rankings of several queries for one
           response are fused by reciprocal ranks. A response that asked none finds nothing; how many did is said.
--queries  a file of queries by task in BEIR's form, {"_id", "text"} a line, such as the authors' rewritten ones
           (`retrieval_tasks/*/*_rewrite.jsonl`); several files make one row.

Retrievers are rerankers' specs (`bm25`, `dense`, `fused`, `dense:minilm`, `cross:NAME`, ...). Recall@3 is hits over all
relevant passages, as BEIR has it. Intervals are 95% bootstrap intervals over the 20 conversations.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dialore.datasets import data_set, split_dialogues
from dialore.evaluation.base import Mean
from dialore.evaluation.statistics import bootstrap
from dialore.experiments.store import RunStore
from dialore.knowledge import Passage
from dialore.retrieval.fusion import reciprocal_ranks
from dialore.sources.in_memory import InMemoryPassages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dialore.dialogue import Dialogue
    from dialore.response import Response

RETRIEVERS = ("bm25", "dense", "fused")
RECALL, NDCG = 3, 5
_DEPTH = 100
Queries = dict[str, list[str]]
"""The query of a turn, by the id of its dialogue."""


def read(path: Path) -> tuple[list[Dialogue], list[Passage]]:
    """Return the turns that have relevant passages, and all passages."""
    whole = list(data_set("mtrag").read(path))
    turns = [dialogue for dialogue in split_dialogues(whole, cut="all") if dialogue.knowledge]
    pieces = {piece["document_id"]: piece for talk in whole for piece in talk.pool if isinstance(piece, dict)}
    return turns, [Passage(piece["text"], piece["title"], url=name) for name, piece in pieces.items()]


def queries_of(response: Response) -> list[str]:
    """Return what a response looked up, by the searches in its trace; a persona is asked by no query."""
    searches = (step.output for step in response.trace if "found" in step.output)
    asked = (search.get("query") for search in searches if search.get("source") != "persona")
    return list(dict.fromkeys(query for query in asked if isinstance(query, str) and query.strip()))


def run_queries(folder: Path) -> dict[str, Queries]:
    """Return the queries of each system of a run."""
    found: dict[str, Queries] = {}
    with RunStore.open(folder) as store:
        for system in store.systems():
            answered = store.responses(system.number)
            found[f"{system.title} of {folder.name}"] = {
                dialogue.id: queries_of(response) for _, dialogue, response in answered if response.status == "ok"
            }
    return found


def file_queries(paths: Iterable[Path], turns: Sequence[Dialogue]) -> Queries:
    """Return queries of files in BEIR's form."""
    lines = [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    known = {line["_id"]: line["text"].removeprefix("|user|:").strip() for line in lines}
    given = {dialogue.id: known.get(dialogue.extra["task_id"]) for dialogue in turns}
    return {name: [query] for name, query in given.items() if query}


async def ranked(shelf: InMemoryPassages, queries: Sequence[str], dialogue: Dialogue) -> list[str]:
    """Return the ids of the best passages for some queries."""
    found = [await shelf.search(query, dialogue, _DEPTH) for query in queries]
    rankings = [[piece.url for piece in pieces] for pieces in found]
    return rankings[0] if len(rankings) == 1 else [name for name, _ in reciprocal_ranks(rankings)]


def figures(ranking: Sequence[str], dialogue: Dialogue) -> tuple[float, float]:
    """Recall@3 and nDCG@5 of a ranking."""
    gold = {piece["document_id"] for piece in dialogue.knowledge if isinstance(piece, dict)}
    recall = len(gold.intersection(ranking[:RECALL])) / len(gold)
    gain = sum(1 / math.log2(place + 2) for place, name in enumerate(ranking[:NDCG]) if name in gold)
    return recall, gain / sum(1 / math.log2(place + 2) for place in range(min(len(gold), NDCG)))


async def measure(shelf: InMemoryPassages, asked: Mapping[str, Sequence[str]], turns: Sequence[Dialogue]) -> list[str]:
    """Return the figures over the turns that were asked for, with their intervals."""
    measured = [turn for turn in turns if turn.id in asked]
    values = [figures(await ranked(shelf, asked[turn.id], turn), turn) for turn in measured]
    talks = [turn.id.partition("@")[0] for turn in measured]
    numbers = [list(dict.fromkeys(talks)).index(talk) for talk in talks]
    cells = []
    for column in zip(*values, strict=True):
        table = np.array([column, np.ones(len(column))]).T
        found = bootstrap(Mean(), table, dialogues=numbers)
        cells.append(f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})")
    return cells


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="human_evaluations.json of MTRAG")
    parser.add_argument("--run", type=Path, action="append", default=[], help="queries of a run's responses")
    parser.add_argument("--queries", type=Path, nargs="+", default=[], help="queries in BEIR's form")
    parser.add_argument("--retriever", action="append", help=f"a reranker's spec [default: {', '.join(RETRIEVERS)}]")
    options = parser.parse_args()
    turns, passages = read(options.file)
    rows: dict[str, Queries] = {
        "last turn": {turn.id: [turn.last.text] for turn in turns},
        "whole context": {turn.id: [" ".join(turn.texts)] for turn in turns},
    }
    if options.queries:
        rows["queries given"] = file_queries(options.queries, turns)
    for folder in options.run:
        rows |= run_queries(folder)
    print(f"{len(turns)} turns, {len(passages)} passages\n")
    print(f"| query | retriever | turns | without a query | Recall@{RECALL} | nDCG@{NDCG} |\n|" + "---|" * 6)
    for spec in options.retriever or RETRIEVERS:
        shelf = InMemoryPassages(passages, retriever=spec)
        for name, asked in rows.items():
            known = [asked[turn.id] for turn in turns if turn.id in asked]
            cells = await measure(shelf, asked, turns) if known else ["", ""]
            print(f"| {name} | {spec} | {len(known)} | {known.count([])} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
