"""Queries without e-mail addresses, phone and card numbers and the user's own name (SCG-QP's Limitations).

English and Chinese. What merely looks similar stays: dates, prices, years, versions, model numbers, ISBNs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dialore.text import HAN, segmenter, words

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue

# Letters and digits of Latin script only: Chinese is written without spaces, so \b stands nowhere beside it.
_BEFORE, _AFTER = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
_EMAIL = re.compile(rf"{_BEFORE}[A-Za-z0-9][A-Za-z0-9._%+-]{{0,63}}@[A-Za-z0-9-]{{1,63}}(?:\.[A-Za-z0-9-]{{2,63}})+")
_CARD_LIKE = re.compile(rf"{_BEFORE}\d(?:[ -]?\d){{12,18}}{_AFTER}")
# First digits and lengths of the card schemes; they keep timestamps and ISBNs (978...) out.
_CARD = re.compile(
    r"(?:4\d{12}(?:\d{3}){0,2}|(?:5[1-5]|2[2-7]|6\d)\d{14}|62\d{15,17}|3[47]\d{13}|3[0689]\d{12}|35\d{14})"
)
_PHONE_LABEL = re.compile(
    r"(?P<label>\b(?:phone|mobile|cell|telephone|tel|whatsapp|fax|(?:call|text|reach) me (?:at|on))"
    r"(?:\s+(?:number|no\.?))?|(?:电话|手机|座机|微信|QQ)(?:号码?|是)?)(?P<is>\s*+(?:is|:|：|是|为)?\s*+)"
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
_DIALLED = re.compile(r"\D*(?:\d\D*){7,15}")


def _is_card(text: str) -> bool:
    """Return whether digits are a card's by their scheme and the Luhn check (ISO/IEC 7812-1, annex B)."""
    number = re.sub(r"\D", "", text)
    doubled = "".join(str(int(digit) * (1 + position % 2)) for position, digit in enumerate(reversed(number)))
    return _CARD.fullmatch(number) is not None and sum(map(int, doubled)) % 10 == 0


_RULES: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    ("an e-mail address", _EMAIL, lambda _: ""),
    ("a card number", _CARD_LIKE, lambda match: "" if _is_card(match[0]) else match[0]),
    ("a phone number", _PHONE_LABEL, lambda match: match["label"]),
    ("a phone number", _PHONE, lambda match: "" if _DIALLED.fullmatch(match[0]) else match[0]),
)

_SPACES = re.compile(r"\s+")
_HANGING = re.compile(r" ([,.;:!?，。；：！？])")
_DOUBLED = re.compile(r"(?<![,;:，；：、\s])[,;:，；：、\s]++([.。!?！？])|([.。!?！？，])[\s.。,，]*[.。,，]")
# What Chinese keyboards write in full width: numbers and addresses have these alone.
_FOLDED = {0xFEE0 + ord(sign): sign for sign in "0123456789@.-+"}
_EDGES = " ,;:，；：、-"


def redact(query: str, dialogue: Dialogue) -> tuple[str, list[str]]:
    """Return a query without what identifies the user, possibly empty, and a note for each kind of thing taken out.

    That is e-mail addresses, phone and card numbers, and the name that the user gave as their own in the dialogue or
    in the query. Names of others stay. No note repeats what was taken out.
    """
    asked = query
    query, kinds = without_addresses(query)
    notes = [f"{kind} was taken out of the query" for kind in kinds]
    clean = _without_names(query, dialogue)
    if clean != query:
        notes.append("the user's name was taken out of the query")
    if not notes:
        return asked, []
    tidy = _HANGING.sub(r"\1", _SPACES.sub(" ", clean))
    tidy = _DOUBLED.sub(r"\1\2", tidy).lstrip(_EDGES + ".。!?！？").rstrip(_EDGES)
    return tidy if re.search(r"\w", tidy) else "", list(dict.fromkeys(notes))


def without_addresses(text: str) -> tuple[str, list[str]]:
    """Return a text without e-mail addresses, phone and card numbers, and which of these were taken out."""
    kinds: list[str] = []
    text = text.translate(_FOLDED)
    for kind, pattern, replace in _RULES:
        before, text = text, pattern.sub(replace, text)
        if text != before:
            kinds.append(kind)
    return text, kinds


# --- the user's own name: "my name is ...", 我叫...

