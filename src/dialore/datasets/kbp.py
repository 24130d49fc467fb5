"""KBP, Knowledge Behind Persona (Wang et al., Findings of EMNLP 2023): Chinese, with persona, documents and plans."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from dialore.datasets.base import DataSet, Entry, Gold, Talk
from dialore.datasets.files import Place, read_entries


class _Turn(BaseModel):
    user: str = Field(alias="U")
    system: str = Field(alias="S")
    labels: list[list[str]] | None = Field(None, alias="P-K", max_length=2)


class _Entry(BaseModel):
    persona: dict[str, str]
    persona_kg: dict[str, dict[str, str]]
    conversation: list[_Turn]


class KBP(DataSet):
    """SAFARI's data set: each system turn names the persona and document sentences that it stands on.

    `persona` holds the persona sentences and `extra["documents"]` the documents under each, as `{persona sentence:
    [document sentence, ...]}`. `sources` is the gold plan: `[]`, `["persona"]` or `["persona", "documents"]`.
    `knowledge` holds `{"text", "source": "persona"}`, then `{"text", "source": "documents", "persona": its sentence}`.
    """

    name = "kbp"
    languages = ("zh",)
    paper = "SAFARI (Wang et al., Findings of EMNLP 2023)"
    licence = "none stated"
    where = "github.com/ruleGreen/SAFARI, kbp.zip"
    form = "a JSON list of objects with `persona`, `persona_kg` and `conversation`; or kbp.zip:kbp/dev.json"
    has = ("knowledge", "persona", "plan")

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole dialogues; the system's turns are the references."""
        for place, entry in read_entries(path, _Entry, self.published, unused=self.report.unused_keys):
            documents: dict[str, list[str]] = {}
            for label, sentence in entry.persona.items():
                if label not in entry.persona_kg:
                    raise place.error("no documents under it", f"persona_kg.{label}")
                # A sentence that stands twice has the documents of both.
                documents.setdefault(sentence.strip(), []).extend(entry.persona_kg[label].values())
            pool = tuple(chain.from_iterable(documents.values()))
            talk = Talk(None, "zh", persona=tuple(documents), documents=documents, pool=pool)
            for number, turn in enumerate(entry.conversation):
                talk.say("user", turn.user)
                knowledge = list(_gold(entry, turn, place, f"conversation[{number}].P-K"))
                plan = None if turn.labels is None else ("persona", "documents")[: len(turn.labels)]
                talk.answer("system", turn.system, knowledge, plan)
            yield from talk.whole()


def _gold(entry: _Entry, turn: _Turn, place: Place, field: str) -> Iterator[Gold]:
    """Yield the sentences that a turn's labels name, such as `B2` (persona) and `B2-K0` (a document under it)."""
    personas, documents = (*(turn.labels or ()), [], [])[:2]
    for label in personas:
        if label not in entry.persona:
            raise place.error(f"{label!r} is no persona sentence", field)
        yield {"text": entry.persona[label].strip(), "source": "persona"}
    for label in documents:
        owner, _, number = label.partition("-")
        text = entry.persona_kg.get(owner, {}).get(number)
        if text is None or owner not in entry.persona:
            raise place.error(f"{label!r} is no document sentence", field)
        gold: dict[str, Any] = {"text": text, "source": "documents", "persona": entry.persona[owner].strip()}
        yield gold
