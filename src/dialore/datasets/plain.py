"""Dialogues in our own form, of any data: JSON or JSONL."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dialore.datasets.base import Answer, DataSet, Holding, WholeDialogue
from dialore.datasets.files import json_entries
from dialore.dialogue import Utterance, dialogue_from

if TYPE_CHECKING:
    from dialore.text import Language


class Jsonl(DataSet):
    """Dialogue files as `dialore data convert` writes them.

    A dialogue with a `reference` is read as it is: its turns, then the reference, which alone is to be answered, with
    its `knowledge`, `sources` and the rest. In one without, every turn but the first may be the reference where a cut
    is named; else its last turn is to be answered, without a reference.
    """

    name = "jsonl"
    languages: ClassVar[tuple[Language, ...]] = ("en", "zh")
    paper = "any"
    licence = "its own"
    where = "your files"
    form = "JSONL, or a JSON list, of {`turns`, `reference`?, `knowledge`?, `sources`?, ...}"
    has: ClassVar[tuple[Holding, ...]] = ("knowledge", "persona", "plan", "query")

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Whole dialogues; ids must be unique."""
        stem = path.name.split(".", maxsplit=1)[0] or self.name
        seen: set[bytes] = set()
        for place, data in json_entries(path, self.published):
            dialogue = dialogue_from(data, place=place.where, default_id=f"{stem}-{place.number}")
            digest = hashlib.blake2b(dialogue.id.encode(), digest_size=12).digest()
            if digest in seen:
                raise place.error(f"{dialogue.id!r} was already used", "id")
            seen.add(digest)
            fields = {name: getattr(dialogue, name) for name in dialogue.model_fields_set}
            if dialogue.reference and dialogue.reference.strip():
                answer = Answer(
                    turn=len(dialogue.turns),
                    knowledge=fields.pop("knowledge", ()),
                    sources=fields.pop("sources", None),
                    extra=fields.pop("extra", {}),
                )
                reply = Utterance(speaker=dialogue.responder, text=fields.pop("reference"))
                fields |= {"turns": (*dialogue.turns, reply), "answers": (answer,)}
            yield WholeDialogue.model_validate(fields)


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
