"""Answers without label, quotation marks or fence, whole or streamed; those that are none; others' text as data."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from dialore.text import close_gaps

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge

_QUOTES = {'"': '"', "“": "”", "「": "」"}
_NOTHING = frozenset(("", "none", "n/a", "unknown", "null", "无", "没有", "不知道"))
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


class CleanFilter:
    """Removes from a streamed response what models put around it, as `clean_response` does for a whole one.

    The beginning is held back until it is known whether it is a label. A response that begins with a quotation mark or
    a fence is held back until that closes. White space is held back until something follows it.
    """

    def __init__(self, labels: tuple[str, ...], leads: tuple[str, ...] = ()) -> None:
        self._labels, self._leads = labels, leads
        self._held, self._flows = "", False

    def feed(self, piece: str) -> str:
        """See `TextFilter`."""
        self._held += piece
        if not self._flows:
            begun = self._begun()
            if begun is None:
                return ""
            self._flows, self._held = True, begun
        certain = self._held.rstrip()
        self._held = self._held[len(certain) :]
        return certain

    def finish(self) -> str:
        """See `TextFilter`."""
        held, self._held = self._held, ""
        if self._flows:
            return ""
        return clean_response(held, self._labels, self._leads)

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


def read_answer(text: str) -> str:
    """Return an answer on one line; empty where the model says that it has none."""
    answer = " ".join(text.split())
    return "" if answer.strip(" .。\"'“”").lower() in _NOTHING else answer


def as_data(text: str, *marks: str) -> str:
    """Return text from outside as a prompt shows it: on one line, unable to close the tags (`knowledge`) around it."""
    if marks:
        text = _tags(marks).sub(" ", text)
        text = _tags(marks).sub(lambda tag: f"‹{tag[0][1:]}", text)  # what was taken out may leave one around it
    return " ".join(text.split())


def prompt_line(item: Knowledge) -> str:
    """Return knowledge as one line of a prompt, with its title or speaker, unable to close the tags around it."""
    title = item.title or item.said
    return close_gaps(as_data(f"({title}) {item.text}" if title else item.text, "knowledge"))


@functools.lru_cache(maxsize=32)
def _tags(marks: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<\s*+/?\s*+(?:{'|'.join(map(re.escape, marks))})\b(?:[^<>]*>)?", re.IGNORECASE)


# --- answers that are none: the last turn or the instructions said back, or a script of both sides

ECHO = "the answer says the last turn back"
SCRIPT = "the answer goes on with a script of both sides"
INSTRUCTIONS = "the answer says the instructions back"
FAULTS = (ECHO, SCRIPT, INSTRUCTIONS)
_ALIKE = 0.92
_ECHO_MARGIN = 12  # characters after the last turn from which a response is more than an echo
_FEWEST_WORDS, _FEWEST_WIDE, _LONGEST = 5, 8, 2000
_FEWEST_ASKED, _FEWEST_ASKED_WIDE = 3, 4  # words, or Chinese characters, from which a question said back is no answer
_LEAST_RUN, _LEAST_SHARE = 4, 0.6  # words of a run that stands in the instructions, an answer's share in such runs
_USERS = ("Me", "User", "Human", "Customer", "我", "用户")
_OTHERS = ("Friend", "Assistant", "AI", "Bot", "System", "朋友", "助手")
_CODE = re.compile(r"^```.*?(?:^```|\Z)", re.DOTALL | re.MULTILINE)
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def answer_fault(text: str, dialogue: Dialogue, instructions: str = "") -> str:
    """Return why a text is no answer to a dialogue, asked by such instructions; empty where it may be one."""
    if _says_instructions(_plain(text), _plain(instructions)):
        return INSTRUCTIONS
    plain, last = _plain(text), _plain(dialogue.last.text)
    if _is_echo(plain, last) or (plain == last and _is_question(dialogue.last.text)):
        return ECHO
    speakers = {turn.speaker for turn in dialogue.turns} - {"user", "system"}
    users = (*_USERS, *speakers - {dialogue.responder})
    labels = "|".join(map(re.escape, sorted({*users, *_OTHERS, *speakers}, key=len, reverse=True)))
    label = rf"(?:(\A|\n)[ \t*_#>-]{{0,8}}|[.!?:。！？：][ \t]{{0,4}})({labels})(?:\*\*)?[ \t]?[:：]"
    marks = list(re.finditer(label, _CODE.sub("", text)))
    both = len({mark[2] for mark in marks}) > 1
    speaks_on = any(mark[2] in users and mark[1] is not None for mark in marks[1:] or marks)
    return SCRIPT if both or speaks_on else ""


def _is_echo(said: str, last: str) -> bool:
    if not said or not last or not _is_telling(last):
        return False
    if last in said:
        rest = said.replace(last, " ")
        return len(rest.split()) < _FEWEST_WORDS - 1 and len(_WIDE.findall(rest)) < _FEWEST_WIDE // 2
    if max(len(said), len(last)) > _LONGEST or not 0.8 < len(said) / len(last) < 1.25:
        return False
    # A letter or two that differ in a long sentence may be all of an answer ("eight", "nine"): words are compared.
    parts = (list(said), list(last)) if _WIDE.search(last) else (said.split(), last.split())
    return SequenceMatcher(None, *parts, autojunk=False).ratio() >= _ALIKE


def _says_instructions(answer: str, instructions: str) -> bool:
    """Return whether most words of an answer stand in the instructions, in runs too long for chance."""
    is_wide = _WIDE.search(instructions) is not None
    parts = list(answer) if is_wide else answer.split()
    length, runs = _runs_of_words(instructions, is_wide)
    if not 2 * _FEWEST_WORDS <= len(parts) <= 1.5 * length:
        return False
    repeated: set[int] = set()
    for start in range(len(parts) - _LEAST_RUN + 1):
        if tuple(parts[start : start + _LEAST_RUN]) in runs:
            repeated.update(range(start, start + _LEAST_RUN))
    return len(repeated) >= _LEAST_SHARE * len(parts)


@functools.lru_cache(maxsize=64)
def _runs_of_words(text: str, is_wide: bool) -> tuple[int, frozenset[tuple[str, ...]]]:
    """Return the number of words of a text, or characters if Chinese, and its runs of `_LEAST_RUN` of them."""
    parts = list(text) if is_wide else text.split()
    runs = zip(*(parts[offset:] for offset in range(_LEAST_RUN)), strict=False)
    return len(parts), frozenset(runs)


def _is_telling(text: str) -> bool:
    return len(text.split()) >= _FEWEST_WORDS or len(_WIDE.findall(text)) >= _FEWEST_WIDE


def _is_question(text: str) -> bool:
    """Return whether a turn is a question to which the same is no answer, unlike "Hello?"."""
    long = len(_plain(text).split()) >= _FEWEST_ASKED or len(_WIDE.findall(text)) >= _FEWEST_ASKED_WIDE
    return long and text.rstrip().endswith(("?", "？"))


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[\W_]+", " ", text.casefold()).split())


def stops(messages: list[str]) -> tuple[str, ...]:
    """Return what a model is to stop at where a prompt's turns bear labels: the user's next."""
    return tuple(mark for mark in ("\nMe:", "\n我：") if any(mark in f"\n{text}" for text in messages))


class EchoFilter:
    """Holds a streamed response back for as long as it may be the last turn said back.

    Attributes:
        flows: Whether text has been passed on, or will be at once.
    """

    def __init__(self, last_turn: str) -> None:
        self._last_turn = _plain(last_turn)
        self._held = ""
        self.flows = not (_is_telling(self._last_turn) or _is_question(last_turn))

    def feed(self, piece: str) -> str:
        """See `TextFilter`."""
        if self.flows:
            return piece
        self._held += piece
        begun = _plain(self._held)
        if self._last_turn.startswith(begun):
            return ""
        if begun.startswith(self._last_turn) and len(begun) < len(self._last_turn) + _ECHO_MARGIN:
            return ""
        return self.finish()

    def finish(self) -> str:
        """See `TextFilter`."""
        held, self._held, self.flows = self._held, "", True
        return held
