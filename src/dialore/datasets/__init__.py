"""Published data sets, one file each, read into dialogues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.datasets.base import Answer, DataSet, WholeDialogue, gold_text
    from dialore.datasets.registry import data_set, data_set_names, knowledge_texts
    from dialore.datasets.split import split_dialogues, stream_histories

__all__ = [
    "Answer",
    "DataSet",
    "WholeDialogue",
    "data_set",
    "data_set_names",
    "gold_text",
    "knowledge_texts",
    "split_dialogues",
    "stream_histories",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.datasets.base": ["Answer", "DataSet", "WholeDialogue", "gold_text"],
        "dialore.datasets.registry": ["data_set", "data_set_names", "knowledge_texts"],
        "dialore.datasets.split": ["split_dialogues", "stream_histories"],
    },
)
