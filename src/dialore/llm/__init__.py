"""Language models: the protocol, OpenAI-compatible endpoints, local models, cache, recordings, structured output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.llm.budget import Budget, Budgeted
    from dialore.llm.cache import Cached
    from dialore.llm.connection import connect
    from dialore.llm.endpoint import Endpoint
    from dialore.llm.local import LocalModel
    from dialore.llm.model import Completion, LanguageModel, Message, OutputSchema, Request, Sampling, Steering, Usage
    from dialore.llm.perplexity import Likelihood, Scored, likelihood_model
    from dialore.llm.recording import Recorder, Replay
    from dialore.llm.structured import Structured, UnparsedError, complete_structured

__all__ = [
    "Budget",
    "Budgeted",
    "Cached",
    "Completion",
    "Endpoint",
    "LanguageModel",
    "Likelihood",
    "LocalModel",
    "Message",
    "OutputSchema",
    "Recorder",
    "Replay",
    "Request",
    "Sampling",
    "Scored",
    "Steering",
    "Structured",
    "UnparsedError",
    "Usage",
    "complete_structured",
    "connect",
    "likelihood_model",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.llm.budget": ["Budget", "Budgeted"],
        "dialore.llm.cache": ["Cached"],
        "dialore.llm.connection": ["connect"],
        "dialore.llm.endpoint": ["Endpoint"],
        "dialore.llm.local": ["LocalModel"],
        "dialore.llm.model": [
            "Completion",
            "LanguageModel",
            "Message",
            "OutputSchema",
            "Request",
            "Sampling",
            "Steering",
            "Usage",
        ],
        "dialore.llm.perplexity": ["Likelihood", "Scored", "likelihood_model"],
        "dialore.llm.recording": ["Recorder", "Replay"],
        "dialore.llm.structured": ["Structured", "UnparsedError", "complete_structured"],
    },
)
