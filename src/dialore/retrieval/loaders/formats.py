"""The formats of files that can be read, and the endings of their names."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

FileFormat = Literal[
    "text",
    "lines",
    "markdown",
    "html",
    "pdf",
    "docx",
    "pptx",
    "xlsx",
    "jsonl",
    "csv",
    "eml",
    "epub",
    "json",
    "notebook",
    "mbox",
    "mhtml",
    "odt",
    "rtf",
]
FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
BY_LINE = frozenset({"lines", "jsonl", "csv"})
"""Formats that are read line by line, however many lines there are."""
_ENDINGS: dict[FileFormat, str] = {
    "text": ".txt .text",
    "markdown": ".md .markdown",
    "html": ".html .htm .xhtml",
    "pdf": ".pdf",
    "docx": ".docx .docm .dotx",
    "pptx": ".pptx .pptm .ppsx .potx",
    "xlsx": ".xlsx .xlsm .xltx",
    "jsonl": ".jsonl .ndjson",
    "csv": ".csv .tsv .tab",
    "eml": ".eml",
    "epub": ".epub",
    "json": ".json",
    "notebook": ".ipynb",
    "mbox": ".mbox",
    "mhtml": ".mht .mhtml",
    "odt": ".odt .ott",
    "rtf": ".rtf",
}
ENDINGS = {ending: file_format for file_format, endings in _ENDINGS.items() for ending in endings.split()}
"""How files are read, by how their names end."""


def format_of(path: Path) -> FileFormat | None:
    """Return how a file is read, by its name; None where that does not say."""
    ending = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    return ENDINGS.get(ending.lower())
