"""Trained parts, used with numpy alone: a ranker of a persona and its documents, a planner over the two, decisions."""

from dialore.sources.trained.decision import TrainedDecision, open_decision
from dialore.sources.trained.model import describe, describe_all
from dialore.sources.trained.planner import TrainedPlanner, open_planner
from dialore.sources.trained.ranker import TrainedRanker

__all__ = [
    "TrainedDecision",
    "TrainedPlanner",
    "TrainedRanker",
    "describe",
    "describe_all",
    "open_decision",
    "open_planner",
]
