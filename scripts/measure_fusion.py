"""Measure how BM25 and embeddings are best fused, on sets of strangers' questions.

    python scripts/measure_fusion.py DATA [--half b] [--embedder SPEC ...]

DATA is a folder with `locomo/locomo_1_to_5.json`, `mtrag/human_evaluations.json`, `ikat/2023_test_topics.json`,
`ikat/2024_test_topics.json`, `kbp/train.json` and `kbp/dev.json`, compressed or not; what is missing is left out. The
handbook test comes with Dialore.

A question is looked up among the passages of its own: the sessions of a LoCoMo conversation, MTRAG's 350 passages, the
handbook of its language, a user's personal statements (iKAT), or the documents under a persona (KBP, 400 turns by
seed). Rows are rankings; a cell is the share of questions whose gold is among the first five, `hit@5`, and nDCG@5, with
95% bootstrap intervals over conversations. iKAT 2024, KBP's dev split and half b of the handbook are for reporting
(`--half b`), the others for choosing.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dialore.datasets import data_set
from dialore.datasets.handbook import read_items, read_passages
from dialore.datasets.split import split_dialogues
from dialore.evaluation.base import Mean
from dialore.evaluation.statistics import bootstrap
from dialore.files import read_text
from dialore.retrieval.fusion import reciprocal_ranks
from dialore.retrieval.reranking import load_reranker

TOP = 5
TURNS = 400
Scores = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Question:
    """A query, the passages that it is looked up in, and the places of the gold ones."""

    conversation: str
    query: str
    passages: tuple[str, ...]
    gold: frozenset[int]


def opened(folder: Path, name: str) -> Any:  # noqa: ANN401 - decoded JSON
    """Return a JSON file, compressed or not; None where it is not there."""
    path = next(folder.glob(f"{name}*"), None)
    return None if path is None else json.loads(read_text(path))


def locomo(folder: Path) -> Iterator[Question]:
    """Yield LoCoMo's questions over the sessions of their conversation."""
    for sample in opened(folder, "locomo/locomo_1_to_5.json") or ():
        talk = sample["conversation"]
        sessions = sorted((name for name in talk if name.removeprefix("session_").isdecimal()), key=_number)
        texts = tuple(_session(talk[f"{name}_date_time"], talk[name]) for name in sessions)
        places = {_number(name): place for place, name in enumerate(sessions)}
        for asked in sample["qa"]:
            numbers = {int(turn[1:].split(":")[0]) for turn in asked["evidence"] if turn[1:].split(":")[0].isdecimal()}
            gold = frozenset(places[number] for number in numbers if number in places)
            if gold:
                yield Question(sample["sample_id"], asked["question"], texts, gold)


def _number(name: str) -> int:
    return int(name.rpartition("_")[2])


def _session(date: str, turns: Sequence[dict[str, str]]) -> str:
    return "\n".join([date, *(f"{turn['speaker']}: {turn['text']}" for turn in turns)])


def mtrag(folder: Path, *, turns: int) -> Iterator[Question]:
    """Yield MTRAG's turns over all its passages, by their last turns."""
    path = next(folder.glob("mtrag/human_evaluations.json*"), None)
    whole = [] if path is None else list(data_set("mtrag").read(path))
    pool = {piece["document_id"]: piece for talk in whole for piece in talk.pool if isinstance(piece, dict)}
    texts = tuple(f"{piece['title']}\n{piece['text']}".strip() for piece in pool.values())
    places = {name: place for place, name in enumerate(pool)}
    for dialogue in split_dialogues(whole, cut="all"):
        gold = frozenset(places[piece["document_id"]] for piece in dialogue.knowledge if isinstance(piece, dict))
        if gold:
            yield Question(dialogue.id.partition("@")[0], "\n".join(dialogue.texts[-turns:]), texts, gold)


def handbook(half: str, *, turns: int) -> Iterator[Question]:
    """Yield the handbook test's answerable turns over the handbook, by their last turns."""
    for item in read_items(half=half):
        if item.gold:
            passages = read_passages(item.language)
            gold = frozenset(place for place, passage in enumerate(passages) if passage.id in item.gold)
            texts = tuple(f"{passage.title}\n{passage.text}" for passage in passages)
            yield Question(item.id, "\n".join(item.turns[-turns:]), texts, gold)


def ikat(folder: Path, year: int) -> Iterator[Question]:
    """Yield iKAT's turns over the user's personal statements."""
    for topic in opened(folder, f"ikat/{year}_test_topics.json") or ():
        names = list(topic["ptkb"])
        for turn in topic["turns"]:
            gold = frozenset(names.index(str(name)) for name in turn.get("ptkb_provenance", ()) if str(name) in names)
            if gold:
                yield Question(str(topic["number"]), turn["utterance"], tuple(topic["ptkb"].values()), gold)


