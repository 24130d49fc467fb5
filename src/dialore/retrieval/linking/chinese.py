"""Chinese phrases to concepts: by form, without measure words and particles, in either script, by what is inside."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dialore.retrieval.linking.english import How, Match, Reading
from dialore.text import HAN, is_chinese, is_stop_word, light_words, measure_words, words

if TYPE_CHECKING:
    from dialore.retrieval.graph.store import GraphStore

# --- simplified and traditional characters

_Script = Literal["t2s", "s2t"]


@functools.cache
def _converter(script: _Script) -> Any:  # noqa: ANN401 - the library is untyped
    """Return OpenCC's conversion, its dictionaries loaded."""
    from opencc import OpenCC

    return OpenCC(script)


@functools.lru_cache(maxsize=65536)
def _convert(text: str, script: _Script) -> str:
    # A phrase costs twenty times what a look at its characters does, and most are in the wanted script already.
    if len(text) > 1 and all(_convert(character, script) == character for character in text):
        return text
    return str(_converter(script).convert(text))


def simplify(text: str) -> str:
    """Chinese in simplified characters: 不同種類 becomes 不同种类."""
    return _convert(text, "t2s")


def traditional(text: str) -> str:
    """Chinese in traditional characters, words taken whole: 头发 becomes 頭髮 and 发现 發現."""
    return _convert(text, "s2t")


# --- the reader

_LONGEST = 8  # characters of the longest concept that is looked for inside a phrase
_REMEMBERED = 200_000
_SAMPLE = 256  # concepts that tell which script a graph is in
_NOT = frozenset("不没别未无非")
_NOT_WORD = re.compile(rf"[^\w{HAN}]+")


@functools.lru_cache(maxsize=1)
def _drop_particles() -> re.Pattern[str]:
    """Aspect particles and what counts a thing: 了一场 in 看了一场电影, 一本 in 一本书."""
    measures = "|".join(sorted(measure_words(), key=len, reverse=True))
    number = r"(?:[一二两三四五六七八九十百千几半每这那哪某\d]+)"
    return re.compile(
        rf"(?<=[{HAN}])[了过着]?{number}(?:{measures})|(?<=[{HAN}])[了过着](?:个|点儿?|些)?|^{number}(?:{measures})"
    )


class _Text(NamedTuple):
    """A text without spaces and punctuation, where it may be cut, and places of characters in function words."""

    characters: str
    cuts: frozenset[int]
    stops: frozenset[int]


@functools.lru_cache(maxsize=16384)
def _cut(text: str) -> _Text:
    characters, cuts = "", {0}
    stops: set[int] = set()
    for word in words(text, "zh"):
        if is_stop_word(word, "zh"):
            stops.update(range(len(characters), len(characters) + len(word)))
        characters += word
        cuts.add(len(characters))
    return _Text(characters, frozenset(cuts), frozenset(stops))


class ChineseReader:
    """Reads Chinese phrases as a graph's concepts."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store
        self._find = functools.lru_cache(_REMEMBERED)(store.find)

    @functools.cached_property
    def _in_traditional(self) -> bool:
        """True where the graph has concepts in traditional characters, by a sample."""
        count = self._store.meta.concepts
        sample = (self._store.concept(number) for number in range(0, count, max(1, count // _SAMPLE)))
        return sum(simplify(name) != name for name in sample) * 20 > min(count, _SAMPLE)

    def _scripts(self, form: str) -> list[str]:
        """Return the phrase as it is, in simplified characters, and in traditional ones where the graph has them."""
        others = [traditional(form)] if self._in_traditional else []
        return list(dict.fromkeys([form, simplify(form), *others]))

    def whole(self, form: str) -> tuple[int, How] | None:
        """Return the concept that a normalised phrase is: as is, in the other script, cut elsewhere, uncounted."""
        scripts = self._scripts(form)
        for number, name in enumerate(scripts):
            concept = self._find(name)
            if concept is not None:
                return concept, "variant" if number else "exact"
        for name in scripts:
            joined = _NOT_WORD.sub("", name)
            bare = _drop_particles().sub("", joined)
            # 一家人 is a word, not a person that is counted; 一本书 is a book.
            uncounted = bare if len(bare) > 1 or len(_cut(joined).cuts) > 2 else joined
            for other in (joined, uncounted, bare.replace("没有", "没")):
                concept = self._find(other) if other and other != name else None
                if concept is not None:
                    return concept, "lemma"
        return None

    def read(self, form: str) -> Reading:
        """Return the longest concepts inside a normalised text, in the script that covers most of it."""
        # Particles are dropped where that hides nothing: 吃了饭 is 吃饭, but 了解 stays.
        names = (name for script in self._scripts(form) for name in (_drop_particles().sub("", script), script) if name)
        readings = [self._inside(_cut(name)) for name in dict.fromkeys(names)]
        return max(readings, key=lambda reading: reading.covered)

    def weighty(self, reading: Reading) -> Reading:
        """Return the reading without words that say little beside the others: 方法 of 饺子的制作方法."""
        kept = tuple(match for match in reading.matches if match.phrase not in light_words("zh"))
        return reading._replace(matches=kept or reading.matches)

    def _inside(self, text: _Text) -> Reading:
        """Concepts of two characters and more, those that begin and end at a cut first, then those that do one."""
        free = [True] * len(text.characters)
        matches = []
        for start, end in _spans(text):
            if all(free[start:end]):
                phrase = text.characters[start:end]
                concept = self._find(phrase)
                if concept is not None:
                    left = {*range(len(free))}.difference(range(start, end))
                    whole = left <= text.stops and _NOT.isdisjoint(map(text.characters.__getitem__, left))
                    matches.append(Match(start, end, concept, "lemma" if whole and left else "exact", phrase, whole))
                    free[start:end] = [False] * (end - start)
        return Reading(tuple(sorted(matches)), len(free) - len(text.stops) or len(free))


@functools.lru_cache(maxsize=16384)
def _spans(text: _Text) -> tuple[tuple[int, int], ...]:
    """Return where concepts may stand: never only in function words nor with a part of one."""
    characters, cuts, stops = text
    spans: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for size in range(min(_LONGEST, len(characters)), 1, -1):
        for start in range(len(characters) - size + 1):
            end = start + size
            if stops.issuperset(range(start, end)) or not is_chinese(characters[start:end]):
                continue
            uncut = [edge for edge in (start, end) if edge not in cuts]
            if len(uncut) < 2 and stops.isdisjoint(uncut):
                spans[len(uncut)].append((start, end))
    return (*spans[0], *spans[1])
