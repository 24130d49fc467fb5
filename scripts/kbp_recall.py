"""KBP's responses, recall on them, and which BM25 SAFARI's may have been; see measure_persona_retrieval.py."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from dialore.datasets import data_set, split_dialogues
from dialore.sources.dialogue_ranking import grams
from dialore.text import stop_words, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dialore.dialogue import Dialogue

COLUMNS = ("persona", "both: persona", "documents", "documents†", "under gold")
TARGET = (36.80, 48.97, 15.05, 11.37)
"""BM25 in the paper's Table 5, on the test split; the first four columns."""


@dataclass
class Recall:
    """Hits by column, each with its dialogue."""

    hits: dict[str, list[tuple[str, bool]]] = field(default_factory=lambda: {name: [] for name in COLUMNS})

    def add(self, column: str, dialogue: Dialogue, hit: bool) -> None:
        """Count one response."""
        self.hits[column].append((dialogue.id.partition("@")[0], hit))

    def percent(self, *columns: str) -> float:
        """The share of hits, over one column or several."""
        found = [hit for column in columns for _, hit in self.hits[column]]
        return round(100 * sum(found) / len(found), 2) if found else math.nan

    def interval(self, column: str) -> tuple[float, float]:
        """95% bootstrap interval over whole dialogues."""
        of: dict[str, list[bool]] = {}
        for name, hit in self.hits[column]:
            of.setdefault(name, []).append(hit)
        sums = np.array([[sum(hits), len(hits)] for hits in of.values()])
        draw = np.random.default_rng(0).integers(len(sums), size=(1000, len(sums)))
        drawn = sums[draw].sum(axis=1)
        low, high = np.percentile(100 * drawn[:, 0] / drawn[:, 1], [2.5, 97.5])
        return round(float(low), 1), round(float(high), 1)

    @property
    def scores(self) -> dict[str, float]:
        """Every column in percent."""
        return {column: self.percent(column) for column in COLUMNS}


def read_responses(path: Path) -> list[Dialogue]:
    """Every response of a KBP file that stands on a source, as the history before it."""
    histories = split_dialogues(data_set("kbp").read(path), cut="all")
    return [dialogue for dialogue in histories if dialogue.sources]


def documents_of(dialogue: Dialogue) -> dict[str, list[str]]:
    """The documents under each persona sentence."""
    return {sentence: dialogue.extra["documents"].get(sentence, []) for sentence in dialogue.persona}


def gold(dialogue: Dialogue, source: str) -> list[str]:
    """The texts of the gold pieces of a source."""
    return [item["text"] for item in dialogue.knowledge if isinstance(item, dict) and item["source"] == source]


# --- which BM25 the paper's may have been


@cache
def cut(text: str) -> tuple[str, ...]:
    """A text as jieba cuts it, with punctuation and spaces: what a library without settings of its own gets."""
    import jieba

    return tuple(jieba.lcut(text))


def _characters(text: str) -> tuple[str, ...]:
    return tuple(text)


@cache
def _words(text: str) -> tuple[str, ...]:
    return tuple(words(text, "zh"))


@cache
def _content(text: str) -> tuple[str, ...]:
    return tuple(word for word in words(text, "zh") if word not in stop_words("zh"))


TERMS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "jieba with punctuation": cut,
    "jieba words": _words,
    "jieba words, no stop words": _content,
    "characters": _characters,
    "characters and pairs": grams,
}
QUERIES: dict[str, Callable[[Dialogue], str]] = {
    "last turn": lambda dialogue: dialogue.last.text,
    "last 2 turns": lambda dialogue: " ".join(dialogue.texts[-2:]),
    "last 3 turns": lambda dialogue: " ".join(dialogue.texts[-3:]),
    "last 5 turns": lambda dialogue: " ".join(dialogue.texts[-5:]),
    "user's turns": lambda dialogue: " ".join(turn.text for turn in dialogue.turns if turn.speaker == "user"),
    "whole context": lambda dialogue: " ".join(dialogue.texts),
    "whole context with speakers": lambda dialogue: "".join(
        f"{'用户' if turn.speaker == 'user' else '系统'}：{turn.text} " for turn in dialogue.turns
    ),
}
IDFS = ("Lucene", "Okapi", "corpus")
SATURATIONS = ((1.5, 0.75), (0.9, 0.4))


