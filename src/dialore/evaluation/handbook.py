"""The handbook test, scored without a judge: a response is right that has the facts in any form that is accepted.

Times, numbers, money and units of both are first written in one way.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dialore.datasets.handbook import FOLDER, SMALL_TALK, UNANSWERABLE, Item, item_of, read_passages
from dialore.evaluation.base import Proportion, Sample, SampleScore, Summed, unavailable
from dialore.evaluation.registry import OwnMetric
from dialore.text import HAN

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OTHER = "the dialogue is none of the handbook test"


class Outcome(OwnMetric, Proportion):
    """The share of the turns of one kind that are answered as they should be: right, refused, or by the draft."""

    async def measure(self, sample: Sample) -> SampleScore:
        """1 or 0; unavailable for turns of the other kinds."""
        item, response = item_of(sample.dialogue), sample.response
        if item is None:
            return unavailable(_OTHER)
        if item.category == SMALL_TALK:
            kind, value = "handbook-draft-kept", response.text == response.draft
        elif item.category in UNANSWERABLE:
            kind, value = "handbook-refused", refuses(item, response.text)
        else:
            kind, value = "handbook-right", is_right(item, response.text)
        if kind != self.about.name:
            return unavailable(f"the turn is {item.category}")
        if kind == "handbook-draft-kept" and not response.draft:
            return unavailable("the method writes no draft")
        return SampleScore((float(value),))


class Cited(OwnMetric, Summed):
    """Precision or recall of the cited passages, over all answers to turns that want the handbook."""

    async def measure(self, sample: Sample) -> SampleScore:
        """Return how many cited passages are needed, and how many are cited, or how many are needed."""
        item = item_of(sample.dialogue)
        if item is None or not item.gold:
            return unavailable(_OTHER if item is None else f"the turn is {item.category}")
        ids = {passage.title: passage.id for passage in read_passages(item.language)}
        titles = {passage.id: passage.title for passage in sample.response.knowledge}
        cited = {ids.get(titles.get(it.knowledge, ""), it.knowledge) for it in sample.response.citations}
        if self.about.name == "handbook-citation-recall":
            return SampleScore((float(len(cited & {*item.gold})), float(len(item.gold))))
        return SampleScore((float(len(cited & {*item.gold, *item.also})), float(len(cited))))

    def of_sums(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share, from the sums of both columns; NaN where nothing is cited."""
        with np.errstate(invalid="ignore"):
            share: NDArray[np.float64] = sums[..., 0] / sums[..., 1]
        return share


def is_right(item: Item, text: str) -> bool:
    """Return whether a response says every fact that is needed in one of its forms, and nothing that is wrong."""
    answer_text = _flat(normalise_numbers(text))
    return all(_says(answer_text, forms) for forms in item.answer) and not _misleads(item, text)


def refuses(item: Item, text: str) -> bool:
    """Return whether a response says that it does not know, denies the thing, or asks; and gives no value."""
    alike = normalise_numbers(text)
    asks = bool(re.search(r"\?\s*$", alike)) and not re.search(r"\d", alike)
    return (asks or bool(_REFUSAL.search(alike))) and not _misleads(item, text)


def _misleads(item: Item, text: str) -> bool:
    """Return whether a wrong form is said as if it held, neither of another thing that is named nor of the past."""
    accepted = {form for forms in item.answer for spelling in forms for form in _variants(spelling)}
    for sentence in _SENTENCE.split(normalise_numbers(text)):
        whole = _flat(sentence)
        for form, *excuses in item.wrong:
            if any(_says(whole, [excuse]) for excuse in excuses):
                continue
            left = [spelling for spelling in _variants(form) if spelling not in accepted]
            for clause in _CLAUSE.split(sentence):
                if not _FORMER.search(clause) and any(_stands(_flat(clause), spelling) for spelling in left):
                    return True
    return False


# --- one way of writing

_SENTENCE = re.compile(r"[;!?。\n]+|\.(?!\d)")
_CLAUSE = re.compile(r",\s|[:()、](?!\d)|,(?=\D)| but | while | whereas |而|但")
_FORMER, _REFUSAL = (
    re.compile("|".join((FOLDER / f"{name}.txt").read_text("utf-8").split("\n")[:-1]))
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
    """Return the value of a number below a hundred in words; 1 of "a", 0 of nothing."""
    return sum(_ENGLISH.get(word, 1) for word in re.findall(r"\w+", words or ""))


def _chinese(numeral: str) -> str:
    if not set(numeral) & set(_UNITS):
        return "".join(_DIGITS[character] for character in numeral)
    total = digit = 0
    for character in numeral:
        if character in _UNITS:
            total, digit = total + (digit or 1) * _UNITS[character], 0
        else:
            digit = int(_DIGITS[character])
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
def normalise_numbers(text: str) -> str:
    """Return the text with numbers in digits, times as `19:30` (mornings `07:30`), money and units in one way."""
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
    return any(_stands(flat, spelling) for form in forms for spelling in _variants(form))


@functools.lru_cache(maxsize=1 << 12)
def _variants(form: str) -> Sequence[str]:
    """Return a form as it is looked for; a time also as the clock shows it, without the half of the day."""
    flat = _flat(normalise_numbers(form))
    if not (time := re.fullmatch(r"(\d{1,2}):(\d\d)", flat)):
        return [flat]
    hour, minutes = int(time[1]), time[2]
    shown = (hour - 1) % 12 + 1
    spellings = [f"{hour}:{minutes}", f"{hour:02}:{minutes}", f"{shown}:{minutes}", f"{hour}.{minutes}"]
    if minutes == "00":
        before = ("at", "until", "till", "to", "from", "by", "before", "than")
        spellings += [f"{shown} o clock", *(f"{word} {number}" for word in before for number in {shown, hour})]
    return spellings


def _stands(flat: str, form: str) -> bool:
    edges = (r"(?<![a-z0-9])(?<!\d[.:-])", r"(?![a-z0-9%]|[.:]\d)")
    before = edges[0] if form[0].isascii() else ""
    return re.search(before + re.escape(form) + (edges[1] if form[-1].isascii() else ""), flat) is not None
