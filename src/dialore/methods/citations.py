"""The knowledge that a response cites, by marks such as [2] that are taken out of it, and that it draws on."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dialore.knowledge import Knowledge
from dialore.response import Citation
from dialore.text import WIDE, Language, content_lemmas, content_stems, is_chinese, is_mentioned, normalise

# Models write Western and full-width brackets, digits and separators alike.
_DASH, _COMMA = r"\-–—~\uff5e", r",\uff0c、;\uff1b"
_NUMBERS = rf"\^?\s*(\d+(?:\s*[{_COMMA}{_DASH}]\s*\^?\d+)*)\s*"
_MARK = re.compile(rf"\[\[{_NUMBERS}\]\]|\[{_NUMBERS}\]|\uff3b{_NUMBERS}\uff3d|【{_NUMBERS}】")
_PART = re.compile(rf"(\d+)(?:\s*[{_DASH}]\s*\^?(\d+))?")
_BETWEEN = re.compile(rf"\s*[{_COMMA}]?\s*")
# Where there is something to decide: code, a bracket and all that marks may be made of, white space at the end.
_TOKEN = re.compile(rf"`+|\s*[\[\uff3b【][\d\s{_COMMA}{_DASH}^\[\]\uff3b\uff3d【】]*|\s+\Z")
_IN_CODE = re.compile(r"`+|\n")
_FENCE = 3
_PLAUSIBLE = 99
_DIGITS = 6
_CLOSING = frozenset(".,;:!?)]}'\"”’…%。、〉》」』】\uff0c\uff1b\uff1a\uff01\uff1f\uff09\uff3d")
_WIDE = re.compile(f"[{WIDE}]")
# "Dr. Who" and "J. K. Rowling" go on; a Chinese sentence needs no space after it.
_END = re.compile(
    r"(?:[!?;…]+|(?<!\bmr)(?<!\bms)(?<!\bmrs)(?<!\bdr)(?<!\bst)(?<!\bvs)(?<!\bjr)(?<!\bsr)(?<!\b[a-z])\.+)"
    r"[\"'”’)\]]*(?=\s|\Z)|[。…\uff01\uff1f\uff1b]+[”’」』\uff09]*|\n+",
    re.IGNORECASE,
)
_LETTER = re.compile(r"[^\W_]")


@dataclass(frozen=True, slots=True)
class Mark:
    """Marks that stand together: where they stood, in the text without marks, and the numbers cited, each once."""

    place: int
    numbers: tuple[int, ...]


@dataclass(slots=True)
class MarkReader:
    """Takes marks out of a text as it streams in; what it gives is final, however the text was cut into pieces.

    A mark is one number or more in square brackets, of whatever width: [2], [1][3], [1, 3], [1-3], 【2】. It is held
    back until it is known to be one, and takes the white space before it along. Other brackets stay: those that hold
    words, numbers that are no plausible citation ([2024]), marks in code, links (`[1](...)`, `[text][1]`), and
    definitions of links (`[1]: ...`).

    Attributes:
        pieces: how many pieces of knowledge can be cited, numbered from 1.
        marks: what was cited, in order.
        notes: citations to nothing, a sentence each.
        length: characters given so far.
    """

    pieces: int
    marks: list[Mark] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    length: int = 0
    _held: str = ""
    _code: str = ""
    _last: str = ""

    def feed(self, piece: str) -> str:
        """Take a further piece; gives the text that it settles."""
        return self._take(piece, ended=False)

    def close(self) -> str:
        """The rest: nothing more comes."""
        return self._take("", ended=True)

    def _take(self, piece: str, *, ended: bool) -> str:
        text, place = self._held + piece, 0
        given: list[str] = []
        while place < len(text):
            match = (_IN_CODE if self._code else _TOKEN).search(text, place)
            start = match.start() if match else len(text)
            self._give(text[place:start], given)
            place = start
            if match is None:
                break
            may_go_on = match.end() == len(text) and not (self._code and match[0] == "\n")
            if may_go_on and not ended:
                break
            place = match.end()
            if self._code or match[0].startswith("`"):
                self._turn_code(match[0])
                self._give(match[0], given)
            else:
                self._read(match[0], text[place : place + 1], given)
        self._held = text[place:]
        return "".join(given)

    def _give(self, text: str, given: list[str]) -> None:
        if text:
            given.append(text)
            self.length += len(text)
            self._last = text[-1]

    def _turn_code(self, sign: str) -> None:
        """Code begins or ends. A line break ends inline code, which models leave open."""
        if not self._code:
            self._code = sign
        elif sign == "\n":
            self._code = self._code if len(self._code) >= _FENCE else ""
        elif len(sign) == len(self._code) or len(sign) >= len(self._code) >= _FENCE:
            self._code = ""

    def _read(self, run: str, following: str, given: list[str]) -> None:
        """Give a run of white space, brackets and numbers without its marks; `following` is the character after it."""
        place = 0
        for group in self._groups(run, following):
            before, rest = run[place : group[0].start()], run[group[-1].end() :]
            bare, after = before.rstrip(), rest[: len(rest) - len(rest.lstrip())]
            self._give(bare, given)
            self._cite([number for mark in group for number in self._numbers(mark)])
            beyond = (rest[len(after) :] + following)[:1]
            self._give(self._gap(before[len(bare) :], after, beyond), given)
            place = group[-1].end() + len(after)
        self._give(run[place:], given)

    def _groups(self, run: str, following: str) -> list[list[re.Match[str]]]:
        """The marks of a run; those that only a comma or white space parts stand together."""
        groups: list[list[re.Match[str]]] = []
        for mark in _MARK.finditer(run):
            if not self._counts(mark, run, following):
                continue
            if groups and _BETWEEN.fullmatch(run, groups[-1][-1].end(), mark.start()):
                groups[-1].append(mark)
            else:
                groups.append([mark])
        return groups

    def _counts(self, mark: re.Match[str], run: str, following: str) -> bool:
        """Whether what looks like a mark is one."""
        most = max(_PLAUSIBLE, self.pieces)
        for first, last in _parts(mark):
            if len(first) > _DIGITS or len(last) > _DIGITS or not int(first) <= int(last) <= most:
                return False
        ahead = following if mark.end() == len(run) else ""
        if ahead == "(" or (mark.start() == 0 and self._last == "]"):
            return False
        line = run[: mark.start()]
        begins_line = "\n" in line[-1:] if line else self._last in {"", "\n"}
        return not (ahead == ":" and begins_line)

    def _numbers(self, mark: re.Match[str]) -> list[int]:
        """The numbers that a mark cites; of those that nothing has, a note is taken."""
        found: list[int] = []
        missing = False
        for first, last in _parts(mark):
            found += range(max(1, int(first)), min(self.pieces, int(last)) + 1)
            missing = missing or int(first) < 1 or int(last) > self.pieces
        if missing:
            self.notes.append(f"{mark[0]} cites nothing: {self.pieces} pieces of knowledge were given; it is removed")
        return found

    def _cite(self, numbers: list[int]) -> None:
        if numbers:
            self.marks.append(Mark(self.length, tuple(dict.fromkeys(numbers))))

    def _gap(self, before: str, after: str, beyond: str) -> str:
        """The white space that stays of that around marks."""
        if not self.length or not beyond or (not after and beyond in _CLOSING):
            return ""
        gap = after if after and "\n" not in before else before
        between_wide = _WIDE.match(self._last) and _WIDE.match(beyond)
        return "" if between_wide and "\n" not in gap else gap


def _parts(mark: re.Match[str]) -> list[tuple[str, str]]:
    """First and last number of each part of a mark; the same where a part is no range."""
    numbers = next(group for group in mark.groups() if group is not None)
    return [(part[1], part[2] or part[1]) for part in _PART.finditer(numbers)]


@dataclass(frozen=True, slots=True)
class Cited:
    """A text without its marks, the citations that they were, and what was wrong with them."""

    text: str
    citations: list[Citation]
    notes: list[str]


def read_citations(text: str, knowledge: Sequence[Knowledge]) -> Cited:
    """Take the marks out of a whole text; they number the knowledge from 1."""
    reader = MarkReader(len(knowledge))
    bare = reader.feed(text) + reader.close()
    citations = [
        Citation(start=start, end=end, knowledge=knowledge[number - 1].id)
        for (start, end), mark in zip(spans(bare, reader.marks), reader.marks, strict=True)
        for number in mark.numbers
        if start < end
    ]
    return Cited(bare, list({tuple(each.model_dump().values()): each for each in citations}.values()), reader.notes)


def spans(text: str, marks: Sequence[Mark]) -> list[tuple[int, int]]:
    """The span that each mark grounds: its sentence as far as the mark, from the mark before it on.

    A mark that only punctuation parts from the one before it grounds the same span; one before the first word grounds
    the sentence that follows.
    """
    ends = [match.end() for match in _END.finditer(text)]
    found: list[tuple[int, int]] = []
    for number, mark in enumerate(marks):
        stop = mark.place
        start = max((end for end in ends if end < stop), default=0)
        if number and marks[number - 1].place > start:
            if _LETTER.search(text, marks[number - 1].place, stop):
                start = marks[number - 1].place
            elif found[-1][1] <= stop:
                start = found[-1][0]
        if not _LETTER.search(text, start, stop):
            start = stop
            stop = next((end for end in ends if _LETTER.search(text, start, end)), len(text))
        found.append(_trimmed(text, start, stop))
    return found


def _trimmed(text: str, start: int, stop: int) -> tuple[int, int]:
    """A span without what stands before its first letter or opening quotation mark, and without space at its end."""
    while start < stop and not (text[start].isalnum() or text[start] in "\"'“‘「『《(（["):
        start += 1
    while stop > start and text[stop - 1].isspace():
        stop -= 1
    return start, stop


def knowledge_in(variables: Mapping[str, object]) -> list[Knowledge]:
    """The knowledge among a prompt's variables, which its prompt numbers: of several lists, one after the other."""
    lists = [value for value in variables.values() if isinstance(value, list | tuple)]
    return [piece for value in lists for piece in value if isinstance(piece, Knowledge)]


