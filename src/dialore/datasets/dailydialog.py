"""DailyDialog (Li et al., 2017), everyday English conversations, and XDailyDialog (Liu et al., ACL 2023) of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Talk, WholeDialogue
from dialore.datasets.files import open_text, read_entries
from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dialore.text import Language

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


class XDailyDialogEn(DataSet):
    """A dialogue a line: turns that each end in `__eou__`, then topic, acts and emotions, tab-separated."""

    name = "xdailydialog-en"
    languages: ClassVar[tuple[Language, ...]] = ("en",)
    paper = "XDailyDialog (Liu et al., ACL 2023)"
    licence = "CC BY-NC-SA 4.0"
    where = "github.com/liuzeming01/XDailyDialog, data"
    form = "turns ending in __eou__ TAB topic TAB acts TAB emotions, a dialogue a line"

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Whole dialogues."""
        form = self.published
        with open_text(path, form=form) as text:
            for number, line in enumerate(text, start=1):
                if not line.strip():
                    continue
                texts = [untokenise(turn) for turn in line.split("\t")[0].split("__eou__") if turn.strip()]
                if "__eou__" not in line or not texts:
                    raise InputError(f"{path}, line {number}: no turn ends in __eou__", mend=form)
                yield from Talk(f"{self.name}-{number}", self.languages[0]).alternate(texts, "A", "B").whole()


class XDailyDialogZh(XDailyDialogEn):
    """The Chinese side, in the same form."""

    name = "xdailydialog-zh"
    languages = ("zh",)


def untokenise(text: str) -> str:
    """Text with the spaces before punctuation and inside contractions taken out: "that 's fine ." is "that's fine."."""
    joined = _SPACED.sub(lambda match: match[1] or match[2], text.strip())
    return " ".join(_APOSTROPHE.sub(r"\1'\2", joined).split())
