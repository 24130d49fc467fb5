"""Listeners to a model call: filters for text that is streamed in pieces, and notices of what the call waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dialore.llm.model import OnToken

LISTENER: ContextVar[Callable[[str], object] | None] = ContextVar("LISTENER", default=None)
"""Is called with one line on what a call waits for."""


class TextFilter(Protocol):
    """Removes parts of a text that arrives in pieces.

    The results of `feed` and `finish`, joined, do not depend on how the text was cut into pieces.
    """

    def feed(self, piece: str) -> str:
        """Take the next piece and return the text that is final by now."""
        ...

    def finish(self) -> str:
        """Return the text that was still held back. No further piece follows."""
        ...


class FilteredStream:
    """Passes pieces of text through filters, one after the other, to a listener."""

    def __init__(self, filters: Sequence[TextFilter], on_token: OnToken) -> None:
        self._filters = filters
        self._on_token = on_token

    def feed(self, piece: str) -> None:
        """Take the next piece."""
        self._pass_on(piece, self._filters)

    def finish(self) -> None:
        """Pass on the text that the filters held back."""
        for number, text_filter in enumerate(self._filters, start=1):
            self._pass_on(text_filter.finish(), self._filters[number:])

    def _pass_on(self, text: str, filters: Sequence[TextFilter]) -> None:
        for text_filter in filters:
            if not text:
                return
            text = text_filter.feed(text)
        if text:
            self._on_token(text)
