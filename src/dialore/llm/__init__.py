"""Language models: the protocol, OpenAI-compatible endpoints, local models, cache, recordings, structured output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.llm.cache import Cached
    from dialore.llm.connection import connect
    from dialore.llm.endpoint import Endpoint
    from dialore.llm.local import LocalModel
    from dialore.llm.model import Completion, LanguageModel, Message, Request, Sampling, Usage
    from dialore.llm.recording import Recorder, Replay
    from dialore.llm.structured import complete_structured

__all__ = [
    "Cached",
    "Completion",
    "Endpoint",
    "LanguageModel",
    "LocalModel",
    "Message",
    "Recorder",
    "Replay",
    "Request",
    "Sampling",
    "Usage",
    "complete_structured",
    "connect",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.llm.cache": ["Cached"],
        "dialore.llm.connection": ["connect"],
        "dialore.llm.endpoint": ["Endpoint"],
        "dialore.llm.local": ["LocalModel"],
        "dialore.llm.model": ["Completion", "LanguageModel", "Message", "Request", "Sampling", "Usage"],
        "dialore.llm.recording": ["Recorder", "Replay"],
        "dialore.llm.structured": ["complete_structured"],
    },
)
