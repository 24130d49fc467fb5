"""One of several samples of the same prompts: a repetition of a run asks a cache for other answers than the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dialore.llm.model import Completion, LanguageModel, OnText, Request


class Sampled:
    """A model whose requests carry a sample index.

    Args:
        model: the model underneath.
        sample: the index; 0 is what a request has anyway.
    """

    def __init__(self, model: LanguageModel, sample: int) -> None:
        self._model, self._sample = model, sample

    @property
    def name(self) -> str:
        """The name of the model underneath."""
        return self._model.name

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """Answer a request as that sample; raises as the model underneath."""
        return await self._model.complete(request.model_copy(update={"sample": self._sample}), on_text)

    async def close(self) -> None:
        """Close the model underneath."""
        await self._model.close()
