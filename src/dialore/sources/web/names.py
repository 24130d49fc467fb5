"""The names that a user gave as their own: "my name is ...", 我叫..."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dialore.text import HAN, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dialore.dialogue import Dialogue

_CAPITALISED = r"(?:[A-Z]\.|[A-Z][a-z'’-]*[A-Za-z])"
_LOWER = r"[A-Za-z][A-Za-z'’-]+"
_FULL = rf"(?P<name>{_CAPITALISED}(?:\s+(?:(?:de|van|von|der|la|bin|al)\s+)*{_CAPITALISED}){{0,3}})"
_MINE = r"my (?:full |first |last |real )?name(?: is|'s|’s)"
_AND = r"(?:\s+and\b)?"
_CALLED = r"the name's|i am called|i'm called|(?:people |friends |they )?call me|i go by"
_INTRODUCTION = re.compile(rf"\b(?i:{_MINE}|{_CALLED})\s+{_FULL}{_AND}")
# Only the surest phrase is believed of a name in small letters, and only where the name ends a clause.
_SMALL = re.compile(rf"\b(?i:{_MINE})\s+(?P<name>{_LOWER}(?:\s+{_LOWER})?)(?=\s*(?:[,.;!?]|$)|\s+and\b){_AND}")
_NO_NAME_TEXT = """
not on in the a an is too very so hard long short common unusual rare spelled pronounced also still quite never what
from after like back later when if maybe crazy old
"""
_NO_NAME = frozenset(_NO_NAME_TEXT.split())
_WORDS_TOO_TEXT = """
will may mark rose hope grace faith joy art bill june april august summer autumn dawn rich frank pat sue drew chance
christian jordan paris london sydney chelsea virginia georgia dallas austin india china ruby amber jade pearl jack
robin jay star sunny angel lily ivy violet daisy olive ginger basil rusty gene chip miles chase hunter mason baker
"""
_WORDS_TOO = frozenset(_WORDS_TOO_TEXT.split())
"""Given names that are other words too: alone they stay, for "in May" and "will it rain" are nobody's."""
_SURNAMES = (
    "欧阳|司马|上官|诸葛|东方|皇甫|尉迟|公孙|慕容|令狐|司徒|夏侯|"
    "[王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任沈姚卢姜崔钟谭陆汪范金石廖贾夏韦付方白邹"
    "孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤温康施文牛樊葛邢安齐易乔伍庞颜倪庄聂章鲁岳翟殷詹申欧耿关兰焦俞左柳甘祝包宁"
    "尚符舒阮柯纪梅童凌毕单季裴霍涂成苗谷盛曲翁冉骆蓝路游辛靳管柴蒙鲍华喻祁蒲房滕屈饶解牟艾尤阳时穆农司卓古吉缪简车项连芦麦褚娄窦戚岑景党宫费卜冷晏席卫"
    "米柏宗瞿桂全佟应臧闵苟邬边卞姬师和仇栾隋商刁沙荣巫寇桑郎甄丛仲虞敖巩明佘池查麻苑迟邝]"
)
_STOP = rf"(?=$|[^{HAN}·]|今年|来自)"
_END = rf"(?=$|[^{HAN}·]|今年|来自|是|住|也|和|想|要|在|有|呢|啊|呀|吧|哦|请|很)"
# What stands in sentences about calling somebody rather than in names: 我叫醒你, 我叫他不要来.
_PLAIN = rf"(?:(?![你我他她它们您咱谁了着过不没别去来要吃喝打醒])[{HAN}])"
_FOREIGN = rf"[{HAN}]{{1,6}}(?:·[{HAN}]{{1,6}}){{1,3}}"
_CHINESE = re.compile(
    rf"(?:我(?:的(?:名字|全名|大名|真名)|名)(?:就)?(?:叫做|叫|是|为)|我(?:就)?叫(?:做)?|(?:请)?叫我|我姓)\s*"
    rf"(?P<name>{_FOREIGN}|(?:(?:{_SURNAMES}){_PLAIN}{{1,2}}?|[小阿老]{_PLAIN}{{1,2}}?){_END}|{_PLAIN}{{2,4}}?{_STOP}|{_LOWER}{_STOP})"
    rf"[，,]?"
)
_SURE = re.compile(r"名|我姓")
_FAMILY = re.compile(rf"(?:{_SURNAMES}){_PLAIN}{{1,2}}|阿{_PLAIN}|[A-Za-z]|.*·")
_TITLES = frozenset({"先生", "小姐", "老师", "老板", "师傅", "女士"})


@dataclass(frozen=True)
class Introduced:
    """A name, and the phrase that gave it."""

    name: str
    phrase: str


def introduced_names(dialogue: Dialogue, query: str = "") -> list[Introduced]:
    """The names that the user, or the query itself, gave as their own; the longest first."""
    texts = [turn.text for turn in dialogue.turns if turn.speaker != dialogue.responder]
    found = [introduced for text in (*texts, query) for introduced in _read(text)]
    return sorted(dict.fromkeys(found), key=lambda introduced: -len(introduced.phrase))


def without_names(query: str, names: Iterable[Introduced]) -> str:
    """A query without the introductions and the names in them."""
    known = list(names)
    for introduced in known:
        query = query.replace(introduced.phrase, " ")
    for introduced in known:
        query = _without(query, introduced.name)
    return query


def _read(text: str) -> Iterator[Introduced]:
    for pattern in (_INTRODUCTION, _SMALL):
        for match in pattern.finditer(text):
            name = match["name"].rstrip(".")
            if name.split()[0].lower() not in _NO_NAME:
                yield Introduced(name, match[0])
    for match in _CHINESE.finditer(text):
        name = match["name"]
        if _SURE.search(match[0].split(name)[0]) or _is_chinese_name(name):
            yield Introduced(name, match[0])


def _is_chinese_name(name: str) -> bool:
    """Whether what follows 我叫 is a name: 我叫王芳, 我叫诗涵, but not 我叫外卖."""
    import jieba

    if name in _TITLES or not words(name, "zh"):
        return False
    return _FAMILY.match(name) is not None or not jieba.get_FREQ(name)


def _without(query: str, name: str) -> str:
    if re.match(rf"[{HAN}]", name):
        return query.replace(name, "")
    parts = name.split()
    own = r"(?:['’]s\b)?"
    if len(parts) > 1:
        whole = r"\s+".join(map(re.escape, parts))
        query = re.sub(rf"\b{whole}\b{own}", "", query, flags=re.IGNORECASE)
    given = parts[0].rstrip(".")
    if given.lower() in _WORDS_TOO or len(given) < 2:
        return query
    # A namesake stays: the user is Taylor, the query is about Taylor Swift.
    lone = rf"(?<![\w'’-]){re.escape(given)}\b(?!['’-]?\w*\s+[A-Z]){own}"
    query = re.sub(lone, "", query)
    if query == query.lower():
        query = re.sub(rf"(?<![\w'’-]){re.escape(given.lower())}(?:['’]s\b|(?=\s*$|\s*[,.;!?]))", "", query)
    return query
