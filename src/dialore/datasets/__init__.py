"""Data sets as their authors publish them, read into dialogues; one small file each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.datasets.base import Cut, DataSet, cut_dialogues
    from dialore.datasets.registry import data_set, data_set_names

__all__ = ["Cut", "DataSet", "cut_dialogues", "data_set", "data_set_names"]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.datasets.base": ["Cut", "DataSet", "cut_dialogues"],
        "dialore.datasets.registry": ["data_set", "data_set_names"],
    },
)
