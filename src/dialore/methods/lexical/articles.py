"""Classes of English words, and the articles of noun phrases made of them."""

from __future__ import annotations

import functools
import re

from dialore.methods.lexical.tables import word_class


def word_set(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())


LINKS = word_set(
    "of in on at by for with about against between into through during before after above below to from up down out "
    "off over under around near without as than behind along across towards and or but named called like"
)
"""Words between which noun phrases stand."""
ADVERBS = word_set(
    "together again early late well alone outside outdoors inside indoors abroad away back home now soon later first "
    "often once twice hard fast slowly too very more less all aloud downstairs upstairs beforehand online everywhere "
    "overnight straight almost still yet ahead apart today tomorrow tonight up down out off in on over through "
    "around along by"
)
_DETERMINERS = word_set(
    "a an the your my our his her their its no some any every each this that these those all both few many much more "
    "less enough another two three four five six seven eight nine ten hundred thousand several lots plenty"
)
_SUPERLATIVE = word_set("best worst most least first last next same only biggest highest oldest fastest")
_BECOMING = word_set("go going get getting feel feeling stay staying look looking")
_MAKING = word_set("make making keep keeping leave leaving find finding get getting")
_PARTICLES = word_set("up down out off over away back around along through in on")
_LEADING = _PARTICLES | {"once", "twice"}
_ENDING = word_set("up down out off over away back around along")
_ENDING_IN = word_set(
    "check come sleep log move hold carry go switch turn settle drop join pitch checking coming sleeping going"
)
_SHORT_PARTICIPLES = word_set("used eased tied died dyed")

_AN = re.compile(r"^(?:[aeiou]|hour|honest|heir|honou?r)", re.IGNORECASE)
_NOT_AN = re.compile(r"^(?:eu|u[bnrst][aeiou]|uni|one|once|ukulele|ewe)", re.IGNORECASE)
_DOUBLING = re.compile(r"^(?:[^aeiou]+|[^aeiou]*qu)?[aeiou][bdgklmnprtvz]$")


# --- classes


def gerund(verb: str) -> str:
    """The -ing form of a verb: "take" gives "taking", "swim" "swimming"."""
    if verb.endswith("ie"):
        return f"{verb[:-2]}ying"
    if verb.endswith("e") and not verb.endswith(("ee", "ye", "oe")) and verb != "be":
        return f"{verb[:-1]}ing"
    if verb in word_class("double") or _DOUBLING.match(verb):
        return f"{verb}{verb[-1]}ing"
    return f"{verb}ing"


@functools.lru_cache(maxsize=1)
def _gerunds() -> frozenset[str]:
    return frozenset(gerund(verb) for verb in word_class("verbs"))


def is_verb(word: str) -> bool:
    """Whether a word is a known verb in its base form."""
    return word in word_class("verbs")


def is_gerund(word: str) -> bool:
    """Whether a word is a known verb in -ing."""
    return word in _gerunds()


def is_participle(word: str) -> bool:
    """Whether a word is a past participle rather than an adjective."""
    regular = word.endswith("ed") and len(word) > 4 and word not in word_class("adjectives")
    return regular or word in word_class("participles") or word in _SHORT_PARTICIPLES


def is_adjectival(tokens: list[str]) -> bool:
    """Whether tokens are adjectives and nothing else."""
    known = word_class("adjectives")
    return bool(tokens) and tokens[-1] in known and all(token in known or token in {"and", "or"} for token in tokens)


def is_plural_word(word: str) -> bool:
    """Whether a word is a noun in the plural."""
    if word in word_class("plural"):
        return True
    known = word in word_class("mass") or word in word_class("count")
    return word[:1].islower() and word.endswith("s") and not word.endswith(("ss", "us", "is")) and not known


def is_ambiguous(tokens: list[str]) -> bool:
    """Whether a phrase that begins with a verb may as well be a noun phrase: "travel guide", "clean house"."""
    verb, first = tokens[0], tokens[1].lower() if len(tokens) > 1 else ""
    if not first or first in LINKS | ADVERBS | _DETERMINERS:
        return False
    if verb in word_class("adjectives") or verb == "hurt":
        return True
    return verb in word_class("dual") and first not in word_class("adjectives")


def head_of(tokens: list[str]) -> list[str]:
    """The tokens before the first link: "cup" of "cup of tea"."""
    cut = next((place for place, token in enumerate(tokens) if token.lower() in LINKS), len(tokens))
    return tokens[:cut]