def mark_used(
    knowledge: Sequence[Knowledge], text: str, history: Sequence[str], language: Language, cited: Collection[str] = ()
) -> list[Knowledge]:
    """Mark what a response draws on, by hard matching as in DCRAG's CDP (Section 4.1.3).

    A fact is used where one of its ends is said in the response and the other in the response or the history, and the
    response says something of it that the history did not. Anything else is used where at least half of its content
    words stand in the response. What the response cites (ids in `cited`) is used whatever its words.
    """
    used = (item.id in cited or _is_used(item, text, history, language) for item in knowledge)
    return [
        item if item.used == now else item.model_copy(update={"used": now})
        for item, now in zip(knowledge, used, strict=True)
    ]


def _is_used(item: Knowledge, text: str, history: Sequence[str], language: Language) -> bool:
    if item.kind != "fact":
        wanted = content_stems(item.text, language)
        return bool(wanted) and 2 * len(wanted & content_stems(text, language)) >= len(wanted)
    ends = (item.fact.head, item.fact.tail)
    in_text = [_says(text, end, language) for end in ends]
    if not any(in_text):
        return False
    before = [any(_says(turn, end, language) for turn in history) for end in ends]
    anchored = all(said or known for said, known in zip(in_text, before, strict=True))
    return anchored and any(said and not known for said, known in zip(in_text, before, strict=True))


def _says(text: str, concept: str, language: Language) -> bool:
    """Whether a text says a concept: the phrase itself, or all of its content stems."""
    if is_mentioned(concept, [text], language):
        return True
    if language == "zh" or is_chinese(concept):
        parts = content_lemmas(concept, "zh")
        squeezed = normalise(text).replace(" ", "")
        return bool(parts) and all(word in squeezed for word in parts)
    wanted = content_stems(concept, language)
    return bool(wanted) and wanted <= content_stems(text, language)
