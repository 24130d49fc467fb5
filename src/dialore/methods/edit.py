"""EDIT: open questions to detect a user's implicit intentions (Wu, Shen and Xia, 2024), Section 3."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator

from dialore.errors import InputError
from dialore.knowledge import Knowledge, stable_id
from dialore.llm.loose_json import candidates
from dialore.methods.base import OURS, Method, check_least
from dialore.methods.citations import mark_used
from dialore.methods.cleaning import as_data, clean_response, read_answer
from dialore.parallel import gather
from dialore.response import Grounding, Response
from dialore.sources.base import KnowledgeSource, rank_by
from dialore.text import normalise

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.stages import StageContext
    from dialore.text import Language

_NO_BASE = "no knowledge base was given: the model's answers alone are used"
_QUESTIONS = "edit/question-generation"
_MARKS = ("sentences", "answers", "answer-a", "answer-b")
_LONGEST = 300  # characters of a question; what is longer is a passage that happens to end in a question mark
_QUESTION = re.compile(r"(?:^|(?<=[?？]))[^?？\n]*+[?？]+", re.MULTILINE)
# What stands before a question in a list: numbers, bullets, "Q1:", "问题一：", separators between generated questions.
_LABEL = re.compile(
    r"(?i)^(?:[\s|;,，、；•*·\-–—]|[\"”'](?=\s)|</?\w+>|\[SEP\]|[(（]?\d{1,2}\s*[.)）:：、]|"
    r"(?:Q(?:uestion)?|问题?)\s*+[\d一二三四五六七八九十]{0,2}\s*+[.)）:：、])+"
)


@dataclass(frozen=True, slots=True)
class Edit(Method):
    """Open questions ask for the user's implicit intentions; their answers are the knowledge of the response.

    Each question is answered by the model and from the knowledge base at once, and the better answer is chosen as
    soon as both are there, whatever the other questions wait for: three steps before the response, however many
    questions.

    The paper's setting is `prompt_variant=paper` and `shuffle_answers=false`. Where this differs from it: either answer
    may be none, and then the other is taken without a choice; the answers are asked for so that they can be understood
    without their questions, for the response is given answers alone; what is found is declared to be data; the response
    takes up the answers that fit, in three sentences at most. In both settings base sentences stand with their titles,
    and the generator that the paper trains on its own data set is any model named for the stage `question-generation`.

    Attributes:
        documents: the knowledge base of sentences; without one the model's answers alone are used.
        questions: how many questions (Table 6 shows five; Section 4.4.3 asks for five). 0: the model answers alone, by
            the same prompt without knowledge: Table 2, "ChatGPT".
        top: sentences of the base that answer a question (Section 3.3.2: L = 10).
        retriever: how a document index ranks them: `dense`, by embeddings (Section 3.3.2), `bm25` or `fused`.
        model_answers: off: Tables 2 and 3, "w/o ChatGPT's Answer".
        base_answers: off: Tables 2 and 3, "w/o KB's Answer".
        trained: the question generator was trained for this (Section 3.2.2): text to be continued is then the
            context alone, without an instruction.
        shuffle_answers: which of a question's two answers is shown first is decided by the question, so that a model's
            liking for one place does not decide; off: the model's own, as in the paper.
        prompt_variant: `paper`: prompts with the paper's content; the response uses all knowledge, at any length.
    """

    name: ClassVar[str] = "edit"
    paper: ClassVar[str] = "EDIT (2024), Section 3"
    summary: ClassVar[str] = "open questions as implicit intentions, answered by the model and from a base of sentences"
    optional_sources: ClassVar[tuple[str, ...]] = ("documents",)
    calls: ClassVar[str] = "17 (4 in a row); 7 (3 in a row) without a base"
    stages: ClassVar[tuple[str, ...]] = (
        _QUESTIONS,
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
    shuffle_answers: bool = True
    prompt_variant: str = OURS

    def __post_init__(self) -> None:
        check_least(self, questions=0, top=1)
        if not (self.model_answers or self.base_answers):
            raise InputError("edit without both kinds of answers has no knowledge", hint="leave one of them on")
        if not self.model_answers and self.documents is None:
            raise InputError("edit without the model's answers needs documents", hint="set sources.documents")

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Question Generation and Question Answering (Sections 3.2 and 3.3); a repeated answer counts once."""
        if not self.questions:
            return Grounding()
        questions = await self.ask_questions(stage)
        answered = await gather(*(self.answer(number, question, stage) for number, question in enumerate(questions, 1)))
        with stage.step("answer-integration") as step:
            step.notes = [
                f"question {number} has no answer" for number, answers in enumerate(answered, 1) if not answers
            ]
            if self.base_answers and self.documents is None:
                step.notes.append(_NO_BASE)
            taken = []
            for question, answers in zip(questions, answered, strict=True):
                texts = {answer.source: answer.text for answer in answers}
                taken.append({"question": question, "by": answers[0].source if answers else "model", "from": texts})
            step.output = {"answers": taken}
        return Grounding(knowledge=list({answers[0].id: answers[0] for answers in answered if answers}.values()))

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Ground, then Response Generation from history and answers (Section 3.4)."""
        grounding = await self.ground(dialogue, stage)
        return grounding.response(await stage.write("edit/response-generation", knowledge=grounding.knowledge))

    async def ask_questions(self, stage: StageContext) -> list[str]:
        """Question Generation (Section 3.2.2). Where the answer holds no question, there are none."""
        nothing: list[str] = []
        asked = await stage.read(_QUESTIONS, read_questions, nothing, limit=self.questions, trained=self.trained)
        if len(asked) > self.questions:
            with stage.step("question-mending") as step:
                step.output = {"dropped": asked[self.questions :]}
                step.notes = [f"{len(asked)} questions were asked: the first {self.questions} are taken"]
        return asked[: self.questions]

    async def answer(self, number: int, question: str, stage: StageContext) -> list[Knowledge]:
        """Both answers of one question at once, the better one first: Answer Integration (Section 3.3)."""
        both = await gather(
            self._answer_by_model(number, question, stage), self._answer_from_base(number, question, stage)
        )
        offered = [answer for answer in both if answer is not None]
        return await self._choose(number, question, offered, stage) if len(offered) > 1 else offered

    async def _answer_by_model(self, number: int, question: str, stage: StageContext) -> Knowledge | None:
        """Answer Generation by LLMs (Section 3.3.1): from the question alone, briefly."""
        if not self.model_answers:
            return None
        return _piece(question, await stage.text("edit/model-answer", suffix=str(number), question=question))

    async def _answer_from_base(self, number: int, question: str, stage: StageContext) -> Knowledge | None:
        """Retrieve answers in a knowledge base (Section 3.3.2): the nearest sentences, organised by the model."""
        passages: list[Knowledge] = []
        if self.base_answers and self.documents is not None:
            base = rank_by(self.documents, self.retriever)
            passages = await stage.search(f"base-retrieval-{number}", base, question, self.top)
        if not passages:
            return None
        sentences = list(map(_sentence, passages))
        text = await stage.text("edit/base-answer", suffix=str(number), question=question, sentences=sentences)
        return _piece(question, text, passages, stage.dialogue.language)

    async def _choose(
        self, number: int, question: str, offered: list[Knowledge], stage: StageContext
    ) -> list[Knowledge]:
        """Answer Integration (Section 3.3.3). Where nothing parses, the model's: Table 3 loses more without it."""
        # A coin that falls the same way for the same question, in every run.
        is_odd = hashlib.blake2b(question.encode(), digest_size=1).digest()[0] % 2 == 1
        shown = offered[::-1] if self.shuffle_answers and is_odd else offered
        first = Better(better="A" if shown[0] is offered[0] else "B")
        given: dict[str, Any] = {"question": question, "answers": [answer.text for answer in shown]}
        chosen = await stage.ask("edit/answer-choice", Better, first, suffix=str(number), **given)
        return shown if chosen.better == "A" else shown[::-1]


