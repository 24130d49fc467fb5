"""Commonsense-Dialogues (Zhou et al., SIGDIAL 2021): talks that take up a social situation of SocialIQA."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Talk, WholeDialogue
from dialore.datasets.files import read_entries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dialore.text import Language


class _Entry(BaseModel):
    context: str
    speaker: str
    turns: list[str]


class CommonsenseDialogues(DataSet):
    """A JSON object of `{number: {"context", "speaker", "turns"}}`; the named speaker talks first, with a friend.

    `extra["context"]` is the situation that the speaker is in.
    """

    name: ClassVar[str] = "commonsense-dialogues"
    languages: ClassVar[tuple[Language, ...]] = ("en",)
    paper: ClassVar[str] = "Commonsense-Dialogues (Zhou et al., SIGDIAL 2021)"
    licence: ClassVar[str] = "CC BY-NC 4.0"
    where: ClassVar[str] = "github.com/alexa/Commonsense-Dialogues, data"
    form: ClassVar[str] = "a JSON object of {number: {`context`, `speaker`, `turns`}}"

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Whole dialogues; every turn but the first may be the reference."""
        for place, entry in read_entries(path, _Entry, self, keyed=True):
            talk = Talk(f"{self.name}-{place.key or place.number}", "en", context=entry.context)
            for number, text in enumerate(entry.turns):
                talk.answer("friend" if number % 2 else entry.speaker.strip() or "speaker", text)
            yield from talk.whole()
