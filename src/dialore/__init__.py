"""Dialore: knowledge-grounded dialogue with large language models.

The public names are loaded when first used, so that `import dialore` costs next to nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dialore._lazy import lazy_names
from dialore._version import __version__ as __version__

if TYPE_CHECKING:
    from dialore.agent import Agent
    from dialore.dialogue import Dialogue, Utterance, read_dialogues
    from dialore.errors import DialoreError
    from dialore.experiments.dataframes import Run, load_run
    from dialore.experiments.run import run_experiment
    from dialore.knowledge import Fact, Knowledge, Passage
    from dialore.response import Response
    from dialore.retrieval.documents.indexing import build_documents
    from dialore.session import Session, connect, create_agent
    from dialore.settings import Settings
    from dialore.sources.in_memory import InMemoryPassages

if "".join(sys.argv[:1]).endswith(("-m", "/dialore")):  # the command: until `main` begins, Ctrl-C just ends it
    import os
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda _signal, _frame: os._exit(130))

__all__ = [
    "Agent",
    "Dialogue",
    "DialoreError",
    "Fact",
    "InMemoryPassages",
    "Knowledge",
    "Passage",
    "Response",
    "Run",
    "Session",
    "Settings",
    "Utterance",
    "build_documents",
    "connect",
    "create_agent",
    "load_run",
    "read_dialogues",
    "run_experiment",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.agent": ["Agent"],
        "dialore.dialogue": ["Dialogue", "Utterance", "read_dialogues"],
        "dialore.errors": ["DialoreError"],
        "dialore.experiments.dataframes": ["Run", "load_run"],
        "dialore.experiments.run": ["run_experiment"],
        "dialore.knowledge": ["Fact", "Knowledge", "Passage"],
        "dialore.response": ["Response"],
        "dialore.settings": ["Settings"],
        "dialore.retrieval.documents.indexing": ["build_documents"],
        "dialore.sources.in_memory": ["InMemoryPassages"],
        "dialore.session": ["Session", "connect", "create_agent"],
    },
)


def __dir__() -> list[str]:
    return __all__
