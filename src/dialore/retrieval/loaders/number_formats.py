"""Numbers as a spreadsheet shows them: dates, per cents, currencies, thousands."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_BUILT_IN = {
    "1": "0", "2": "0.00", "3": "#,##0", "4": "#,##0.00", "9": "0%", "10": "0.00%", "11": "0.00E+00",
    "14": "yyyy-mm-dd", "15": "d-mmm-yy", "16": "d-mmm", "17": "mmm-yy", "18": "h:mm AM/PM", "19": "h:mm:ss AM/PM",
    "20": "h:mm", "21": "h:mm:ss", "22": "yyyy-mm-dd h:mm", "37": "#,##0;(#,##0)", "38": "#,##0;(#,##0)",
    "39": "#,##0.00;(#,##0.00)", "40": "#,##0.00;(#,##0.00)", "45": "mm:ss", "46": "[h]:mm:ss", "47": "mm:ss.0",
    "48": "0.0E+0",
}  # fmt: skip
_BUILT_IN |= dict.fromkeys(map(str, (*range(27, 32), 36, *range(50, 55), 57, 58)), "yyyy-mm-dd")
"""The meaning of the standard's own numbers of formats; local short dates are written as ISO has them."""
_LONGEST_CODE = 255
_SECTION = re.compile(r'(?:"[^"]*"|\\.|[^;"])+')
_ASIDE = re.compile(r'("[^"]*"|\\.)|\[\$([^][-]*)(?:-[^][]*)?]|\[(?!h+]|m+]|s+])[^][]*]|_.|\*.', re.IGNORECASE)
"""Currencies with their locale, colours, blanks as wide as a letter, fill; but not in what is literal."""
_LITERAL = re.compile(r'"([^"]*)"|\\(.)')
_NUMBER = re.compile(r"(?:[#0?](?:[#0?,]*[#0?])?(?:\.[#0?]*)?|\.[#0?]+)(,*)")
_TOKEN = re.compile(r'"[^"]*"|\\.|AM/PM|A/P|\[h+\]|\[m+\]|\[s+\]|y+|m+|d+|h+|s+|.', re.IGNORECASE)
_DATE = re.compile(r"AM/PM|A/P|\[[hms]+\]|y+|m+|d+|h+|s+", re.IGNORECASE)
_YEARS = range(1900, 2100)
_EXACT = 10**15
"""Whole numbers below are exact."""


class Shown(NamedTuple):
    """A cell as shown, and whether a column may be called so: by a text, a year, a date."""

    text: str
    is_name: bool


def code_of(identifier: str, codes: Mapping[str, str]) -> str:
    """Return the format of an id: the workbook's own, or one of the standard's."""
    return (codes.get(identifier) or _BUILT_IN.get(identifier, "General"))[:_LONGEST_CODE]


def shown(value: str, code: str, *, since_1904: bool = False) -> Shown:
    """Return a number of a file as its format shows it; plainly where the format says what is not known here."""
    try:
        number = float(value)
    except ValueError:
        return Shown(value, is_name=False)
    sections = [_ASIDE.sub(lambda match: match[1] or match[2] or "", part) for part in _SECTION.findall(code)] or [""]
    if number >= 0 and _DATE.search(_LITERAL.sub("", sections[0].lower().replace("general", ""))):
        return Shown(_date(number, sections[0], since_1904=since_1904), is_name=True)
    section, sign = sections[0], "-" if number < 0 else ""
    if number < 0 and len(sections) > 1:
        section, sign = sections[1], ""
    text = None if "[<" in code or "[>" in code or "[=" in code else _number(abs(number), section)
    return Shown(plain(number) if text is None else sign + text, is_name=number in _YEARS)


def plain(number: float) -> str:
    """Return a number without a format."""
    return str(int(number)) if number.is_integer() and abs(number) < _EXACT else f"{number:.10g}"


def _number(number: float, section: str) -> str | None:
    """Return a number that is not negative in a section of a format; None where it has what is not known here."""
    literals = iter([match[1] or match[2] or "" for match in _LITERAL.finditer(section)])
    kept = _LITERAL.sub("\0", section)
    digits = _NUMBER.search(kept)
    if digits is None or "/" in kept or "E" in kept.upper() or _NUMBER.search(kept, digits.end()):
        return None
    whole, _, decimals = digits[0].rstrip(",").partition(".")
    number *= 100.0 ** kept.count("%") / 1000.0 ** len(digits[1])
    text = f"{number:{',' if ',' in whole else ''}.{len(decimals)}f}"
    optional = len(decimals) - len(decimals.rstrip("#?"))
    for _ in range(optional):
        text = text.removesuffix("0")
    before, point, after = text.partition(".")
    text = before.zfill(whole.count("0")) + (point + after if after else "")
    return re.sub("\0", lambda _: next(literals), kept[: digits.start()] + text + kept[digits.end() :]).strip()


def _date(number: float, section: str, *, since_1904: bool) -> str:
    """Return a date or time, which is a number of days."""
    # The first calendar has a 29 February 1900 that never was.
    start = datetime(1904, 1, 1) if since_1904 else datetime(1899, 12, 30 if number >= 60 else 31)  # noqa: DTZ001
    seconds = round(number * 86400)
    try:
        moment = start + timedelta(seconds=seconds)
    except OverflowError:
        return plain(number)
    tokens = _TOKEN.findall(section)
    units = [token.lower().lstrip("[")[0] if _DATE.fullmatch(token) else "" for token in tokens]
    halves = "a" in units
    parts = []
    for at, (token, unit) in enumerate(zip(tokens, units, strict=True)):
        before = next(filter(None, reversed(units[:at])), "")
        after = next(filter(None, units[at + 1 :]), "")
        if unit == "m" and (before == "h" or after == "s"):
            unit = "minute"  # noqa: PLW2901 - the same letter says month and minute
        if token.startswith("["):
            parts.append(str(seconds // {"h": 3600, "minute": 60, "m": 60}.get(unit, 1)))
        elif unit:
            parts.append(_unit(moment, unit, len(token), halves=halves))
        else:
            parts.append(token[1:-1] if len(token) > 1 and token[0] == '"' else token.removeprefix("\\"))
    return "".join(parts).strip()


def _unit(moment: datetime, unit: str, letters: int, *, halves: bool) -> str:
    """One unit of a moment, written in so many letters."""
    if unit == "a":
        return f"{moment:%p}"
    if unit == "y":
        return f"{moment.year:04}" if letters > 2 else f"{moment:%y}"
    if unit in "md" and letters > 2:
        name = f"{moment:%B}" if unit == "m" else f"{moment:%A}"
        return name[:3] if letters == 3 else name
    hour = (moment.hour % 12 or 12) if halves else moment.hour
    value = {"m": moment.month, "d": moment.day, "h": hour, "minute": moment.minute, "s": moment.second}[unit]
    return f"{value:0{min(letters, 2)}}"
