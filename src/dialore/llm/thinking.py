"""Reasoning models think before they answer, between `<think>` and `</think>`; only the answer is kept."""

from __future__ import annotations

_OPEN = "<think>"
_CLOSE = "</think>"


class ThinkFilter:
    """Strips a `<think>...</think>` prefix from text that comes in pieces.

    Feed it every piece in order; what it returns, joined, is the answer. Text that merely mentions the tags later on
    is left alone.
    """

    def __init__(self) -> None:
        self._state = "start"
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take the next piece and return the part of the answer that is certain by now."""
        if self._state == "answer":
            return piece
        self._held += piece
        if self._state == "start":
            self._decide()
        if self._state == "thinking":
            self._look_for_end()
        if self._state == "gap":
            return self._skip_gap()
        return self._release() if self._state == "answer" else ""

    def finish(self) -> str:
        """What was held back and turned out to be answer; thoughts that never ended are dropped."""
        return self._release() if self._state == "start" else ""

    def _decide(self) -> None:
        head = self._held.lstrip()
        if head.startswith(_OPEN):
            self._state = "thinking"
        elif not _OPEN.startswith(head):
            self._state = "answer"

    def _look_for_end(self) -> None:
        end = self._held.find(_CLOSE)
        if end >= 0:
            self._state, self._held = "gap", self._held[end + len(_CLOSE) :]
        else:
            # The tail may hold the first letters of the closing tag; the rest can go, thoughts may be long.
            self._held = self._held[-len(_OPEN + _CLOSE) :]

    def _skip_gap(self) -> str:
        self._held = self._held.lstrip()
        if not self._held:
            return ""
        self._state = "answer"
        return self._release()

    def _release(self) -> str:
        held, self._held = self._held, ""
        return held


def strip_thoughts(text: str) -> str:
    """The answer without its thoughts.

    A chat template may already have written the opening tag into the prompt, so that a text can begin with thoughts
    and hold the closing tag alone: that counts too.
    """
    if _CLOSE not in text:
        return "" if text.lstrip().startswith(_OPEN) else text
    if text.lstrip().startswith(_OPEN) or _OPEN not in text.partition(_CLOSE)[0]:
        return text.partition(_CLOSE)[2].lstrip()
    return text
