"""The handbook test: dialogues about an invented town whose handbook no model can know, scored without a judge.

Facts are looked for in the response in any of the forms that an item accepts, after times, numbers, money and units of
both have been written in one way.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from dialore.dialogue import Dialogue
from dialore.text import HAN, Language

if TYPE_CHECKING:
    from dialore.response import Response

SMALL_TALK = "small-talk"
UNANSWERABLE = ("near-miss", "false-premise")
_FOLDER = resources.files("dialore") / "data" / "handbook"


class HandbookPassage(BaseModel):
    """A section of the handbook; titles are unique in a language."""

    id: str
    title: str
    text: str


class Item(BaseModel):
    """A dialogue to be answered, and what is right.

    Attributes:
        half: prompts are tuned on `a` alone, figures are reported of `b`.
        turns: the texts, of which the user's is the last.
        gold: ids of the passages that are needed.
        also: ids of others that may be cited, such as the outdated version.
        answer: the facts that are needed, each in the forms that are accepted.
        wrong: forms that show a wrong answer, each followed by words that excuse it where they stand in the same
            sentence (a value of the other model is no mistake where the other model is named).
        absent: what would be said where an unanswerable question could be answered; no passage has it.
    """

    model_config = ConfigDict(extra="forbid")

    id: str
    language: Language
    category: str
    half: str
    turns: list[str]
    gold: list[str] = []
    also: list[str] = []
    answer: list[list[str]] = []
    wrong: list[list[str]] = []
    absent: list[str] = []

    @property
    def dialogue(self) -> Dialogue:
        """As it is answered; what is expected stands in for the reference that a run's dialogues have."""
        expected = "; ".join(forms[0] for forms in self.answer) or self.category
        return Dialogue(id=self.id, language=self.language, turns=self.turns, reference=expected)


class Verdict(BaseModel):
    """What became of one item: `right` of answerable ones, `refused` of those without an answer, else None.

    `alone` says of small talk whether the draft was left as it was; None where the method writes none.
    """

    right: bool | None = None
    refused: bool | None = None
    alone: bool | None = None
    cited: int = 0
    cited_right: int = 0
    gold_cited: int = 0
    gold: int = 0


