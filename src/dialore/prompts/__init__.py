"""Prompts as files: `prompts/<method>/<stage>.<language>.md`, which any folder of the user's may override."""

from dialore.prompts.history import render_history
from dialore.prompts.library import Prompt, PromptLibrary, RenderedPrompt

__all__ = ["Prompt", "PromptLibrary", "RenderedPrompt", "render_history"]
