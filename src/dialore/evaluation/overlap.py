"""Unigram overlap: F1 with the reference, Knowledge-F1, and the share of a response that is copied from knowledge."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dialore.datasets import gold_text
from dialore.evaluation.base import About, Mean, Measure, unavailable
from dialore.evaluation.tokens import ChineseTokens, check_chinese_tokens, tokens_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import Sample
    from dialore.evaluation.registry import Context

_ABOUTS = {
    "f1": About(
        "f1",
        "ParlAI; MSDP (ACL Findings 2022), Section 3.4",
        "Unigram F1 of response and reference: lower case, no punctuation, no articles.",
        needs=("reference",),
    ),
    "kf1": About(
        "kf1",
        "Shuster et al. (2021); MSDP (ACL Findings 2022), Section 3.4",
        "Unigram F1 of the response and its gold knowledge, all pieces together, normalised as for f1.",
        needs=("knowledge",),
    ),
    "knowledge-copy": About(
        "knowledge-copy",
        "MSDP (ACL Findings 2022), Section 4.2, ratio of knowledge",
        "Share of the response's tokens that the knowledge it was given holds too, each token as often as there.",
        needs=("retrieved",),
    ),
}


def make(name: str, context: Context) -> F1 | KnowledgeF1 | KnowledgeCopy:
    """A metric of this file by name."""
    chinese = check_chinese_tokens(context.tokens)
    kinds: dict[str, type[F1 | KnowledgeF1 | KnowledgeCopy]] = {
        "f1": F1,
        "kf1": KnowledgeF1,
        "knowledge-copy": KnowledgeCopy,
    }
    return kinds[name](chinese)


class _Unigram(Mean):
    """Metrics of one value a response that count tokens."""

    name = ""

    def __init__(self, chinese: ChineseTokens = "character") -> None:
        self._chinese = chinese

    @property
    def about(self) -> About:
        """What it is."""
        return _ABOUTS[self.name]

    @property
    def identity(self) -> str:
        """How Chinese is counted."""
        return f"Chinese by {self._chinese}"

    def _tokens(self, text: str, dialogue: Dialogue) -> tuple[str, ...]:
        return tokens_of(text, dialogue.language, self._chinese)


class F1(_Unigram):
    """Unigram F1 with the reference."""

    name = "f1"

    async def measure(self, sample: Sample) -> Measure:
        """F1, 0 to 1."""
        dialogue = sample.dialogue
        if not dialogue.reference:
            return unavailable("the dialogue has no reference")
        response, reference = self._tokens(sample.response.text, dialogue), self._tokens(dialogue.reference, dialogue)
        return Measure((unigram_f1(response, reference),))


class KnowledgeF1(_Unigram):
    """Unigram F1 with the gold knowledge."""

    name = "kf1"

    async def measure(self, sample: Sample) -> Measure:
        """F1, 0 to 1."""
        gold = gold_texts(sample.dialogue)
        if not gold:
            return unavailable("the dialogue has no gold knowledge")
        response = self._tokens(sample.response.text, sample.dialogue)
        return Measure((unigram_f1(response, self._tokens(" ".join(gold), sample.dialogue)),))


class KnowledgeCopy(_Unigram):
    """How much of the response is in the knowledge that it was given."""

    name = "knowledge-copy"

    async def measure(self, sample: Sample) -> Measure:
        """The share, 0 to 1."""
        given = " ".join(piece.text for piece in sample.response.knowledge)
        if not given:
            return unavailable("the response was given no knowledge")
        response = self._tokens(sample.response.text, sample.dialogue)
        if not response:
            return Measure((0.0,))
        common = Counter(response) & Counter(self._tokens(given, sample.dialogue))
        return Measure((sum(common.values()) / len(response),))


def unigram_f1(first: Sequence[str], second: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of tokens counted with repeats; 0 where nothing is shared."""
    common = sum((Counter(first) & Counter(second)).values())
    if not common:
        return 0.0
    precision, recall = common / len(first), common / len(second)
    return 2 * precision * recall / (precision + recall)


def gold_texts(dialogue: Dialogue) -> list[str]:
    """The gold knowledge of a dialogue in words."""
    texts = (gold_text(piece) for piece in dialogue.knowledge)
    return [text for text in texts if text.strip()]
