"""OpenDialKG (Moon et al., ACL 2019): dialogues that walk a knowledge graph."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Gold, Talk, WholeDialogue
from dialore.datasets.files import Place, open_text, parse, read_entries, validate
from dialore.datasets.kdconv import fact_of
from dialore.files import with_long_cells

Triple = tuple[str, str, str]


class _Message(BaseModel):
    type: str
    sender: Literal["user", "assistant"]
    message: str = ""
    action_id: str = ""
    metadata: dict[str, Any] = {}


class _Walk(BaseModel):
    path: tuple[float, list[Triple], str]


class _Row(BaseModel):
    messages: list[_Message]


class _Pairs(BaseModel):
    id: str
    dialogue: list[tuple[str, str]]
    query: list[tuple[list[Triple] | Literal[""], list[Triple] | Literal[""]]]


class OpenDialKG(DataSet):
    """Two forms: the authors' CSV (`Messages`) and the few-shot bot benchmark's JSON list.

    The assistant is `system`. `knowledge` is the walk that was chosen before the turn, fact by fact. A step whose
    relation starts with `~` goes from a fact's tail to its head: the fact is given the right way round.
    """

    name = "opendialkg"
    version = 2
    languages = ("en",)
    paper = "OpenDialKG (Moon et al., ACL 2019)"
    licence = "CC BY-NC 4.0"
    where = "github.com/facebookresearch/opendialkg; github.com/andreamad8/FSB, data/dialKG"
    form = "CSV with a column Messages, or a JSON list of {`id`, `dialogue`, `query`}"
    has = ("knowledge",)

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Whole dialogues; the assistant's turns are the references. Rows without any message are left out."""
        with open_text(path, form=self.published) as text:
            is_csv = not text.read(64).lstrip().startswith("[")
        if is_csv:
            yield from self._read_csv(path)
            return
        for place, entry in read_entries(path, _Pairs, self.published):
            if len(entry.query) != len(entry.dialogue):
                raise place.error(f"{len(entry.query)} walks for {len(entry.dialogue)} pairs of turns", "query")
            talk = Talk(f"{self.name}-{entry.id}", "en")
            # Of a pair of walks the first is the assistant's; the second is the user's, for the next pair of turns.
            for (user, assistant), (walked, _) in zip(entry.dialogue, entry.query, strict=True):
                talk.pair(user, assistant, _facts(walked or ()))
            yield from talk.whole()

    def _read_csv(self, path: Path) -> Iterator[WholeDialogue]:
        form = self.published
        with open_text(path, form=form) as text:
            rows = csv.DictReader(text)
            for number, row in enumerate(with_long_cells(rows), start=1):
                place = Place(f"{path}, line {rows.line_num}, entry {number}", number, "", form)
                if not row.get("Messages"):
                    raise place.error("missing or empty", "Messages")
                entry = validate({"messages": parse(row["Messages"], place.where, form)}, _Row, place)
                talk = Talk(f"{self.name}-{number}", "en")
                walked: list[Triple] = []
                for count, message in enumerate(entry.messages):
                    if message.action_id == "kgwalk/choose_path":
                        inner = place._replace(where=f"{place.where}, message {count}")
                        walked = validate(message.metadata, _Walk, inner).path[1]
                    elif message.type == "chat":
                        if message.sender == "assistant":
                            talk.answer("system", message.message, _facts(walked))
                        else:
                            talk.say("user", message.message)
                        walked = []
                yield from talk.whole()


def _facts(triples: Iterable[Triple]) -> list[Gold]:
    return [
        fact_of(tail, relation[1:], head) if relation.startswith("~") else fact_of(head, relation, tail)
        for head, relation, tail in triples
    ]
