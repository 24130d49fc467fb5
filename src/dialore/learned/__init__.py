"""Trained parts, a file each: its features, its training (`dialore train`), and its use, with numpy alone."""

from dialore.learned.decision import TrainedDecision, open_decision, read_labelled, train_decision
from dialore.learned.entailment import TrainedEntailment, open_entailment, train_nli
from dialore.learned.examples import Examples, read_examples, refuse_leaks
from dialore.learned.model import describe, describe_all
from dialore.learned.planner import TrainedPlanner, open_planner, train_planner
from dialore.learned.ranker import TrainedRanker, open_ranker, train_ranker
from dialore.learned.trees import save_trained

__all__ = [
    "Examples",
    "TrainedDecision",
    "TrainedEntailment",
    "TrainedPlanner",
    "TrainedRanker",
    "describe",
    "describe_all",
    "open_decision",
    "open_entailment",
    "open_planner",
    "open_ranker",
    "read_examples",
    "read_labelled",
    "refuse_leaks",
    "save_trained",
    "train_decision",
    "train_nli",
    "train_planner",
    "train_ranker",
]
