"""EDIT: open questions to detect a user's implicit intentions (Wu, Shen and Xia, 2024), Section 3."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dialore.errors import InputError
from dialore.knowledge import Knowledge, PassageDetail, stable_id
from dialore.methods.base import Draft, Grounds
from dialore.methods.edit_outputs import Answered, Better, read_answer, read_questions
from dialore.methods.marks import as_data
from dialore.parallel import gather
from dialore.sources.base import ranked_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.dialogue import Dialogue
    from dialore.methods.stages import Stages
    from dialore.sources.base import KnowledgeSource

_NO_BASE = "no knowledge base was given: the model's answers alone are used"
_MARKS = ("sentences", "answers", "answer-a", "answer-b")


@dataclass(frozen=True, slots=True)
class Edit:
    """What the user may be after is asked as open questions; their answers are the knowledge of the response.

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
        drawn: which of a question's two answers is shown first is drawn by the question, so that a model's liking for
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
        """Check that there is somebody to answer; raises InputError where there is not."""
        if self.questions < 1 or self.top < 1:
            raise InputError("edit asks at least one question, of at least one sentence", mend="questions=5, top=10")
        if not (self.model_answers or self.base_answers):
            raise InputError("edit without both kinds of answers has no knowledge", mend="leave one of them on")
        if not self.model_answers and self.documents is None:
            raise InputError("edit without the model's answers needs documents", mend="give a base with --documents")

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounds:
        """Question Generation and Question Answering (Sections 3.2 and 3.3)."""
        questions = await self.ask_questions(stage)
        answered = await gather(*(self.answer(number, each, stage) for number, each in enumerate(questions, 1)))
        return Grounds(knowledge=self._knowledge(answered, stage))

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Draft:
        """Ground, then Response Generation from history and answers (Section 3.4)."""
        grounds = await self.ground(dialogue, stage)
        return Draft(await stage.write("edit/response-generation", knowledge=grounds.knowledge), grounds)

    async def ask_questions(self, stage: Stages) -> list[str]:
        """Question Generation (Section 3.2.2). Where the answer holds no question, there are none."""
        nothing: list[str] = []
        asked = await stage.read(
            "edit/question-generation", read_questions, nothing, limit=self.questions, trained=self.trained
        )
        if len(asked) > self.questions:
            notes = [f"{len(asked)} questions were asked: the first {self.questions} are taken"]
            stage.did("question-mending", lambda: (None, {"dropped": asked[self.questions :]}, notes))
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
        return await self._choose(number, of_model, of_base, stage) if own else of_base

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
        taken = shown[0] if chosen.better == "A" else shown[1]
        return Answered(taken.question, taken.text, taken.source, taken.found, taken.score, "it is the better of two")

    def _knowledge(self, answered: Sequence[Answered], stage: Stages) -> list[Knowledge]:
        """The chosen answers, in the questions' order, as knowledge; an answer that was given before counts once."""

        def work() -> tuple[list[Knowledge], dict[str, object], list[str]]:
            pieces = {piece.id: piece for piece in (_piece(each) for each in answered if each.text)}
            notes = [f"question {n} has no answer" for n, each in enumerate(answered, 1) if not each.text]
            if self.base_answers and self.documents is None:
                notes.append(_NO_BASE)
            shown = [{"question": each.question, "by": each.source, "why": each.why} for each in answered]
            return list(pieces.values()), {"answers": shown}, notes

        return stage.did("answer-integration", work)


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
