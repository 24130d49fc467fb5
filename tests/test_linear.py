"""Every regular expression of the package reads text from outside in time that grows as the text does."""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]

import pytest

import dialore
from dialore import text
from dialore.dialogue import Dialogue
from dialore.knowledge import Knowledge
from dialore.methods.citations import read_citations
from dialore.methods.cleaning import as_data, clean_response
from dialore.methods.memory_extraction import is_harmless, sentences_of_himself
from dialore.methods.msdp import read_facts
from dialore.sources.web.redaction import redact

SOURCE = Path(dialore.__file__).parent
REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
OF_CATEGORY = {sre.CATEGORY_DIGIT: "1", sre.CATEGORY_SPACE: " \n", sre.CATEGORY_NOT_WORD: ",", sre.CATEGORY_WORD: "a"}
OURS = {"dialore.evaluation.report.plots"}
"""What reads nothing but what this package has written."""
MANY = 100
"""Repetitions from which a repetition has no bound worth the name."""


def of_set(items: list) -> list[str]:
    """Characters of a set."""
    signs = ""
    for operation, value in items:
        if operation is sre.LITERAL:
            signs += chr(value)
        elif operation is sre.RANGE:
            signs += chr(value[0])
        elif operation is sre.CATEGORY:
            signs += OF_CATEGORY.get(value, "a")
    if items[0][0] is sre.NEGATE:
        signs = "".join(sign for sign in "a 1,.(\n" if sign not in signs)
    return list(signs[:4]) or ["a"]


def texts(items, often: int) -> list[str]:
    """Texts that a part of a pattern matches, each repetition as often as it has to be, or `often`."""
    made = [""]
    for operation, value in items:
        kinds = [""]
        if operation is sre.LITERAL:
            kinds = [chr(value)]
        elif operation in {sre.NOT_LITERAL, sre.ANY}:
            kinds = ["a"]
        elif operation is sre.IN:
            kinds = of_set(value)
        elif operation in REPEATS:
            kinds = [each * max(value[0], min(often, value[1])) for each in texts(value[2], often)]
        elif operation is sre.SUBPATTERN:
            kinds = texts(value[3], often)
        elif operation is sre.ATOMIC_GROUP:
            kinds = texts(value, often)
        elif operation is sre.BRANCH:
            kinds = [each for branch in value[1] for each in texts(branch, often)[:1]]
        made = [*(each + kinds[0] for each in made), *(made[0] + kind for kind in kinds[1:3])][:6]
    return made


def attacks(items, before: str = "") -> Iterator[tuple[str, str]]:
    """What a pattern may begin with, and what one of its endless repetitions takes."""
    for place, (operation, value) in enumerate(items):
        ahead = before + texts(items[:place], 1)[0]
        if operation in REPEATS:
            if value[1] > MANY:
                yield from ((ahead, body) for often in (0, 1) for body in texts(value[2], often) if body)
            yield from attacks(value[2], ahead)
        elif operation in {sre.SUBPATTERN, sre.ATOMIC_GROUP}:
            yield from attacks(value[3] if operation is sre.SUBPATTERN else value, ahead)
        elif operation in {sre.ASSERT, sre.ASSERT_NOT}:
            yield from attacks(value[1], ahead if value[0] > 0 else before)
        elif operation is sre.BRANCH:
            for branch in value[1]:
                yield from attacks(branch, ahead)