def read_items(*, half: str | None = None, language: str | None = None, limit: int | None = None) -> list[Item]:
    """The items of a half and a language, `limit` of each language, spread over the categories."""
    every = [Item.model_validate_json(line) for line in (_FOLDER / "turns.jsonl").read_text("utf-8").splitlines()]
    chosen: list[Item] = []
    for each in ("en", "zh") if language is None else (language,):
        own = [item for item in every if item.language == each and half in {None, item.half}]
        count = min(len(own), limit or len(own))
        chosen += [own[place * len(own) // count] for place in range(count)]
    return chosen


def read_passages(language: str) -> list[HandbookPassage]:
    """The handbook in a language."""
    lines = (_FOLDER / f"passages.{language}.jsonl").read_text("utf-8").splitlines()
    return [HandbookPassage.model_validate_json(line) for line in lines]


def judge(item: Item, response: Response) -> Verdict:
    """What became of an item; a response that failed is neither right nor refused."""
    if item.category == SMALL_TALK:
        return Verdict(alone=response.text == response.draft if response.draft else None)
    if item.category in UNANSWERABLE:
        return Verdict(refused=refuses(item, response.text))
    ids = {passage.title: passage.id for passage in read_passages(item.language)}
    titles = {piece.id: piece.passage.title for piece in response.knowledge}
    cited = {ids.get(titles.get(each.knowledge, ""), each.knowledge) for each in response.citations}
    return Verdict(
        right=is_right(item, response.text),
        cited=len(cited),
        cited_right=len(cited & {*item.gold, *item.also}),
        gold_cited=len(cited & {*item.gold}),
        gold=len(item.gold),
    )


def is_right(item: Item, text: str) -> bool:
    """Whether a response says every fact that is needed in one of its forms, and nothing that is wrong."""
    said = _flat(written_alike(text))
    return all(_says(said, forms) for forms in item.answer) and not _misleads(item, text)


def refuses(item: Item, text: str) -> bool:
    """Whether a response says that it does not know, or that there is no such thing, or asks; and gives no value."""
    alike = written_alike(text)
    asks = bool(re.search(r"\?\s*$", alike)) and not re.search(r"\d", alike)
    return (asks or bool(_REFUSAL.search(alike))) and not _misleads(item, text)


def _misleads(item: Item, text: str) -> bool:
    """Whether a wrong form is said as if it held; neither of another thing that is named, nor as what held before."""
    accepted = {form for forms in item.answer for each in forms for form in _variants(each)}
    for sentence in _SENTENCE.split(written_alike(text)):
        whole = _flat(sentence)
        for form, *excuses in item.wrong:
            if any(_says(whole, [excuse]) for excuse in excuses):
                continue
            left = [each for each in _variants(form) if each not in accepted]
            for clause in _CLAUSE.split(sentence):
                if not _FORMER.search(clause) and any(_stands(_flat(clause), each) for each in left):
                    return True
    return False


# --- one way of writing

_SENTENCE = re.compile(r"[;!?。\n]+|\.(?!\d)")
_CLAUSE = re.compile(r",\s|[:()、](?!\d)|,(?=\D)| but | while | whereas |而|但")
_FORMER, _REFUSAL = (
    re.compile("|".join((_FOLDER / f"{name}.txt").read_text("utf-8").split("\n")[:-1]))
    for name in ("former", "refusals")
)
_ONES = """one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen""".split()  # noqa: SIM905
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
_ENGLISH = {word: number for number, word in enumerate(_ONES, start=1)}
_ENGLISH |= {word: 10 * number for number, word in enumerate(_TENS, start=2)}
_SMALL = rf"(?:(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_ONES[:9])})\b)?|(?:{'|'.join(_ONES[::-1])}))"
_DIGITS = {digit: str(value % 10) for value, digit in enumerate("零一二三四五六七八九")} | {"〇": "0", "两": "2"}
_DIGIT = "".join(_DIGITS)
_UNITS = {"十": 10, "百": 100, "千": 1000}
_LATE = {"pm", "下午", "晚上", "傍晚", "晚间", "夜里", "中午", "evening", "afternoon", "night"}
_CLOCK = re.compile(
    r"(凌晨|早上|早晨|清晨|上午|中午|下午|傍晚|晚上|晚间|夜里)?(\d{1,2})(?:点|时(?!间))(?:(1刻)|(半)|(\d{1,2})分?|整|钟)*"
)
_DAYTIME = re.compile(
    r"\b(\d{1,2})(?:[:.](\d\d))?\s*(?:o'clock\s*)?(?:([ap])\.?m\b\.?"
    r"|(?:in the |at )(morning|afternoon|evening|night)\b)"
)


def _small(words: str | None) -> int:
    """The value of a number below a hundred in words; 1 of "a", 0 of nothing."""
    return sum(_ENGLISH.get(word, 1) for word in re.findall(r"\w+", words or ""))


def _chinese(numeral: str) -> str:
    if not set(numeral) & set(_UNITS):
        return "".join(_DIGITS[each] for each in numeral)
    total = digit = 0
    for each in numeral:
        if each in _UNITS:
            total, digit = total + (digit or 1) * _UNITS[each], 0
        else:
            digit = int(_DIGITS[each])
    return str(total + digit)


def _half(match: re.Match[str]) -> str:
    past, minutes = match[2] == "past", 30 if match[1] == "half" else 15
    return f"{match[3]}:{minutes}" if past else f"{int(match[3]) - 1}:{60 - minutes}"


def _clock(hour: str, minutes: str | None, half: str | None) -> str:
    late = half in _LATE and int(hour) < 12
    return f"{int(hour) + 12 * late:0{2 if half else 1}}:{int(minutes or 0):02}"


_REPLACED: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\bcan't|\bcannot\b", "can not"),
    (r"n't\b", " not"),
    (r"(?<=\w)['’]s\b", " is"),
    (r"(?<=\d),(?=\d{3}\b)", ""),
    (r"\bfortnight\b", "14 days"),
    (r"\bhalf an hour\b", "30 minutes"),
    (r"半(个)?小时", "30分钟"),
    (r"\bnoon\b", "12:00"),
    (r"星期|礼拜", "周"),
    (r"周天", "周日"),
    (r"个(?=[月周])", ""),
    (r"百分之([\d.]+|[〇零一二三四五六七八九十百两]+)", r"\1%"),
    (
        rf"\b(?:({_SMALL}|a|1) hundred)(?: and)?(?: ({_SMALL}))?\b",
        lambda match: str(100 * _small(match[1]) + _small(match[2])),
    ),
    (rf"\b{_SMALL}\b", lambda match: str(_small(match[0]))),
    (rf"(?:(?<!周)[{_DIGIT}]|[十百千])[{_DIGIT}十百千]*", lambda match: _chinese(match[0])),
    (r"(\d)\s*(?:per cent|percent|%)", r"\1%"),
    (r"(\d)\s*(?:元|块钱|块|rmb|cny|人民币)", r"\1元"),
    (r"[¥]\s?(\d+(?:\.\d+)?)", r"\1元"),
    (r"€\s?(\d+(?:\.\d+)?)", r"\1 euro"),
    (r"(\d)\s?(?:euros?|eur|€)(?![a-z])", r"\1 euro"),
    (r"(?<!\d)(\d+) euro (\d\d)\b(?! euro)", r"\1.\2 euro"),
    (r"\b(half|quarter) (past|to) (\d{1,2})\b", _half),
    (r"\b(\d{1,2}(?:[:.]\d\d)?)\s*(-|to|until)\s*(\d{1,2}(?:[:.]\d\d)?\s*([ap]m))\b", r"\1 \4 \2 \3"),
    (_DAYTIME.pattern, lambda match: _clock(match[1], match[2] or "00", f"{match[3]}m" if match[3] else match[4])),
    (_CLOCK.pattern, lambda match: _clock(match[2], (match[3] and "15") or (match[4] and "30") or match[5], match[1])),
    (r"(?<![\d:])(\d+\.(?:0*[1-9])*+)0+(?![\d:])", lambda match: match[1].rstrip(".")),
    (r"\b(minute|hour|day|week|month|year|litre|\w+day)s\b", r"\1"),
    (r"\bmins?\b", "minute"),
    (r"(\d)(?:st|nd|rd|th)\b", r"\1"),
)
_RULES = [(re.compile(pattern), new) for pattern, new in _REPLACED]


@functools.lru_cache(maxsize=1 << 12)
def written_alike(text: str) -> str:
    """The text with its numbers in digits, times as `19:30` (in the morning `07:30`), money and units in one way."""
    alike = unicodedata.normalize("NFKC", text).lower().replace("’", "'").replace("–", "-").replace("—", "-")
    alike = alike.replace("**", "").replace("`", "").replace("−", "-")
    for pattern, new in _RULES:
        alike = pattern.sub(new, alike)
    return alike


def _flat(alike: str) -> str:
    """Words and numbers alone, single spaces between them, none beside a Chinese character."""
    kept = re.sub(rf"[^\w%:.{HAN}-]|(?<!\d)[.:]|[.:](?!\d)|-(?!\d)|(?<=[\w%])-", " ", alike)
    return re.sub(rf"\s*([{HAN}])\s*", r"\1", " ".join(kept.split()))


def _says(flat: str, forms: Iterable[str]) -> bool:
    return any(_stands(flat, each) for form in forms for each in _variants(form))


@functools.lru_cache(maxsize=1 << 12)
def _variants(form: str) -> Sequence[str]:
    """A form as it is looked for; a time also as the clock shows it, where the half of the day goes without saying."""
    flat = _flat(written_alike(form))
    if not (time := re.fullmatch(r"(\d{1,2}):(\d\d)", flat)):
        return [flat]
    hour, minutes = int(time[1]), time[2]
    shown = (hour - 1) % 12 + 1
    found = [f"{hour}:{minutes}", f"{hour:02}:{minutes}", f"{shown}:{minutes}", f"{hour}.{minutes}"]
    if minutes == "00":
        before = ("at", "until", "till", "to", "from", "by", "before", "than")
        found += [f"{shown} o clock", *(f"{word} {number}" for word in before for number in {shown, hour})]
    return found


def _stands(flat: str, form: str) -> bool:
    edges = (r"(?<![a-z0-9])(?<!\d[.:-])", r"(?![a-z0-9%]|[.:]\d)")
    before = edges[0] if form[0].isascii() else ""
    return re.search(before + re.escape(form) + (edges[1] if form[-1].isascii() else ""), flat) is not None


# --- retrieval alone


def recall(find: Callable[[str], Sequence[str]], items: Sequence[Item], *, whole: bool) -> list[tuple[float, float]]:
    """How many of the needed passages its last turn finds, and of how many, for each item that has an answer.

    Args:
        find: the titles that a query finds.
        items: the items of one language.
        whole: by all turns instead.
    """
    titles = {passage.id: passage.title for passage in read_passages(items[0].language)}
    rows = []
    for item in items:
        if item.gold:
            found = {*find("\n".join(item.turns) if whole else item.turns[-1])}
            rows.append((float(sum(titles[each] in found for each in item.gold)), float(len(item.gold))))
    return rows
