"""Trained parts, used with numpy alone: ranker and planner of a persona and its documents, decisions, entailment."""

from dialore.sources.trained.decision import TrainedDecision, open_decision
from dialore.sources.trained.entailment import TrainedEntailment, open_entailment
from dialore.sources.trained.model import describe, describe_all
from dialore.sources.trained.planner import TrainedPlanner, open_planner
from dialore.sources.trained.ranker import TrainedRanker, open_ranker

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