_CAPITALISED = r"(?:[A-Z]\.|[A-Z][a-z'’-]*[A-Za-z])"
_LOWER = r"[A-Za-z][A-Za-z'’-]+"
_FULL = rf"(?P<name>{_CAPITALISED}(?:\s+(?:(?:de|van|von|der|la|bin|al)\s+)*{_CAPITALISED}){{0,3}})"
_MINE = r"my (?:full |first |last |real )?name(?: is|'s|’s)"
_CALLED = r"the name's|i am called|i'm called|(?:people |friends |they )?call me|i go by"
_INTRODUCTION = re.compile(rf"\b(?i:{_MINE}|{_CALLED})\s+{_FULL}(?:\s+and\b)?")
# Only the surest phrase is believed of a name in small letters, and only where the name ends a clause.
_SMALL = re.compile(rf"\b(?i:{_MINE})\s+(?P<name>{_LOWER}(?:\s+{_LOWER})?)(?=\s*(?:[,.;!?]|$)|\s+and\b)(?:\s+and\b)?")
_NO_NAME_TEXT = """
not on in the a an is too very so hard long short common unusual rare spelled pronounced also still quite never what
from after like back later when if maybe crazy old
"""
_NO_NAME = frozenset(_NO_NAME_TEXT.split())
_WORDS_TOO_TEXT = """
will may mark rose hope grace faith joy art bill june april august summer autumn dawn rich frank pat sue drew chance
christian jordan paris london sydney chelsea virginia georgia dallas austin india china ruby amber jade pearl jack
"""
_WORDS_TOO = frozenset(_WORDS_TOO_TEXT.split())
"""Given names that are other words too: alone they stay, for "in May" and "will it rain" name no person."""
_SURNAME = (
    "(?:欧阳|司马|上官|诸葛|[王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任沈姚卢姜崔钟谭陆汪范金石"
    "廖贾夏韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤])"
)
# What stands in sentences about calling somebody rather than in names: 我叫醒你, 我叫他不要来.
_PLAIN = rf"(?:(?![你我他她它们您咱谁了着过不没别去来要吃喝打醒])[{HAN}])"
_STOP = rf"(?=$|[^{HAN}·]|今年|来自)"
_END = rf"(?=$|[^{HAN}·]|今年|来自|是|住|也|和|想|要|在|有|呢|啊|呀|吧|哦|请|很)"
_CHINESE = re.compile(
    rf"(?P<phrase>我(?:的(?:名字|全名|大名|真名)|名)(?:就)?(?:叫做|叫|是|为)|我(?:就)?叫(?:做)?|(?:请)?叫我|我姓)\s*"
    rf"(?P<name>[{HAN}]{{1,6}}(?:·[{HAN}]{{1,6}}){{1,3}}|(?:{_SURNAME}{_PLAIN}{{1,2}}?|[小阿老]{_PLAIN}{{1,2}}?){_END}"
    rf"|{_PLAIN}{{2,4}}?{_STOP}|{_LOWER}{_STOP})[，,]?"
)
_FAMILY = re.compile(rf"{_SURNAME}{_PLAIN}{{1,2}}|阿{_PLAIN}|[A-Za-z]|.*·")
_TITLES = frozenset({"先生", "小姐", "老师", "老板", "师傅", "女士"})


def _without_names(query: str, dialogue: Dialogue) -> str:
    """Return a query without the user's own name and the phrases that gave it; the longest phrase goes first."""
    texts = [turn.text for turn in dialogue.turns if turn.speaker != dialogue.responder]
    named = {phrase: name for text in (*texts, query) for name, phrase in _introduced_names(text)}
    for phrase in sorted(named, key=len, reverse=True):
        query = query.replace(phrase, " ")
    for name in dict.fromkeys(named.values()):
        query = query.replace(name, "") if re.match(rf"[{HAN}]", name) else _without(query, name.split())
    return query


def _introduced_names(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names that a text gives as its speaker's own, each with the phrase that gives it."""
    for pattern in (_INTRODUCTION, _SMALL):
        for match in pattern.finditer(text):
            name = match["name"].rstrip(".")
            if name.split()[0].lower() not in _NO_NAME:
                yield name, match[0]
    for match in _CHINESE.finditer(text):
        name = match["name"]
        is_said = "名" in match["phrase"] or "姓" in match["phrase"]
        # What follows 我叫 may be no name: 我叫王芳, 我叫诗涵, but not 我叫外卖.
        may_be = name not in _TITLES and words(name, "zh")
        if is_said or (may_be and (_FAMILY.match(name) or not segmenter().get_FREQ(name))):
            yield name, match[0]


def _without(query: str, parts: list[str]) -> str:
    own = r"(?:['’]s\b)?"
    if len(parts) > 1:
        whole = r"\s+".join(map(re.escape, parts))
        query = re.sub(rf"\b{whole}\b{own}", "", query, flags=re.IGNORECASE)
    given = parts[0].rstrip(".")
    if given.lower() in _WORDS_TOO or len(given) < 2:
        return query
    # A namesake stays: the user is Taylor, the query is about Taylor Swift.
    query = re.sub(rf"(?<![\w'’-]){re.escape(given)}\b(?!['’-]?\w*\s+[A-Z]){own}", "", query)
    if query == query.lower():
        query = re.sub(rf"(?<![\w'’-]){re.escape(given.lower())}(?:['’]s\b|(?=\s*$|\s*[,.;!?]))", "", query)
    return query
