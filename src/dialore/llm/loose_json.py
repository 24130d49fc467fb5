"""JSON in what a model wrote: found in prose and fences, repaired, and fitted to a pydantic model."""

from __future__ import annotations

import enum
import functools
import json
import re
import types
from collections.abc import Iterator
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import from_json

from dialore.text import SENTENCE_ENDS, storable

_FENCE = re.compile(r"```[ \t]*[\w+-]*[ \t]*\r?\n?(.*?)(?:```|\Z)", re.DOTALL)
_WIDE = str.maketrans("：，；｛｝［］【】＂", ':,;{}[][]"')
_AFTER = r"(?=\s*(?:[,:\]}：，｝］】]|\Z))"
_STRING = "|".join(
    [
        r'"(?:\\.|[^"\\])*+"?',
        # A single quote after anything else is an apostrophe.
        rf"(?<=[\s{{\[,:(｛［：，])'(?:\\?.)*?(?:'{_AFTER}|\Z)",
        # One that was opened full-width may be closed straight.
        *(rf'[{opener}](?:\\?.)*?(?:[{opener[-1]}"]{_AFTER}|\Z)' for opener in ("“”", "‘’")),
        *(rf'{opener}(?:\\?.)*?(?:[{closer}"]{_AFTER}|\Z)' for opener, closer in ("「」", "『』")),
    ]
)
"""A string, also with quotes that JSON does not know; one that never closes reaches to the end."""
_STRING_OR_WIDE = re.compile(rf"{_STRING}|[：，；｛｝［］【】＂]", re.DOTALL)
_STRING_OR_BRACE = re.compile(rf"{_STRING}|[{{}}｛｝]", re.DOTALL)
_OPENING_BRACE = re.compile("[{｛]")
_LONGEST = 200_000
_REPAIRED = 40_000
"""Characters of an answer that are repaired at most, at some microseconds each: no answer is to hold up a run."""


def candidates(text: str) -> Iterator[object]:
    """Objects and lists that the text may mean, the likeliest first.

    A fenced block comes before bare brackets and the last before the first, for models think aloud before they answer.
    Prose yields nothing: only what stands in brackets is repaired, never a bare word. A list counts only where it
    fills the text or a fence, for brackets in prose are mostly citations. Half a character, which an escape that is
    split spells, is a replacement character in what is found.
    """
    text = storable(text).strip().lstrip("\ufeff")[:_LONGEST]
    fenced = reversed([match.group(1).strip() for match in _FENCE.finditer(text)])
    whole = [piece for piece in (text, *fenced) if piece[:1] in set('{[｛［【"“')]
    left = _REPAIRED
    for piece in dict.fromkeys([*whole, *reversed(list(_objects(text)))]):
        value, decoded = piece, _decode(piece)
        if isinstance(decoded, str):  # JSON within a JSON string
            value, decoded = decoded.strip(), _decode(decoded)
        if decoded is None and len(value) <= left:
            left -= len(value)
            decoded = _repair(_STRING_OR_WIDE.sub(_straight, value))
        if isinstance(decoded, (dict, list)):
            yield decoded


def _decode(piece: str) -> object:
    try:
        return from_json(piece)
    except ValueError:
        return None


def _repair(piece: str) -> object:
    if (value := _decode(piece)) is not None:
        return value
    if piece[:1] not in {"{", "["} or (piece[0] == "{" and ":" not in piece):
        return None
    import json_repair

    try:
        value = json_repair.loads(piece)
        return json.loads(storable(json.dumps(value, ensure_ascii=False))) or None
    except (ValueError, RecursionError, IndexError):
        return None


def _objects(text: str) -> Iterator[str]:
    """Outermost `{...}` spans; one that never closes reaches to the end."""
    position = start = depth = 0
    while match := (_STRING_OR_BRACE if depth else _OPENING_BRACE).search(text, position):
        position = match.end()
        if match[0] in {"{", "｛"}:
            start = start if depth else match.start()
            depth += 1
        elif match[0] in {"}", "｝"}:
            depth -= 1
            if not depth:
                yield text[start:position]
    if depth:
        yield text[start:]


