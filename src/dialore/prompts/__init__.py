"""Prompts as files: `prompts/<method>/<stage>.<language>.md`, which any folder of the user's may override."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.prompts.history import render_history
    from dialore.prompts.library import Prompt, PromptLibrary, RenderedPrompt

__all__ = ["Prompt", "PromptLibrary", "RenderedPrompt", "render_history"]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.prompts.history": ["render_history"],
        "dialore.prompts.library": ["Prompt", "PromptLibrary", "RenderedPrompt"],
    },
)
