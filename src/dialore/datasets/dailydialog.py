"""DailyDialog (Li et al., 2017): everyday English conversations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Talk, WholeDialogue
from dialore.datasets.files import read_entries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SPACED = re.compile(r"\s+([.,!?;:%)\]’])|([(\[$])\s+")
_APOSTROPHE = re.compile(r"(\w)\s*['’]\s*(s|t|re|ve|ll|d|m)\b", re.IGNORECASE)


class _Entry(BaseModel):
    dialogue: list[list[str]]


class DailyDialog(DataSet):
    """A JSON list of `{"meta": [...], "dialogue": [["a", "b"], ...]}`: pairs of turns, the last turn may be blank."""

    name = "dailydialog"
    languages = ("en",)
    paper = "DailyDialog (Li et al., IJCNLP 2017), as the few-shot bot benchmark publishes it"
    licence = "CC BY-NC-SA 4.0"
    where = "github.com/andreamad8/FSB, data/dailydialog"
    form = "a JSON list of objects with `dialogue`, a list of pairs of turns"

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Whole dialogues; tokenised punctuation is joined to its word again."""
        for place, entry in read_entries(path, _Entry, self.published):
            turns = [untokenise(turn) for pair in entry.dialogue for turn in pair if turn.strip()]
            yield from Talk(f"{self.name}-{place.number}", "en").alternate(turns, "A", "B").whole()


def untokenise(text: str) -> str:
    """Text with the spaces before punctuation and inside contractions taken out: "that 's fine ." is "that's fine."."""
    joined = _SPACED.sub(lambda match: match[1] or match[2], text.strip())
    return " ".join(_APOSTROPHE.sub(r"\1'\2", joined).split())