# --- articles


def with_objects(verb: str, rest: list[str], *, yours: bool = True) -> str | None:
    """A verb and its objects, each with its article; `yours` says "your phone" rather than "a phone"."""
    if not rest:
        return verb
    if verb in _MAKING and len(rest) > 1 and (rest[-1] in word_class("adjectives") or is_verb(rest[-1])):
        return None
    said = articled(rest, after_verb=verb, yours=yours)
    return said and f"{verb} {said}"


def articled(tokens: list[str], *, after_verb: str = "", yours: bool = False) -> str | None:
    """The tokens with an article before each noun phrase that needs one; None where it is not known which.

    Args:
        tokens: noun phrases with links between them.
        after_verb: the verb that they follow, if any.
        yours: whether what one has is called "your" after a verb.
    """
    said: list[str] = []
    group: list[str] = []
    link = ""
    for token in [*tokens, ""]:
        if token and token.lower() not in LINKS:
            group.append(token)
            continue
        if group:
            worded = _group(group, link, after_verb, alone=not (said or after_verb), yours=yours)
            if worded is None:
                return None
            said.append(worded)
        elif (not token and not _may_end(after_verb, said)) or (token and not (said or after_verb)):
            return None
        if token:
            said.append(token)
            link = token.lower()
        group = []
    return " ".join(said)


def _may_end(verb: str, said: list[str]) -> bool:
    """Whether a phrase may end in its last link: "wake up" and "check in" may, "coat of" and "sit on" may not."""
    if not verb:
        return False
    return said[-1] in _ENDING or (len(said) == 1 and said[-1] in {"in", "on"} and verb in _ENDING_IN)


def _group(group: list[str], link: str, after_verb: str, *, alone: bool, yours: bool) -> str | None:
    """One noun phrase, with the adverbs around it."""
    start, end = 0, len(group)
    while end > start and (group[end - 1].lower() in ADVERBS or group[end - 1].endswith("ly")):
        end -= 1
    while not alone and start < end and group[start].lower() in _LEADING:
        start += 1
    nouns = group[start:end]
    if not nouns:
        return None if alone else " ".join(group)
    if after_verb and link in {"and", "or"} and is_verb(group[0].lower()):
        return None
    if after_verb in _BECOMING and not link and is_adjectival(nouns):
        return " ".join(group)
    article = _article(nouns, link, alone=alone, after_verb=bool(after_verb), yours=yours and bool(after_verb))
    if article is None:
        return None
    return " ".join([*group[:start], *([article] if article else []), *nouns, *group[end:]])


def _article(nouns: list[str], link: str, *, alone: bool, after_verb: bool, yours: bool) -> str | None:
    """The article of a noun phrase: `a`, `an`, `the`, `your` or none; None where its last word is not known."""
    first, last = nouns[0].lower(), nouns[-1]
    counted = last in word_class("count")
    indefinite = "an" if _AN.match(nouns[0]) and not _NOT_AN.match(nouns[0]) else "a"
    if first in _DETERMINERS or first == "other":
        return "" if first not in {"a", "an", "other"} or is_plural_word(last) else None
    if link == "to" and is_verb(first) and (not after_verb or first not in word_class("count")):
        return "" if len(nouns) == 1 and first not in word_class("count") else None
    if len(nouns) == 1 and (fixed := _fixed_article(last, link, yours=yours)) is not None:
        return fixed
    if first in _SUPERLATIVE and (counted or last in word_class("mass") or is_plural_word(last)):
        return "the"
    # "Mother's Day" and "parents' house" are whole, "friend's voice" is not.
    owned = first.endswith("s'") or (first.endswith("'s") and not nouns[0][0].islower())
    if counted and not owned:
        return indefinite
    return "" if owned or _stands_alone(last) or (not alone and is_adjectival(nouns)) else None


def _fixed_article(noun: str, link: str, *, yours: bool) -> str | None:
    """The article that a single noun always takes: "at home", "your phone", "the sea"; None where it has none."""
    if link and noun in word_class("bare"):
        return ""
    if yours and noun in word_class("your"):
        return "your"
    return "the" if noun in word_class("the") else None


def _stands_alone(noun: str) -> bool:
    """Whether a noun needs no article: a name, a number, a plural, a mass."""
    if noun[:1].isupper() or noun[:1].isdigit() or is_plural_word(noun):
        return True
    return noun in word_class("mass") or is_gerund(noun)
