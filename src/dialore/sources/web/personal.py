"""Personal data by its form: numbers and addresses that identify somebody, each found with its own check.

What merely looks similar stays: dates, prices, years, versions, model numbers, ISBNs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dialore.text import HAN

if TYPE_CHECKING:
    from collections.abc import Callable

# Letters and digits of Latin script only: Chinese is written without spaces, so \b stands nowhere beside it.
_BEFORE, _AFTER = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"


@dataclass(frozen=True)
class Rule:
    """One kind of personal data.

    Attributes:
        what: its name in notes.
        pattern: what it looks like.
        replace: what stands in for a match: an empty string, something more general, or the match itself where it is
            none after all.
    """

    what: str
    pattern: re.Pattern[str]
    replace: Callable[[re.Match[str]], str]

    def apply(self, text: str) -> tuple[str, bool]:
        """The text without it, and whether there was any."""
        changed = self.pattern.sub(self.replace, text)
        return changed, changed != text


def _nothing(_: re.Match[str]) -> str:
    return ""


def _if(check: Callable[[str], bool]) -> Callable[[re.Match[str]], str]:
    """Take a match out where a check holds."""
    return lambda match: "" if check(match[0]) else match[0]


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


def passes_luhn(number: str) -> bool:
    """Whether digits pass the Luhn check (ISO/IEC 7812-1, annex B)."""
    total = 0
    for place, digit in enumerate(reversed(number)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


# First digits and lengths of the card schemes; they keep timestamps and ISBNs (978...) out.
_CARD = re.compile(
    r"(?:4\d{12}(?:\d{3}){0,2}|(?:5[1-5]|2[2-7]|6\d)\d{14}|62\d{15,17}|3[47]\d{13}|3[0689]\d{12}|35\d{14})"
)


def _is_card(text: str) -> bool:
    number = _digits(text)
    return _CARD.fullmatch(number) is not None and passes_luhn(number)


def _is_iban(text: str) -> bool:
    """Whether a text is an IBAN by its check digits (ISO 13616: modulo 97)."""
    bare = text.replace(" ", "").upper()
    if not 15 <= len(bare) <= 34:
        return False
    return int("".join(str(int(character, 36)) for character in bare[4:] + bare[:4])) % 97 == 1


def _without_iban(match: re.Match[str]) -> str:
    """What follows the longest IBAN that a match begins with; the whole match where it begins with none."""
    text = match[0]
    for end in range(len(text), 14, -1):
        if not text[end : end + 1].isalnum() and _is_iban(text[:end]):
            return text[end:]
    return text


def _is_chinese_id(text: str) -> bool:
    """Whether 18 characters have a region and a birth date where an ID of GB 11643 has them."""
    try:
        date(int(text[6:10]), int(text[10:12]), int(text[12:14]))
    except ValueError:
        return False
    return text[0] in "12345678" and text[6:8] in {"19", "20"}


# Addresses that are in every manual and are nobody's.
_COMMON_IPS_TEXT = """
0.0.0.0 127.0.0.1 255.255.255.0 255.255.255.255 192.168.0.1 192.168.1.1 192.168.1.0 192.168.0.0 10.0.0.1 10.0.0.0
8.8.8.8 8.8.4.4 1.1.1.1 1.0.0.1 9.9.9.9 114.114.114.114 223.5.5.5 ::1
"""
_LARGEST_OF_A_VERSION = 30
_COMMON_IPS = frozenset(_COMMON_IPS_TEXT.split())


def _is_ip(text: str) -> bool:
    if text in _COMMON_IPS:
        return False
    try:
        address = ip_address(text)
    except ValueError:
        return False
    # 3.11.4.1 is a version: hardly any machine has four numbers as small.
    if address.version == 4:
        return max(address.packed) > _LARGEST_OF_A_VERSION
    return sum(map(bool, text.split(":"))) > 2 and any(map(str.isdigit, text))


_DIALLED = re.compile(r"\D*(?:\d\D*){7,15}")


def _is_phone(text: str) -> bool:
    return _DIALLED.fullmatch(text) is not None


_PERSONAL_KEY = re.compile(
    r"[?&;#](?:[\w-]*(?:user|name|mail|phone|mobile|token|key|auth|sess|sid|passw|pwd|code|sig|account|client|uid|uuid))"
    r"[\w-]*=|[?&;#](?:id|u|e|t)=",
    re.IGNORECASE,
)


def _bare_url(match: re.Match[str]) -> str:
    """A URL without user, password and personal parameters; as it is where it has none."""
    url = match[0]
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return ""
    if "@" not in parts.netloc and not _PERSONAL_KEY.search(url):
        return url
    return f"{parts.scheme}://{host}{parts.path}"


_STREET = (
    r"(?:Street|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Terrace|Crescent|Hwy|Parkway|Pkwy|"
    r"(?-i:Court|Square|Close|Drive|Highway)|(?:St|Dr|Ct|Pl)(?:\.|(?=\s*(?:,|$|#|apt|unit|suite))))"
)
_NO_STREET = (
    r"(?:best|top|most|days?|miles?|minutes?|hours?|years?|weeks?|months?|ways?|good|great|cheap|free|new|old|people|"
    r"things?|reasons?|star|lane|percent|in|on|for|of|from|at|and|the|to|with|is|was|a|an|per|dollars?|yuan|euros?|pounds?|[gmt]b|inch)\b"
)
_FAMOUS = r"(?:10\s+downing|221b\s+baker|1600\s+pennsylvania|4\s+privet|21\s+jump|12\s+grimmauld)\b"
_FLAT = r"(?:,?\s*(?:apt|apartment|unit|suite|ste|flat|floor|room|#)\.?\s*#?\w{1,6}\b)?"
_POSTCODE = r"(?:(?P<town>,[^,\d]{2,40}?),?\s+(?:[A-Z]{2}\s+\d{5}(?:-\d{4})?|[A-Z]{1,2}\d[A-Z\d]?\s\d[A-Z]{2})(?!\w))?"
_ADDRESS = re.compile(
    rf"(?<![.,$€£¥]){_BEFORE}(?!{_FAMOUS})\d{{1,5}}[A-Za-z]?,?\s+(?:(?!{_NO_STREET})[A-Za-z0-9'’.-]{{1,20}}\s+){{1,4}}?{_STREET}{_AFTER}"
    rf"(?:\s+(?:North|South|East|West)\b)?\.?{_FLAT}(?-i:{_POSTCODE})",
    re.IGNORECASE,
)
_NUMBER = r"[0-9０-９一二三四五六七八九十百]{1,5}"
_CHINESE_ADDRESS = re.compile(
    rf"(?:(?![省市区县镇乡村在住是到去从往离])[{HAN}]){{1,6}}(?:路|街|大道|大街|巷|胡同)(?:[东南西北中]段?)?\s*{_NUMBER}\s*[号弄](?!线|公交|楼盘)"
    rf"(?:[院]?(?:[{HAN}]{{1,8}}(?:小区|花园|公寓|大厦|苑))?(?:\s*{_NUMBER}\s*(?:号楼|栋|幢|座|单元|楼|层|室|号))*)?"
    rf"|\d{{1,4}}\s*(?:号楼|栋|幢)(?:\s*\d{{1,4}}\s*(?:单元|楼|层|室|号))+"
)
_LABELLED = re.compile(
    r"(?P<label>\b(?:passport|driver'?s licen[cs]e|ssn|social security|bank account|account|id card|medicare|"
    r"national insurance)"
    r"(?:\s+(?:number|no\.?|card))*|(?:护照|身份证|银行卡|银行账户|驾驶证|社保卡|学号|工号|账号|卡号)(?:号码?|的号码)?)"
    r"(?P<is>\s*(?:is|:|：|是|为|#)?\s*)(?=[A-Z]{0,3}[0-9-]*\d{4})[A-Z0-9][A-Z0-9-]{5,20}" + _AFTER,
    re.IGNORECASE,
)
_PHONE_LABEL = re.compile(
    r"(?P<label>\b(?:phone|mobile|cell|telephone|tel|whatsapp|fax|(?:call|text|reach) me (?:at|on))"
    r"(?:\s+(?:number|no\.?))?|(?:电话|手机|座机|微信|QQ)(?:号码?|是)?)(?P<is>\s*(?:is|:|：|是|为)?\s*)"
    r"\(?\+?\d[\d\s().-]{4,18}\d" + _AFTER,
    re.IGNORECASE,
)
_PHONE = re.compile(
    rf"(?<![A-Za-z0-9.,$€£¥-])(?:"
    # International, with a plus or two zeros.
    rf"(?:\+|00(?=[1-9]))[1-9]\d{{0,2}}(?:[\s.-]?\(?\d{{1,5}}\)?){{2,6}}"
    # Chinese mobile and land lines.
    rf"|1[3-9]\d(?:\d{{8}}|[\s-]\d{{4}}[\s-]\d{{4}})|0\d{{2,3}}-\d{{7,8}}"
    # North American.
    rf"|(?:1[\s.-])?(?:\([2-9]\d{{2}}\)\s?|[2-9]\d{{2}}[\s.-])[2-9]\d{{2}}[\s.-]\d{{4}}"
    # British mobile.
    rf"|07\d{{3}}[\s-]?\d{{6}}"
    rf"){_AFTER}(?![.,]\d)"
)

RULES = (
    Rule("a web address's personal part", re.compile(r"(?i:https?|ftp)://[^\s<>\"'，。）)]+"), _bare_url),
    Rule(
        "an e-mail address",
        re.compile(rf"{_BEFORE}[A-Za-z0-9][A-Za-z0-9._%+-]{{0,63}}@[A-Za-z0-9-]{{1,63}}(?:\.[A-Za-z0-9-]{{2,63}})+"),
        _nothing,
    ),
    Rule(
        "an IBAN", re.compile(rf"{_BEFORE}[A-Za-z]{{2}}\d{{2}}(?: ?[A-Za-z0-9]{{1,4}}){{3,10}}{_AFTER}"), _without_iban
    ),
    Rule("an identity number", re.compile(rf"{_BEFORE}\d{{17}}[\dXx]{_AFTER}"), _if(_is_chinese_id)),
    Rule("a card number", re.compile(rf"{_BEFORE}\d(?:[ -]?\d){{12,18}}{_AFTER}"), _if(_is_card)),
    Rule(
        "an identity number",
        re.compile(rf"{_BEFORE}(?!000|666|9)\d{{3}}-(?!00)\d{{2}}-(?!0000)\d{{4}}{_AFTER}"),
        _nothing,
    ),
    Rule("a numbered document or account", _LABELLED, lambda match: match["label"]),
    Rule("a phone number", _PHONE_LABEL, lambda match: match["label"]),
    Rule("a phone number", _PHONE, _if(_is_phone)),
    Rule(
        "an IP address",
        re.compile(r"(?<![A-Za-z0-9.])(?<!version )(?<!v\.)\d{1,3}(?:\.\d{1,3}){3}(?![.\d]*\d)"),
        _if(_is_ip),
    ),
    Rule("an IP address", re.compile(r"(?<![\w:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])"), _if(_is_ip)),
    Rule("a street address", _ADDRESS, lambda match: match["town"] or ""),
    Rule("a street address", _CHINESE_ADDRESS, _nothing),
)
"""In the order in which they are looked for: what has a check of its own before what is found by form alone."""
