"""Facts in words: relations and their wording in both languages, and which facts say something and are safe."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from dialore.text import Language, is_chinese, is_stop_word, normalise

if TYPE_CHECKING:
    from dialore.knowledge import Fact

# --- English verbs

_VOWELS = "aeiou"
_PARTICLE = re.compile(r"^(?:not |never |always |often |usually )+")
_TITLE = re.compile(r"[A-Z]\w* [A-Z]")
"""First words of names: "Mount Everest", "Love Actually"."""
_HOW = frozenset((
    "abroad", "again", "ahead", "alone", "aloud", "barefoot", "daily", "early", "fast", "hard", "harder", "high",
    "home", "late", "outdoors", "outside",
))  # fmt: skip
"""Words that say how a thing is done, beside function words and those in -ly."""


def data_lines(name: str) -> list[str]:
    """Return the lines of a data file of the package, without comments and blank ones."""
    lines = (resources.files("dialore") / "data" / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


@functools.lru_cache(maxsize=1)
def _verbs() -> tuple[dict[str, tuple[str, str]], frozenset[str]]:
    """Return base forms with stems and participles, and nouns like them: alone, "slow-" before any, "board-game"."""
    forms: dict[str, tuple[str, str]] = {}
    nouns = set()
    for entry in (entry for line in data_lines("verbs.en.txt") for entry in line.split()):
        base, _, participle = entry.partition(":")
        verb = base.rstrip("*+")
        if "-" in base or "*" in base:
            nouns.add(verb)
        if "-" not in base:
            forms[verb] = (verb + verb[-1] if "+" in base else verb), participle
    return forms, frozenset(nouns)


@functools.lru_cache(maxsize=65536)
def is_doing(concept: str, *, purpose: bool = False) -> bool:
    """Return whether a concept is a verb phrase ("eat breakfast", "relax"); as a purpose "clear head" is one, too."""
    first, *rest = _PARTICLE.sub("", concept.lower()).split(" ")
    verbs, nouns = _verbs()
    if first not in verbs or _TITLE.match(concept):
        return False
    if not rest:
        return first not in nouns
    said_how = rest[0] in _HOW or rest[0].endswith("ly") or is_stop_word(rest[0], "en")
    return f"{first}-{rest[0]}" not in nouns and (f"{first}-" not in nouns or said_how or purpose)


@functools.lru_cache(maxsize=65536)
def gerund(concept: str) -> str:
    """Return a verb phrase as a thing: "eat breakfast" becomes "eating breakfast"; anything else stays."""
    if not is_doing(concept):
        return concept
    lead, verb, rest = _parts(concept)
    if verb.endswith("ie"):
        made = verb[:-2] + "ying"
    elif verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")) and verb != "be":
        made = verb[:-1] + "ing"
    else:
        made = _verbs()[0][verb][0] + "ing"
    return lead + made + rest


@functools.lru_cache(maxsize=65536)
def passive(concept: str) -> str:
    """Return a verb phrase as what is done to something: "play on ice" becomes "played on ice"; anything else stays."""
    lead, verb, rest = _parts(concept)
    if verb not in _verbs()[0]:
        return concept
    stem, irregular = _verbs()[0][verb]
    if irregular:
        made = irregular
    elif verb.endswith("e"):
        made = verb + "d"
    elif verb.endswith("y") and verb[-2:-1] not in _VOWELS:
        made = verb[:-1] + "ied"
    else:
        made = stem + "ed"
    return lead + made + rest


def _parts(concept: str) -> tuple[str, str, str]:
    """Return what stands before the verb, the verb, and what stands after it, spaces included."""
    match = _PARTICLE.match(concept.lower())
    start = match.end() if match else 0
    verb, space, rest = concept[start:].partition(" ")
    return concept[:start], verb.lower(), space + rest


# --- relations


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation, named as in ConceptNet, with its wording: `{head}`, `{tail:passive}` and the like are filled in.

    `doing` is the English wording where the tail is something that one does ("eat lunch"), if it differs; symmetric
    ones may have head and tail changed; informative ones say something about the world rather than about the word.
    """

    name: str
    en: str
    zh: str
    doing: str = ""
    symmetric: bool = False
    informative: bool = True


def _relation(line: str) -> Relation:
    name, en, zh, flags, doing = (*line.split("\t"), "", "")[:5]
    return Relation(name, en, zh, doing, symmetric="s" in flags, informative="w" not in flags)


RELATIONS = {known.name: known for known in map(_relation, data_lines("relations.tsv"))}
_FOLDED: dict[str, str] = {name.lower(): name for name in RELATIONS}
_SLOT = re.compile(r"\{(head|tail)(?::(gerund|passive))?\}")
_CLAUSE = re.compile(r"(?:you|it|i|he|she|we|they|your|one) \w")
"""A goal that is told as a reason: "you be hungry"."""
_ZH_CLAUSE = re.compile(r"很|不|难|容易|越来越|比|总|常|最|非常|太|没|有点")
_ZH_ADJECTIVE = 2
"""Characters of a Chinese adjective that "是...的" stands well around."""
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


@functools.lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """Return a relation as usually spelt (`isa`, `/r/IsA`, `is_a`: `IsA`); an unknown one as it is."""
    bare = name.strip().removeprefix("/r/")
    return _FOLDED.get(bare.replace("_", "").replace(" ", "").lower(), bare)


