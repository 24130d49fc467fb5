"""Documents as sections under their headings, and sections as passages that keep sentences whole."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args

from dialore.errors import InputError, MissingExtraError, UnknownNameError, first_line
from dialore.knowledge import Passage
from dialore.text import CHINESE_RUN, WIDE, split_clauses, split_sentences, storable

_Unit = Literal["words", "sentence", "whole"]
_UNITS: tuple[_Unit, ...] = get_args(_Unit)
_CHARACTERS_A_WORD = 1.6
_LONG_WORD, _LETTERS_A_WORD = 30, 5
_LONGEST = 3
"""A sentence of more than so many passages' words is split after all: a table, or text without punctuation."""

_LONGEST_HEADING, _LONGEST_TITLE = 150, 600
"""Letters that a title has of one heading, and of all."""
Reject = Callable[[object, object], None]
"""Told of a part of a file ("page 3", "line 7", "" for all of it), and why it is left out or what was assumed of it."""
_FENCE = "```"
_CELL_SEPARATOR = " | "
_MAX_LABEL_WORDS = 15
"""Words of a row's first cell, or of a column's name, that are repeated when a row is split."""
_BLANK_LINES = re.compile(r"\n\s*\n")
_SEAMLESS = re.compile(f"[{WIDE}“”‘’…—]{{2}}")
_WRAPPED = re.compile(rf"(?<=[{WIDE}])[ \t]*\r?\n\s*(?=[{WIDE}])")


class Unreadable(Exception):  # noqa: N818 - it never leaves the package
    """A file, or one line of it, that gives no passages; the message says why."""


