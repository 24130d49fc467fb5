"""DailyDialog (Li et al., 2017): everyday English conversations."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, ClassVar

from dialore.datasets.base import alternating
from dialore.dialogue import read_text
from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.text import Language

_SPACED = re.compile(r"\s+([.,!?;:%)\]’])|([(\[$])\s+")
_APOSTROPHE = re.compile(r"(\w)\s*['’]\s*(s|t|re|ve|ll|d|m)\b", re.IGNORECASE)


class DailyDialog:
    """A JSON list of `{"meta": [...], "dialogue": [["a", "b"], ...]}`: pairs of turns, the last turn may be blank."""

    name: ClassVar[str] = "dailydialog"
    version: ClassVar[int] = 1
    language: ClassVar[Language] = "en"
    source: ClassVar[str] = "DailyDialog (Li et al., IJCNLP 2017), as the few-shot bot benchmark publishes it"
    licence: ClassVar[str] = "CC BY-NC-SA 4.0"
    form: ClassVar[str] = "a JSON list of objects with `dialogue`, a list of pairs of turns"

    def read(self, path: Path) -> Iterator[Dialogue]:
        """Whole dialogues; tokenised punctuation is joined to its word again."""
        try:
            entries = json.loads(read_text(path))
        except ValueError as error:
            raise InputError(f"{path}: not valid JSON: {error}", mend=f"{self.name} is {self.form}") from error
        if not isinstance(entries, list):
            raise InputError(f"{path}: not a list", mend=f"{self.name} is {self.form}")
        for number, entry in enumerate(entries, start=1):
            try:
                texts = [untokenise(turn) for pair in entry["dialogue"] for turn in pair if turn.strip()]
                yield alternating(texts, f"{self.name}-{number}", self.language)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise InputError(f"{path}, entry {number}: {error}", mend=f"{self.name} is {self.form}") from error


def untokenise(text: str) -> str:
    """Text with the spaces before punctuation and inside contractions taken out: "that 's fine ." is "that's fine."."""
    joined = _SPACED.sub(lambda match: match[1] or match[2], text.strip())
    return " ".join(_APOSTROPHE.sub(r"\1'\2", joined).split())