@dataclass(frozen=True)
class Bm25Setting:
    """One BM25: what the query is, what is counted, and the formula's parts.

    `Okapi` is Robertson's rarity, which is negative for what most texts hold; such terms get a quarter of the mean
    rarity instead. `Lucene` is never negative. Both count in the candidates; `corpus` is Lucene's, counted in all
    persona sentences and documents of the split.
    """

    query: str
    terms: str
    idf: str
    k1: float
    b: float

    def measure(self, dialogues: Sequence[Dialogue]) -> Recall:
        """Its recall; of equals, the text that stands first is found."""
        of, recall = TERMS[self.terms], Recall()
        corpus = {text for each in dialogues for pair in documents_of(each).items() for text in (pair[0], *pair[1])}
        known = rarities([of(text) for text in sorted(corpus)], "Lucene") if self.idf == "corpus" else None

        def best(texts: Sequence[str]) -> str:
            split = [of(text) for text in texts]
            scores = bm25(query, split, known or rarities(split, self.idf), self.k1, self.b)
            return texts[int(np.argmax(scores))]

        for dialogue in dialogues:
            under, query = documents_of(dialogue), of(QUERIES[self.query](dialogue))
            sentence = best(list(under))
            both = len(dialogue.sources) > 1
            recall.add("both: persona" if both else "persona", dialogue, sentence in gold(dialogue, "persona"))
            if both:
                owners = gold(dialogue, "persona")
                for column, owned in (("documents", [sentence]), ("documents†", list(under)), ("under gold", owners)):
                    found = best([text for owner in owned for text in under[owner]])
                    recall.add(column, dialogue, found in gold(dialogue, "documents"))
        return recall


def rarities(texts: Sequence[Sequence[str]], idf: str) -> dict[str, float]:
    """How rare each term is in texts."""
    having = Counter(term for text in texts for term in set(text))
    odds = {term: (len(texts) - n + 0.5) / (n + 0.5) for term, n in having.items()}
    if idf == "Lucene":
        return {term: math.log1p(value) for term, value in odds.items()}
    robertson = {term: math.log(value) for term, value in odds.items()}
    floor = 0.25 * sum(robertson.values()) / len(robertson)
    return {term: value if value >= 0 else floor for term, value in robertson.items()}


def bm25(
    query: Sequence[str], texts: Sequence[Sequence[str]], rarity: dict[str, float], k1: float, b: float
) -> list[float]:
    """The BM25 score of each text."""
    mean = sum(map(len, texts)) / len(texts)
    wanted = Counter(query)
    return [
        sum(
            wanted[term] * rarity[term] * n * (k1 + 1) / (n + k1 * (1 - b + b * len(text) / mean))
            for term, n in Counter(text).items()
            if term in wanted
        )
        for text in texts
    ]


def difference(recall: Recall) -> float:
    """Root mean square difference from the paper's four figures."""
    found = [recall.percent(column) for column in COLUMNS[:4]]
    return math.sqrt(sum((one - other) ** 2 for one, other in zip(found, TARGET, strict=True)) / len(TARGET))


def nearest(dialogues: Sequence[Dialogue]) -> list[tuple[float, Bm25Setting, Recall]]:
    """Every setting, the nearest to the paper's first."""
    found = []
    for query, terms, idf, (k1, b) in itertools.product(QUERIES, TERMS, IDFS, SATURATIONS):
        setting = Bm25Setting(query, terms, idf, k1, b)
        recall = setting.measure(dialogues)
        found.append((difference(recall), setting, recall))
    return sorted(found, key=lambda one: one[0])


NEAREST = Bm25Setting("whole context", "jieba words", "Lucene", 0.9, 0.4)
"""Found by --nearest on dev."""
