"""Judges that score one response at a time: engagingness, quality, queries, useful knowledge, and RAGAs' three."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from dialore.evaluation.base import Mean, MetricInfo, Sample, SampleScore, about_of, unavailable
from dialore.evaluation.judges.asking import JudgeClient, UnjudgedError, asker_of, list_shape, queries_of, spoken
from dialore.retrieval.embedding import load_embedder
from dialore.text import SENTENCE_RULES, split_lines

if TYPE_CHECKING:
    from dialore.evaluation.registry import Context
    from dialore.knowledge import Knowledge

_QUESTIONS = 3
"""How many questions are generated from a response, RAGAs' own setting."""
_embedder = functools.lru_cache(maxsize=2)(load_embedder)
Score = Callable[[JudgeClient, Sample], Awaitable[SampleScore]]


def make(name: str, context: Context) -> Judge:
    """Return a judge by name."""
    about, embedder = about_of(name), context.embedder or "static"
    scores: dict[str, Score] = {
        "meep": functools.partial(_rate, name, "meep", Engagingness),
        "informativeness": functools.partial(_rate, name, "quality", Quality),
        "overall": functools.partial(_rate, name, "quality", Quality),
        "useful-knowledge": functools.partial(_rate, name, "useful-knowledge", UsefulKnowledge),
        "useful-pieces": _useful_pieces,
        "ragas-context-relevance": _context_relevance,
        "ragas-faithfulness": faithfulness,
        "ragas-answer-relevance": functools.partial(_answer_relevance, embedder),
    }
    prompts: dict[str, tuple[str, ...]] = dict.fromkeys(("informativeness", "overall"), ("quality",))
    prompts["ragas-faithfulness"] = ("ragas-faithfulness-statements", "ragas-faithfulness-verdicts")
    also = {"ragas-context-relevance": f"sentences {SENTENCE_RULES}, facts as they were shown"}
    also["ragas-answer-relevance"] = f"with the history, {embedder}"
    score = scores.get(name, functools.partial(_queries, name, int(about.scale)))
    return Judge(about, asker_of(context), score, prompts.get(name, (name,)), also.get(name, ""))


@dataclass(frozen=True)
class Judge(Mean):
    """A metric whose values a language model gives; `also` says what else they depend on."""

    about: MetricInfo
    asker: JudgeClient | None
    score: Score
    prompts: tuple[str, ...]
    also: str = ""

    @property
    def identity(self) -> str:
        """The judge, its prompts, and what else the values depend on."""
        if self.asker is None:
            return ""
        return ", ".join(filter(None, [self.asker.identity(*self.prompts), self.also]))

    async def measure(self, sample: Sample) -> SampleScore:
        """Return the judge's score, or why there is none."""
        if self.asker is None:
            return unavailable("no judge was given")
        try:
            return await self.score(self.asker, sample)
        except UnjudgedError as error:
            return error.measure


class Engagingness(BaseModel):
    """MEEP's score."""

    score: float = Field(ge=0, le=100)


class Quality(BaseModel):
    """Informativeness and overall score, asked together (DCRAG, Table 20)."""

    informativeness: float = Field(ge=1, le=5)
    overall: float = Field(ge=1, le=5)


class UsefulKnowledge(BaseModel):
    """How much useful knowledge a response gives."""

    score: float = Field(ge=1, le=10)


class Statements(BaseModel):
    """The claims of a response."""

    statements: list[str]


class Questions(BaseModel):
    """Questions that a response may have been said in reply to."""

    questions: list[str] = Field(min_length=1)
    noncommittal: bool


async def _rate(name: str, prompt: str, shape: type[BaseModel], judge: JudgeClient, sample: Sample) -> SampleScore:
    """Return the score of a prompt; of `quality`, which asks for two, the cache answers whichever comes second."""
    verdict = await judge.ask(prompt, shape, sample.dialogue, label=name, response=spoken(sample.response))
    return SampleScore((float(getattr(verdict, name if prompt == "quality" else "score")),))


