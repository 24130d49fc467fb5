"""The time that a question is about: "in May 2023", "last spring", "three weeks ago", "去年春天", "上周"."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple


class Period(NamedTuple):
    """A stretch of time, from its beginning up to its end, which is not part of it."""

    begins: datetime
    ends: datetime


_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_SHORT_MONTHS = [name[:3] for name in _MONTHS]
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" for name in _MONTHS)
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12, "春": 3, "夏": 6, "秋": 9, "冬": 12}
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_COUNTS = {name: number for number, name in enumerate(_NUMBERS)}
_COUNTS |= {sign: number for number, sign in enumerate("零一二三四五六七八九十")}
_COUNTS |= {"a": 1, "an": 1, "两": 2, "几": 3, "a few": 3, "a couple of": 2, "several": 3}
_UNITS = {"天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year"}
_DAY = (
    rf"(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?)?(?P<month>{_MONTH})\b"
    r"(?: (?P<late>\d{1,2})(?:st|nd|rd|th)?\b(?!\d))?"
)
_FORMS = [
    re.compile(r"\b(?P<year>(?:19|20)\d\d)-(?P<number>\d\d)(?:-(?P<day>\d\d))?\b"),
    re.compile(rf"\b{_DAY},? (?:of )?(?P<year>(?:19|20)\d\d)\b"),
    re.compile(r"\b(?P<near>last|this|the previous) (?P<unit>week|weekend|month|year)\b"),
    re.compile(r"\b(?P<near>last|this) (?P<season>spring|summer|autumn|fall|winter)\b"),
    re.compile(r"\b(?P<season>spring|summer|autumn|fall|winter) (?:of |in )?(?P<year>(?:19|20)\d\d)\b"),
    re.compile(rf"\b(?P<count>\d{{1,3}}|{'|'.join(_COUNTS)}) (?P<unit>day|week|month|year)s? ago\b"),
    re.compile(r"\b(?P<word>yesterday|today)\b"),
    re.compile(rf"\b(?:in|on|during|since|last|early|late) {_DAY}"),
    re.compile(r"\b(?:in|during|since|of|by|early|late) (?P<year>(?:19|20)\d\d)\b"),
    # 中文
    re.compile(r"(?P<year>(?:19|20)\d\d)[年-](?P<number>\d{1,2})(?:[月-](?:(?P<day>\d{1,2})[日号]?)?)?"),
    re.compile(
        r"(?:(?P<near>[去今前])年|(?P<year>(?:19|20)\d\d)年)的?(?:(?P<season>[春夏秋冬])|(?P<number>\d{1,2})月)?"
    ),
    re.compile(r"(?P<near>上|这)个?(?P<unit>周|星期|礼拜|月)"),
    re.compile(r"(?P<count>\d{1,3}|[一二两三四五六七八九十几])个?(?P<unit>天|周|星期|礼拜|月|年)(?:以?前|之前)"),
    re.compile(r"(?P<word>昨天|前天|今天)"),
    re.compile(r"(?<![\d年])(?P<number>\d{1,2})月(?:(?P<day>\d{1,2})[日号])?"),
]
_WORDS = {"yesterday": 1, "today": 0, "昨天": 1, "前天": 2, "今天": 0}
_PAST = re.compile(
    r"\b(?:used to|before|previous(?:ly)?|former(?:ly)?|earlier|originally|at first|back then|in the past|history)\b"
    r"|以前|之前|从前|过去|原来|曾经|当时"
)


def is_of_the_past(text: str) -> bool:
    """Return whether a text asks for what no longer holds."""
    return bool(_PAST.search(text.lower()))


_FUTURE = re.compile(
    r"\b(?:will|shall|going to|gonna|plan(?:s|ning)?|book|next|upcoming|soon|tomorrow|about to|"
    r"(?:is|are|am|'m|'re|'s) (?:getting|having|leaving|moving|starting|flying|going|coming|travell?ing))\b|'ll\b"
    r"|将要?|会|打算|计划|准备|即将|快要|预订|明天|明年|下个?(?:周|星期|月)"
)
_PRESENT = re.compile(
    r"\b(?:am|is|are|do|does|can|must|should|(?:i|we|they|you) (?!have|had|in\b|on\b)[a-z]+)\b|\bi'm\b"
)
_SINCE = re.compile(
    r"\b(?:since|ago|last|yesterday|was|were|been|did|had|began|started|became|got|went|left|bought|met|came|took|quit"
    r"|lost|found|made|won|sold|built|broke|gave|grew|began|chose|fell|felt|flew|kept|knew|paid|ran|said|saw|spent|taught|"
    r"thought|told|wrote|(?!(?:need|feed|seed|speed|indeed|hundred|exceed|proceed|succeed|breed|weed)\b)[a-z]{2,}ed)\b"
    r"|自从?|从|以来|曾|了|过|去年|前年|昨天|前天|上个?(?:周|星期|礼拜|月)|以前|之前"
)
_PARTICIPLE = re.compile(
    r"\b(?:am|is|are|be|being|get|gets|getting|i'm|we're|they're|he's|she's|it's) (?:\w+ly )?\w+ed\b"
)
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")


def is_of_the_future(text: str) -> bool:
    """Return whether a text speaks of what is to come, in English or Chinese."""
    return bool(_FUTURE.search(text.lower()))


def holds_from(statement: str, now: datetime) -> datetime | None:
    """Return since when a statement holds, by the time that it names; None if it says no such time.

    A time without a year says so only in the past tense ("I moved in March") or after "since": "I work in January" and
    "my sister marries in March" do not.
    """
    period = period_of(statement, now)
    if period is None or period.ends > now:
        return None
    folded = statement.lower()
    return period.begins if _YEAR.search(folded) or _is_past_tense(folded) else None


def is_limited_to_another_time(statement: str, said: datetime) -> bool:
    """Return whether a statement holds only in a period that is over or to come: "I work as a baker in January"."""
    period = period_of(statement, said)
    if period is None or period.begins <= said < period.ends:
        return False
    return not _is_past_tense(statement.lower())


def _is_past_tense(folded: str) -> bool:
    """Return whether a text in lower case has a verb in the past tense, "since" or the like."""
    return bool(_SINCE.search(_PARTICIPLE.sub("", folded)))


def _is_present_or_future(folded: str) -> bool:
    """Return whether a text in lower case is about the present or future; a text without a verb is not."""
    if _FUTURE.search(folded):
        return True
    return bool(_PRESENT.search(folded)) and not _is_past_tense(folded)


def period_of(text: str, now: datetime) -> Period | None:
    """Return the first stretch of time that a text names, as it is to be understood at a moment; None for none.

    A month or season without a year is the last one that has begun; in a text about the present or future it is
    the next one. Days begin at midnight, UTC.
    """
    folded = text.lower()
    for pattern in _FORMS:
        for match in pattern.finditer(folded):
            try:
                period = _period({name: value for name, value in match.groupdict().items() if value}, now)
            except (ValueError, OverflowError):  # the 31st of February
                continue
            if period is None:
                continue
            has_year = _YEAR.search(folded) or ("near" in match.groupdict() and match["near"])
            named_by_month = any(match.groupdict().get(name) for name in ("month", "number", "season"))
            if named_by_month and not has_year and period.ends <= now and _is_present_or_future(folded):
                return _a_year_later(period)
            return period
    return None


def _period(named: dict[str, str], now: datetime) -> Period | None:
    today = now.astimezone(UTC).date()
    unit = _UNITS.get(named.get("unit", ""), named.get("unit", ""))
    if "word" in named:
        return _around(today, _WORDS[named["word"]], "day")
    if "count" in named:
        count = int(named["count"]) if named["count"].isdecimal() else _COUNTS[named["count"]]
        return _around(today, count, unit)
    if unit:
        return _unit(today, unit, back=0 if named["near"] in {"this", "这"} else 1)
    year = int(named["year"]) if "year" in named else None
    if named.get("near") in {"去", "今", "前"}:
        year = today.year - {"去": 1, "今": 0, "前": 2}[named["near"]]
    if "season" in named:
        return _season(today, _SEASONS[named["season"]], year, named.get("near"))
    month = _SHORT_MONTHS.index(named["month"][:3]) + 1 if "month" in named else int(named.get("number", 0))
    return _calendar(today, year, month, int(named.get("day") or named.get("late") or 0))


def _calendar(today: date, year: int | None, month: int, day: int) -> Period | None:
    """Return a year, a month or a day; a month without a year is the last that has begun."""
    if not month:
        return None if year is None else _months(date(year, 1, 1), 12)
    first = date(today.year - (month > today.month) if year is None else year, month, 1)
    return _days(first.replace(day=day), 1) if day else _months(first, 1)


def _around(today: date, count: int, unit: str) -> Period:
    """Return what "three weeks ago" means: that week; of days that day, of months and years about a month."""
    if unit == "day":
        return _days(today - timedelta(days=count), 1)
    if unit == "week":
        return _days(today - timedelta(days=7 * count + 4), 8)
    return _months(today.replace(day=1), 3, skip=-count * (12 if unit == "year" else 1) - 1)


def _unit(today: date, unit: str, back: int) -> Period:
    if unit in {"week", "weekend"}:
        monday = today - timedelta(days=today.weekday() + 7 * back)
        return _days(monday, 7) if unit == "week" else _days(monday + timedelta(days=5), 2)
    if unit == "month":
        return _months(today.replace(day=1), 1, skip=-back)
    return _months(date(today.year, 1, 1), 12, skip=-12 * back)


def _season(today: date, first: int, year: int | None, near: str | None) -> Period:
    """Return three months: those of a year, else the last that have begun; "last summer" in July is last year's."""
    begins = date(today.year - (first > today.month) if year is None else year, first, 1)
    period = _months(begins, 3)
    is_under_way = year is None and near == "last" and period.ends.date() > today
    return _months(begins, 3, skip=-12) if is_under_way else period


def _a_year_later(period: Period) -> Period:
    try:
        return Period(*(moment.replace(year=moment.year + 1) for moment in period))
    except ValueError:  # the 29th of February
        return Period(*(moment + timedelta(days=365) for moment in period))


def _days(first: date, count: int) -> Period:
    begins = datetime(first.year, first.month, first.day, tzinfo=UTC)
    return Period(begins, begins + timedelta(days=count))


def _months(first: date, count: int, skip: int = 0) -> Period:
    """Return so many months from the first of a month on, or of one that is some months later."""
    begins = first.year * 12 + first.month - 1 + skip
    ends = begins + count
    return Period(*(datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC) for number in (begins, ends)))