class Paragraph(NamedTuple):
    """A paragraph and the page that it begins on, 0 where there are no pages; code, in its fence, keeps its lines.

    A row of a table stands on a line of its own in passages and is split between its cells only.
    """

    text: str
    page: int = 0
    code: bool = False
    is_row: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document under one heading, beyond which no passage reaches; titles above are joined by " > ".

    `line` is its line in a file of which each line is a section of its own, else 0.
    """

    paragraphs: Sequence[Paragraph]
    title: str = ""
    url: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    line: int = 0


class _Sentence(NamedTuple):
    text: str
    page: int
    words: int
    is_row: bool = False


@dataclass(frozen=True, slots=True)
class Chunking:
    """How sections are split into passages.

    Attributes:
        unit: `words`: as many whole sentences as `words` holds; `sentence`: one sentence a passage, as EDIT's knowledge
            base has it (Section 3.2); `whole`: a section a passage.
        words: of a passage at most, unless one sentence has more; 1.6 Chinese characters count as a word.
        overlap: sentences that a passage begins with again from the one before.

    Raises:
        InputError: a number out of range.
        UnknownNameError: no unit is called that.
    """

    unit: _Unit = "words"
    words: int = 120
    overlap: int = 1

    def __post_init__(self) -> None:
        if self.unit not in _UNITS:
            raise UnknownNameError("unit of passages", self.unit, _UNITS)
        if self.words < 1 or self.overlap < 0:
            raise InputError(f"{self.words} words with an overlap of {self.overlap} do not make passages")

    def split(self, section: Section, file: str = "") -> Iterator[Passage]:
        """Yield the passages of a section, with characters that databases refuse replaced.

        A title that is too long is shortened, and begins the text in full.
        """
        short_title, full_title = _shorten_title(section.title, _LONGEST_TITLE)
        if full_title:
            section = replace(section, paragraphs=[Paragraph(full_title), *section.paragraphs], title=short_title)
        title, url, file = storable(section.title), storable(section.url), storable(file)
        for group in self._groups(section):
            text = _join_lines((sentence.text, sentence.is_row) for sentence in group)
            yield Passage(storable(text), title, url, file, group[0].page, section.metadata)

    def _groups(self, section: Section) -> Iterator[list[_Sentence]]:
        if self.unit == "whole":
            texts = ((p.text if p.code else " ".join(p.text.split()), p.is_row) for p in section.paragraphs)
            whole = _join_lines(texts)
            if whole:
                yield [_Sentence(whole, section.paragraphs[0].page, 0)]
            return
        sentences = [sentence for paragraph in section.paragraphs for sentence in self._sentences(paragraph)]
        if self.unit == "sentence":
            yield from ([sentence] for sentence in sentences)
            return
        group: list[_Sentence] = []
        fresh = 0
        for sentence in sentences:
            if fresh and sum(member.words for member in group) + sentence.words > self.words:
                yield group
                group, fresh = self._overlap_of(group, sentence), 0
            group.append(sentence)
            fresh += 1
        if fresh:
            yield group

    def _overlap_of(self, group: Sequence[_Sentence], following: _Sentence) -> list[_Sentence]:
        """Return the last sentences of a passage that the next begins with, as far as they leave room for more."""
        kept = list(group[-self.overlap :]) if self.overlap else []
        # A passage that begins anew with all of the one before would say it twice.
        kept = kept[1:] if len(kept) == len(group) and len(group) > 1 else kept
        while kept and sum(member.words for member in kept) + following.words > self.words:
            kept = kept[1:]
        return kept

    def _sentences(self, paragraph: Paragraph) -> Iterator[_Sentence]:
        if paragraph.is_row:
            for part in self._split_row(paragraph.text):
                yield _Sentence(part, paragraph.page, count_words(part), is_row=True)
            return
        for sentence in [paragraph.text] if paragraph.code else split_sentences(paragraph.text):
            parts: Iterable[str] = [sentence]
            if count_words(sentence) > _LONGEST * self.words:
                parts = self._split_code(sentence) if paragraph.code else self._parts(sentence)
            yield from (_Sentence(part, paragraph.page, count_words(part)) for part in parts)

    def _split_row(self, text: str) -> Iterator[str]:
        """Yield a row in parts of about a passage's words, each after its first cell and with the cells' names."""
        if count_words(text) <= self.words:
            yield from [text] if text.strip() else []
            return
        first, *others = text.split(_CELL_SEPARATOR)
        label = first if others and count_words(first) <= _MAX_LABEL_WORDS else ""
        cells = list(chain.from_iterable(map(self._split_cell, others if label else [first, *others])))
        for part in self._packed(cells, count_words(label)):
            yield row([label, *part])

    def _split_cell(self, cell: str) -> Iterator[str]:
        """Yield a cell in parts that leave room for others, each after the name of its column."""
        if count_words(cell) <= self.words // 2:
            yield cell
            return
        name, colon, value = cell.partition(": ")
        if not colon or count_words(name) > _MAX_LABEL_WORDS:
            name, value = "", cell
        sentences: list[str] = []
        for sentence in split_sentences(value):
            is_long = count_words(sentence) > _LONGEST * self.words
            sentences += self._parts(sentence) if is_long else [sentence]
        for part in self._packed(sentences, count_words(name)):
            yield f"{name}: {join_texts(part)}" if name else join_texts(part)

    def _split_code(self, code: str) -> Iterator[str]:
        """Yield over-long code in parts of about a passage's words, each in the fence."""
        opening, *lines, closing = code.split("\n")
        # A line that is too long by itself has no line ends to be kept.
        short = ([line] if count_words(line) <= self.words else self._parts(line) for line in lines)
        for part in self._packed(chain.from_iterable(short)):
            yield "\n".join([opening, *part, closing])

    def _parts(self, sentence: str) -> Iterator[str]:
        """Yield an over-long sentence in parts of about a passage's words, split where clauses and words end."""
        for part in map("".join, self._packed(split_clauses(sentence))):
            if count_words(part) > _LONGEST * self.words:  # no white space and no comma anywhere
                limit = max(1, int(self.words * _CHARACTERS_A_WORD))
                yield from (part[start : start + limit] for start in range(0, len(part), limit))
            elif part.strip():
                yield part.strip()

    def _packed(self, texts: Iterable[str], reserved: int = 0) -> Iterator[list[str]]:
        """Yield texts in runs of at most a passage's words, or of one that has more, beside `reserved` words."""
        run: list[str] = []
        words = 0
        for text in texts:
            more = count_words(text)
            if run and reserved + words + more > self.words:
                yield run
                run, words = [], 0
            run.append(text)
            words += more
        if run:
            yield run


