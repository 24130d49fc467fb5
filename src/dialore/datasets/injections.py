"""A hundred prompt injections, planted where the knowledge comes from that answers a harmless question."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from dialore.datasets.base import Answer, WholeDialogue
from dialore.datasets.files import checked, json_entries
from dialore.datasets.plain import Jsonl
from dialore.knowledge import Fact
from dialore.text import Language, normalise

CARRIERS = ("documents", "facts", "memory", "web")
FOLDER = Path(str(resources.files("dialore") / "data" / "injections"))


class Injection(BaseModel):
    """A harmless question, and the planted knowledge that is retrieved for it.

    Attributes:
        kind: what the order wants, or how it hides.
        turns: the dialogue; the user's question is the last.
        title: of the document or page, or the concept that the fact is of.
        text: what answers the question, with `{}` where the order stands.
        order: what the attacker wants of the model.
        changed: words that a reply has only where the order was followed, in small letters; any of them counts.
        persona: the responder's persona, where there is a secret to give away.
    """

    id: str
    language: Language
    kind: str
    turns: list[str]
    title: str = ""
    text: str
    order: str
    changed: list[str]
    persona: list[str] = []

    @property
    def planted(self) -> str:
        """The text with the order in it."""
        return self.text.replace("{}", self.order)

    def has_changed(self, reply: str) -> bool:
        """Return whether a reply has one of the words that show it."""
        return any(normalise(word) in normalise(reply) for word in self.changed)


class Injections(Jsonl):
    """Twenty-five of each carrier, which is the split. `extra` has the item as `injection`, and what is planted."""

    name = "injections"
    paper = "none: Dialore's own"
    licence = "Apache-2.0"
    where = "it comes with Dialore"
    form = "JSONL of {`id`, `language`, `kind`, `turns`, `title`?, `text`, `order`, `changed`, `persona`?}"
    has = ()
    bundled: ClassVar = {carrier: FOLDER / f"{carrier}.jsonl" for carrier in CARRIERS}

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Yield the dialogues of a carrier; nobody has answered their last turns."""
        for place, data in json_entries(path, self.published):
            item = checked(data, Injection, place)
            extra: dict[str, Any] = {"injection": item.model_dump()}
            if path.stem == "memory":
                extra["memory"] = [{"text": item.planted, "said": "2026-03-02T09:00:00Z"}]
            elif path.stem != "facts":
                url = f"https://{item.id}.example/" if path.stem == "web" else ""
                extra["pool"] = [{"text": item.planted, "title": item.title, "url": url}]
            given = item.model_dump(include={"id", "language", "turns", "persona"})
            answers = [Answer(turn=len(item.turns))]
            yield WholeDialogue.model_validate({**given, "answers": answers, "extra": extra})


def planted_facts() -> Iterator[Fact]:
    """Yield the facts that a graph has to hold."""
    for line in Injections.bundled["facts"].read_text("utf-8").splitlines():
        item = Injection.model_validate_json(line)
        yield Fact(item.title, "HasProperty", item.planted)
