"""RAGAs (Es et al., EACL 2024): context relevance, faithfulness, answer relevance, by prompts of our own."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING

from dialore.evaluation.base import About, Mean, Measure, unavailable
from dialore.evaluation.judges.answers import Questions, Statements, picks_shape, verdicts_shape
from dialore.evaluation.judges.asking import spoken
from dialore.retrieval.embedding import load_embedder
from dialore.text import SENTENCE_RULES, split_lines

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dialore.evaluation.base import Sample
    from dialore.evaluation.judges.asking import Asker
    from dialore.knowledge import Knowledge
    from dialore.retrieval.embedding import Embedder

_PAPER = "Es et al. (EACL 2024), Section 3; DCRAG (EMNLP 2024), Figure 3 and Appendix A.4"
QUESTIONS = 3
"""How many questions are generated from a response, RAGAs' own setting."""


class ContextRelevance(Mean):
    """How much of the given knowledge is of use."""

    def __init__(self, judge: Asker | None) -> None:
        self._judge = judge

    @property
    def about(self) -> About:
        """What it is."""
        definition = "Share of the given knowledge's sentences (a fact is one) that a judge finds of use for an answer."
        return About("ragas-context-relevance", _PAPER, definition, needs=("judge", "retrieved"))

    @property
    def identity(self) -> str:
        """The judge, its prompt, and the rules by which sentences are counted."""
        if self._judge is None:
            return ""
        return f"{self._judge.identity('ragas-context-relevance')}, sentences {SENTENCE_RULES}"

    async def measure(self, sample: Sample) -> Measure:
        """The share, 0 to 1."""
        if self._judge is None:
            return unavailable("no judge was given")
        pieces = [sentence for piece in sample.response.knowledge for sentence in sentences_of(piece)]
        if not pieces:
            return unavailable("the response was given no knowledge")
        shape = picks_shape("NeededSentences", "needed", len(pieces))
        said = await self._judge.ask("ragas-context-relevance", shape, sample.dialogue, knowledge=pieces)
        if isinstance(said, Measure):
            return said
        needed = set(said.model_dump()["needed"])
        return Measure((len(needed) / len(pieces),), detail=f"{len(needed)} of {len(pieces)} sentences")


class Faithfulness(Mean):
    """How much of what a response claims follows from the knowledge that it was given; two calls."""

    def __init__(self, judge: Asker | None) -> None:
        self._judge = judge

    @property
    def about(self) -> About:
        """What it is."""
        definition = "Share of the response's statements that follow from the knowledge it was given, by a judge."
        return About("ragas-faithfulness", _PAPER, definition, needs=("judge", "retrieved"))

    @property
    def identity(self) -> str:
        """The judge and its prompts."""
        names = ("ragas-faithfulness-statements", "ragas-faithfulness-verdicts")
        return self._judge.identity(*names) if self._judge is not None else ""

    async def measure(self, sample: Sample) -> Measure:
        """The share, 0 to 1; not available where the response claims nothing."""
        if self._judge is None:
            return unavailable("no judge was given")
        pieces = [" ".join(piece.text.split()) for piece in sample.response.knowledge]
        if not pieces:
            return unavailable("the response was given no knowledge")
        claimed = await self._judge.ask(
            "ragas-faithfulness-statements", Statements, sample.dialogue, response=spoken(sample.response)
        )
        if isinstance(claimed, Measure):
            return claimed
        statements = [" ".join(statement.split()) for statement in claimed.statements if statement.strip()]
        if not statements:
            return unavailable("the response states nothing that could be verified")
        shape = verdicts_shape(len(statements))
        said = await self._judge.ask(
            "ragas-faithfulness-verdicts", shape, sample.dialogue, knowledge=pieces, statements=statements
        )
        if isinstance(said, Measure):
            return said
        missing = [text for text, follows in zip(statements, said.verdicts, strict=True) if not follows]
        detail = f"{len(statements) - len(missing)} of {len(statements)} statements"
        if missing:
            detail += f"; not: {' | '.join(missing)}"
        return Measure((1 - len(missing) / len(statements),), detail=detail)


class AnswerRelevance(Mean):
    """How near what a response may have been said in reply to is to what was said."""

    def __init__(self, judge: Asker | None, embedder: str = "static") -> None:
        self._judge, self._embedder = judge, embedder

    @property
    def about(self) -> About:
        """What it is."""
        return About(
            "ragas-answer-relevance",
            _PAPER,
            f"Mean cosine of the last turn with {QUESTIONS} turns that a judge makes up from the response alone; 0 for "
            "a noncommittal response.",
            needs=("judge",),
        )

    @property
    def identity(self) -> str:
        """The judge, its prompt, and the embedder."""
        if self._judge is None:
            return ""
        return f"{self._judge.identity('ragas-answer-relevance')}, {self._embedder}"

    async def measure(self, sample: Sample) -> Measure:
        """The mean cosine, -1 to 1."""
        if self._judge is None:
            return unavailable("no judge was given")
        said = await self._judge.ask(
            "ragas-answer-relevance", Questions, sample.dialogue, response=spoken(sample.response), count=QUESTIONS
        )
        if isinstance(said, Measure):
            return said
        questions = [question for question in said.questions if question.strip()][:QUESTIONS]
        if not questions:
            return Measure(problem="unparsed", reason="the judge's questions are blank")
        if said.noncommittal:
            return Measure((0.0,), detail="noncommittal")
        vectors = await asyncio.to_thread(_embed, self._embedder, (sample.dialogue.last.text, *questions))
        cosines = vectors[1:] @ vectors[0]
        return Measure((float(cosines.mean()),), detail=" | ".join(questions))


def _embed(spec: str, texts: tuple[str, ...]) -> NDArray[np.float32]:
    return _loaded(spec).encode(texts)


@lru_cache(maxsize=2)
def _loaded(spec: str) -> Embedder:
    return load_embedder(spec)


def sentences_of(piece: Knowledge) -> list[str]:
    """A passage's sentences; anything else is one."""
    if piece.kind != "passage":
        return [" ".join(piece.text.split())]
    return split_lines(piece.text)
