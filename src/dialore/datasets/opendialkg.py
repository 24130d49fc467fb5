"""OpenDialKG (Moon et al., ACL 2019): dialogues that walk a knowledge graph."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator

from dialore.datasets.base import DataSet, Entry, Gold, Talk, stated_id
from dialore.datasets.files import Place, count_unused, json_entries, open_text, parse, validate
from dialore.datasets.kdconv import fact_of
from dialore.files import with_long_cells

Triple = tuple[str, str, str]


def _folded(value: object) -> object:
    return value.strip().casefold() if isinstance(value, str) else value


class _Message(BaseModel):
    type: str
    sender: Annotated[Literal["user", "assistant"], BeforeValidator(_folded)]
    message: str = ""
    action_id: str = ""
    metadata: dict[str, Any] = {}


class _Walk(BaseModel):
    path: tuple[float, list[Triple], str]


class _CsvRow(BaseModel):
    Messages: str


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
    form = "CSV or JSONL with Messages, or a JSON list of {`id`, `dialogue`, `query`}"
    has = ("knowledge",)

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole dialogues; the assistant's turns are the references."""
        with open_text(path, form=self.published) as text:
            is_csv = text.read(64).lstrip()[:1] not in {"[", "{"}
        if is_csv:
            yield from self._read_csv(path)
            return
        for place, data in json_entries(path, self.published):
            if isinstance(data, dict) and data.get("Messages"):
                count_unused(data, _CsvRow, self.report.unused_keys)
                yield from self._read_row(data["Messages"], place)
            else:
                count_unused(data, _Pairs, self.report.unused_keys)
                yield from self._read_pairs(validate(data, _Pairs, place), place)

    def _read_pairs(self, entry: _Pairs, place: Place) -> Iterator[Entry]:
        if len(entry.query) != len(entry.dialogue):
            raise place.error(f"{len(entry.query)} walks for {len(entry.dialogue)} pairs of turns", "query")
        talk = Talk(stated_id(self.name, entry.id), "en")
        # Of a pair of walks the first is the assistant's; the second is the user's, for the next pair of turns.
        for (user, assistant), (walked, _) in zip(entry.dialogue, entry.query, strict=True):
            talk.pair(user, assistant, _facts(walked or ()))
        yield from talk.whole()

    def _read_csv(self, path: Path) -> Iterator[Entry]:
        form = self.published
        with open_text(path, form=form) as text:
            rows = csv.DictReader(text)
            for number, row in enumerate(with_long_cells(rows), start=1):
                place = Place(f"{path}, line {rows.line_num}, entry {number}", number, "", form)
                if not row.get("Messages"):
                    raise place.error("missing or empty", "Messages")
                count_unused({key: value for key, value in row.items() if key}, _CsvRow, self.report.unused_keys)
                yield from self._read_row(row["Messages"], place)

    def _read_row(self, messages: object, place: Place) -> Iterator[Entry]:
        """Yield the dialogue of a row, whose messages are a list, or the text of one."""
        if isinstance(messages, str):
            messages = parse(messages, place.where, place.form)
        entry = validate({"messages": messages}, _Row, place)
        talk = Talk(None, "en")
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