def relation(name: str) -> Relation:
    """Return the relation of that name; one without a description is worded from its name ("LivesIn": "lives in")."""
    known = RELATIONS.get(name)
    if known is not None:
        return known
    spoken = _CAMEL.sub(" ", name.rsplit("/", 1)[-1]).replace("_", " ").lower().strip()
    return Relation(name, f"{{head}} {spoken} {{tail}}", f"{{head}} {spoken} {{tail}}")


def connecting_words(name: str) -> str:
    """Return what a relation's English wording says between and around its two concepts, e.g. "is used for"."""
    return " ".join(_SLOT.sub(" ", relation(name).en).split())


def verbalise(fact: Fact, language: Language) -> str:
    """Return a fact in words, e.g. "sushi is made of rice", "eating lunch is done to relax"."""
    known = relation(fact.relation)
    template = known.zh if language == "zh" else known.en
    if language == "zh" and known.name == "HasProperty":
        if _ZH_CLAUSE.match(fact.tail) or len(fact.tail) > _ZH_ADJECTIVE:
            template = "{head}{tail}"  # a predicate of its own: 时间过得飞快, not 时间是过得飞快的
        elif fact.tail.endswith("的"):
            template = "{head}是{tail}"
    elif language == "en":
        if known.name == "MotivatedByGoal" and _CLAUSE.match(fact.tail):
            template = "{head:gerund} is done because {tail}"
        elif known.doing and is_doing(fact.tail, purpose=known.name in {"UsedFor", "NotUsedFor", "MotivatedByGoal"}):
            template = known.doing
    return _SLOT.sub(lambda slot: _FORMS[slot[2]](getattr(fact, slot[1])), template)


_FORMS: dict[str | None, Callable[[str], str]] = {None: str, "gerund": gerund, "passive": passive}


# --- what is not offered: unsafe facts, and those that are no facts

# What a harvested sentence leaves behind: "it take two to HasA baby", "you eat when you HasProperty hungry".
_NOTHING = frozenset((
    "i", "it", "this", "that", "these", "there", "something", "someone", "somebody", "anything", "everything", "thing",
    "you", "he", "she", "we", "they", "be", "what", "one",
    "它", "他", "她", "我", "你", "这", "那", "这个", "那个", "东西", "某人", "有人", "什么",
))  # fmt: skip
_CLAUSE_IN = re.compile(r"\b(?:that|because|when|if|which|who|while|they|it|have just)\b")
_HEAD_END = re.compile(r"\b(?:they|you|it|that|be|can|to|and|or|of|may|will|the|a|cause)$")
_TAIL_END = re.compile(r"\b(?:they|that|be|can|to|and|or|of|may|will|the|a|because)$")
_LONGEST_HEAD = 5
_ENDINGS = ("", "s", "es", "ed", "d", "ing")
_ENDINGS_OF_E = ("e", "es", "ed", "ing")
_WORD = re.compile(r"\w+")


@functools.lru_cache(maxsize=1 << 16)
def is_head(name: str) -> bool:
    """Return whether a fact's head names something, and is no clause."""
    form = normalise(name)
    if form in _NOTHING:
        return False
    if is_chinese(form):
        return True
    return not (_CLAUSE_IN.search(form) or _HEAD_END.search(form) or len(form.split()) > _LONGEST_HEAD)


def is_well_formed(head: str, relation: str, tail: str) -> bool:
    """Return whether a fact says something: no self-loop, no clause cut short, no Chinese word's measure word."""
    form = normalise(tail)
    if head == tail or not is_head(head) or form in _NOTHING or _TAIL_END.search(form):
        return False
    return not (relation == "RelatedTo" and len(tail) == 1 and is_chinese(tail))


@functools.lru_cache(maxsize=1 << 16)
def is_safe(name: str) -> bool:
    """Return whether a concept holds no unsafe word of its languages, names that are allowed taken out first."""
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
    return rules.unsafe.search(rules.allowed.sub(" ", form)) is not None


class _Rules(NamedTuple):
    """Words that are fine wherever they stand, unsafe words, their first words as inflected, and unsafe whole names."""

    allowed: re.Pattern[str]
    unsafe: re.Pattern[str]
    firsts: frozenset[str]
    whole: frozenset[str]


@functools.lru_cache(maxsize=2)
def _rules(language: Language) -> _Rules:
    entries = [line.strip() for line in data_lines(f"unsafe.{language}.txt")]
    allowed = [entry[1:] for entry in entries if entry.startswith("!")]
    whole = frozenset(entry[1:] for entry in entries if entry.startswith("="))
    unsafe = [entry for entry in entries if entry[0] not in "!="]
    firsts = frozenset(_WORD.findall(form)[0] for entry in unsafe for form in _inflections(entry.partition(" ")[0]))
    return _Rules(_any_of(allowed, language), _any_of(unsafe, language), firsts, whole)


def _any_of(entries: list[str], language: Language) -> re.Pattern[str]:
    if language == "zh":
        return re.compile("|".join(map(re.escape, entries)))
    # "masturbate" and "masturbating" alike; the first word of a phrase is the one that is inflected.
    forms = []
    for word, space, rest in (entry.partition(" ") for entry in entries):
        inflected = "|".join(map(re.escape, _inflections(word)))
        forms.append(f"(?:{inflected})" + (re.escape(space + rest) + "s?" if rest else ""))
    return re.compile(rf"\b(?:{'|'.join(forms)})\b")


def _inflections(word: str) -> list[str]:
    stem, endings = (word[:-1], _ENDINGS_OF_E) if word.endswith("e") else (word, _ENDINGS)
    return [stem + ending for ending in endings]
