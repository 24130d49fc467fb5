"""Front matter of text files: YAML, TOML or JSON above the text, read value by value."""

from __future__ import annotations

import functools
import json
import math
import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from dialore.errors import first_line
from dialore.knowledge import GROUPS
from dialore.retrieval.groups import (
    RefusedGroups,
    apply_groups,
    assigns_groups,
    holds_groups,
    join_pairs,
    lift_metadata,
    names_groups,
    parse_json,
)

if TYPE_CHECKING:
    import yaml

    from dialore.retrieval.chunking import Reject

MAX_CHARS = 100_000
"""Characters of front matter that are read as such."""
_LINE_END = re.compile(r"\r\n?")
_FENCE = re.compile(r"[ \t]*(-{3,}|\+{3,}|;{3,})[ \t]*(yaml|yml|toml|json)?[ \t]*", re.IGNORECASE)
_UNCLEAR_START = re.compile(r"(?:\s|[\ufeff\u200b\u2060]|<!--.*?-->)*", re.DOTALL)
_INVISIBLE = "\ufeff\u200b\u2060"
_HEAD_LINES, _BLOCK_LINES = 20, 100
"""Lines in which a fence may begin, and lines after it, that are searched for `groups` if nothing can be parsed."""
_YAML_ENTRY = re.compile(
    r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#"'\[\]{}&*!|>%@`,-][^:]*?|-[^\s:][^:]*?)[ \t]*:(?=\s|$)(.*)"""
)
_TOML_ENTRY = re.compile(r"""[ \t]*(?:\[+([^\[\]]+)\]+|("[^"]*"|'[^']*'|[\w.-]+)[ \t]*=)""")
_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d{0,17})\.\d{1,17}")
_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = {"", "~", "null", "Null", "NULL"}
_MAX_DEPTH = 20


class FrontMatter(NamedTuple):
    """The title and the metadata above a text, and the text below."""

    title: str
    metadata: dict[str, Any]
    text: str


class _Block(NamedTuple):
    """A block that looks like front matter: its format, its text, and what follows it."""

    format: str
    content: str
    rest: str


class _UnreadableValueError(Exception):
    """A value that front matter cannot have; the message says why."""


def split_front_matter(text: str, notice: Reject, *, only_groups: bool = False) -> FrontMatter:
    """Return the front matter of a text and the text below it.

    Front matter begins with the first line. A block below empty lines or a comment counts only if it names `groups`.

    Args:
        text: The whole text.
        notice: Called for keys whose values cannot be read.
        only_groups: Leave any front matter that does not name `groups` in the text.

    Raises:
        RefusedGroups: `groups` is named above the text in a form that cannot be applied.
    """
    text = _LINE_END.sub("\n", text).lstrip(_INVISIBLE)
    block = _find_block(text)
    front = _read_block(block, notice) if block is not None and not only_groups else None
    if front is not None:
        return front
    start = _UNCLEAR_START.match(text)
    comments = text[: start.end()] if start else ""
    body = text[len(comments) :]
    block = _find_block(body)
    if block is not None and _mentions_groups(block.content.split("\n")):
        front = _read_block(block, notice)
        if front is None or GROUPS not in front.metadata:
            raise _refuse()
        return front
    if _head_mentions_groups(comments, body):
        raise _refuse()
    return FrontMatter("", {}, text)


def check_head(text: str) -> None:
    """Raise RefusedGroups if a text begins with front matter that names `groups`, for formats that have none."""
    front = split_front_matter(text, lambda _where, _why: None, only_groups=True)
    if GROUPS in front.metadata:
        raise RefusedGroups(f"it begins with front matter that names {GROUPS}, which files of this format do not have")


def _refuse() -> RefusedGroups:
    return RefusedGroups(
        f"it names {GROUPS} above its text, but not as front matter that can be read"
        f" (begin with the lines ---, {GROUPS}: [staff, board], ---)"
    )


# --- finding the block


def _find_block(text: str) -> _Block | None:
    """Return the front matter that a text begins with, or None."""
    if text.startswith("{"):
        return _find_json(text)
    opening, _, rest = text.partition("\n")
    match = _FENCE.fullmatch(opening)
    if match is None:
        return None
    fence = match[1][0]
    name = (match[2] or "").lower() or {"-": "yaml", "+": "toml", ";": "json"}[fence]
    end = rf"^[ \t]*(?:{re.escape(fence)}{{3,}}{'|[.]{3}' if fence == '-' else ''})[ \t]*$"
    closing = re.compile(end, re.MULTILINE).search(rest, 0, MAX_CHARS)
    if closing is None:
        return None
    content = rest[: closing.start()]
    is_standard = opening.rstrip() in {"---", "+++"} or match[2]
    if not is_standard and not _mentions_groups(content.split("\n")):
        return None  # lines of other lengths are rules between paragraphs
    return _Block(name, content, rest[closing.end() + 1 :])


