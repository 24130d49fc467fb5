"""Language models: the protocol, OpenAI-compatible endpoints, local models, cache, recordings, structured output."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dialore.llm.budget import Budgeted
    from dialore.llm.cache import Cached
    from dialore.llm.concurrency import AdaptiveLimiter, Limited
    from dialore.llm.connection import connect
    from dialore.llm.endpoint import Endpoint
    from dialore.llm.local import LocalModel
    from dialore.llm.model import (
        Completion,
        LanguageModel,
        Message,
        OnText,
        OutputSchema,
        Request,
        Sampling,
        Steering,
        Usage,
        estimate_tokens,
    )
    from dialore.llm.perplexity import Likelihood, LikelihoodModel, Scored, joint_perplexity, likelihood_model
    from dialore.llm.recording import Recorded, Recorder, Replay
    from dialore.llm.retry import Retrying
    from dialore.llm.seq2seq import LocalSeq2Seq
    from dialore.llm.structured import Structured, UnparsedError, complete_structured, output_schema, parse

__all__ = [
    "AdaptiveLimiter",
    "Budgeted",
    "Cached",
    "Completion",
    "Endpoint",
    "LanguageModel",
    "Likelihood",
    "LikelihoodModel",
    "Limited",
    "LocalModel",
    "LocalSeq2Seq",
    "Message",
    "OnText",
    "OutputSchema",
    "Recorded",
    "Recorder",
    "Replay",
    "Request",
    "Retrying",
    "Sampling",
    "Scored",
    "Steering",
    "Structured",
    "UnparsedError",
    "Usage",
    "complete_structured",
    "connect",
    "estimate_tokens",
    "joint_perplexity",
    "likelihood_model",
    "output_schema",
    "parse",
]

_ROOMS = {
    "budget": ("Budgeted",),
    "cache": ("Cached",),
    "concurrency": ("AdaptiveLimiter", "Limited"),
    "connection": ("connect",),
    "endpoint": ("Endpoint",),
    "local": ("LocalModel",),
    "model": (
        "Completion",
        "LanguageModel",
        "Message",
        "OnText",
        "OutputSchema",
        "Request",
        "Sampling",
        "Steering",
        "Usage",
        "estimate_tokens",
    ),
    "perplexity": ("Likelihood", "LikelihoodModel", "Scored", "joint_perplexity", "likelihood_model"),
    "recording": ("Recorded", "Recorder", "Replay"),
    "retry": ("Retrying",),
    "seq2seq": ("LocalSeq2Seq",),
    "structured": ("Structured", "UnparsedError", "complete_structured", "output_schema", "parse"),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for."""
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
