"""EDIT: open questions to detect a user's implicit intentions (Wu, Shen and Xia, 2024), Section 3."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator

from dialore.errors import InputError
from dialore.knowledge import Knowledge, PassageDetail, stable_id
from dialore.llm.structured import candidates
from dialore.methods.cleaning import as_data
from dialore.parallel import gather
from dialore.response import Grounding
from dialore.sources.base import ranked_by
from dialore.text import normalise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.dialogue import Dialogue
    from dialore.methods.stages import Stages
    from dialore.response import Response
    from dialore.sources.base import KnowledgeSource

_NO_BASE = "no knowledge base was given: the model's answers alone are used"
_MARKS = ("sentences", "answers", "answer-a", "answer-b")
_LONGEST = 300
"""Characters of a question; what is longer is a passage that happens to end in a question mark."""
_QUESTION = re.compile(r"[^?？\n]*[?？]+")
# What stands before a question in a list: numbers, bullets, "Q1:", "问题一：", separators between generated questions.
_LABEL = re.compile(
    r"^(?:[\s|;,，、；•*·\"“”'\-–—]|</?\w+>|\[SEP\]|[(（]?\d{1,2}\s*[.)）:：、]|"
    r"(?:Q(?:uestion)?|问题?)\s*[\d一二三四五六七八九十]{0,2}\s*[.)）:：、])+",
    re.IGNORECASE,
)
_NOTHING = frozenset(("", "none", "n/a", "unknown", "null", "无", "没有", "不知道"))


@dataclass(frozen=True, slots=True)
class Edit:
    """Open questions ask for the user's implicit intentions; their answers are the knowledge of the response.

    Each question is answered by the model and from the knowledge base at once, and the better answer is chosen as
    soon as both are there, whatever the other questions wait for: three steps before the response, however many
    questions.

    Where this differs from the paper: either answer may be none, and then the other is taken without a choice; the
    answers are asked for so that they can be understood without their questions, for the response is given answers
    alone; base sentences stand with their titles, and are declared to be data. The generator that the paper trains on
    its own data set is any model named for the stage `question-generation`.

    Attributes:
        documents: the knowledge base of sentences; without one the model's answers alone are used.
        questions: how many questions (Table 6 shows five; Section 4.4.3 asks for five).
        top: sentences of the base that answer a question (Section 3.3.2: L = 10).
        retriever: how a document index ranks them: `dense`, by embeddings (Section 3.3.2), `bm25` or `fused`.
        model_answers: off: Tables 2 and 3, "w/o ChatGPT's Answer".
        base_answers: off: Tables 2 and 3, "w/o KB's Answer".
        trained: the question generator was trained for this (Section 3.2.2): text to be continued is then the
            context alone, without an instruction.
        drawn: which of a question's two answers is shown first is decided by the question, so that a model's liking for
            one place does not decide; off: the model's own, as in the paper.
    """

    name: ClassVar[str] = "edit"
    paper: ClassVar[str] = "EDIT (2024), Section 3"
    summary: ClassVar[str] = "open questions as implicit intentions, answered by the model and from a base of sentences"
    needs: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ("documents",)
    calls: ClassVar[str] = "17 (4 in a row); 7 (3 in a row) without a base"
    stages: ClassVar[tuple[str, ...]] = (
        "edit/question-generation",
        "edit/model-answer",
        "edit/base-answer",
        "edit/answer-choice",
        "edit/response-generation",
    )

    documents: KnowledgeSource | None = None
    questions: int = 5
    top: int = 10
    retriever: str = "dense"
    model_answers: bool = True
    base_answers: bool = True
    trained: bool = False
    drawn: bool = True

    def __post_init__(self) -> None:
        """Check that the questions have a source of answers; raises InputError where they have none."""
        if self.questions < 1 or self.top < 1:
            raise InputError("edit asks at least one question, of at least one sentence", mend="questions=5, top=10")
        if not (self.model_answers or self.base_answers):
            raise InputError("edit without both kinds of answers has no knowledge", mend="leave one of them on")
        if not self.model_answers and self.documents is None:
            raise InputError("edit without the model's answers needs documents", mend="give a base with --documents")

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounding:
        """Question Generation and Question Answering (Sections 3.2 and 3.3)."""
        questions = await self.ask_questions(stage)
        answered = await gather(*(self.answer(number, each, stage) for number, each in enumerate(questions, 1)))
        return Grounding(knowledge=self._knowledge(answered, stage))

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Response:
        """Ground, then Response Generation from history and answers (Section 3.4)."""
        grounding = await self.ground(dialogue, stage)
        return grounding.response(await stage.write("edit/response-generation", knowledge=grounding.knowledge))

    async def ask_questions(self, stage: Stages) -> list[str]:
        """Question Generation (Section 3.2.2). Where the answer holds no question, there are none."""
        nothing: list[str] = []
        asked = await stage.read(
            "edit/question-generation", read_questions, nothing, limit=self.questions, trained=self.trained
        )
        if len(asked) > self.questions:
            with stage.step("question-mending") as step:
                step.output = {"dropped": asked[self.questions :]}
                step.notes = [f"{len(asked)} questions were asked: the first {self.questions} are taken"]
        return asked[: self.questions]

    async def answer(self, number: int, question: str, stage: Stages) -> Answered:
        """Both answers of one question at once, then Answer Integration (Section 3.3)."""
        own, (base, found) = await gather(
            self._answer_by_model(number, question, stage), self._answer_from_base(number, question, stage)
        )
        of_model = Answered(question, own, why="the model's is the only answer" if own else "nobody had an answer")
        if not base:
            return of_model
        ids, score = tuple(piece.id for piece in found), found[0].score
        of_base = Answered(question, base, "documents", ids, score, "the base's is the only answer")
        if not own:
            return of_base
        taken = await self._choose(number, of_model, of_base, stage)
        other = of_base if taken is of_model else of_model
        return replace(taken, why="it is the better of two", other=other.text)

    async def _answer_by_model(self, number: int, question: str, stage: Stages) -> str:
        """Answer Generation by LLMs (Section 3.3.1): from the question alone, briefly."""
        if not self.model_answers:
            return ""
        return read_answer(await stage.text("edit/model-answer", suffix=str(number), question=question))

    async def _answer_from_base(self, number: int, question: str, stage: Stages) -> tuple[str, list[Knowledge]]:
        """Retrieving Answer in Knowledge Base (Section 3.3.2): the nearest sentences, organised by the model."""
        if not self.base_answers or self.documents is None:
            return "", []
        base = ranked_by(self.documents, self.retriever)
        found = await stage.search(f"base-retrieval-{number}", base, question, self.top)
        if not found:
            return "", []
        sentences = [_sentence(piece) for piece in found]
        text = await stage.text("edit/base-answer", suffix=str(number), question=question, sentences=sentences)
        return read_answer(text), found

    async def _choose(self, number: int, of_model: Answered, of_base: Answered, stage: Stages) -> Answered:
        """Answer Integration (Section 3.3.3). Where nothing parses, the model's: Table 3 loses more without it."""
        shown = [of_model, of_base]
        if self.drawn and _is_odd(of_model.question):
            shown.reverse()
        chosen = await stage.ask(
            "edit/answer-choice",
            Better,
            Better(better="A" if shown[0] is of_model else "B"),
            suffix=str(number),
            question=of_model.question,
            answers=[_as_data(answer.text) for answer in shown],
        )
        return shown[0] if chosen.better == "A" else shown[1]

    def _knowledge(self, answered: Sequence[Answered], stage: Stages) -> list[Knowledge]:
        """The chosen answers, in the questions' order, as knowledge; an answer that was given before counts once."""
        with stage.step("answer-integration") as step:
            pieces = {piece.id: piece for piece in (_piece(each) for each in answered if each.text)}
            step.notes = [f"question {n} has no answer" for n, each in enumerate(answered, 1) if not each.text]
            if self.base_answers and self.documents is None:
                step.notes.append(_NO_BASE)
            step.output = {
                "answers": [
                    {"question": each.question, "by": each.source, "why": each.why, "from": each.offered}
                    for each in answered
                ]
            }
        return list(pieces.values())


