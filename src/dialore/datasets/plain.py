"""Dialogues in our own form, of any data: JSON or JSONL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dialore.datasets.base import BLANK_REFERENCE, Answer, DataSet, Entry, Holding, LeftOut, WholeDialogue
from dialore.datasets.files import json_entries
from dialore.dialogue import Dialogue, Utterance, dialogue_from, has_messages

if TYPE_CHECKING:
    from dialore.text import Language


class Jsonl(DataSet):
    """Dialogue files as `dialore data convert` writes them.

    A dialogue with a `reference` is read as it is: its turns, then the reference, which alone is to be answered, with
    its `references`, `knowledge`, `sources` and the rest. Of chat messages (`messages`) that end with the assistant's,
    every message of the assistant is to be answered. In a dialogue without a reference, every turn but the first may be
    the reference where a cut is named; else its last turn is to be answered, without a reference.
    """

    name = "jsonl"
    languages: ClassVar[tuple[Language, ...]] = ("en", "zh")
    paper = "any"
    licence = "its own"
    where = "your files"
    form = "JSONL, or a JSON list, of {`turns` or `messages`, `reference`?, `knowledge`?, `sources`?, ...}"
    has: ClassVar[tuple[Holding, ...]] = ("knowledge", "persona", "plan", "query")
    keeps_unused = True

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole dialogues; ids must be unique."""
        stated: set[str] = set()
        for place, data in json_entries(path, self.published):
            dialogue = dialogue_from(data, place=place.where)
            if data.get("id") is not None:
                if dialogue.id in stated:
                    raise place.error(f"{dialogue.id!r} was already used", "id")
                stated.add(dialogue.id)
            self.report.unused_keys.update(_unknown_keys(data))
            if dialogue.reference is not None and not dialogue.reference.strip():
                yield LeftOut(f"{dialogue.id}, {place.where}", BLANK_REFERENCE)
            elif dialogue.reference:
                yield _with_reference(dialogue, answers_all=has_messages(data) and not _states_reference(data))
            else:
                yield WholeDialogue.model_validate(_fields_of(dialogue))


def _unknown_keys(data: Mapping[str, Any]) -> list[str]:
    known = {*Dialogue.model_fields, "messages"} if has_messages(data) else Dialogue.model_fields
    return [key for key in data if key not in known]


def _states_reference(data: Mapping[str, Any]) -> bool:
    return bool(data.get("reference") or data.get("references"))


def _fields_of(dialogue: Dialogue) -> dict[str, Any]:
    return {name: getattr(dialogue, name) for name in dialogue.model_fields_set}


def _with_reference(dialogue: Dialogue, *, answers_all: bool) -> WholeDialogue:
    """Return a dialogue with its reference as the last turn, which alone is answered.

    With `answers_all` the responder's earlier turns are answered as well, as in chat messages without a reference.
    """
    fields = _fields_of(dialogue)
    answer = Answer(
        turn=len(dialogue.turns),
        references=fields.pop("references", ()),
        knowledge=fields.pop("knowledge", ()),
        sources=fields.pop("sources", None),
        extra=fields.pop("extra", {}),
    )
    earlier = [number for number, turn in enumerate(dialogue.turns) if turn.speaker == dialogue.responder]
    answers = [Answer(turn=number) for number in earlier if number and answers_all]
    reply = Utterance(speaker=dialogue.responder, text=fields.pop("reference"))
    fields |= {"turns": (*dialogue.turns, reply), "answers": (*answers, answer)}
    return WholeDialogue.model_validate(fields)


class Everyday(Jsonl):
    """Twenty short talks among friends, 14 English and 6 Chinese, each with a reference; they are part of Dialore."""

    name = "everyday"
    paper = "none: Dialore's own"
    licence = "Apache-2.0"
    where = "it comes with Dialore"
    has = ()
    bundled: ClassVar = {"": Path(str(resources.files("dialore") / "data" / "everyday.jsonl"))}


def unanswered_dialogue(dialogue: WholeDialogue) -> WholeDialogue:
    """Return a dialogue of turns without speakers: the last turn is to be answered, without a reference."""
    if dialogue.answers is not None:
        return dialogue
    answer = Answer(turn=len(dialogue.turns), knowledge=dialogue.knowledge)
    return dialogue.model_copy(update={"answers": (answer,)})
