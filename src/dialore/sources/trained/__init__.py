"""Trained parts, used with numpy alone: a ranker of a persona and its documents, and a planner over the two."""

from dialore.sources.trained.model import describe, describe_all
from dialore.sources.trained.planner import TrainedPlanner, open_planner
from dialore.sources.trained.ranker import TrainedRanker

__all__ = ["TrainedPlanner", "TrainedRanker", "describe", "describe_all", "open_planner"]
