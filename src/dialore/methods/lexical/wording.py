"""Facts as sentences, by templates a relation, in English and Chinese; a fact that would not read well has none."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dialore.methods.lexical.english import is_plural, phrase
from dialore.methods.lexical.tables import table, turned, word_class
from dialore.text import is_chinese, words

if TYPE_CHECKING:
    from dialore.knowledge import Knowledge
    from dialore.methods.lexical.english import Form
    from dialore.text import Language

_SLOT = re.compile(r"\{(\w+)(?::(\w+))?\}")
_ZH_CONCEPT = re.compile(r"^[\w·一-鿿]+$")
_LONGEST_ZH = 12
_NOTHING: dict[str, Any] = {"say": []}


@dataclass(frozen=True, slots=True)
class Wording:
    """A fact as it may be said.

    Attributes:
        fact: the fact.
        sentence: what is said, without capital letter and full stop.
        questions: what may be asked after it.
    """

    fact: Knowledge
    sentence: str
    questions: tuple[str, ...] = ()


def worth(relation: str, language: Language) -> float:
    """How much a person may care to hear a fact of a relation; 0 is neutral."""
    return float(table("facts", language).get(relation, _NOTHING).get("worth", 0.0))


def word_fact(fact: Knowledge, language: Language, *seed: object) -> Wording | None:
    """A fact in words, or None where no wording of its relation is sure to be grammatical and kind.

    Args:
        fact: the fact.
        language: the language it is said in; both ends must be in it.
        seed: decides between the wordings of its relation.
    """
    entry = table("facts", language).get(fact.fact.relation, _NOTHING)
    head, tail = fact.fact.head, fact.fact.tail
    if not entry["say"] or not _is_sayable(head, tail, language):
        return None
    for template in turned(entry["say"], *seed, fact.id):
        sentence = _fill(template, head, tail, language)
        if sentence is not None:
            return Wording(fact, sentence, tuple(entry.get("ask", ())))
    return None


def word_topic(topic: str, language: Language) -> str | None:
    """A topic as something that may be asked about, or None."""
    if not _is_sayable(topic, "", language):
        return None
    if language == "zh":
        return topic
    worded = phrase(topic, "thing")
    return None if worded is None or worded.startswith("being ") else worded


@functools.lru_cache(maxsize=65536)
def _is_sayable(head: str, tail: str, language: Language) -> bool:
    """Whether two concepts make a sentence of this language that says something and that anybody may hear."""
    if is_chinese(head + tail) != (language == "zh"):
        return False
    unkind = word_class("unkind", language)
    if language == "zh":
        fits = all(len(end) <= _LONGEST_ZH and _ZH_CONCEPT.match(end) for end in (head, tail) if end)
        return (
            fits and not (tail and (head in tail or tail in head)) and not any(word in head + tail for word in unkind)
        )
    first, second = set(words(head, "en")), set(words(tail, "en"))
    return not unkind & (first | second) and not (tail and (first <= second or second <= first))


def _fill(template: str, head: str, tail: str, language: Language) -> str | None:
    """A template with its slots filled, or None where one cannot be."""
    if language == "zh":
        return template.replace("{head}", head).replace("{tail}", tail)
    said: dict[str, str] = {}
    for end, form in _SLOT.findall(template):
        if end == "is":
            said["{is}"] = "are" if is_plural(head) else "is"
            if is_plural(head) != is_plural(tail):
                return None
            continue
        worded = phrase(head if end == "head" else tail, cast("Form", form))
        if worded is None:
            return None
        said[f"{{{end}:{form}}}"] = worded
    return _SLOT.sub(lambda match: said[match[0]], template)
