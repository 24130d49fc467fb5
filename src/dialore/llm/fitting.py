"""Bringing a decoded value nearer to the shape of a pydantic model: names of keys, lists, text."""

from __future__ import annotations

import enum
import functools
import re
import types
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from dialore.text import SENTENCE_ENDS

_LISTS = (list, tuple, set, frozenset)
_STRONG = re.compile(r"\s*[;；、\n]\s*")
_WEAK = re.compile(r"\s*[,，]\s*")
_BULLET = re.compile(r"^(?:[-*•]\s+|\(?\d{1,2}[.)、]\s*)")
_SHORT_WORDS = 4


def fit(value: object, kind: object) -> object:
    """The value in the shape that a type wants, as far as that can be told without guessing.

    Keys are matched whatever their case, spaces and underscores; a scalar where a list is wanted becomes a list, and
    text such as `a; b, c` a list of texts; numbers become text where text is wanted; the words of a Literal or an Enum
    are matched whatever their case; null where a field has a default and takes none means the default.
    """
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    origin, arguments = get_origin(kind), get_args(kind)
    if words := _words(kind):
        return _fit_word(value, words)
    if origin in {Union, types.UnionType}:
        return _fit_union(value, arguments)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _fit_model(value, kind)
    if (origin or kind) in _LISTS:
        return _fit_list(value, arguments[0] if arguments else object)
    if origin is dict and isinstance(value, dict):
        return {name: fit(item, arguments[1]) for name, item in value.items()}
    return _fit_text(value) if kind is str else value


def _words(kind: object) -> tuple[object, ...]:
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(member.value for member in list[enum.Enum](kind)) if isinstance(kind, enum.EnumMeta) else ()


def _fit_text(value: object) -> object:
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def is_about(value: object, kind: type[BaseModel]) -> bool:
    """Whether a decoded value can be meant for a model: an object with at least one of its keys, or an empty one."""
    if issubclass(kind, _root()):
        return True
    if not isinstance(value, dict):
        return False
    return not value or not _names(kind) or any(name in _names(kind).values() for name in value)


def _root() -> type[BaseModel]:
    from pydantic import RootModel

    return RootModel


def _fit_model(value: object, kind: type[BaseModel]) -> object:
    if issubclass(kind, _root()):
        return fit(value, kind.model_fields["root"].annotation)
    names = _names(kind)
    kinds = {_key(name, field.alias): field.annotation for name, field in kind.model_fields.items()}
    optional = {
        _key(name, field.alias)
        for name, field in kind.model_fields.items()
        if not field.is_required() and type(None) not in get_args(field.annotation)
    }
    if isinstance(value, list):
        lists = [key for key, wanted in kinds.items() if (get_origin(wanted) or wanted) in _LISTS]
        if len(kinds) == len(lists) == 1:
            return {lists[0]: fit(value, kinds[lists[0]])}
        return fit(value[0], kind) if len(value) == 1 and isinstance(value[0], dict) else value
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, inner),) = value.items()
        if isinstance(inner, dict) and _plain(name) not in names and any(_plain(key) in names for key in inner):
            return _fit_model(inner, kind)  # wrapped in one key more
    fitted: dict[object, object] = {}
    for name, item in value.items():
        key = name if name in kinds else names.get(_plain(name), name)
        if item is None and key in optional:
            continue
        if key in kinds and (key == name or (key not in value and key not in fitted)):
            fitted[key] = fit(item, kinds[key])
        else:
            fitted.setdefault(name, item)
    return fitted


@functools.lru_cache(maxsize=256)
def _names(kind: type[BaseModel]) -> dict[str, str]:
    """Plain form of each field's name and alias, to the key that validation wants."""
    names: dict[str, str] = {}
    for name, field in kind.model_fields.items():
        key = _key(name, field.alias)
        names[_plain(name)] = names[_plain(key)] = key
    return names


def _key(name: str, alias: str | None) -> str:
    return alias or name


def _plain(name: object) -> str:
    return _folded(str(name))


@functools.lru_cache(maxsize=4096)
def _folded(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _fit_union(value: object, arms: tuple[object, ...]) -> object:
    if value is None:
        return None
    others = [arm for arm in arms if arm is not type(None)]
    return fit(value, others[0]) if len(others) == 1 else value


def _fit_word(value: object, words: tuple[object, ...]) -> object:
    if not isinstance(value, str) or value in words:
        return value
    alike = [word for word in words if isinstance(word, str) and _plain(word) == _plain(value)]
    return alike[0] if len(alike) == 1 else value


def _fit_list(value: object, kind: object) -> object:
    if value is None:
        return []
    if isinstance(value, list):
        return [fit(item, kind) for item in value]
    if isinstance(value, str) and kind is str:
        return _split(value)
    if isinstance(value, (str, int, float, dict)):
        return [fit(value, kind)]
    return value


def _split(text: str) -> list[str]:
    """The items of a list written as text. Commas part short items only: a sentence may hold commas of its own."""
    items: list[str] = []
    for part in _STRONG.split(text.strip()):
        pieces = _WEAK.split(part)
        sentence = part.endswith(tuple(SENTENCE_ENDS))
        short = all(len(piece.split()) <= _SHORT_WORDS for piece in pieces)
        items += pieces if short and not sentence else [part]
    return [item for item in (_BULLET.sub("", item).strip() for item in items) if item]
