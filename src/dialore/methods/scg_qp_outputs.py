"""What SCG-QP's stages put out: what kind of turn is to be answered, what it is about, what is searched for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator

from dialore.llm.structured import candidates
from dialore.text import content_words, is_chinese

Kind = Literal["information", "opinion", "passive", "none"]

_TOPIC_WORDS, _TOPIC_CHARACTERS = 12, 30
"""A topic's most words (English) or characters (Chinese); what is longer is a sentence about the dialogue."""
_QUERY_WORDS, _QUERY_CHARACTERS = 40, 80
_EDGES = " \t.,;:!?。，、；：！？*`"
_BULLET = re.compile(r"\A(?:[-*•>]|\d{1,2}[.)、])\s+")
_LABEL = re.compile(
    r"\A(?:(?:the\s+)?(?:current\s+|search\s+|web\s+)?(?:topic|subject|query)(?:\s+is)?|search(?:\s+for)?|"
    r"(?:当前)?(?:话题|主题)|搜索词?|查询|检索词?)\s*[:：]\s*",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"\"([^\"]*)\"|“([^”]*)”|「([^」]*)」|'([^']*)'")
_NO_TOPIC = re.compile(
    r"(?:there\s+is\s+|there's\s+)?(?:none|nothing|null|n/?a|unknown|"
    r"no(?:\s+(?:current|clear|specific|particular))?\s+(?:topic|subject))(?:\s+at\s+(?:the|this)\s+moment)?|"
    r"(?:暂时?|当前|现在)?(?:无|没有|不明|未知)(?:明确|具体)?的?(?:话题|主题)?",
    re.IGNORECASE,
)
# "__no_search__", "__do-not-search__" and "no_passages_used" are how trained search deciders put it.
_NO_SEARCH = re.compile(
    r"_*(?:no|not|none|n/?a|do[-_ ]not)(?:[-_ ](?:search|query|passages?)(?:[-_ ](?:used|needed))?)?_*|"
    r"无|没有|(?:不用|无需|不需要)搜索",
    re.IGNORECASE,
)
# SCG-QP's "instruction mismatch" (Section 3.4): a question to the other person, which no engine can answer.
_TO_THE_OTHER = re.compile(
    r"(?:(?:and|so|but|well|how|what|which|where|when|why|who)\b[\w\s,']{0,40}?\s)?"
    r"(?:do|did|have|are|were|would|will|can|could|had)\s+you\b|"
    r"你们?(?:有没有|是不是|喜欢|觉得|最近|平时|会不会|想不想|[去看吃玩听]过)",
    re.IGNORECASE,
)


def _kind(value: Any) -> Any:  # noqa: ANN401 - what a model wrote
    """The kind in "Information", "information request" and "no search needed"."""
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    if word.startswith("no") or word in {"无", "不搜索", "不需要"}:
        return "none"
    known = {"info": "information", "opinion": "opinion", "passive": "passive", "信息": "information"}
    known |= {"看法": "opinion", "意见": "opinion", "被动": "passive"}
    return next((kind for start, kind in known.items() if word.startswith(start)), word)


class SearchDecision(BaseModel):
    """What kind of turn is to be answered; of a request for information, the request made self-contained."""

    kind: Annotated[Kind, BeforeValidator(_kind)]
    query: str = ""


@dataclass(frozen=True, slots=True)
class Topic:
    """What the dialogue is about now.

    Attributes:
        name: the topic; empty where there is none or it is not known.
        absent: the tracker says that there is none, so that one may be proposed.
    """

    name: str = ""
    absent: bool = False


def read_topic(text: str) -> Topic | None:
    """The topic that a tracker wrote, or that there is none; None where what it wrote is no topic."""
    line = _first_line(text)
    if _NO_TOPIC.fullmatch(line):
        return Topic(absent=True)
    too_long = len(line) > _TOPIC_CHARACTERS if is_chinese(line) else len(line.split()) > _TOPIC_WORDS
    return None if too_long or not any(letter.isalnum() for letter in line) else Topic(line)


def read_query(text: str) -> str | None:
    """The search query that a generator wrote; None where it is none: empty, a passage, or a question to the other."""
    line = _from_json(text) or _first_line(text)
    too_long = len(line) > _QUERY_CHARACTERS if is_chinese(line) else len(line.split()) > _QUERY_WORDS
    if too_long or not any(letter.isalnum() for letter in line):
        return None
    return None if _NO_SEARCH.fullmatch(line) or _TO_THE_OTHER.match(line) else line


def says_no_search(text: str) -> bool:
    """Whether a query generator wrote that nothing is to be searched, as BlenderBot's decision module does."""
    return bool(_NO_SEARCH.fullmatch(_first_line(text)))


def plain_query(text: str) -> str:
    """A query made of a text's content words, for where nobody could make a better one; empty where it has none."""
    language: Literal["en", "zh"] = "zh" if is_chinese(text) else "en"
    return " ".join(list(dict.fromkeys(content_words(text, language)))[:10])


def _from_json(text: str) -> str:
    for value in candidates(text):
        if isinstance(value, dict):
            said = next((item for key, item in value.items() if "query" in str(key) and isinstance(item, str)), "")
            if said:
                return _bare(said)
    return ""


def _first_line(text: str) -> str:
    """The first line that says something, without its label."""
    lines = (_bare(line) for line in text.splitlines())
    return next((line for line in lines if line), "")


def _bare(line: str) -> str:
    bare = _LABEL.sub("", _BULLET.sub("", line.strip()).strip("*`")).strip(_EDGES)
    quoted = _QUOTED.fullmatch(bare)
    inside = next((group for group in quoted.groups() if group is not None), "") if quoted else bare
    return " ".join(inside.strip(_EDGES).split())
