"""The one rule of who may read a passage: the metadata `groups`, in whatever form a file or a caller names it.

Everything that takes metadata goes through `apply_groups`: loaders of files, the Python API, the service. If `groups`
is named but cannot be applied, `RefusedGroups` is raised, so that nothing becomes public by a mistake in its form.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dialore.files import load_json
from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import Unreadable

_PLAIN_NAME = "groups"
_NAME = re.compile(r"(?:.*[./:>\[\]])?(?:meta(?:data)?[\W_]+)?groups(?:[\W_]+\d+)?")
"""`groups`, also as tools flatten it: `metadata.groups`, `meta_groups`, `groups.0`, `groups/1`."""
_ITEM = re.compile(r"[\W_]\d+\W*$")
_REMARK = re.compile(r"\([^()]*\)")
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")
_SEPARATORS = re.compile(r"[,;|，；、\n]")
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_JSON_KEY = re.compile(r"""["'](?:meta(?:data)?\.)?groups["']\s*:""", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"([^:=]{0,60}?)(?::|=)")
_CONTAINERS = ("metadata", "meta")
"""Keys under which dumps of LangChain, LlamaIndex and Haystack keep the metadata of a text."""
_MAX_NAME_LENGTH = 200
_MAX_SHOWN = 60
_MAX_DEPTH = 100
_NOTHING = object()


class RefusedGroups(Unreadable):
    """Metadata that names `groups` in a form that cannot be applied; the message says why."""


def names_groups(name: object) -> bool:
    """Return whether a key or column name means `groups`.

    Case, surrounding spaces and punctuation, full-width letters, invisible characters and a remark in brackets make no
    difference. The singular `group` is another word: many tables have a column of that name.
    """
    if not isinstance(name, str) or len(name) > _MAX_NAME_LENGTH:
        return False
    if name.isascii() and _PLAIN_NAME not in name.lower():
        return False
    folded = unicodedata.normalize("NFKC", name).casefold()
    if _PLAIN_NAME not in (visible := "".join(c for c in folded if unicodedata.category(c) != "Cf")):
        return False
    return bool(_NAME.fullmatch(_EDGES.sub("", _REMARK.sub("", visible))))


def assigns_groups(line: str) -> bool:
    """Return whether a line of text gives `groups` a value, as `groups: board` and `"Groups" = ["board"]` do."""
    match = _ASSIGNMENT.match(unicodedata.normalize("NFKC", line))
    return match is not None and names_groups(match[1])


def split_groups(text: str) -> list[str]:
    """Return the groups of a text: names between commas, semicolons or bars; also a list as JSON or Python has it."""
    text = text.strip()
    if len(text) > 1 and _BRACKETS.get(text[0]) == text[-1]:
        text = text[1:-1]
    names = (name.strip().strip("\"'").strip() for name in _SEPARATORS.split(text))
    return list(dict.fromkeys(name for name in names if name))


def parse_groups(value: object) -> list[str]:
    """Return the groups that a value of the metadata names; an empty list means that everybody may read the passage.

    Raises:
        RefusedGroups: The value is no text, whole number, or list of these, or it is empty but no empty list.
    """
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
        names = [name for item in items for name in _parse_item(item)]
        if items and not names:
            raise _refuse(value)
        return list(dict.fromkeys(names))
    names = _parse_item(value)
    if not names and not (isinstance(value, str) and value.strip() == "[]"):
        raise _refuse(value)
    return names


def _parse_item(value: object) -> list[str]:
    if isinstance(value, str):
        return split_groups(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return [str(value)]
    raise _refuse(value)


def _refuse(value: object) -> RefusedGroups:
    shown = "empty" if value is None or value == "" else repr(value)[:_MAX_SHOWN]
    return RefusedGroups(
        f"{GROUPS} is {shown}, so that nobody knows who may read it"
        f" (write {GROUPS}: [staff, board], or [] for everybody)"
    )


def apply_groups(metadata: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return metadata whose `groups`, if it is named in any form, is a list of names under exactly that key.

    Copies of the same groups inside other metadata are left there, as dumps of nodes with their relations have them.

    Raises:
        RefusedGroups: It is named only inside other metadata, with a value that cannot be applied, or twice with groups
            that have none in common.
    """
    pairs = list(metadata.items() if isinstance(metadata, Mapping) else metadata)
    named = [(name, value) for name, value in pairs if names_groups(name)]
    groups = combine_groups((name, parse_groups(value)) for name, value in named) if named else None
    applied: dict[str, Any] = {}
    for name, value in pairs:
        if names_groups(name):
            applied[GROUPS] = groups
            continue
        for nested in _nested_groups(value) if _may_hold_groups(value) else ():
            if groups is None or parse_groups(nested) != groups:
                shown = repr(str(name)[:_MAX_SHOWN])
                raise RefusedGroups(f"{GROUPS} is named inside {shown}: name it beside the other metadata")
        applied[name] = value
    return applied


def combine_groups(named: Iterable[tuple[str, list[str]]]) -> list[str]:
    """Return the groups of metadata that names them several times: those that may read it by each of the lists.

    Items of one list under numbered names, such as `groups.0` and `groups.1`, belong together. Empty lists restrict
    nothing.
    """
    lists: dict[str, list[str]] = {}
    for number, (name, groups) in enumerate(named):
        is_item = _ITEM.search(name) is not None
        lists.setdefault("items" if is_item else str(number), []).extend(groups)
    combined: list[str] = []
    for groups in filter(None, lists.values()):
        common = [group for group in combined if group in groups]
        if combined and not common:
            raise RefusedGroups(f"{GROUPS} is named twice, with no group in common: keep one of them")
        combined = common or groups
    return list(dict.fromkeys(combined))


def lift_metadata(data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the fields of an object, those of its `metadata` or `meta` among them, as pairs.

    A field of the object itself wins over one of its metadata, except for `groups`, which then is named twice.
    """
    pairs = [(name, value) for name, value in data.items() if not _is_container(name, value)]
    names = {name for name, _ in pairs}
    for name, value in data.items():
        if _is_container(name, value):
            pairs += [(key, inner) for key, inner in value.items() if key not in names or names_groups(key)]
    return pairs


def _is_container(name: object, value: object) -> bool:
    return isinstance(name, str) and name.lower() in _CONTAINERS and isinstance(value, Mapping)


def holds_groups(value: object) -> bool:
    """Return whether `groups` is named anywhere inside a value: as a key, or as a key of JSON in a text."""
    return _may_hold_groups(value) and next(_nested_groups(value), _NOTHING) is not _NOTHING


def _may_hold_groups(value: object) -> bool:
    """Return False for values that quickly prove to be plain."""
    if isinstance(value, str):
        return value.lstrip()[:1] in {"{", "["}
    return not isinstance(value, int | float | None)


def _nested_groups(value: object, depth: int = 0) -> Iterator[object]:
    """Yield what is given to `groups` inside a value; None for JSON in a text that cannot be decoded."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if names_groups(name):
                yield inner
            else:
                yield from _nested_groups(inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _nested_groups(inner, depth + 1)
    elif isinstance(value, str) and value.lstrip()[:1] in {"{", "["} and _JSON_KEY.search(value):
        try:
            yield from _nested_groups(load_json(value), depth + 1)
        except (ValueError, RecursionError):
            yield None


def narrow_groups(own: Sequence[str], allowed: Sequence[str] | None) -> list[str]:
    """Return who may read a passage: its own groups as far as they are allowed, or all allowed if it has none.

    Args:
        own: The groups that its file names; empty for everybody.
        allowed: The groups that may be written to; None for any, empty for passages without groups only.

    Raises:
        RefusedGroups: None of its own groups is allowed.
    """
    if allowed is None or not own:
        return list(own or allowed or ())
    narrowed = [name for name in own if name in set(allowed)]
    if not narrowed:
        named = ", ".join(own)
        permitted = ", ".join(allowed) or "passages without groups"
        raise RefusedGroups(f"it is for the {GROUPS} {named}, but only {permitted} may be written here")
    return narrowed


def parse_json(text: str) -> Any:  # noqa: ANN401 - decoded JSON has any type
    """Return decoded JSON, in which no object loses `groups` because it names them twice."""
    may_name_groups = "\\u" in text or _PLAIN_NAME in unicodedata.normalize("NFKC", text).casefold()
    return load_json(text, join_pairs if may_name_groups else None)


def join_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the mapping of pairs; if several of them name `groups`, what they have in common."""
    if sum(names_groups(name) for name, _ in pairs) > 1:
        groups = combine_groups((name, parse_groups(value)) for name, value in pairs if names_groups(name))
        pairs = [*((name, value) for name, value in pairs if not names_groups(name)), (GROUPS, groups)]
    return dict(pairs)
