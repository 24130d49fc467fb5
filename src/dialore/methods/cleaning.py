"""Cleaned text: a response without its label, quotation marks or fence, whole or streamed; others' text as data."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dialore.learned.dialogue_ranking import joined

if TYPE_CHECKING:
    from dialore.knowledge import Knowledge
    from dialore.llm.model import OnToken

_QUOTES = {'"': '"', "“": "”", "「": "」"}
_FENCE = "```"
_FENCE_OPENS = re.compile(r"```\w*\n")
_FENCE_MAY_OPEN = re.compile(r"`{1,3}|```\w*")


def clean_response(text: str, labels: tuple[str, ...], leads: tuple[str, ...] = ()) -> str:
    """Return a response without what models put around it.

    A fence or quotation marks go where they enclose all of it and do not close before its end; speakers' labels (given
    without their colon) also where they are emphasised (`**Friend:** Hi`); of the leads the longest that is there.
    """
    cleaned = text.strip()
    fence = _FENCE_OPENS.match(cleaned)
    if fence and cleaned.find(_FENCE, fence.end()) == len(cleaned) - len(_FENCE):
        cleaned = cleaned[fence.end() : -len(_FENCE)].strip()
    for whole, _ in _openings(labels, leads):
        cleaned = whole.sub("", cleaned, count=1)
    closing = _QUOTES.get(cleaned[:1])
    if closing and len(cleaned) > 2 and cleaned.find(closing, 1) == len(cleaned) - 1:
        cleaned = cleaned[1:-1]
    return cleaned.strip()


class CleanStream:
    """Passes a response on while it is written; the pieces, joined, are what `clean_response` makes of the whole.

    The beginning is held back until it is known whether it is a label: for as many characters as one has, and seldom
    more than two. What begins with a quotation mark or a fence is held back until that closes. White space is held
    back until something follows it.
    """

    def __init__(self, on_token: OnToken, labels: tuple[str, ...], leads: tuple[str, ...] = ()) -> None:
        self._on_token, self._labels, self._leads = on_token, labels, leads
        self._held, self._flows = "", False

    def feed(self, piece: str) -> None:
        """Take the next piece, and pass on what is certain by now."""
        self._held += piece
        if not self._flows:
            begun = self._begun()
            if begun is None:
                return
            self._flows, self._held = True, begun
        certain = self._held.rstrip()
        self._held = self._held[len(certain) :]
        if certain:
            self._on_token(certain)

    def close(self) -> None:
        """Pass on the rest: nothing more comes."""
        held, self._held = self._held, ""
        if not self._flows and (text := clean_response(held, self._labels, self._leads)):
            self._on_token(text)

    def _begun(self) -> str | None:
        """Return the text held back, from where the response begins; None while that is open."""
        rest = self._held.lstrip()
        if _FENCE_MAY_OPEN.fullmatch(rest):
            return None
        if fence := _FENCE_OPENS.match(rest):
            return rest if _goes_on_behind(rest, _FENCE, fence.end()) else None
        for whole, begun in _openings(self._labels, self._leads):
            # First what may still come: one lead may be the beginning of another.
            if begun.fullmatch(rest):
                return None
            rest = whole.sub("", rest, count=1)
        if not rest:
            return None
        closing = _QUOTES.get(rest[0])
        return rest if closing is None or _goes_on_behind(rest, closing, 1) else None


def _goes_on_behind(text: str, closing: str, start: int) -> bool:
    """Return whether more than white space follows the first closing mark, so that it encloses not all."""
    position = text.find(closing, start)
    return position >= 0 and bool(text[position + len(closing) :].strip())


@functools.lru_cache(maxsize=64)
def _openings(labels: tuple[str, ...], leads: tuple[str, ...]) -> list[tuple[re.Pattern[str], re.Pattern[str]]]:
    """Return what a label, then a lead look like whole, and what may still become them; each may be missing."""
    any_label, mark = _any(labels), r"(?P<mark>\*{1,3}|_{1,3})"
    name = rf"{any_label}(?:-\d+)?"
    emphasised = rf"{mark}{name}(?:(?P=mark)\s*[:：]|\s*[:：]\s*(?P=mark))"
    label = (
        re.compile(rf"\A(?:{emphasised}|{name}\s*[:：])\s*", re.IGNORECASE),
        # A little more than what may become one: marks in any order.
        re.compile(
            rf"[*_]{{0,3}}(?:{_any(_beginnings(labels))}|{any_label}(?:-\d*)?[\s*_]*+[:：]?[\s*_]*+)", re.IGNORECASE
        ),
    )
    longest_first = sorted(leads, key=len, reverse=True)
    lead = (re.compile(rf"\A{_any(longest_first)}\s*"), re.compile(_any(_beginnings(leads))))
    return [label, *([lead] if leads else [])]


def _any(words: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, words))})"


def _beginnings(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(word[:length] for word in words for length in range(len(word) + 1)))


def as_data(text: str, *marks: str) -> str:
    """Return text from outside as a prompt shows it: on one line, unable to close the tags (`knowledge`) around it."""
    if marks:
        text = _tags(marks).sub(" ", text)
        text = _tags(marks).sub(lambda tag: f"‹{tag[0][1:]}", text)  # what was taken out may leave one around it
    return " ".join(text.split())


def prompt_line(item: Knowledge) -> str:
    """Return knowledge as one line of a prompt, with its title or speaker, unable to close the tags around it."""
    title = item.passage.title or item.passage.said
    return joined(as_data(f"({title}) {item.text}" if title else item.text, "knowledge"))


@functools.lru_cache(maxsize=32)
def _tags(marks: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<\s*+/?\s*+(?:{'|'.join(map(re.escape, marks))})\b(?:[^<>]*>)?", re.IGNORECASE)
