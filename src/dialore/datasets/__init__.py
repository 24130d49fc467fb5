"""Published data sets, read into dialogues; those that read alike share a file."""

from dialore.datasets.base import Answer, DataSet, WholeDialogue, gold_text
from dialore.datasets.registry import data_set, data_set_names, knowledge_pieces
from dialore.datasets.split import split_dialogues, stream_histories

__all__ = [
    "Answer",
    "DataSet",
    "WholeDialogue",
    "data_set",
    "data_set_names",
    "gold_text",
    "knowledge_pieces",
    "split_dialogues",
    "stream_histories",
]
