"""Data sets by name, imported when asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from dialore.errors import UnknownNameError

if TYPE_CHECKING:
    from dialore.datasets.base import DataSet

_SETS = {
    "dailydialog": "dialore.datasets.dailydialog:DailyDialog",
    "xdailydialog-en": "dialore.datasets.xdailydialog:XDailyDialogEn",
    "xdailydialog-zh": "dialore.datasets.xdailydialog:XDailyDialogZh",
}


def data_set_names() -> list[str]:
    """The names of all data sets, sorted."""
    return sorted(_SETS)


def data_set(name: str) -> DataSet:
    """The data set of that name; raises UnknownNameError where there is none."""
    if name not in _SETS:
        raise UnknownNameError("data set", name, _SETS)
    module, _, attribute = _SETS[name].partition(":")
    made: DataSet = getattr(importlib.import_module(module), attribute)()
    return made