def hostile(pattern: re.Pattern[str]) -> list[Callable[[int], str]]:
    """Makers of texts of a length that the pattern nearly matches, in many ways."""
    pairs = dict.fromkeys(attacks(parser.parse(pattern.pattern, pattern.flags)))
    makers = {}
    for ahead, body in pairs:
        for head, pump in ((ahead, body), ("", ahead + body), ("", body), (ahead, body + ahead)):
            for tail in ("\x01", ""):
                makers[head, pump, tail] = None
    return [
        lambda size, head=head, pump=pump, tail=tail: head + pump * (size // len(pump)) + tail
        for head, pump, tail in makers
    ]


def seconds(work: Callable[[str], object], said: str, tries: int = 3) -> float:
    """Processor seconds of some work: the best of some tries, of one where that is long."""
    least = float("inf")
    for _ in range(tries):
        began = time.thread_time()
        work(said)
        least = min(least, time.thread_time() - began)
        if least > 0.2:
            break
    return least


def growth(work: Callable[[str], object], makers: list[Callable[[int], str]]) -> float:
    """Return how many times its share a text of 30 kB takes, or of 6 kB: 1 where time grows as the text does."""
    worst = max(makers, key=lambda make: seconds(work, make(500), tries=1))
    small = max(seconds(work, worst(1000)), 1e-6)
    for longer in (6, 30):
        if (over := seconds(work, worst(1000 * longer)) / small / longer) > 3:
            break
    return over


def patterns() -> Iterator[tuple[str, re.Pattern[str], Callable[[str], object]]]:
    """Every pattern of the package with its place, and how it is used."""
    for file in sorted(SOURCE.rglob("*.py")):
        source = file.read_text("utf-8")
        name = ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        if "re." not in source or "migrations" in file.parts or name in OURS:
            continue
        if "re.compile" in source:
            for held, value in vars(importlib.import_module(name)).items():
                uses = set(re.findall(rf"\b{held}\.(\w+)\(", source))
                for pattern in compiled(value):
                    yield f"{name}.{held}", pattern, used(pattern, uses)
        for call in ast.walk(ast.parse(source)):
            match call:
                case ast.Call(ast.Attribute(ast.Name("re"), how), [ast.Constant(str(written)), *_]) if how != "compile":
                    pattern = re.compile(written)
                    yield f"{name}:{call.lineno}", pattern, used(pattern, {how})


def compiled(value: object) -> Iterator[re.Pattern[str]]:
    """The patterns in a value."""
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from compiled(each)


def used(pattern: re.Pattern[str], uses: set[str]) -> Callable[[str], object]:
    """The dearest of the ways in which a pattern is used."""
    return pattern.match if uses and uses <= {"match", "fullmatch"} else pattern.findall


def test_every_pattern_is_linear():
    seen, slow = set(), {}
    for place, pattern, work in patterns():
        if (pattern.pattern, pattern.flags) in seen or not (makers := hostile(pattern)):
            continue
        seen.add((pattern.pattern, pattern.flags))
        if (over := growth(work, makers)) > 3:
            slow[place] = round(over)
    assert not slow
    assert len(seen) > 50


PIECES = [Knowledge(id=f"k{number}", kind="passage", text="x", source="documents") for number in range(9)]
READERS = {
    "asks": text.asks,
    "spoken_in": lambda said: text.spoken_in([said]),
    "words": lambda said: text.words(said, "en"),
    "segments": text.segments,
    "split_sentences": text.split_sentences,
    "split_clauses": text.split_clauses,
    "sentences_of_himself": sentences_of_himself,
    "is_harmless": is_harmless,
    "clean_response": lambda said: clean_response(said, ("Friend", "System"), ("=>",)),
    "as_data": lambda said: as_data(said, "knowledge"),
    "cited": lambda said: read_citations(said, PIECES).citations,
    "read_facts": lambda said: read_facts(said[:100_000], "en"),
    "redact": lambda said: redact(f"{said}\nMy name is Ann Lee.", Dialogue([said])),
}
PUMPS = (
    *("and, ", "a, ", " ", "\n", "<knowledge", "<<knowledge>", "[1] ", "x [1]. ", "[1", "a's", "…", "……", "(", "( ,"),
    *(
        "A",
        "“",
        "phone ",
        "Friend",
        "I am ",
        "吗 ",
        "《",
        "《。",
        "我叫",
        "my name is A",
        "!)",
        "``` ",
        "'",
        '"',
        "{",
        "1 ",
    ),
)


@pytest.mark.parametrize("reader", READERS)
def test_readers_are_linear(reader):
    read, slow = READERS[reader], {}
    for pump in PUMPS:
        small, large = (seconds(read, f"I {pump * (size // len(pump))}\x01") for size in (2000, 20_000))
        if large > 0.02 and large > 40 * small:
            slow[pump] = round(large / small)
    assert not slow
