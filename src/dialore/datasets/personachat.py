"""PersonaChat (Zhang et al., ACL 2018): two strangers, each with a few persona sentences, get to know each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Talk, WholeDialogue
from dialore.datasets.files import open_text, read_entries
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
        form = self.published
        with open_text(path, form=form) as text:
            is_json = text.read(64).lstrip()[:1] in {"[", "{", ""}
        if is_json:
            for place, entry in read_entries(path, _Pairs, self.published):
                yield from _talk(f"{self.name}-{place.number}", entry.meta, [], entry.dialogue)
            return
        yield from self._read_lines(path, form)

    def _read_lines(self, path: Path, form: str) -> Iterator[WholeDialogue]:
        personas: dict[str, list[str]] = {}
        pairs: list[tuple[str, str]] = []
        count = 0
        with open_text(path, form=form) as text:
            for line, raw in enumerate(text, start=1):
                match = _LINE.match(raw.rstrip("\n"))
                if match is None:
                    raise InputError(f"{path}, line {line}: no number at its start", hint=form)
                if match[1] == "1" and (personas or pairs):
                    count += 1
                    yield from _close(f"{self.name}-{count}", personas, pairs)
                    personas, pairs = {}, []
                if persona := _PERSONA.match(match[2]):
                    personas.setdefault(persona[1], []).append(persona[2])
                else:
                    turns = match[2].split("\t")
                    if len(turns) < 2 or not turns[1].strip():
                        raise InputError(f"{path}, line {line}: no reply after a tab", hint=form)
                    pairs.append((turns[0], turns[1]))
        yield from _close(f"{self.name}-{count + 1}", personas, pairs)


def _close(identifier: str, personas: dict[str, list[str]], pairs: list[tuple[str, str]]) -> Iterator[WholeDialogue]:
    return _talk(identifier, personas.get("your persona", []), personas.get("partner's persona", []), pairs)


def _talk(identifier: str, own: list[str], others: list[str], pairs: list[tuple[str, str]]) -> Iterator[WholeDialogue]:
    talk = Talk(identifier, "en", persona=tuple(line.strip() for line in own), user_persona=others or None)
    for user, system in pairs:
        # ParlAI's mark for a partner who has not spoken yet.
        talk.pair("" if user == "__SILENCE__" else user, system)
    yield from talk.whole()
