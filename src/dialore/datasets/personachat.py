"""PersonaChat (Zhang et al., ACL 2018): two strangers, each with a few persona sentences, get to know each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, Field

from dialore.datasets.base import DataSet, Entry, Talk
from dialore.datasets.files import open_text, read_forms
from dialore.errors import InputError

_LINE = re.compile(r"^(\d+) (.*)$")


_PERSONA = re.compile(r"^(your persona|partner's persona): (.*)$")


class _Pairs(BaseModel):
    meta: list[str]
    dialogue: list[tuple[str, str]]


class _HubTurn(BaseModel):
    history: list[str] = Field(min_length=1)
    candidates: list[str] = Field(min_length=1)


class _HubTalk(BaseModel):
    personality: list[str]
    utterances: list[_HubTurn] = Field(min_length=1)


class _HubRow(_HubTurn):
    personality: list[str]
    conv_id: int | str


class PersonaChat(DataSet):
    """Three forms: ParlAI's numbered lines, the few-shot bot benchmark's JSON list, and the objects of a hub.

    The latter have the `personality` and, of each turn, its `history` and its `candidates`, the last of which is right:
    a list of `utterances` for each dialogue, or a row for each turn with the dialogue's `conv_id`.

    The one whose persona is given is `system` and has `persona`; a partner's persona is `extra["user_persona"]`.
    """

    name = "personachat"
    languages = ("en",)
    paper = "PersonaChat (Zhang et al., ACL 2018)"
    licence = "see ParlAI"
    where = "parl.ai/projects/personachat; github.com/andreamad8/FSB, data/persona"
    form = (
        "lines such as `1 your persona: ...` and `5 turn TAB reply`; or a JSON list of {`meta`, `dialogue`} or "
        "{`personality`, `utterances`}"
    )
    has = ("persona",)

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole dialogues; the turns of the one with the persona are the references."""
        with open_text(path, form=self.published) as text:
            is_json = text.read(64).lstrip()[:1] in {"[", "{", ""}
        if is_json:
            yield from self._read_json(path)
            return
        for personas, pairs in self._numbered(path):
            others, own = (personas.get(f"{whose} persona", []) for whose in ("partner's", "your"))
            yield from talk_of(None, others, [line.strip() for line in own], pairs)

    def _read_json(self, path: Path) -> Iterator[Entry]:
        shapes: dict[str, type[BaseModel]] = {"utterances": _HubTalk, "candidates": _HubRow, "dialogue": _Pairs}
        row: _HubRow | None = None
        for _, entry in read_forms(path, shapes, self.published, unused=self.report.unused_keys):
            # A dialogue's last row has the whole history.
            if row is not None and not (isinstance(entry, _HubRow) and entry.conv_id == row.conv_id):
                yield from _hub_talk(row.personality, row)
                row = None
            if isinstance(entry, _HubRow):
                row = entry
            elif isinstance(entry, _HubTalk):
                yield from _hub_talk(entry.personality, entry.utterances[-1])
            elif isinstance(entry, _Pairs):
                yield from talk_of(None, [], _stripped(entry.meta), entry.dialogue)
        if row is not None:
            yield from _hub_talk(row.personality, row)

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


def _stripped(lines: Iterable[str]) -> list[str]:
    return [line.strip() for line in lines]


def _hub_talk(personality: list[str], last: _HubTurn) -> Iterator[Entry]:
    """Yield the dialogue of which the last turn is known: its history and the right candidate."""
    turns = [*last.history, last.candidates[-1]]
    if len(turns) % 2:
        turns.insert(0, "")  # the one with the persona begins
    yield from talk_of(None, [], _stripped(personality), zip(turns[::2], turns[1::2], strict=True))


def talk_of(
    identifier: str | None,
    others: list[str],
    own: list[str],
    pairs: Iterable[tuple[str, str]],
    sessions: Sequence[dict[str, object]] = (),
) -> Iterator[Entry]:
    """Yield the dialogue of pairs of turns; `others` is the persona of the one who is answered."""
    talk = Talk(identifier, "en", persona=tuple(own), user_persona=others or None, sessions=sessions or None)
    for user, system in pairs:
        # ParlAI's mark for a partner who has not spoken yet.
        talk.pair("" if user == "__SILENCE__" else user, system)
    yield from talk.whole()
