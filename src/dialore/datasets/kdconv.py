"""KdConv (Zhou et al., ACL 2020): Chinese talks on films, music and travel over knowledge graphs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from dialore.datasets.base import DataSet, Entry, Gold, Talk
from dialore.datasets.files import json_entries, read_entries
from dialore.errors import describe


class _Attribute(BaseModel):
    name: str
    attrname: str
    attrvalue: str


class _Message(BaseModel):
    message: str
    attrs: list[_Attribute] = []


class _Talk(BaseModel):
    name: str
    messages: list[_Message]


class KdConv(DataSet):
    """A JSON list of `{"name": topic, "messages": [{"message", "attrs"?}, ...]}` for each of three domains.

    `knowledge` is the facts that a turn used. `knowledge_pieces` also takes a domain's graph, `kb_film.json` and so on.
    """

    name = "kdconv"
    languages = ("zh",)
    paper = "KdConv (Zhou et al., ACL 2020)"
    licence = "Apache-2.0"
    where = "github.com/thu-coai/KdConv, data"
    form = "a JSON list of {`name`, `messages`: [{`message`, `attrs`}, ...]}"
    has = ("knowledge",)

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole dialogues; every turn but the first may be the reference."""
        for _, entry in read_entries(path, _Talk, self.published, unused=self.report.unused_keys):
            talk = Talk(None, "zh", topic=entry.name)
            for number, message in enumerate(entry.messages):
                facts = [
                    fact_of(attribute.name, attribute.attrname, attribute.attrvalue) for attribute in message.attrs
                ]
                talk.answer("AB"[number % 2], message.message, facts)
            yield from talk.whole()

    def knowledge(self, path: Path) -> Iterator[Gold]:
        """Yield the facts as `head relation tail`: those that were used, or all of a graph file."""
        triples = TypeAdapter(list[tuple[str, str, str]])
        for place, data in json_entries(path, self.published, keyed=True):
            if not place.key:
                yield from super().knowledge(path)
                return
            try:
                for head, relation, tail in triples.validate_python(data):
                    yield fact_of(head, relation, tail)
            except ValidationError as error:
                raise place.error(describe(error)) from error


def fact_of(head: str, relation: str, tail: str) -> Gold:
    """Return a fact as a piece of gold knowledge."""
    return {"head": head, "relation": relation, "tail": tail}
