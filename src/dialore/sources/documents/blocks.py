"""Blocks of a document, headings and paragraphs, as sections; what every reader of a format shares."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from dialore.errors import MissingExtraError, first_line
from dialore.sources.documents.chunking import Paragraph, Section, Unreadable, unwrapped

Reject = Callable[[object, object], None]
"""Told of a part of a file ("page 3", "line 7", "" for all of it), and why it is left out or what was assumed of it."""
BLANK_LINES = re.compile(r"\n\s*\n")


def by_headings(blocks: Iterable[tuple[int, Paragraph]], title: str, url: str = "") -> Iterator[Section]:
    """The sections of paragraphs (level 0) and headings (levels from 1); a heading that is the title counts once."""
    headings: list[tuple[int, str]] = []
    paragraphs: list[Paragraph] = []
    for level, paragraph in blocks:
        if not level:
            paragraphs.append(paragraph)
            continue
        if paragraphs:
            yield Section(paragraphs, _path(title, headings), url)
            paragraphs = []
        headings = [(depth, name) for depth, name in headings if depth < level] + [(level, paragraph.text)]
    if paragraphs:
        yield Section(paragraphs, _path(title, headings), url)


def _path(title: str, headings: Sequence[tuple[int, str]]) -> str:
    names = [name for _, name in headings if name]
    if title and (not names or names[0] != title):
        names.insert(0, title)
    return " > ".join(names)


def row(cells: Iterable[str]) -> str:
    """A row of a table."""
    return " | ".join(cell for cell in cells if cell)


def paragraphs(text: str) -> list[Paragraph]:
    """The paragraphs of a text that blank lines part."""
    return [Paragraph(unwrapped(part)) for part in BLANK_LINES.split(text) if part.strip()]


@contextmanager
def library(what: str, name: str) -> Iterator[None]:
    """Import and use a library of the extra: what it meets in damaged files, each of its own kind, is Unreadable."""
    logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    except (Unreadable, MemoryError, MissingExtraError):
        raise
    except ImportError as error:
        raise MissingExtraError(f"reading {what}", "documents") from error
    except Exception as error:
        raise Unreadable(f"it is a damaged {what}: {type(error).__name__}: {first_line(error)}") from error
