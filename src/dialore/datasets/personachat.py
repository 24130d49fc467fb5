"""PersonaChat (Zhang et al., ACL 2018), talks of two strangers with a few persona sentences each, and its sequel.

In Multi-Session Chat (Xu et al., ACL 2022) PersonaChat's speakers meet again over up to five sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Talk, WholeDialogue
from dialore.datasets.files import open_text, read_entries, read_forms
from dialore.errors import InputError

_LINE = re.compile(r"^(\d+) (.*)$")
_PERSONA = re.compile(r"^(your persona|partner's persona): (.*)$")


class _Pairs(BaseModel):
    meta: list[str]
    dialogue: list[tuple[str, str]]


class PersonaChat(DataSet):
    """Two forms: ParlAI's numbered lines (`train_self_original.txt`) and the few-shot bot benchmark's JSON list.

    The one whose persona is given is `system` and has `persona`; a partner's persona is `extra["user_persona"]`.
    """

    name = "personachat"
    languages = ("en",)
    paper = "PersonaChat (Zhang et al., ACL 2018)"
    licence = "see ParlAI"
    where = "parl.ai/projects/personachat; github.com/andreamad8/FSB, data/persona"
    form = "lines such as `1 your persona: ...` and `5 turn TAB reply`; or a JSON list of {`meta`, `dialogue`}"
    has = ("persona",)

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Whole dialogues; the turns of the one with the persona are the references."""
        with open_text(path, form=self.published) as text:
            is_json = text.read(64).lstrip()[:1] in {"[", "{", ""}
        if is_json:
            for place, entry in read_entries(path, _Pairs, self.published):
                yield from _talk(
                    f"{self.name}-{place.number}", [], [line.strip() for line in entry.meta], entry.dialogue
                )
            return
        for count, (personas, pairs) in enumerate(self._numbered(path), start=1):
            others, own = (personas.get(f"{whose} persona", []) for whose in ("partner's", "your"))
            yield from _talk(f"{self.name}-{count}", others, [line.strip() for line in own], pairs)

    def _numbered(self, path: Path) -> Iterator[tuple[dict[str, list[str]], list[tuple[str, str]]]]:
        """Yield the personas and the pairs of turns of each dialogue in ParlAI's form."""
        personas: dict[str, list[str]] = {}
        pairs: list[tuple[str, str]] = []
        with open_text(path, form=self.published) as text:
            for line, raw in enumerate(text, start=1):
                match = _LINE.match(raw.rstrip("\n"))
                if match is None:
                    raise InputError(f"{path}, line {line}: no number at its start", hint=self.published)
                if match[1] == "1" and (personas or pairs):
                    yield personas, pairs
                    personas, pairs = {}, []
                if persona := _PERSONA.match(match[2]):
                    personas.setdefault(persona[1], []).append(persona[2])
                else:
                    turn, reply = (*match[2].split("\t"), "")[:2]
                    if not reply.strip():
                        raise InputError(f"{path}, line {line}: no reply after a tab", hint=self.published)
                    pairs.append((turn, reply))
        yield personas, pairs


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


class _NamedPairs(BaseModel):
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

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Yield the last session of each; Speaker 2's turns are the references."""
        for place, entry in read_forms(path, {"personas": _Original, "dialogue": _NamedPairs}, self.published):
            if isinstance(entry, _Original):
                name = f"{self.name}-{entry.metadata.get('initial_data_id') or place.number}"
                turns = [message.text for message in entry.dialog]
                pairs = zip_longest(turns[::2], turns[1::2], fillvalue="")
                yield from _talk(name, *entry.personas, pairs, [*map(_session, entry.previous_dialogs)])
            elif isinstance(entry, _NamedPairs):
                yield from _talk(f"{self.name}-{entry.id}", entry.meta.user, entry.meta.assistant, entry.dialogue)


def _session(session: _Session) -> dict[str, object]:
    ago = f"{session.time_num} {session.time_unit}" if session.time_num is not None and session.time_unit else None
    return {"turns": [message.text for message in session.dialog], **({"ago": ago} if ago else {})}


def _talk(
    identifier: str,
    others: list[str],
    own: list[str],
    pairs: Iterable[tuple[str, str]],
    sessions: Sequence[dict[str, object]] = (),
) -> Iterator[WholeDialogue]:
    talk = Talk(identifier, "en", persona=tuple(own), user_persona=others or None, sessions=sessions or None)
    for user, system in pairs:
        # ParlAI's mark for a partner who has not spoken yet.
        talk.pair("" if user == "__SILENCE__" else user, system)
    yield from talk.whole()
