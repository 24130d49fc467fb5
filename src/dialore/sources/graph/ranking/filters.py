"""Which facts are not offered: unsafe ones, and those that are no facts."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from dialore.text import is_chinese, normalise

if TYPE_CHECKING:
    from dialore.text import Language

# What a harvested sentence leaves behind: "it take two to HasA baby", "you eat when you HasProperty hungry".
_NOTHING = frozenset(
    [
        *("i", "it", "this", "that", "these", "there", "something", "someone", "somebody", "anything", "everything"),
        *("thing", "you", "he", "she", "we", "they", "be", "what", "one"),
        *("它", "他", "她", "我", "你", "这", "那", "这个", "那个", "东西", "某人", "有人", "什么"),
    ]
)
_CLAUSE = re.compile(r"\b(?:that|because|when|if|which|who|while|they|it|have just)\b")
_HEAD_END = re.compile(r"\b(?:they|you|it|that|be|can|to|and|or|of|may|will|the|a|cause)$")
_TAIL_END = re.compile(r"\b(?:they|that|be|can|to|and|or|of|may|will|the|a|because)$")
_LONGEST_HEAD = 5
_ENDINGS = ("", "s", "es", "ed", "d", "ing")
_ENDINGS_OF_E = ("e", "es", "ed", "ing")
_WORD = re.compile(r"\w+")


@functools.lru_cache(maxsize=1 << 16)
def is_head(name: str) -> bool:
    """Whether a fact's head names something, and is no clause."""
    form = normalise(name)
    if form in _NOTHING:
        return False
    if is_chinese(form):
        return True
    return not (_CLAUSE.search(form) or _HEAD_END.search(form) or len(form.split()) > _LONGEST_HEAD)


@functools.lru_cache(maxsize=1 << 16)
def is_tail(name: str) -> bool:
    """Whether a fact's tail names something, and is no broken clause."""
    form = normalise(name)
    return form not in _NOTHING and not _TAIL_END.search(form)


def is_well_formed(head: str, relation: str, tail: str) -> bool:
    """Whether a fact says something: no self-loop, no clause cut short, no Chinese word's measure word."""
    if head == tail or not is_head(head) or not is_tail(tail):
        return False
    return not (relation == "RelatedTo" and len(tail) == 1 and is_chinese(tail))


@functools.lru_cache(maxsize=1 << 16)
def is_safe(name: str) -> bool:
    """Whether a concept holds none of the unsafe words of its languages; what is allowed by name is taken out first."""
    form = normalise(name)
    languages: tuple[Language, ...] = ("en", "zh") if is_chinese(form) else ("en",)
    return not any(_holds(form, language) for language in languages)


def _holds(form: str, language: Language) -> bool:
    rules = _rules(language)
    if form in rules.whole:
        return True
    # Most names have no word that any entry begins with: to see that takes a tenth of a search for all entries.
    if language == "en" and rules.firsts.isdisjoint(_WORD.findall(form)):
        return False
    if rules.allowed is not None:
        form = rules.allowed.sub(" ", form)
    return rules.unsafe.search(form) is not None


class _Rules(NamedTuple):
    """What is fine whatever it holds, what is unsafe, its first words as inflected, what is unsafe as a whole name."""

    allowed: re.Pattern[str] | None
    unsafe: re.Pattern[str]
    firsts: frozenset[str]
    whole: frozenset[str]


@functools.lru_cache(maxsize=2)
def _rules(language: Language) -> _Rules:
    file = resources.files("dialore") / "data" / f"unsafe.{language}.txt"
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    entries = [line for line in lines if line and not line.startswith("#")]
    allowed = [entry[1:] for entry in entries if entry.startswith("!")]
    whole = frozenset(entry[1:] for entry in entries if entry.startswith("="))
    unsafe = [entry for entry in entries if entry[0] not in "!="]
    firsts = frozenset(_WORD.findall(form)[0] for entry in unsafe for form in _inflections(entry.partition(" ")[0]))
    return _Rules(_any_of(allowed, language) if allowed else None, _any_of(unsafe, language), firsts, whole)


def _any_of(entries: list[str], language: Language) -> re.Pattern[str]:
    if language == "zh":
        return re.compile("|".join(map(re.escape, entries)))
    # "masturbate" and "masturbating" alike; the first word of a phrase is the one that is inflected.
    forms = [_inflected(*entry.partition(" ")) for entry in entries]
    return re.compile(rf"\b(?:{'|'.join(forms)})\b")


def _inflected(word: str, space: str, rest: str) -> str:
    return f"(?:{'|'.join(map(re.escape, _inflections(word)))})" + (re.escape(space + rest) + "s?" if rest else "")


def _inflections(word: str) -> list[str]:
    stem, endings = (word[:-1], _ENDINGS_OF_E) if word.endswith("e") else (word, _ENDINGS)
    return [stem + ending for ending in endings]