def kbp(folder: Path, split: str) -> Iterator[Question]:
    """Yield turns of KBP over all documents of the persona."""
    path = next(folder.glob(f"kbp/{split}.json*"), None)
    whole = [] if path is None else data_set("kbp").read(path)
    turns = [turn for turn in split_dialogues(whole, cut="all") if turn.knowledge]
    random.Random(0).shuffle(turns)  # noqa: S311 - a sample, not a secret
    for dialogue in turns[:TURNS]:
        texts = [document for documents in dialogue.extra["documents"].values() for document in documents]
        gold = {piece["text"] for piece in dialogue.knowledge if isinstance(piece, dict)}
        places = frozenset(place for place, text in enumerate(texts) if text in gold)
        if places:
            yield Question(dialogue.id.partition("@")[0], dialogue.last.text, tuple(texts), places)


def figures(scores: Scores, gold: frozenset[int]) -> tuple[float, float]:
    """Return hit@5 and nDCG@5 of a ranking by scores."""
    order = np.argsort(-np.round(scores, 6), kind="stable")[:TOP].tolist()
    gain = sum(1 / math.log2(place + 2) for place, at in enumerate(order) if at in gold)
    ideal = sum(1 / math.log2(place + 2) for place in range(min(len(gold), TOP)))
    return float(bool(gold.intersection(order))), gain / ideal


class ReciprocalRanks:
    """BM25 and cosines fused by reciprocal ranks, as they were until November 2026."""

    def __init__(self, spec: str) -> None:
        self._rankers = load_reranker("bm25"), load_reranker(f"dense{':' * bool(spec)}{spec}")

    def scores(self, query: str, passages: Sequence[str]) -> Scores:
        """Return the fused score of each passage."""
        lexical, dense = (ranker.scores(query, passages) for ranker in self._rankers)
        orders = [np.argsort(-each, kind="stable").tolist() for each in (lexical, dense)]
        orders[0] = orders[0][: np.count_nonzero(lexical > 0)]
        scores = np.zeros(len(passages))
        for place, score in reciprocal_ranks(orders):
            scores[place] = score
        return scores


def shown(values: Sequence[tuple[float, float]], conversations: Sequence[str]) -> str:
    """Return both figures in per cent, nDCG with its interval over conversations."""
    hits, gains = np.array(values).T
    gain = bootstrap(Mean(), 100 * gains[:, None], dialogues=conversations)
    return f"{100 * hits.mean():.1f}, {gain.value:.1f} [{gain.low:.1f}, {gain.high:.1f}]"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--half", choices=["a", "b"], default="a", help="b: what is for reporting")
    parser.add_argument("--embedder", action="append", default=[], metavar="SPEC")
    arguments = parser.parse_args()
    sets = _sets(arguments.folder, arguments.half)
    rankers: dict[str, Any] = {"bm25": load_reranker("bm25")}
    for spec in ("", *arguments.embedder):
        end = f":{spec}" if spec else ""
        rankers[f"dense{end}"] = load_reranker(f"dense{end}")
        rankers[f"reciprocal ranks{end}"] = ReciprocalRanks(spec)
        rankers[f"fused{end}"] = load_reranker(f"fused{end}")
    print(f"| ranking | {' | '.join(f'{name} ({len(asked)})' for name, asked in sets.items())} |")
    print("|---" * (len(sets) + 1) + "|")
    for name, ranker in rankers.items():
        cells = []
        for asked in sets.values():
            values = [figures(ranker.scores(one.query, one.passages), one.gold) for one in asked]
            cells.append(shown(values, [one.conversation for one in asked]))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _sets(folder: Path, half: str) -> dict[str, list[Question]]:
    choosing = half == "a"
    sets = {
        "LoCoMo": list(locomo(folder)) if choosing else [],
        "MTRAG, last turn": list(mtrag(folder, turns=1)) if choosing else [],
        "MTRAG, last two": list(mtrag(folder, turns=3)) if choosing else [],
        "handbook, last turn": list(handbook(half, turns=1)),
        "handbook, last two": list(handbook(half, turns=3)),
        "iKAT": list(ikat(folder, 2023 if choosing else 2024)),
        "KBP": list(kbp(folder, "train" if choosing else "dev")),
    }
    return {name: asked for name, asked in sets.items() if asked}


if __name__ == "__main__":
    main()
