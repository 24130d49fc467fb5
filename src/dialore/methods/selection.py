"""The needs of a response, what is found for them, and which pieces of that are kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, model_validator

from dialore.text import HAN, asks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge

MOST, QUERY = 3, 160  # needs, and topics, at most; characters of a query
_NEAR = 0.25  # the share of the best piece's probability from which another may be what is wanted: the newer version
MAX_CHECKED_CHARS = 1000  # of the beginning and of the end of a turn, in which a question or directive is looked for
SAID = "the history has said it"  # why a piece is dropped that tells nothing new; nothing is missing then


class Need(BaseModel):
    """A piece of knowledge that the response needs, by the name of a source and the query that it is looked up by."""

    source: str = ""
    query: str = ""
    asked: bool = False  # the last turn asks for it
    unclear: bool = False  # the last turn leaves open which of several things it asks for
    what: str = ""  # it in words

    @model_validator(mode="after")
    def _complete(self) -> Need:
        self.what, self.query = self.what or self.query, self.query or self.what
        return self


class Needs(BaseModel):
    """The knowledge that the response needs, and the topics that could come next."""

    needs: list[Need] = Field(default_factory=list)
    topics: list[str] = Field(default_factory=list)


_DIRECTIVE = re.compile(
    r"(?i)(?:\A|[.!;,]\s)(?:(?:and|so|then|ok|now|also|please|hi|hello)\b,?\s){0,2}"
    r"(?:list|show|give|explain|compare|recommend|suggest|describe|summari[sz]e|find|name|help|check|look up|search|"
    r"translate|write|outline|define|state|calculate|say)\b"
    r"|\bi(?:'m| am)? (?:need|want|looking for|searching for|trying to (?:find|understand))\b"
    r"|\bplease\b|请|介绍|说说|告诉|列出|推荐|解释|比较|总结|想知道|想了解|帮我|查一下|需要"
)
_SUBJECT_OR_VERB = re.compile(
    r"(?i)\b(?:i|you|he|she|it|we|they|this|that|these|those|there|is|are|am|was|were|be|has|have|had|do|does|did|will|"
    r"would|can|could)\b|'|了|是|我|你|他|她|它|们"
)
_MAX_FRAGMENT_WORDS, _MAX_FRAGMENT_CHARS = 6, 12


def requests_information(text: str) -> bool:
    """Return whether a turn asks for something: a question, a directive, or a fragment such as "opening hours".

    Small models mark every need as requested, also those of a turn that only tells something.
    """
    plain = text.replace("’", "'").strip()
    if len(plain) > 2 * MAX_CHECKED_CHARS:  # what a long text is pasted for stands before or after it
        plain = f"{plain[:MAX_CHECKED_CHARS]}\n{plain[-MAX_CHECKED_CHARS:]}"
    if asks(plain) or _DIRECTIVE.search(plain):
        return True
    is_short = len(plain.split()) <= _MAX_FRAGMENT_WORDS
    if re.search(f"[{HAN}]", plain):
        is_short = len(plain) <= _MAX_FRAGMENT_CHARS
    return is_short and not _SUBJECT_OR_VERB.search(plain)


def has_asked_back(dialogue: Dialogue) -> bool:
    """Return whether the turn before the last answered a question of the user with a question, not with a courtesy."""
    texts = dialogue.texts
    if len(texts) < 3 or not asks(texts[-3]):
        return False
    last = texts[-2].rstrip()
    if not last.endswith(("?", "？")):
        return False
    question = re.split(r"(?<=[.!?。！？\n])\s*", last.rstrip("?？"))[-1]
    return not _COURTESY.search(question.lower())


_COURTESIES = (
    r"\b(?:anything|anyone|something|what) (?:else|more|other)\b",
    r"\b(?:any|more) (?:(?:other|further|more) )?questions?\b",
    r"\b(?:how|what) (?:else )?(?:can|may|could) (?:i|we) .*\b(?:help|assist|do for you)\b",
    r"\b(?:can|may|could|shall) (?:i|we) (?:help|assist|be of)\b",
    r"\b(?:does|did|was|is) (?:that|this|it) (?:help|answer|clear|work|useful|make sense|ok)",
    r"\b(?:want|like) (?:to know more|more (?:information|details)|me to)\b",
    r"\b(?:need anything|how are you|all right|okay)\b",
    r"还有(?:什么|其他|别的|任何|没有)|(?:其他|别的)(?:问题|需要|可以)|有疑问",
    r"(?:可以|能|需要我)(?:为|帮)[您你]?(?:做|效劳|什么)|需要(?:帮助|我帮|更多)",
    r"(?:有帮助|清楚|明白|满意)了?吗|想了解更多",
)
_COURTESY = re.compile("|".join(_COURTESIES))


def needs_schema(sources: Sequence[str], *, topics: bool, unclear: bool) -> dict[str, Any]:
    """Return the JSON schema of needs that these sources can be asked for: nothing in it is without a bound."""
    fields: dict[str, Any] = {
        "source": {"type": "string", "enum": [*sources]},
        "query": {"type": "string", "maxLength": QUERY},
        "asked": {"type": "boolean"},
    }
    if unclear:
        fields["unclear"] = {"type": "boolean"}
    need = {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}
    lists: dict[str, Any] = {"needs": {"type": "array", "maxItems": MOST, "items": need}}
    if topics:
        lists["topics"] = {"type": "array", "maxItems": MOST, "items": {"type": "string", "maxLength": 40}}
    return {"type": "object", "properties": lists, "required": [*lists], "additionalProperties": False}


@dataclass(slots=True)
class Found:
    """A piece, what it was looked up for and where, and why it was dropped; empty where it is kept."""

    need: Need
    source: str
    piece: Knowledge
    dropped: str = ""

    @property
    def probability(self) -> float:
        """How likely it is of use."""
        return self.piece.probability or 0.0

    def traced(self, text: str) -> dict[str, object]:
        """Return what a trace says of it, with the text that prompts show."""
        return {
            "id": self.piece.id,
            "text": text,
            "need": self.need.what,
            "asked": self.need.asked,
            "source": self.source,
            "query": self.need.query,
            "probability": self.probability,
            "kept": not self.dropped,
            "why": self.dropped,
        }


@dataclass(slots=True)
class Selection:
    """The outcome of the look-up: pieces kept, beside those given in any case, and what was asked for and not found."""

    kept: list[Knowledge]
    missing: list[str]
    is_new: bool  # a piece that matters was not shown to the draft

    @property
    def settles(self) -> bool:
        """True where a draft that was shown these pieces needs no second writing."""
        return not self.is_new and not self.missing


def show_first(found: Sequence[Found], given: Sequence[Knowledge], most: int) -> list[Found]:
    """Of what was found before the needs were known, the likeliest first; beyond `most` they are dropped."""
    likely = sorted((hit for hit in found if not hit.dropped), key=lambda hit: -hit.probability)
    shown = {piece.id for piece in given}
    for hit in likely:
        if hit.piece.id in shown or len(shown) - len(given) >= most:
            hit.dropped = f"{most} are shown already"
        else:
            shown.add(hit.piece.id)
    return likely


def select(
    found: Sequence[tuple[Need, str, Sequence[Found]]],
    shown: Sequence[Found],
    given: Sequence[Knowledge],
    *,
    limit: int,
    asked_limit: int,
    drafted: bool,
) -> Selection:
    """Keep every need's best piece before any second one, what is asked for first; those dropped are told why.

    `found` has each need, the kind of source it was looked up in, and what was found there; `shown` what was found for
    the draft (`show_first`), if one was `drafted` that may stand; `given` is given in any case.

    What the draft was not shown matters where it is a need's best, or not much less likely of use; a fact that nobody
    asks for does not, since a model knows most of what a graph holds. Where nothing does, the draft stands.
    """
    known = {hit.piece.id for hit in shown if not hit.dropped}
    missing: list[str] = []
    had: set[str] = set()  # a need may have been looked up in several sources
    ranked: list[tuple[bool, int, bool, Found]] = []
    for need, kind, hits in found:
        likely = sorted((hit for hit in hits if not hit.dropped), key=lambda hit: -hit.probability)
        near = _NEAR * likely[0].probability if likely else 0.0
        counts = need.asked or kind != "graph" or not drafted
        ranked += [(not need.asked, at, counts and hit.probability >= near, hit) for at, hit in enumerate(likely)]
        # What a commonsense graph lacks, a model may well know: the draft's word stands.
        if need.asked and not likely and kind != "graph" and all(hit.dropped != SAID for hit in hits):
            missing.append(need.what)
        elif hits:
            had.add(need.what)
    taken = {piece.id for piece in given}
    kept: list[Found] = []
    is_new = False
    for optional, _, matters, hit in sorted(ranked, key=lambda hits: (*hits[:2], -hits[3].probability)):
        most = limit if optional else asked_limit
        if hit.piece.id in taken:
            hit.dropped = "it is given already"
        elif len(kept) >= most:
            hit.dropped = f"{most} are kept already"
        else:
            kept.append(hit)
            taken.add(hit.piece.id)
            is_new |= matters and hit.piece.id not in known
    missing = [what for what in dict.fromkeys(missing) if what not in had]
    selection = Selection([hit.piece for hit in kept], missing, is_new)
    if selection.settles:
        for hit in kept:
            if hit.piece.id not in known:
                hit.dropped = "no reason to write the draft anew"
        stay = {hit.piece.id: hit.piece for hit in (*kept, *shown) if not hit.dropped}
        selection.kept = [*stay.values()]
    return selection
