"""JSON files and Jupyter notebooks as sections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import Paragraph, Reject, Section, Unreadable, row
from dialore.retrieval.groups import RefusedGroups, apply_groups, lift_metadata, parse_json
from dialore.retrieval.loaders.delimited import MAX_METADATA_CELL
from dialore.retrieval.loaders.markup import RESERVED_NAMES, find_text, read_jsonl, read_markdown, section_of_object

_MAX_OUTPUT = 5000
"""Characters of one output of a notebook that are read."""
_BACKTICKS = re.compile(r"`{3,}")


def read_json(text: str, notice: Reject) -> Iterator[Section]:
    """Yield a section for each object of a list, which may be the value of a key, or of lines of JSON.

    Objects without a text, such as questions with answers, are read as a table's rows: values after their names.

    Raises:
        RefusedGroups: `groups` is named in a form that cannot be applied, in the file or in all of its objects.
        Unreadable: It is no JSON, or holds no list of objects.
    """
    text = text.removeprefix("\ufeff")
    try:
        data = parse_json(text)
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not _is_json(lines[0]):
            raise Unreadable(f"not JSON: {error}") from error
        yield from read_jsonl(text.split("\n"), notice)
        return
    items, restriction = _find_items(data)
    read = refused = 0
    for number, item in enumerate(items, start=1):
        try:
            section = _read_item(item)
            if restriction:
                metadata = apply_groups([(GROUPS, restriction), *section.metadata.items()])
                section = replace(section, metadata=metadata)
        except Unreadable as error:
            refused += isinstance(error, RefusedGroups)
            notice(f"item {number}", f"left out: {error}")
            continue
        read += 1
        yield section
    if refused and not read:
        raise RefusedGroups(f"none of its items is taken: {GROUPS} cannot be applied")


def _is_json(line: str) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return False
    return True


def _find_items(data: Any) -> tuple[list[Any], list[str]]:  # noqa: ANN401 - whatever JSON holds
    """Return the objects of decoded JSON, and the groups that the object around them names."""
    if isinstance(data, list):
        return data, []
    if isinstance(data, dict):
        if _has_text(data):
            return [data], []
        lists = [name for name, value in data.items() if _is_list_of_objects(value)]
        if len(lists) == 1:
            others = {name: value for name, value in data.items() if name != lists[0]}
            return data[lists[0]], apply_groups(lift_metadata(others)).get(GROUPS, [])
        if len(lists) > 1:
            raise Unreadable(f"it has several lists of objects ({', '.join(lists[:5])}): make a file of each")
    raise Unreadable('it has no list of objects: wanted is [{"text": ...}, ...]')


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _has_text(data: dict[str, Any]) -> bool:
    try:
        find_text(data)
    except Unreadable:
        return isinstance(data.get("kwargs"), dict) and "page_content" in data["kwargs"]
    return True


def _read_item(item: Any) -> Section:  # noqa: ANN401
    if not isinstance(item, dict) or _has_text(item):
        return section_of_object(item)
    metadata = apply_groups(lift_metadata(item))
    values = [(name, text) for key, value in metadata.items() if key != GROUPS for name, text in _flatten(key, value)]
    text = row(f"{name}: {text}" for name, text in values)
    if not text:
        raise Unreadable("no text in it")
    extra: dict[str, Any] = {
        name: value
        for name, value in metadata.items()
        if name not in RESERVED_NAMES and len(str(value)) <= MAX_METADATA_CELL
    }
    if GROUPS in metadata:
        extra[GROUPS] = metadata[GROUPS]
    return Section([Paragraph(text, is_row=True)], metadata=extra)


def _flatten(name: str, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Yield the texts inside a value, each with its name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(f"{name}.{key}", inner)
    elif isinstance(value, list):
        if any(isinstance(inner, dict | list) for inner in value):
            for inner in value:
                yield from _flatten(name, inner)
        else:
            texts = [text for inner in value for _, text in _flatten(name, inner)]
            yield name, ", ".join(texts)
    elif value is not None and str(value).strip():
        yield name, " ".join(str(value).split())


# --- notebooks


def read_notebook(text: str, notice: Reject) -> Iterator[Section]:
    """Yield the sections of a Jupyter notebook: its texts, its code, and what the code printed.

    Raises:
        RefusedGroups: `groups` is named in a form that cannot be applied.
        Unreadable: It is no notebook.
    """
    try:
        notebook = parse_json(text.removeprefix("\ufeff"))
    except ValueError as error:
        raise Unreadable(f"not JSON: {error}") from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("metadata", {}), dict):
        raise Unreadable("it is no notebook")
    sheets = notebook.get("worksheets") or [notebook]  # a notebook of a version before 4
    cells = [cell for sheet in sheets if isinstance(sheet, dict) for cell in sheet.get("cells") or ()]
    metadata = notebook.get("metadata", {})
    others = {name: value for name, value in notebook.items() if name not in {"cells", "worksheets"}}
    groups = apply_groups(lift_metadata(others)).get(GROUPS)
    kernel = metadata.get("language_info") or metadata.get("kernelspec") or {}
    language = str(kernel.get("language") or kernel.get("name") or "") if isinstance(kernel, dict) else ""
    language = language.rstrip("0123456789")  # kernels are called python3
    parts: list[str] = []
    for number, cell in enumerate(cells, start=1):
        if isinstance(cell, dict):
            _check_cell(cell, number)
            parts += _read_cell(cell, language, number, notice)
    for section in read_markdown("\n\n".join(parts), notice):
        metadata = section.metadata
        if groups is not None:
            metadata = apply_groups([(GROUPS, groups), *section.metadata.items()])
        yield replace(section, metadata=metadata)


def _check_cell(cell: dict[str, Any], number: int) -> None:
    """Raise RefusedGroups if a cell names groups of its own, which cannot be applied."""
    metadata = cell.get("metadata")
    if isinstance(metadata, dict) and GROUPS in apply_groups(lift_metadata(metadata)):
        raise RefusedGroups(f"its cell {number} names {GROUPS}: name them in the metadata of the notebook")


def _read_cell(cell: dict[str, Any], language: str, number: int, notice: Reject) -> Iterator[str]:
    """Yield a cell and its outputs as Markdown."""
    source = _join(cell.get("source", cell.get("input", "")))
    kind = cell.get("cell_type")
    if kind == "heading":
        level = cell.get("level")
        yield f"{'#' * (level if isinstance(level, int) and 1 <= level <= 6 else 1)} {source}"
    elif kind != "code":
        yield source
    elif source.strip():
        yield _fence(source, str(cell.get("language") or language))
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        data = output.get("data", output) if isinstance(output, dict) else {}
        plain = _join(data.get("text/plain", output.get("text", ""))) if isinstance(data, dict) else ""
        if len(plain) > _MAX_OUTPUT:
            notice(f"cell {number}", f"of its output the first {_MAX_OUTPUT:,} characters are read")
        if plain.strip():
            yield _fence(plain[:_MAX_OUTPUT], "")


def _join(source: object) -> str:
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""


def _fence(code: str, language: str) -> str:
    longest = max(map(len, _BACKTICKS.findall(code)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language.split(maxsplit=1)[0] if language.split() else ''}\n{code}\n{fence}"
