"""Data sets as their authors publish them, read into dialogues; one small file each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.datasets.base import Answer, DataSet, WholeDialogue, gold_text
    from dialore.datasets.cutting import CUTS, Cut, answers_of, cut_dialogues, stream_histories
    from dialore.datasets.registry import data_set, data_set_names, knowledge_texts

__all__ = [
    "CUTS",
    "Answer",
    "Cut",
    "DataSet",
    "WholeDialogue",
    "answers_of",
    "cut_dialogues",
    "data_set",
    "data_set_names",
    "gold_text",
    "knowledge_texts",
    "stream_histories",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.datasets.base": ["Answer", "DataSet", "WholeDialogue", "gold_text"],
        "dialore.datasets.cutting": ["CUTS", "Cut", "answers_of", "cut_dialogues", "stream_histories"],
        "dialore.datasets.registry": ["data_set", "data_set_names", "knowledge_texts"],
    },
)
