"""DailyDialog (Li et al., 2017), everyday English conversations, and XDailyDialog (Liu et al., ACL 2023) of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from dialore.datasets.base import DataSet, Entry, Talk
from dialore.datasets.files import Place, json_entries, open_text
from dialore.errors import InputError, describe

if TYPE_CHECKING:
    from dialore.text import Language

_SPACED = re.compile(r"(?<!\s)\s+([.,!?;:%)\]’])|([(\[$])\s+")


_APOSTROPHE = re.compile(r"(\w)\s*['’]\s*(s|t|re|ve|ll|d|m)\b", re.IGNORECASE)


_START = 1 << 16
"""Characters of a file that tell its form: no dialogue is as long."""


_KEYS = ("dialogue", "dialog", "utterances")


class _Said(BaseModel):
    text: str


_PAIRS = TypeAdapter(dict[str, list[list[str]]])
_OBJECTS = TypeAdapter(dict[str, list[_Said]])
_TEXTS = TypeAdapter(dict[str, list[str]])


class DailyDialog(DataSet):
    """The authors' text (turns that end in `__eou__`), or objects with the turns.

    The turns are under `dialog`, `dialogue` or `utterances`: texts, objects with `text`, or pairs of texts (of the
    few-shot bot benchmark, whose last turn may be blank).
    """

    name = "dailydialog"
    languages = ("en",)
    paper = "DailyDialog (Li et al., IJCNLP 2017)"
    licence = "CC BY-NC-SA 4.0"
    where = "yanran.li/dailydialog; github.com/andreamad8/FSB, data/dailydialog"
    form = (
        "turns ending in __eou__, a dialogue a line; or a JSON list or JSONL of objects with `dialog`, `dialogue` or "
        "`utterances`"
    )

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole dialogues; tokenised punctuation is joined to its word again."""
        with open_text(path, form=self.published) as text:
            is_text = "__eou__" in text.read(_START)
        if is_text:
            yield from _read_text(path, self)
            return
        for place, data in json_entries(path, self.published):
            key = next((key for key in _KEYS if isinstance(data, dict) and key in data), None)
            if key is None:
                raise place.error(f"it has none of the fields {', '.join(_KEYS)}")
            self.report.unused_keys.update(name for name in data if name != key)
            yield from _alternate(self, _turn_texts(key, data[key], place))


def _turn_texts(key: str, turns: object, place: Place) -> list[str]:
    """Return the texts of the turns under a key, in whichever form the first one has."""
    first = turns[0] if isinstance(turns, list) and turns else ""
    try:
        if isinstance(first, list):
            return list(chain.from_iterable(_PAIRS.validate_python({key: turns})[key]))
        if isinstance(first, dict):
            return [turn.text for turn in _OBJECTS.validate_python({key: turns})[key]]
        return _TEXTS.validate_python({key: turns})[key]
    except ValidationError as error:
        raise place.error(describe(error)) from error


class XDailyDialogEn(DataSet):
    """A dialogue a line: turns that each end in `__eou__`, then topic, acts and emotions, tab-separated."""

    name = "xdailydialog-en"
    languages: ClassVar[tuple[Language, ...]] = ("en",)
    paper = "XDailyDialog (Liu et al., ACL 2023)"
    licence = "CC BY-NC-SA 4.0"
    where = "github.com/liuzeming01/XDailyDialog, data"
    form = "turns ending in __eou__ TAB topic TAB acts TAB emotions, a dialogue a line"

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole dialogues."""
        return _read_text(path, self)


class XDailyDialogZh(XDailyDialogEn):
    """The Chinese side, in the same form."""

    name = "xdailydialog-zh"
    languages = ("zh",)


def _read_text(path: Path, dataset: DataSet) -> Iterator[Entry]:
    """Yield a dialogue a line: turns that each end in `__eou__`; what follows a tab is no turn."""
    form = dataset.published
    with open_text(path, form=form) as text:
        for number, line in enumerate(text, start=1):
            if not line.strip():
                continue
            turns = line.split("\t")[0].split("__eou__")
            if "__eou__" not in line or not any(map(str.strip, turns)):
                raise InputError(f"{path}, line {number}: no turn ends in __eou__", hint=form)
            yield from _alternate(dataset, turns)


def _alternate(dataset: DataSet, turns: Iterable[str]) -> Iterator[Entry]:
    texts = [untokenise(turn) for turn in turns if turn.strip()]
    yield from Talk(None, dataset.languages[0]).alternate(texts, "A", "B").whole()


def untokenise(text: str) -> str:
    """Text with the spaces before punctuation and inside contractions taken out: "that 's fine ." is "that's fine."."""
    joined = _SPACED.sub(lambda match: match[1] or match[2], text.strip())
    return " ".join(_APOSTROPHE.sub(r"\1'\2", joined).split())