def _straight(found: re.Match[str]) -> str:
    """Return a string in straight quotes, a full-width sign outside strings as ASCII."""
    text = found[0]
    if text[0] == '"' or ord(text[0]) in _WIDE:
        return text.translate(_WIDE) if len(text) == 1 else text
    if text[0] == "'":
        text = text.replace("\\'", "'")
    is_closed = len(text) > 1 and text[-1] in "\"'”’」』"
    inner = text[1:-1] if is_closed else text[1:]
    return '"' + re.sub(r'(?<!\\)"', r"\\\"", inner) + ('"' if is_closed else "")


# --- bringing a decoded value nearer to the wanted shape

_LISTS = (list, tuple, set, frozenset)
_STRONG = re.compile(r"[;；、\n]")
_WEAK = re.compile(r"[,，]")
_BULLET = re.compile(r"^(?:[-*•]\s+|\(?\d{1,2}[.)、]\s*)")
_SHORT_WORDS = 4


def fit(value: object, kind: object) -> object:
    """Return the value in the shape that a type wants, as far as that can be told without guessing.

    Keys are matched whatever their case, spaces and underscores; a scalar where a list is wanted becomes a list, and
    text such as `a; b, c` a list of texts; numbers become text where text is wanted; the words of a Literal or an Enum
    are matched whatever their case; null where a field has a default and takes none means the default.
    """
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    origin, arguments = get_origin(kind), get_args(kind)
    words = arguments if origin is Literal else ()
    if isinstance(kind, enum.EnumMeta):
        words = tuple(member.value for member in list[enum.Enum](kind))
    if words:
        is_other = isinstance(value, str) and value not in words
        alike = [word for word in words if is_other and isinstance(word, str) and _plain(word) == _plain(str(value))]
        return alike[0] if len(alike) == 1 else value
    if origin in {Union, types.UnionType}:
        others = [arm for arm in arguments if arm is not type(None)]
        return fit(value, others[0]) if value is not None and len(others) == 1 else value
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _fit_model(value, kind)
    if (origin or kind) in _LISTS:
        return _fit_list(value, arguments[0] if arguments else object)
    if origin is dict and isinstance(value, dict):
        return {name: fit(item, arguments[1]) for name, item in value.items()}
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if kind is str and is_number else value


def _fit_model(value: object, kind: type[BaseModel]) -> object:
    names = field_keys(kind)
    fields = {known.alias or name: known for name, known in kind.model_fields.items()}
    if isinstance(value, list):
        lists = [key for key, known in fields.items() if (get_origin(known.annotation) or known.annotation) in _LISTS]
        if len(fields) == len(lists) == 1:
            value = {lists[0]: value}
        elif len(value) == 1:
            value = value[0]
    if not isinstance(value, dict):
        return value
    given: dict[str, object] = value
    if len(given) == 1:  # it may be wrapped in one key more
        ((wrapper, inner),) = given.items()
        if isinstance(inner, dict) and _plain(wrapper) not in names and any(_plain(key) in names for key in inner):
            given = inner
    fitted: dict[str, object] = {}
    for name, item in given.items():
        key = name if name in fields else names.get(_plain(name), name)
        known = fields.get(key)
        if known is None or (key != name and (key in value or key in fitted)):
            fitted.setdefault(name, item)
        elif item is not None or known.is_required() or type(None) in get_args(known.annotation):
            fitted[key] = fit(item, known.annotation)
    return fitted


@functools.lru_cache(maxsize=256)
def field_keys(kind: type[BaseModel]) -> dict[str, str]:
    """Plain form of each field's name and alias, to the key that validation wants."""
    keys = {name: known.alias or name for name, known in kind.model_fields.items()}
    return {_plain(form): key for name, key in keys.items() for form in (name, key)}


@functools.lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _fit_list(value: object, kind: object) -> object:
    if isinstance(value, str) and kind is str:
        return _split(value)
    items = value if isinstance(value, list) else [] if value is None else [value]
    return [fit(item, kind) for item in items]


def _split(text: str) -> list[str]:
    """Return the items of a list written as text; commas part short items only, as sentences hold commas."""
    items: list[str] = []
    for part in map(str.strip, _STRONG.split(text)):
        pieces = _WEAK.split(part)
        sentence = part.endswith(tuple(SENTENCE_ENDS))
        short = all(len(piece.split()) <= _SHORT_WORDS for piece in pieces)
        items += pieces if short and not sentence else [part]
    return [item for item in (_BULLET.sub("", item).strip() for item in items) if item]
