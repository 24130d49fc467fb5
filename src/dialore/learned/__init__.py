"""Trained parts, used with numpy alone: ranker and planner of a persona and its documents, decisions, entailment."""

from dialore.learned.decision import TrainedDecision, open_decision
from dialore.learned.entailment import TrainedEntailment, open_entailment
from dialore.learned.model import describe, describe_all
from dialore.learned.planner import TrainedPlanner, open_planner
from dialore.learned.ranker import TrainedRanker, open_ranker

__all__ = [
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
]
