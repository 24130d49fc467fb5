"""Recipes that train the small parts of `dialore.learned` from a data set with plans."""

from dialore.training.decision import read_labelled, train_decision
from dialore.training.examples import Examples, read_examples, refuse_leaks
from dialore.training.nli import train_nli
from dialore.training.planner import train_planner
from dialore.training.ranker import train_ranker
from dialore.training.trees import save_trained

__all__ = [
    "Examples",
    "read_examples",
    "read_labelled",
    "refuse_leaks",
    "save_trained",
    "train_decision",
    "train_nli",
    "train_planner",
    "train_ranker",
]
