"""Dialore: knowledge-grounded dialogue with large language models.

The public names are loaded when first used, so that `import dialore` costs next to nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.agent import Agent
    from dialore.dialogue import Dialogue, Utterance, read_dialogues
    from dialore.errors import DialoreError
    from dialore.knowledge import Fact, Knowledge, Passage
    from dialore.response import Response
    from dialore.settings import Settings
    from dialore.workbench import Workbench, create_agent

if "".join(sys.argv[:1]).endswith(("-m", "/dialore")):  # the command: until `main` begins, Ctrl-C just ends it
    import os
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda _signal, _frame: os._exit(130))

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Dialogue",
    "DialoreError",
    "Fact",
    "Knowledge",
    "Passage",
    "Response",
    "Settings",
    "Utterance",
    "Workbench",
    "create_agent",
    "read_dialogues",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.agent": ["Agent"],
        "dialore.dialogue": ["Dialogue", "Utterance", "read_dialogues"],
        "dialore.errors": ["DialoreError"],
        "dialore.knowledge": ["Fact", "Knowledge", "Passage"],
        "dialore.response": ["Response"],
        "dialore.settings": ["Settings"],
        "dialore.workbench": ["Workbench", "create_agent"],
    },
)