async def _queries(name: str, top: int, judge: JudgeClient, sample: Sample) -> SampleScore:
    """Return the mean over what a method looked up."""
    queries = queries_of(sample.response)
    if not queries:
        return unavailable("the method asked no query")
    shape = list_shape("QueryScores", "scores", top, len(queries))
    scores = (await judge.ask(name, shape, sample.dialogue, queries=queries)).model_dump()["scores"]
    detail = "; ".join(f"{query}: {score:g}" for query, score in zip(queries, scores, strict=True))
    return SampleScore((sum(scores) / len(scores),), detail=detail)


async def _useful_pieces(judge: JudgeClient, sample: Sample) -> SampleScore:
    pieces = pieces_of(sample)
    shape = list_shape("UsefulPieces", "useful", len(pieces))
    verdict = await judge.ask("useful-pieces", shape, sample.dialogue, knowledge=pieces)
    useful = sorted(set(verdict.model_dump()["useful"]))
    numbers = f": {', '.join(map(str, useful))}" if useful else ""
    return SampleScore((float(len(useful)),), detail=f"{len(useful)} of {len(pieces)} useful{numbers}")


async def _context_relevance(judge: JudgeClient, sample: Sample) -> SampleScore:
    shown = zip(sample.response.knowledge, pieces_of(sample), strict=True)
    sentences = [sentence for piece, text in shown for sentence in sentences_of(piece, text)]
    shape = list_shape("NeededSentences", "needed", len(sentences))
    verdict = await judge.ask("ragas-context-relevance", shape, sample.dialogue, knowledge=sentences)
    needed = set(verdict.model_dump()["needed"])
    return SampleScore((len(needed) / len(sentences),), detail=f"{len(needed)} of {len(sentences)} sentences")


async def faithfulness(judge: JudgeClient, sample: Sample, known: Sequence[str] | None = None) -> SampleScore:
    """Return the share of a response's statements that follow from what is known, its own knowledge where None.

    Two calls: what the response claims, and what of it follows.
    """
    pieces = pieces_of(sample) if known is None else known
    name, response = "ragas-faithfulness-statements", spoken(sample.response)
    claimed = await judge.ask(name, Statements, sample.dialogue, response=response)
    statements = [" ".join(statement.split()) for statement in claimed.statements if statement.strip()]
    if not statements:
        return unavailable("the response states nothing that could be verified")
    shape = list_shape("Verdicts", "verdicts", count=len(statements))
    name = "ragas-faithfulness-verdicts"
    verdict = await judge.ask(name, shape, sample.dialogue, knowledge=pieces, statements=statements)
    verdicts = verdict.model_dump()["verdicts"]
    missing = [text for text, follows in zip(statements, verdicts, strict=True) if not follows]
    detail = f"{len(statements) - len(missing)} of {len(statements)} statements"
    detail += f"; not: {' | '.join(missing)}" if missing else ""
    return SampleScore((1 - len(missing) / len(statements),), detail=detail)


async def _answer_relevance(embedder: str, judge: JudgeClient, sample: Sample) -> SampleScore:
    known = pieces_of(sample) if sample.response.knowledge else []
    name, response = "ragas-answer-relevance", spoken(sample.response)
    verdict = await judge.ask(name, Questions, sample.dialogue, response=response, knowledge=known, count=_QUESTIONS)
    questions = [question for question in verdict.questions if question.strip()][:_QUESTIONS]
    if not questions:
        return SampleScore(problem="unparsed", reason="the judge's questions are blank")
    if verdict.noncommittal:
        return SampleScore((0.0,), detail="noncommittal")
    history = "\n".join(sample.dialogue.texts)
    vectors = await asyncio.to_thread(lambda: _embedder(embedder).encode((history, *questions)))
    return SampleScore((float((vectors[1:] @ vectors[0]).mean()),), detail=" | ".join(questions))


def pieces_of(sample: Sample) -> list[str]:
    """Return the knowledge that a response was given, a line each; a fact as the triple that its prompt had."""
    if not sample.response.knowledge:
        raise UnjudgedError(unavailable("the response was given no knowledge"))
    asked = "\n".join(message["content"] for stage in sample.response.trace for message in stage.messages)
    shown = (piece.triple if piece.triple in asked else piece.text for piece in sample.response.knowledge)
    return [" ".join(text.split()) for text in shown]


def sentences_of(piece: Knowledge, text: str) -> list[str]:
    """Return a passage's sentences; anything else is one, the text that it is shown by."""
    return split_lines(piece.text) if piece.kind == "passage" else [text]
