"""Multi-Session Chat (Xu et al., ACL 2022): PersonaChat's speakers meet again over up to five sessions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Entry, stated_id
from dialore.datasets.files import read_forms
from dialore.datasets.personachat import talk_of


class _Message(BaseModel):
    text: str


class _Session(BaseModel):
    dialog: list[_Message]
    time_num: int | None = None
    time_unit: str | None = None


class _Original(BaseModel):
    personas: tuple[list[str], list[str]]
    dialog: list[_Message]
    previous_dialogs: list[_Session] = []
    metadata: dict[str, Any] = {}


class _Personas(BaseModel):
    user: list[str]
    assistant: list[str]


class _Pairs(BaseModel):
    id: str
    meta: _Personas
    dialogue: list[tuple[str, str]]


class MultiSessionChat(DataSet):
    """Two forms: ParlAI's JSONL (`personas`, `dialog`, `previous_dialogs`) and the few-shot bot benchmark's JSON list.

    Speaker 1 is `user`, Speaker 2 `system`. `persona` is Speaker 2's, as summed up from the sessions before;
    `extra["user_persona"]` Speaker 1's. Earlier sessions, which ParlAI's form has, are `extra["sessions"]`:
    `[{"turns": [text, ...], "ago": "5 days"}, ...]`, the oldest first.
    """

    name = "multi-session-chat"
    languages = ("en",)
    paper = "Multi-Session Chat (Xu et al., ACL 2022)"
    licence = "see ParlAI"
    where = "parl.ai/projects/msc; github.com/andreamad8/FSB, data/msc"
    form = "JSONL of {`personas`, `dialog`, ...}, or a JSON list of {`id`, `meta`, `dialogue`}"
    has = ("persona",)

    def entries(self, path: Path) -> Iterator[Entry]:
        """Yield the last session of each; Speaker 2's turns are the references."""
        for _, entry in read_forms(
            path, {"personas": _Original, "dialogue": _Pairs}, self.published, unused=self.report.unused_keys
        ):
            if isinstance(entry, _Original):
                name = stated_id(self.name, entry.metadata.get("initial_data_id"))
                turns = [message.text for message in entry.dialog]
                pairs = zip_longest(turns[::2], turns[1::2], fillvalue="")
                yield from talk_of(name, *entry.personas, pairs, [*map(_session, entry.previous_dialogs)])
            elif isinstance(entry, _Pairs):
                yield from talk_of(
                    stated_id(self.name, entry.id), entry.meta.user, entry.meta.assistant, entry.dialogue
                )


def _session(session: _Session) -> dict[str, object]:
    ago = f"{session.time_num} {session.time_unit}" if session.time_num is not None and session.time_unit else None
    return {"turns": [message.text for message in session.dialog], **({"ago": ago} if ago else {})}
