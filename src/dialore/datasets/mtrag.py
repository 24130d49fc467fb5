"""MTRAG (Katsis et al., 2025): people's multi-turn questions over four collections, some of them unanswerable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import AliasChoices, BaseModel, Field

from dialore.datasets.base import DataSet, Entry, Gold, Talk
from dialore.datasets.files import read_forms


class _Passage(BaseModel):
    document_id: str
    text: str = ""
    title: str = ""

    @property
    def gold(self) -> Gold:
        """The passage without its title, with which its text begins."""
        title = self.title.strip()
        return {"text": self.text.strip().removeprefix(title).strip(), "title": title, "document_id": self.document_id}


class _Turn(BaseModel):
    speaker: str
    text: str


class _Task(BaseModel):
    task_id: str
    input: list[_Turn] = Field(min_length=1)
    targets: list[_Turn] = []
    contexts: list[_Passage] = []
    answerability: list[str] = Field([], validation_alias=AliasChoices("Answerability", "answerability"))
    question_type: list[str] = Field([], alias="Question Type")
    multi_turn: list[str] = Field([], alias="Multi-Turn")
    collection: str = Field("", validation_alias=AliasChoices("Collection", "collection"))

    @property
    def conversation(self) -> str:
        """The id of the conversation that it is a turn of."""
        return self.task_id.partition("::")[0].removesuffix("<")


class _Evaluated(BaseModel):
    tasks: list[_Task] = Field(min_length=1)
    documents: list[_Passage]


class Mtrag(DataSet):
    """The file of evaluations (`tasks`, `documents`, ...), or generation tasks as JSONL, whose contexts hold texts.

    A conversation is one dialogue; each of its agent's turns that a task asks for may be the reference. `knowledge` is
    the passages that people found relevant to it, `pool` all that the file has of the conversation's collection.
    Of each turn `extra` has `answerability` (ANSWERABLE, PARTIAL, UNANSWERABLE, CONVERSATIONAL), `question_type`,
    `multi_turn` and `task_id`, of each dialogue `collection`.
    """

    name = "mtrag"
    languages = ("en",)
    paper = "MTRAG (Katsis et al., 2025)"
    licence = "Apache-2.0"
    where = "github.com/IBM/mt-rag-benchmark, mtrag-human"
    form = "a JSON object of {`tasks`, `documents`, ...}, or JSONL of {`task_id`, `input`, `targets`, `contexts`, ...}"
    has = ("knowledge",)

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole conversations."""
        tasks: list[_Task] = []
        for place, entry in read_forms(
            path, {"tasks": _Evaluated, "task_id": _Task}, self.published, unused=self.report.unused_keys
        ):
            if isinstance(entry, _Evaluated):
                texts = {document.document_id: document for document in entry.documents}
                try:
                    for task in entry.tasks:
                        task.contexts = [texts[context.document_id] for context in task.contexts]
                        tasks.append(task)
                except KeyError as error:
                    raise place.error(f"the context {error} is none of the documents", "tasks") from error
            elif isinstance(entry, _Task):
                tasks.append(entry)
        pools: dict[str, dict[str, Gold]] = {}
        conversations: dict[str, list[_Task]] = {}
        for task in tasks:
            pools.setdefault(task.collection, {}).update((piece.document_id, piece.gold) for piece in task.contexts)
            conversations.setdefault(task.conversation, []).append(task)
        for name, turns in conversations.items():
            fields = {"collection": turns[0].collection or None, "pool": tuple(pools[turns[0].collection].values())}
            yield from _talk(Talk(f"{self.name}-{name}", "en", **fields), turns)


def _talk(talk: Talk, tasks: Iterable[_Task]) -> Iterator[Entry]:
    """Yield a conversation: the input of its longest task, and that task's answer."""
    at = {len(task.input): task for task in tasks}
    longest = at[max(at)]
    turns = [*longest.input, *longest.targets[:1]]
    for position in range(len(longest.input) + 1):
        task = at.get(position)
        if task is None:
            talk.say("user" if turns[position].speaker.casefold() == "user" else "system", turns[position].text)
            continue
        told = {
            "answerability": next(iter(task.answerability), None),
            "question_type": task.question_type or None,
            "multi_turn": task.multi_turn or None,
            "task_id": task.task_id,
        }
        text = turns[position].text if position < len(turns) else None
        talk.answer("system", text, [piece.gold for piece in task.contexts], extra=told)
    yield from talk.whole()
