"""XDailyDialog (Liu et al., ACL 2023): DailyDialog in parallel in several languages."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dialore.datasets.base import DataSet, Talk, WholeDialogue
from dialore.datasets.dailydialog import untokenise
from dialore.datasets.files import open_text
from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dialore.text import Language


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
