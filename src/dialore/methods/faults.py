"""Answers that are none: the last turn or the instructions said back, or a script of both sides."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.llm.model import OnToken

ECHO = "the answer says the last turn back"
SCRIPT = "the answer goes on with a script of both sides"
INSTRUCTIONS = "the answer says the instructions back"
FAULTS = (ECHO, SCRIPT, INSTRUCTIONS)
_ALIKE = 0.92
_FEWEST_WORDS, _FEWEST_WIDE, _LONGEST = 5, 8, 2000
_FEWEST_ASKED, _FEWEST_ASKED_WIDE = 3, 4
"""Words, or Chinese characters, from which a question that is said back word for word is no answer."""
_LEAST_RUN, _LEAST_SHARE = 4, 0.6
"""Words, or Chinese characters, of a run that stands in the instructions, and the share of an answer in such runs."""
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
    marks = _marks(_CODE.sub("", text), (*users, *_OTHERS, *speakers))
    both = len({label for label, _ in marks}) > 1
    speaks_on = any(label in users and begins_line for label, begins_line in marks[1:] or marks)
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


def _says_instructions(said: str, told: str) -> bool:
    """Return whether most of an answer stands in the instructions, in runs too long for chance."""
    parts, known = (list(text) if _WIDE.search(told) else text.split() for text in (said, told))
    if not 2 * _FEWEST_WORDS <= len(parts) <= 1.5 * len(known):
        return False
    runs = SequenceMatcher(None, parts, known, autojunk=False).get_matching_blocks()
    return sum(run.size for run in runs if run.size >= _LEAST_RUN) >= _LEAST_SHARE * len(parts)


def _is_telling(text: str) -> bool:
    return len(text.split()) >= _FEWEST_WORDS or len(_WIDE.findall(text)) >= _FEWEST_WIDE


def _is_question(text: str) -> bool:
    """Return whether a turn is a question to which the same is no answer, unlike "Hello?"."""
    long = len(_plain(text).split()) >= _FEWEST_ASKED or len(_WIDE.findall(text)) >= _FEWEST_ASKED_WIDE
    return long and text.rstrip().endswith(("?", "？"))


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[\W_]+", " ", text.casefold()).split())


def _marks(text: str, labels: tuple[str, ...]) -> list[tuple[str, bool]]:
    """Return the speakers' labels in a text, in order, and whether each begins a line."""
    names = "|".join(re.escape(label) for label in sorted(set(labels), key=len, reverse=True))
    matches = re.finditer(
        rf"(?:(\A|\n)[ \t*_#>-]{{0,8}}|[.!?:。！？：][ \t]{{0,4}})({names})(?:\*\*)?[ \t]?[:：]", text
    )
    return [(match[2], match[1] is not None) for match in matches]


def stops(messages: list[str]) -> tuple[str, ...]:
    """Return what a model is to stop at where a prompt's turns bear labels: the user's next."""
    return tuple(mark for mark in ("\nMe:", "\n我：") if any(mark in f"\n{text}" for text in messages))


class EchoStream:
    """Holds a text back for as long as it may be the last turn said back, and passes it on from then on."""

    def __init__(self, on_token: OnToken, last: str) -> None:
        self._on_token, self._last = on_token, _plain(last)
        self._held, self.flows = "", not (_is_telling(self._last) or _is_question(last))

    def feed(self, piece: str) -> None:
        """Take the next piece."""
        if not self.flows:
            self._held += piece
            begun = _plain(self._held)
            if self._last.startswith(begun) or (begun.startswith(self._last) and len(begun) < len(self._last) + 12):
                return
            piece, self._held, self.flows = self._held, "", True
        self._on_token(piece)

    def close(self) -> None:
        """Pass on what is held."""
        if self._held:
            self._on_token(self._held)
            self._held, self.flows = "", True