def _is_odd(question: str) -> bool:
    """A coin that falls the same way for the same question, in every run."""
    return hashlib.blake2b(question.encode(), digest_size=1).digest()[0] % 2 == 1


def _piece(answered: Answered) -> Knowledge:
    sentences = list(answered.found) if answered.source == "documents" else None
    return Knowledge(
        id=stable_id("passage", answered.source, answered.text),
        kind="passage",
        text=_as_data(answered.text),
        source=answered.source,
        score=answered.score,
        detail=PassageDetail(question=answered.question, sentences=sentences),
    )


def _sentence(piece: Knowledge) -> str:
    title = piece.passage.title
    return _as_data(f"({title}) {piece.text}" if title else piece.text)


def _as_data(text: str) -> str:
    return as_data(text, *_MARKS)


# --- outputs


@dataclass(frozen=True, slots=True)
class Answered:
    """A question and the answer to it that was chosen.

    Attributes:
        question: the open question.
        text: the answer; empty where there is none.
        source: who gave it.
        found: ids of the base's sentences that it was organised from, the nearest first.
        score: the cosine of the nearest of them with the question; 0 for an answer of the model's own.
        why: why it was taken.
        other: the answer of the other source that it was preferred to; empty where there was none.
    """

    question: str
    text: str = ""
    source: Literal["model", "documents"] = "model"
    found: tuple[str, ...] = ()
    score: float = 0.0
    why: str = ""
    other: str = ""

    @property
    def offered(self) -> dict[str, str]:
        """The answers that there were to choose from, by their source."""
        texts = {self.source: self.text, ("model" if self.source == "documents" else "documents"): self.other}
        return {source: texts[source] for source in ("model", "documents") if texts[source]}


