"""The knowledge that a response cites, by marks such as [2] that are taken out of it, and that it draws on."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dialore.response import Citation
from dialore.text import WIDE, Language, split_lines

if TYPE_CHECKING:
    from dialore.knowledge import Knowledge

# Models write Western and full-width brackets, digits and separators alike.
_DASH, _COMMA = r"\-–—~\uff5e", r",\uff0c、;\uff1b"
_NUMBERS = rf"\^?\s*\d{{1,3}}(?:\s*[{_COMMA}{_DASH}]\s*\^?\d{{1,3}})*\s*"
_BRACKETS = rf"(?:\[\[{_NUMBERS}\]\]|\[{_NUMBERS}\]|\uff3b{_NUMBERS}\uff3d|【{_NUMBERS}】)"
# Neither a link, `[1](...)`, nor the definition of one, `[1]: ...`.
_MARK = rf"(?!^{_BRACKETS}:){_BRACKETS}(?!\()"
_MARKS = re.compile(_BRACKETS)
_PART = re.compile(rf"(\d+)(?:\s*[{_DASH}]\s*\^?(\d+))?")
# Code begins, or marks stand together, that do not end a link, `[text][1]`.
_FOUND = re.compile(rf"`+|(?<!\])(?P<marks>{_MARK}(?:\s*+[{_COMMA}]?+\s*+{_MARK})*)(?P<after>\s*)", re.MULTILINE)
# At the end: what may still become either, or get longer.
_INSIDE = rf"\d\s{_COMMA}{_DASH}^\[\]\uff3b\uff3d【】"
_LAST = re.compile(rf"(?<!`)`++\Z|(?<![{_INSIDE}])[{_INSIDE}]++\Z")
_OPENING = re.compile(r"[\[\uff3b【]")
_IN_CODE = re.compile(r"`+|\n")
_FENCE = 3
_PLAUSIBLE = 99
_CLOSING = frozenset(".,;:!?)]}'\"”’…%。、〉》」』】\uff0c\uff1b\uff1a\uff01\uff1f\uff09\uff3d")
_WIDE = re.compile(f"[{WIDE}]")
_LETTER = re.compile(r"[^\W_]")
_BEGINS = re.compile(r"[^\W_]|[\"'“‘「『《(（\[]")


@dataclass(frozen=True, slots=True)
class Mark:
    """Marks that stand together: where they stood, in the text without marks, and the numbers cited, each once."""

    place: int
    numbers: tuple[int, ...]


@dataclass(slots=True)
class MarkReader:
    """Takes marks out of a text as it streams in; what it gives is final, however the text was cut into pieces.

    A mark is one number or more in square brackets, of whatever width: [2], [1][3], [1, 3], [1-3], 【2】. It is held
    back until it is known to be one. Other brackets stay: words, numbers of nothing that was given ([2024], [0, 1]),
    marks in code, links (`[1](...)`, `[text][1]`) and their definitions (`[1]: ...`). Of a range, what was given is
    cited. The `knowledge` is numbered from 1; `text` is what was given so far, `notes` tell of citations to nothing.
    """

    knowledge: Sequence[Knowledge]
    text: str = ""
    marks: list[Mark] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _came: str = ""
    _place: int = 0
    _code: str = ""

    def feed(self, piece: str) -> str:
        """See `TextFilter`."""
        self._came += piece
        tail = self._came[self._place :]
        if last := _LAST.search(tail):
            opening = _OPENING.search(tail, last.start())
            is_code = tail[-1] == "`"
            tail = tail[: last.start()] if is_code else tail[: opening.start() if opening else len(tail)].rstrip()
        return self._settle(self._place + len(tail))

    def finish(self) -> str:
        """See `TextFilter`."""
        return self._settle(len(self._came))

    @property
    def citations(self) -> list[Citation]:
        """The cited pieces, each span and piece once; what the model said itself is nothing to look up."""
        grounds = {
            (*span, self.knowledge[number - 1].id): None
            for span, mark in zip(spans(self.text, self.marks), self.marks, strict=True)
            for number in mark.numbers
            if span[0] < span[1] and self.knowledge[number - 1].source != "model"
        }
        return [Citation(start=start, end=end, knowledge=piece) for start, end, piece in grounds]

    def _settle(self, end: int) -> str:
        before = len(self.text)
        while self._place < end:
            match = (_IN_CODE if self._code else _FOUND).search(self._came, self._place)
            if match is None or match.start() >= end:
                self._give(end)
            elif self._code or match["marks"] is None:
                self._give(match.end())
                sign = match[0]  # code begins or ends; a line break ends inline code, which models leave open
                if not self._code:
                    self._code = sign
                elif sign == "\n":
                    self._code = self._code if len(self._code) >= _FENCE else ""
                elif len(sign) == len(self._code) or len(sign) >= len(self._code) >= _FENCE:
                    self._code = ""
            else:
                self._cite(match)
        return self.text[before:]

    def _cite(self, match: re.Match[str]) -> None:
        """Take out marks that stand together, with white space around them; those of nothing that was given stay."""
        cited: dict[int, None] = {}
        stay = ""
        for mark in _MARKS.findall(match["marks"]):
            if numbers := self._numbers(mark):
                cited |= numbers
            else:
                stay += mark
        start = match.start("marks")
        if not cited:
            self._give(match.end("marks"))
            return
        until = self._place + len(self._came[self._place : start].rstrip())
        space = self._came[until:start]
        self._give(until)
        self.marks.append(Mark(len(self.text), tuple(cited)))
        self._place = match.end()
        after, beyond = match["after"], self._came[self._place : self._place + 1]
        if stay:
            self.text += space + stay + after
        elif self.text and beyond and (after or beyond not in _CLOSING):
            gap = after if after and "\n" not in space else space
            between_wide = _WIDE.match(self.text[-1]) and _WIDE.match(beyond)
            self.text += "" if between_wide and "\n" not in gap else gap

    def _give(self, end: int) -> None:
        self.text += self._came[self._place : end]
        self._place = end

    def _numbers(self, mark: str) -> dict[int, None]:
        """Return the pieces that a mark cites, each once, following notes that cite others; none of other marks."""
        count = len(self.knowledge)
        cited: dict[int, None] = {}
        is_beyond = False
        for first, last in _PART.findall(mark):
            numbers = range(int(first), int(last or first) + 1)
            if not numbers or not 1 <= numbers[0] <= count:
                if numbers and 1 <= numbers[0] <= _PLAUSIBLE:
                    self.notes.append(f"{mark} cites nothing: {count} pieces of knowledge were given; it stays as text")
                return {}
            is_beyond |= numbers[-1] > count
            cited |= dict.fromkeys(numbers[:count])
        if is_beyond:
            self.notes.append(f"{mark}: only {count} pieces of knowledge were given; what is beyond is left out")
        return {number: None for number in cited if number <= count}


def read_citations(text: str, knowledge: Sequence[Knowledge]) -> MarkReader:
    """Take the marks out of a whole text; they number the knowledge from 1."""
    reader = MarkReader(knowledge)
    reader.feed(text)
    reader.finish()
    return reader


def spans(text: str, marks: Sequence[Mark]) -> list[tuple[int, int]]:
    """Return the span that each mark grounds: its sentence as far as the mark, from the mark before it on.

    A mark that only punctuation parts from the one before it grounds the same span; one before the first word grounds
    the sentence that follows.
    """
    merged: list[tuple[int, int]] = []
    ends, position = [0], 0
    for sentence in split_lines(text):
        for word in sentence.split():
            position = text.index(word, position) + len(word)
        ends.append(position)
    for number, mark in enumerate(marks):
        stop = mark.place
        at = bisect_left(ends, stop)
        start = ends[at - 1] if at else 0
        if number and marks[number - 1].place > start:
            if _LETTER.search(text, marks[number - 1].place, stop):
                start = marks[number - 1].place
            elif merged[-1][1] <= stop:
                start = merged[-1][0]
        if not _LETTER.search(text, start, stop):
            start = stop
            letter = _LETTER.search(text, start)
            at = bisect_right(ends, letter.start()) if letter else len(ends)
            stop = ends[at] if at < len(ends) else len(text)
        # Without what precedes the first letter or opening quotation mark, and without final space.
        begins = _BEGINS.search(text, start, stop)
        start = begins.start() if begins else stop
        merged.append((start, start + len(text[start:stop].rstrip())))
    return merged


def mark_used(
    knowledge: Sequence[Knowledge],
    text: str,
    history: Sequence[str],
    language: Language,
    cited: Collection[str] = (),
    draft: str = "",
) -> list[Knowledge]:
    """Mark what a response draws on: what it cites (ids in `cited`); where it cites nothing, what it says first.

    A piece is said first where what is specific to it, beyond the history and the draft, stands in the response.
    """
    if not knowledge:
        return []
    from dialore.methods.usefulness import is_drawn_on  # loads numpy

    before = [*history, draft]
    used = (item.id in cited if cited else is_drawn_on(item, text, before, language) for item in knowledge)
    return [
        item if item.used == now else item.model_copy(update={"used": now})
        for item, now in zip(knowledge, used, strict=True)
    ]
