"""DailyDialog (Li et al., 2017), everyday English conversations, and XDailyDialog (Liu et al., ACL 2023) of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Talk, WholeDialogue
from dialore.datasets.files import open_text, read_forms
from dialore.errors import InputError

if TYPE_CHECKING:
    from dialore.text import Language

_SPACED = re.compile(r"(?<!\s)\s+([.,!?;:%)\]’])|([(\[$])\s+")


_APOSTROPHE = re.compile(r"(\w)\s*['’]\s*(s|t|re|ve|ll|d|m)\b", re.IGNORECASE)


_START = 1 << 16
"""Characters of a file that tell its form: no dialogue is as long."""


class _Pairs(BaseModel):
    dialogue: list[list[str]]


class _Turns(BaseModel):
    dialog: list[str]


class DailyDialog(DataSet):
    """Three forms: the authors' text (turns that end in `__eou__`), rows `{"dialog": ["a", "b", ...]}`, and pairs.

    Pairs are the few-shot bot benchmark's, `{"dialogue": [["a", "b"], ...]}`; the last turn may be blank.
    """

    name = "dailydialog"
    languages = ("en",)
    paper = "DailyDialog (Li et al., IJCNLP 2017)"
    licence = "CC BY-NC-SA 4.0"
    where = "yanran.li/dailydialog; github.com/andreamad8/FSB, data/dailydialog"
    form = "turns ending in __eou__, a dialogue a line; or a JSON list or JSONL of objects with `dialog` or `dialogue`"

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Whole dialogues; tokenised punctuation is joined to its word again."""
        with open_text(path, form=self.published) as text:
            is_text = "__eou__" in text.read(_START)
        if is_text:
            yield from _read_text(path, self)
            return
        for place, entry in read_forms(path, {"dialogue": _Pairs, "dialog": _Turns}, self.published):
            if isinstance(entry, _Pairs):
                yield from _alternate(self, place.number, chain.from_iterable(entry.dialogue))
            elif isinstance(entry, _Turns):
                yield from _alternate(self, place.number, entry.dialog)


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
        return _read_text(path, self)


class XDailyDialogZh(XDailyDialogEn):
    """The Chinese side, in the same form."""

    name = "xdailydialog-zh"
    languages = ("zh",)


def _read_text(path: Path, dataset: DataSet) -> Iterator[WholeDialogue]:
    """Yield a dialogue a line: turns that each end in `__eou__`; what follows a tab is no turn."""
    form = dataset.published
    with open_text(path, form=form) as text:
        for number, line in enumerate(text, start=1):
            if not line.strip():
                continue
            turns = line.split("\t")[0].split("__eou__")
            if "__eou__" not in line or not any(map(str.strip, turns)):
                raise InputError(f"{path}, line {number}: no turn ends in __eou__", hint=form)
            yield from _alternate(dataset, number, turns)


def _alternate(dataset: DataSet, number: int, turns: Iterable[str]) -> Iterator[WholeDialogue]:
    texts = [untokenise(turn) for turn in turns if turn.strip()]
    yield from Talk(f"{dataset.name}-{number}", dataset.languages[0]).alternate(texts, "A", "B").whole()


def untokenise(text: str) -> str:
    """Text with the spaces before punctuation and inside contractions taken out: "that 's fine ." is "that's fine."."""
    joined = _SPACED.sub(lambda match: match[1] or match[2], text.strip())
    return " ".join(_APOSTROPHE.sub(r"\1'\2", joined).split())