def _find_json(text: str) -> _Block | None:
    try:
        data, end = json.JSONDecoder().raw_decode(text[:MAX_CHARS])
    except (ValueError, RecursionError):
        return None
    rest = text[end:]
    if not isinstance(data, dict) or not data or rest.strip(" \t")[:1] not in {"", "\n"}:
        return None
    return _Block("json", text[:end], rest.lstrip(" \t").removeprefix("\n"))


def _mentions_groups(lines: Iterable[str]) -> bool:
    """Return whether a line that is no comment gives `groups` a value, or a line holds it as a key of JSON."""
    return any(
        (assigns_groups(line) and not line.lstrip().startswith("#")) or holds_groups(f"{{{line}") for line in lines
    )


def _head_mentions_groups(comments: str, body: str) -> bool:
    """Return whether `groups` is named above a text: in comments, after a fence, or in a first paragraph of fields."""
    if any(assigns_groups(line.strip().removeprefix("<!--")) for line in comments.split("\n")):
        return True
    lines = body.split("\n")
    if _FENCE.fullmatch(lines[0]) or lines[0].startswith("{"):
        return _mentions_groups(lines[:_BLOCK_LINES])
    for index, line in enumerate(lines[:_HEAD_LINES]):
        if line.startswith(("```", "~~~")):
            return False
        if index == 0 or _FENCE.fullmatch(line):
            paragraph = _first_paragraph(lines[index + bool(index) : index + _BLOCK_LINES])
            if _are_fields(paragraph) and _mentions_groups(paragraph):
                return True
    return False


def _first_paragraph(lines: Sequence[str]) -> list[str]:
    paragraph = []
    for line in lines:
        if not line.strip() or _FENCE.fullmatch(line):
            break
        paragraph.append(line)
    return paragraph


def _are_fields(lines: Sequence[str]) -> bool:
    """Return whether all lines have the form of fields, or continue one."""
    field = re.compile(r"""[ \t]*[\w"'.-][^:=.!?]{0,60}[:=]|[ \t]+\S|[ \t]*- """)
    return all(field.match(line) for line in lines)


# --- reading the block


def _read_block(block: _Block, notice: Reject) -> FrontMatter | None:
    """Return the front matter in a block; None if there is no field in it, but text between two rules."""
    problems: list[str] = []

    def report(key: str, why: object) -> None:
        if names_groups(key):
            raise RefusedGroups(f"its front matter names {GROUPS}, whose value cannot be read: {why}")
        problems.append(f"{key}: {why}" if key else str(why))

    read = {"yaml": _read_yaml, "yml": _read_yaml, "toml": _read_toml, "json": _read_json}[block.format]
    pairs = read(block.content, report)
    if not pairs and block.content.strip() and not _mentions_groups(block.content.split("\n")):
        return None
    own_title = next((value for name, value in pairs if name == "title"), None)
    has_title = isinstance(own_title, str | int | float) and not isinstance(own_title, bool)
    title = str(own_title) if has_title else ""
    fields = dict(pairs)
    for name, count in Counter(name for name, _ in pairs if not names_groups(name)).items():
        if count > 1:
            report(name, "it stands twice: the last value is taken")
    # Names that differ only in form are still two of a name, which a mapping would hide.
    named = [(name, value) for name, value in pairs if names_groups(name)]
    others = {name: value for name, value in fields.items() if name != "title" and not names_groups(name)}
    metadata = apply_groups([*named, *lift_metadata(others)])
    if problems and GROUPS not in metadata and _mentions_groups(block.content.split("\n")):
        raise RefusedGroups(f"its front matter names {GROUPS}, but cannot be read: {problems[0]}")
    for problem in problems:
        notice("", f"metadata in its front matter could not be read: {problem}")
    return FrontMatter(" ".join(title.split()), metadata, block.rest)


_Report = Callable[[str, object], None]
_Pairs = list[tuple[str, Any]]


def _read_json(content: str, report: _Report) -> _Pairs:
    content = content.strip()
    try:
        data = parse_json(content if content.startswith("{") else f"{{{content}}}")
        plain = _plain_value(data)
    except (ValueError, RecursionError, _UnreadableValueError) as error:
        report("", f"it is not valid JSON: {error}")
        return []
    return list(plain.items())


def _read_toml(content: str, report: _Report) -> _Pairs:
    try:
        return list(_plain_value(tomllib.loads(content)).items())
    except (ValueError, RecursionError, _UnreadableValueError):
        pass
    pairs: _Pairs = []
    for key, entry in _split_toml(content):
        try:
            pairs += _plain_value(tomllib.loads(entry)).items()
        except (ValueError, RecursionError, _UnreadableValueError) as error:
            report(key, first_line(error))
    return pairs


