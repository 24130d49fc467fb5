"""What EDIT's stages put out: the questions that a generator wrote, and which of two answers is better."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator

from dialore.llm.structured import candidates
from dialore.text import normalise

_LONGEST = 300
"""Characters of a question; what is longer is a passage that happens to end in a question mark."""
_QUESTION = re.compile(r"[^?？\n]*[?？]+")
# What stands before a question in a list: numbers, bullets, "Q1:", "问题一：", separators between generated questions.
_LABEL = re.compile(
    r"^(?:[\s|;,，、；•*·\"“”'\-–—]|</?\w+>|\[SEP\]|[(（]?\d{1,2}\s*[.)）:：、]|"
    r"(?:Q(?:uestion)?|问题?)\s*[\d一二三四五六七八九十]{0,2}\s*[.)）:：、])+",
    re.IGNORECASE,
)
_NOTHING = frozenset(("", "none", "n/a", "unknown", "null", "无", "没有", "不知道"))


@dataclass(frozen=True, slots=True)
class Answered:
    """A question and the answer to it that was chosen.

    Attributes:
        question: the open question.
        text: the answer; empty where there is none.
        source: who gave it.
        found: ids of the base's sentences that it was organised from, the nearest first.
        score: the cosine of the nearest of them with the question; 0 for an answer of the model's own.
        why: why it was taken.
    """

    question: str
    text: str = ""
    source: Literal["model", "documents"] = "model"
    found: tuple[str, ...] = ()
    score: float = 0.0
    why: str = ""


def read_questions(text: str) -> list[str] | None:
    """The questions of a generated text, each once; None where it holds none.

    They may stand one a line, numbered or not, one after the other as a sequence-to-sequence model writes them
    (Section 3.2.2), or in JSON.
    """
    pieces = _from_json(text) or [match[0] for match in _QUESTION.finditer(text)]
    asked = (" ".join(_LABEL.sub("", piece).split()).strip(" \"“”'") for piece in pieces)
    found = {normalise(question): question for question in asked if 4 <= len(question) <= _LONGEST}
    return list(found.values()) or None


def _from_json(text: str) -> list[str]:
    for value in candidates(text):
        lists = [item for item in value.values() if isinstance(item, list)] if isinstance(value, dict) else [value]
        for listed in lists:
            if isinstance(listed, list) and (said := [item for item in listed if isinstance(item, str)]):
                return said
    return []


def read_answer(text: str) -> str:
    """An answer on one line; empty where the model says that it has none."""
    answer = " ".join(text.split())
    return "" if answer.strip(" .。\"'“”").lower() in _NOTHING else answer


def _letter(value: Any) -> Any:  # noqa: ANN401 - what a model wrote
    """The letter of "b", "Answer B" and "AnswerB: it is more exact"."""
    if not isinstance(value, str):
        return value
    match = re.match(r"\W*(?:answer|回答|答案)?\W*([ab])(?![a-z])", value.strip(), re.IGNORECASE)
    return match[1].upper() if match else value


class Better(BaseModel):
    """Answer Integration: which answer is better, A (the model's) or B (the base's)."""

    better: Annotated[Literal["A", "B"], BeforeValidator(_letter)]
