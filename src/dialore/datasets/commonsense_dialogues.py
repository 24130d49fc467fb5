"""Commonsense-Dialogues (Zhou et al., SIGDIAL 2021): talks that take up a social situation of SocialIQA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Entry, Talk
from dialore.datasets.files import read_entries


class _Situation(BaseModel):
    context: str
    speaker: str
    turns: list[str]


class CommonsenseDialogues(DataSet):
    """A JSON object of `{number: {"context", "speaker", "turns"}}`; the named speaker talks first, with a friend.

    The numbers are positions, so that ids are derived from the turns. `extra["context"]` is the situation that the
    speaker is in.
    """

    name = "commonsense-dialogues"
    languages = ("en",)
    paper = "Commonsense-Dialogues (Zhou et al., SIGDIAL 2021)"
    licence = "CC BY-NC 4.0"
    where = "github.com/alexa/Commonsense-Dialogues, data"
    form = "a JSON object of {number: {`context`, `speaker`, `turns`}}"

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole dialogues; every turn but the first may be the reference."""
        for _, entry in read_entries(path, _Situation, self.published, keyed=True, unused=self.report.unused_keys):
            talk = Talk(None, "en", context=entry.context)
            yield from talk.alternate(entry.turns, entry.speaker.strip() or "speaker", "friend").whole()