def count_words(text: str) -> int:
    """Words of a text: those between white space, very long ones as several; 1.6 Chinese characters are one."""
    runs = CHINESE_RUN.findall(text)
    latin = CHINESE_RUN.sub(" ", text).split() if runs else text.split()
    # Scripts without spaces make very long "words".
    counted = sum(1 if len(word) <= _LONG_WORD else len(word) // _LETTERS_A_WORD for word in latin)
    return counted + round(sum(map(len, runs)) / _CHARACTERS_A_WORD)


def _shorten_title(title: str, longest: int = _LONGEST_HEADING) -> tuple[str, str]:
    """Return a title of at most so many letters; and where it had more, all of it, to be text."""
    title = " ".join(title.split())
    if len(title) <= longest:
        return title, ""
    return f"{title[:longest].rpartition(' ')[0] or title[:longest]}…", title


def join_texts(texts: Sequence[str]) -> str:
    """Texts as one, with a space between unless both sides of the seam are Chinese, or a line end beside a fence."""
    whole = ""
    for text in texts:
        if text:
            seamless = not whole or _SEAMLESS.fullmatch(whole[-1] + text[0])
            fenced = text.startswith(_FENCE) or whole.endswith(_FENCE)
            whole += text if seamless else f"\n{text}" if fenced else f" {text}"
    return whole


def _join_lines(texts: Iterable[tuple[str, bool]]) -> str:
    """Texts as one, those of table rows on lines of their own."""
    lines: list[str] = []
    run: list[str] = []
    for text, is_row in texts:
        if is_row:
            lines += [join_texts(run), text]
            run = []
        else:
            run.append(text)
    return "\n".join(filter(None, [*lines, join_texts(run)]))


def fence_code(code: str, language: str) -> Paragraph:
    """Code as a paragraph that stands as it is, in a fence longer than any that it holds."""
    fence = max([_FENCE, *(f"{ticks}`" for ticks in re.findall("`{3,}", code))], key=len)
    return Paragraph(f"{fence}{language}\n{code.strip(chr(10))}\n{fence}", code=True)


def unwrap(text: str) -> str:
    """Hard-wrapped lines as one, with no space between Chinese characters."""
    return _WRAPPED.sub("", text)


# --- what every reader of a format shares


def split_at_headings(blocks: Iterable[tuple[int, Paragraph]], title: str, url: str = "") -> Iterator[Section]:
    """Yield the sections of paragraphs (level 0) and headings (levels from 1); a heading that is the title counts once.

    What stands in no title is a paragraph: a heading that nothing follows, and all of one that is too long for a title.
    """
    title, whole = _shorten_title(title)
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
        name, whole = _shorten_title(paragraph.text)
        paragraphs = [Paragraph(whole, paragraph.page)] if whole else []
        headings = [*above, (level, Paragraph(name, paragraph.page))] if name else above


def _path(title: str, headings: Iterable[tuple[int, Paragraph]]) -> str:
    names = [heading.text for _, heading in headings]
    if title and (not names or names[0] != title):
        names.insert(0, title)
    return " > ".join(names)


def row(cells: Iterable[str]) -> str:
    """Return a row of a table."""
    return _CELL_SEPARATOR.join(cell for cell in cells if cell)


def paragraphs(text: str) -> list[Paragraph]:
    """Return the paragraphs of a text that blank lines part."""
    return [Paragraph(unwrap(part)) for part in _BLANK_LINES.split(text) if part.strip()]


@contextmanager
def library(what: str, name: str, extra: str = "documents") -> Iterator[None]:
    """Import and use a library of the extra: what it meets in damaged files, each of its own kind, is Unreadable."""
    logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    except (Unreadable, MemoryError, MissingExtraError):
        raise
    except ImportError as error:
        raise MissingExtraError(f"reading this {what}", extra) from error
    except Exception as error:
        raise Unreadable(f"it is a damaged {what}: {type(error).__name__}: {first_line(error)}") from error