@dataclass(frozen=True, slots=True)
class EditQuestions(Method):
    """EDIT's Question Generation alone: the response is the open questions, one a line (Section 4.4).

    With `prompt_variant=coq` it asks as COQ was made: what is unrelated to the person in the context (Section 3.2.1).

    Attributes:
        questions: how many are asked for; what else a generator writes is left out. 0: all that a trained one writes.
        trained: as in `edit`.
        prompt_variant: as in `edit`.
    """

    name: ClassVar[str] = "edit-questions"
    paper: ClassVar[str] = "EDIT (2024), Section 3.2 and Tables 4 and 5"
    summary: ClassVar[str] = "open questions about a context are the response"
    calls: ClassVar[str] = "1"
    stages: ClassVar[tuple[str, ...]] = (_QUESTIONS,)
    forms: ClassVar[tuple[str, ...]] = ("coq",)

    questions: int = 5
    trained: bool = False
    prompt_variant: str = OURS

    def __post_init__(self) -> None:
        check_least(self, questions=0)

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Ask; text that holds no question is the response as it is."""
        text = await stage.text(_QUESTIONS, limit=self.questions or 5, trained=self.trained)
        asked = read_questions(text) or [text]
        joined = "\n".join(asked[: self.questions or None])
        stage.send(joined)
        return Grounding().response(joined)


def _piece(question: str, text: str, found: Sequence[Knowledge] = (), language: Language = "en") -> Knowledge | None:
    """Return an answer as knowledge, the model's own or from sentences of the base; None where it is none.

    It is to be looked up where the nearest sentence stands that it says, else the nearest of all. Its score is the
    cosine of the nearest sentence with the question; 0 for an answer of the model's own.
    """
    answer, source = read_answer(text), "documents" if found else "model"
    if not answer:
        return None
    identifier, text = stable_id("passage", source, answer), as_data(answer, *_MARKS)
    if not found:
        return Knowledge(id=identifier, kind="passage", text=text, source=source, question=question)
    used = (piece for piece in mark_used(found, answer, (), language) if piece.used)
    nearest = next(used, found[0])
    fields = {"id": identifier, "text": text, "source": source, "score": found[0].score, "question": question}
    sentences = [piece.id for piece in found]
    return nearest.model_copy(update={**fields, "sentences": sentences, "probability": None, "used": False})


def _sentence(piece: Knowledge) -> str:
    title = piece.title
    return as_data(f"({title}) {piece.text}" if title else piece.text, *_MARKS)


# --- outputs


def read_questions(text: str) -> list[str] | None:
    """Return the questions of a generated text, each once; None where it holds none.

    They may stand one a line, numbered or not, one after the other as a sequence-to-sequence model writes them
    (Section 3.2.2), or in JSON.
    """
    pieces = _from_json(text) or [match[0] for match in _QUESTION.finditer(text)]
    asked = (_unquote(" ".join(_LABEL.sub("", piece).split())) for piece in pieces)
    questions = {normalise(question): question for question in asked if 4 <= len(question) <= _LONGEST}
    return list(questions.values()) or None


def _unquote(question: str) -> str:
    """Return a question without quotation marks around it; one whose end lay behind the question mark is gone, too."""
    question = clean_response(question, ())
    counts = {'"': question.count('"') % 2, "“": question.count("“") - question.count("”")}
    return question[1:] if counts.get(question[:1], 0) > 0 else question


def _from_json(text: str) -> list[str]:
    for value in candidates(text):
        lists = [item for item in value.values() if isinstance(item, list)] if isinstance(value, dict) else [value]
        for listed in lists:
            if isinstance(listed, list) and (texts := [item for item in listed if isinstance(item, str)]):
                return texts
    return []


def _letter(value: Any) -> Any:  # noqa: ANN401 - what a model wrote
    """Return the letter of "b", "Answer B" and "AnswerB: it is more exact"."""
    if not isinstance(value, str):
        return value
    match = re.match(r"\W*+(?:answer|回答|答案)?\W*+([ab])(?![a-z])", value.strip(), re.IGNORECASE)
    return match[1].upper() if match else value


class Better(BaseModel):
    """Answer Integration: which answer is better, A (the model's) or B (the base's)."""

    better: Annotated[Literal["A", "B"], BeforeValidator(_letter)]
