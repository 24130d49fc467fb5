"""Blocks of a document, headings and paragraphs, as sections; what every reader of a format shares."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

from dialore.errors import MissingExtraError, first_line
from dialore.retrieval.chunking import Paragraph, Section, Unreadable, shortened, unwrapped

Reject = Callable[[object, object], None]
"""Told of a part of a file ("page 3", "line 7", "" for all of it), and why it is left out or what was assumed of it."""
_BLANK_LINES = re.compile(r"\n\s*\n")


def by_headings(blocks: Iterable[tuple[int, Paragraph]], title: str, url: str = "") -> Iterator[Section]:
    """Yield the sections of paragraphs (level 0) and headings (levels from 1); a heading that is the title counts once.

    What stands in no title is a paragraph: a heading that nothing follows, and all of one that is too long for a title.
    """
    title, whole = shortened(title)
    paragraphs = [Paragraph(whole)] if whole else []
    headings: list[tuple[int, Paragraph]] = []
    told = 0  # so many of the headings stand in a passage or its title
    for level, paragraph in chain(blocks, [(1, Paragraph(""))]):
        if not level:
            paragraphs.append(paragraph)
            continue
        above = [heading for heading in headings if heading[0] < level]
        if paragraphs:
            yield Section(paragraphs, _path(title, headings), url)
            told = len(headings)
        elif max(told, len(above)) < len(headings):
            yield Section([headings[-1][1]], _path(title, headings[:-1]), url)
            told = len(headings)
        told = min(told, len(above))
        name, whole = shortened(paragraph.text)
        paragraphs = [Paragraph(whole, paragraph.page)] if whole else []
        headings = [*above, (level, Paragraph(name, paragraph.page))] if name else above


def _path(title: str, headings: Iterable[tuple[int, Paragraph]]) -> str:
    names = [heading.text for _, heading in headings]
    if title and (not names or names[0] != title):
        names.insert(0, title)
    return " > ".join(names)


def row(cells: Iterable[str]) -> str:
    """Return a row of a table."""
    return " | ".join(cell for cell in cells if cell)


def paragraphs(text: str) -> list[Paragraph]:
    """Return the paragraphs of a text that blank lines part."""
    return [Paragraph(unwrapped(part)) for part in _BLANK_LINES.split(text) if part.strip()]


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