def read_questions(text: str) -> list[str] | None:
    """The questions of a generated text, each once; None where it holds none.

    They may stand one a line, numbered or not, one after the other as a sequence-to-sequence model writes them
    (Section 3.2.2), or in JSON.
    """
    pieces = _from_json(text) or [match[0] for match in _QUESTION.finditer(text)]
    asked = (" ".join(_LABEL.sub("", piece).split()).strip(" \"“”'") for piece in pieces)
    found = {normalise(question): question for question in asked if 4 <= len(question) <= _LONGEST}
    return list(found.values()) or None


def _from_json(text: str) -> list[str]:
    for value in candidates(text):
        lists = [item for item in value.values() if isinstance(item, list)] if isinstance(value, dict) else [value]
        for listed in lists:
            if isinstance(listed, list) and (said := [item for item in listed if isinstance(item, str)]):
                return said
    return []


def read_answer(text: str) -> str:
    """An answer on one line; empty where the model says that it has none."""
    answer = " ".join(text.split())
    return "" if answer.strip(" .。\"'“”").lower() in _NOTHING else answer


def _letter(value: Any) -> Any:  # noqa: ANN401 - what a model wrote
    """The letter of "b", "Answer B" and "AnswerB: it is more exact"."""
    if not isinstance(value, str):
        return value
    match = re.match(r"\W*(?:answer|回答|答案)?\W*([ab])(?![a-z])", value.strip(), re.IGNORECASE)
    return match[1].upper() if match else value


class Better(BaseModel):
    """Answer Integration: which answer is better, A (the model's) or B (the base's)."""

    better: Annotated[Literal["A", "B"], BeforeValidator(_letter)]
