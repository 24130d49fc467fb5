"""XDailyDialog (Liu et al., ACL 2023): DailyDialog in parallel in several languages."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dialore.datasets.base import alternating
from dialore.datasets.dailydialog import untokenise
from dialore.dialogue import read_text
from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.text import Language


class XDailyDialogEn:
    """A dialogue a line: turns that each end in `__eou__`, then topic, acts and emotions, tab-separated."""

    name: ClassVar[str] = "xdailydialog-en"
    version: ClassVar[int] = 1
    language: ClassVar[Language] = "en"
    source: ClassVar[str] = "XDailyDialog (Liu et al., ACL 2023)"
    licence: ClassVar[str] = "CC BY-NC-SA 4.0"
    form: ClassVar[str] = "turns ending in __eou__ TAB topic TAB acts TAB emotions, a dialogue a line"

    def read(self, path: Path) -> Iterator[Dialogue]:
        """Whole dialogues."""
        for number, line in enumerate(read_text(path).splitlines(), start=1):
            if not line.strip():
                continue
            texts = [untokenise(turn) for turn in line.split("\t")[0].split("__eou__") if turn.strip()]
            if "__eou__" not in line or not texts:
                raise InputError(f"{path}, line {number}: no turn ends in __eou__", mend=f"{self.name} is {self.form}")
            yield alternating(texts, f"{self.name}-{number}", self.language)


class XDailyDialogZh(XDailyDialogEn):
    """The Chinese side, in the same form."""

    name: ClassVar[str] = "xdailydialog-zh"
    language: ClassVar[Language] = "zh"
