"""Finding JSON in what a language model wrote: fences, prose around it, full-width punctuation, cut-off ends.

Half a character, which an escape that is cut off spells, is a replacement character in what is found.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pydantic_core import from_json

from dialore.llm.answer import mend_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCE = re.compile(r"```[ \t]*[\w+-]*[ \t]*\r?\n?(.*?)(?:```|\Z)", re.DOTALL)
_OUTSIDE = str.maketrans("：，；｛｝［］【】＂", ':,;{}[][]"')
_CLOSERS = {'"': '"', "'": "'", "“": "”", "”": "”", "‘": "’", "’": "’", "「": "」", "『": "』"}
_AFTER_STRING = re.compile(r"\s*(?:[,:\]}：，｝］】]|\Z)")
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")
_LONGEST = 200_000


def whole_json(text: str) -> object:
    """The text as strict JSON.

    Raises:
        ValueError: it is not.
    """
    return from_json(mend_surrogates(text))


def candidates(text: str) -> Iterator[object]:
    """Objects and lists that the text may mean, the likeliest first.

    A fenced block comes before bare brackets and the last before the first, for models think aloud before they answer.
    Prose yields nothing: only what stands in brackets is repaired, never a bare word. A list counts only where it
    fills the text or a fence, for brackets in prose are mostly citations.
    """
    text = mend_surrogates(text).strip().lstrip("\ufeff")[:_LONGEST]
    wholes = [text, *reversed([match.group(1).strip() for match in _FENCE.finditer(text)])]
    for whole in wholes:
        if whole[:1] in set('{[｛［【"“') and (value := _decode(whole)) is not None:
            yield value
    for piece in reversed(list(_objects(text))):
        if (value := _decode(piece)) is not None:
            yield value


def _decode(piece: str, depth: int = 0) -> object:
    """The object or list that a piece of text stands for, or None."""
    for form in (piece, ascii_punctuation(piece)):
        try:
            value = from_json(form)
        except ValueError:
            continue
        if isinstance(value, str) and depth == 0 and value.lstrip()[:1] in {"{", "["}:
            return _decode(value.strip(), depth + 1)  # JSON within a JSON string
        return value if isinstance(value, (dict, list)) else None
    return _repair(ascii_punctuation(piece))


def _repair(piece: str) -> object:
    import json_repair

    if piece[:1] not in {"{", "["} or (piece[0] == "{" and ":" not in piece):
        return None
    try:
        value = json_repair.loads(piece)
        if _HALVES.search(piece):
            value = json.loads(mend_surrogates(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError, IndexError):
        return None
    return value if value and isinstance(value, (dict, list)) else None


def _objects(text: str) -> Iterator[str]:
    """Outermost `{...}` spans; one that never closes reaches to the end."""
    place = 0
    while (match := re.compile("[{｛]").search(text, place)) is not None:
        start = match.start()
        end = _end_of_object(text, start)
        yield text[start:end]
        place = end


def _end_of_object(text: str, start: int) -> int:
    depth, place = 0, start
    while place < len(text):
        character = text[place]
        if character in '"“':
            place = _end_of_string(text, place)
            continue
        depth += (character in "{｛") - (character in "}｝")
        place += 1
        if depth == 0:
            return place
    return len(text)


def _end_of_string(text: str, start: int) -> int:
    """The place after the string that opens at `start`."""
    closer, place = _CLOSERS[text[start]], start + 1
    while place < len(text):
        character = text[place]
        if character == "\\":
            place += 2
            continue
        place += 1
        straight = closer in "\"'"
        if character == closer and (straight or _AFTER_STRING.match(text, place)):
            if closer != "'" or _AFTER_STRING.match(text, place):
                return place
        elif not straight and character == '"' and _AFTER_STRING.match(text, place):
            return place  # opened full-width, closed straight
    return len(text)


def ascii_punctuation(text: str) -> str:
    """The text with full-width quotes, colons, commas and brackets made ASCII outside strings."""
    out: list[str] = []
    place = 0
    while place < len(text):
        character = text[place]
        if character in _CLOSERS and (character != "'" or _opens(out)):
            end = _end_of_string(text, place)
            out.append(_straight_string(text[place:end]))
            place = end
        else:
            out.append(character.translate(_OUTSIDE))
            place += 1
    return "".join(out)


def _opens(before: list[str]) -> bool:
    """Whether a single quote after this begins a string; else it is an apostrophe."""
    last = next((character for character in reversed(before) if not character.isspace()), "{")
    return last[-1] in "{[,:("


def _straight_string(quoted: str) -> str:
    if quoted[0] == '"':
        return quoted
    if quoted[0] == "'":
        quoted = quoted.replace("\\'", "'")
    closed = len(quoted) > 1 and quoted[-1] in {_CLOSERS[quoted[0]], '"'}
    inner = quoted[1:-1] if closed else quoted[1:]
    return '"' + re.sub(r'(?<!\\)"', r"\\\"", inner) + ('"' if closed else "")