def _split_toml(content: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of a TOML text by their keys; a table with all of its lines is one."""
    key, lines = "", list[str]()
    in_table = False
    for line in content.split("\n"):
        match = _TOML_ENTRY.match(line)
        if match is not None and (match[1] or not in_table):
            if any(map(str.strip, lines)):
                yield key, "\n".join(lines)
            in_table = bool(match[1])
            key, lines = (match[1] or match[2]).strip(" \"'"), []
        lines.append(line)
    if any(map(str.strip, lines)):
        yield key, "\n".join(lines)


def _plain_value(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - decoded TOML or JSON has any type
    """Return a value as metadata has it: JSON's types; dates, times and numbers that JSON lacks as text."""
    if depth > _MAX_DEPTH:
        raise _UnreadableValueError(f"it is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {name: _plain_value(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain_value(inner, depth + 1) for inner in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) < 10**18:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)


# --- YAML


def _read_yaml(content: str, report: _Report) -> _Pairs:
    """Return the fields of a YAML text. If the text as a whole is not valid, each top-level key is read by itself."""
    import yaml

    content = textwrap.dedent(content)
    try:
        node = _compose(content)
    except (yaml.YAMLError, ValueError, RecursionError):
        return _read_yaml_by_entry(content, report)
    if node is None:
        return []
    mappings = node.value if isinstance(node, yaml.SequenceNode) else [node]
    if not all(isinstance(mapping, yaml.MappingNode) for mapping in mappings):
        report("", "it is no mapping of keys to values")
        return []
    pairs: _Pairs = []
    entries = dict(_split_yaml(content))
    for key, value in chain.from_iterable(mapping.value for mapping in mappings):
        try:
            name = _key_name(key)
            pairs.append((name, _value_of(value)))
        except _UnreadableValueError as error:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            _take_as_text(name, entries.get(name, ""), error, pairs, report)
    return pairs


def _read_yaml_by_entry(content: str, report: _Report) -> _Pairs:
    import yaml

    pairs: _Pairs = []
    for key, entry in _split_yaml(content):
        try:
            node = _compose(entry)
            if not isinstance(node, yaml.MappingNode):
                raise _UnreadableValueError("it is no key with a value")  # noqa: TRY301
            pairs += [(_key_name(name), _value_of(value)) for name, value in node.value]
        except (yaml.YAMLError, ValueError, RecursionError, _UnreadableValueError) as error:
            _take_as_text(key, entry, error, pairs, report)
    return pairs


def _take_as_text(key: str, entry: str, error: Exception, pairs: _Pairs, report: _Report) -> None:
    """Take the value of one line as the text that stands there, e.g. a template; report it, as any other."""
    match = _YAML_ENTRY.fullmatch(entry.strip())
    text = match[2].strip() if match else ""
    is_template = "{{" in text or "{%" in text
    if text and not names_groups(key) and (is_template or text[0] not in "[{&*!|>%@`\"'"):
        pairs.append((key, text))
        report(key, "its value is not valid YAML and is taken as text")
        return
    report(key, getattr(error, "problem", None) or first_line(error))


@functools.cache
def _loader() -> Any:  # noqa: ANN401 - yaml is imported when first used
    import yaml

    class Loader(yaml.SafeLoader):
        """Composes nodes without aliases, by which a few lines could stand for any amount of data."""

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):
                raise yaml.composer.ComposerError(None, None, "aliases are not read", None)
            return super().compose_node(parent, index)

    return Loader


def _compose(text: str) -> yaml.Node | None:
    import yaml

    node: yaml.Node | None = yaml.compose(text, _loader())
    return node


def _split_yaml(content: str) -> Iterator[tuple[str, str]]:
    """Yield the top-level entries of a YAML text by their keys, each with the lines that belong to it."""
    key, lines = "", list[str]()
    for line in content.split("\n"):
        match = _YAML_ENTRY.match(line)
        if match is not None:
            if any(map(str.strip, lines)):
                yield key, "\n".join(lines)
            key, lines = match[1].strip().strip("\"'"), []
        elif line.startswith("#"):
            continue
        elif line[:1].strip() and line[0] not in "-]}":  # neither indented nor the end of a list: no field
            if any(map(str.strip, lines)):
                yield key, "\n".join(lines)
            key, lines = "", []
        lines.append(line)
    if any(map(str.strip, lines)):
        yield key, "\n".join(lines)


def _key_name(node: yaml.Node) -> str:
    import yaml

    if not isinstance(node, yaml.ScalarNode):
        raise _UnreadableValueError("its key is no text")
    return str(node.value)


def _value_of(node: yaml.Node, depth: int = 0) -> Any:  # noqa: ANN401 - YAML holds any type
    """Return the value of a node: numbers, true, false and null if they are not quoted; all else as it stands."""
    import yaml

    if depth > _MAX_DEPTH:
        raise _UnreadableValueError(f"it is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(node, yaml.SequenceNode):
        return [_value_of(item, depth + 1) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        pairs = [(_key_name(key), _value_of(value, depth + 1)) for key, value in node.value]
        return join_pairs(pairs)
    text = str(node.value)
    is_quoted = isinstance(node, yaml.ScalarNode) and node.style is not None
    return text if is_quoted else _plain_scalar(text)


def _plain_scalar(text: str) -> Any:  # noqa: ANN401 - a text, a number, true, false or null
    if text in _NULLS:
        return None
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and repr(float(text)) == text:
        return float(text)
    return text
