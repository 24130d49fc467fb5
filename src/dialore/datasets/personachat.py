"""PersonaChat (Zhang et al., ACL 2018): two strangers, each with a few persona sentences, get to know each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
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
        with open_text(path, form=self.published) as text:
            is_json = text.read(64).lstrip()[:1] in {"[", "{", ""}
        if is_json:
            for place, entry in read_entries(path, _Pairs, self.published):
                yield from talk_of(
                    f"{self.name}-{place.number}", [], [line.strip() for line in entry.meta], entry.dialogue
                )
            return
        for count, (personas, pairs) in enumerate(self._numbered(path), start=1):
            others, own = (personas.get(f"{whose} persona", []) for whose in ("partner's", "your"))
            yield from talk_of(f"{self.name}-{count}", others, [line.strip() for line in own], pairs)

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


def talk_of(
    identifier: str,
    others: list[str],
    own: list[str],
    pairs: Iterable[tuple[str, str]],
    sessions: Sequence[dict[str, object]] = (),
) -> Iterator[WholeDialogue]:
    """Yield the dialogue of pairs of turns; `others` is the persona of the one who is answered."""
    talk = Talk(identifier, "en", persona=tuple(own), user_persona=others or None, sessions=sessions or None)
    for user, system in pairs:
        # ParlAI's mark for a partner who has not spoken yet.
        talk.pair("" if user == "__SILENCE__" else user, system)
    yield from talk.whole()
