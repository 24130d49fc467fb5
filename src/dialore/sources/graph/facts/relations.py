"""Relations of commonsense graphs: their wording in both languages and how they behave."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dialore.sources.graph.facts.verbs import gerund, is_doing, passive

if TYPE_CHECKING:
    from collections.abc import Callable

    from dialore.knowledge import Fact
    from dialore.text import Language


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation.

    Attributes:
        name: as in ConceptNet.
        en: English wording with `{head}` and `{tail}`; `{head:gerund}`, `{tail:passive}` and the like for other forms.
        zh: Chinese wording.
        doing: English wording where the tail is something that one does ("eat lunch"), if it differs.
        symmetric: whether head and tail may change places.
        informative: whether it says something about the world rather than about the word.
    """

    name: str
    en: str
    zh: str
    doing: str = ""
    symmetric: bool = False
    informative: bool = True

    def wording(self, language: Language) -> str:
        """The template of a language."""
        return self.zh if language == "zh" else self.en


# ConceptNet 5's relations, those of ConceptNet 4 that older dumps still carry, and their negations.
_KNOWN = (
    Relation("RelatedTo", "{head} is related to {tail}", "{head}和{tail}有关", symmetric=True),
    Relation("FormOf", "{head} is a form of {tail}", "{head}是{tail}的一种形式", informative=False),
    Relation("IsA", "{head} is a kind of {tail}", "{head}是一种{tail}"),
    Relation("NotIsA", "{head} is not a kind of {tail}", "{head}不是{tail}"),
    Relation("PartOf", "{head} is part of {tail}", "{head}是{tail}的一部分"),
    Relation("HasA", "{head} has {tail}", "{head}有{tail}"),
    Relation("NotHasA", "{head} has no {tail}", "{head}没有{tail}"),
    Relation(
        "UsedFor", "{head:gerund} is used for {tail}", "{head}用来{tail}", doing="{head:gerund} is used to {tail}"
    ),
    Relation(
        "NotUsedFor",
        "{head:gerund} is not used for {tail}",
        "{head}不用来{tail}",
        doing="{head:gerund} is not used to {tail}",
    ),
    Relation("CapableOf", "{head} can {tail}", "{head}会{tail}"),
    Relation("NotCapableOf", "{head} cannot {tail}", "{head}不会{tail}"),
    Relation("AtLocation", "{head} is found at {tail}", "{head}在{tail}"),
    Relation("LocationOfAction", "{head:gerund} happens at {tail}", "{head}发生在{tail}"),
    Relation("LocatedNear", "{head} is near {tail}", "{head}在{tail}附近", symmetric=True),
    Relation(
        "Causes", "{head:gerund} causes {tail}", "{head}会引起{tail}", doing="{head:gerund} leads to {tail:gerund}"
    ),
    Relation(
        "NotCauses",
        "{head:gerund} does not cause {tail}",
        "{head}不会引起{tail}",
        doing="{head:gerund} does not lead to {tail:gerund}",
    ),
    Relation("HasSubevent", "{head:gerund} involves {tail:gerund}", "{head}时会{tail}"),
    Relation("HasFirstSubevent", "{head:gerund} begins with {tail:gerund}", "{head}先要{tail}"),
    Relation("HasLastSubevent", "{head:gerund} ends with {tail:gerund}", "{head}最后要{tail}"),
    Relation("HasPrerequisite", "{head:gerund} requires {tail:gerund}", "{head}之前需要{tail}"),
    Relation("HasProperty", "{head:gerund} is {tail}", "{head}是{tail}的"),
    Relation("NotHasProperty", "{head:gerund} is not {tail}", "{head}不{tail}"),
    Relation(
        "MotivatedByGoal",
        "{head:gerund} is done for {tail}",
        "{head}是为了{tail}",
        doing="{head:gerund} is done to {tail}",
    ),
    Relation("ObstructedBy", "{head:gerund} is prevented by {tail:gerund}", "{head}会被{tail}阻碍"),
    Relation("Desires", "{head} wants {tail}", "{head}想要{tail}", doing="{head} wants to {tail}"),
    Relation("NotDesires", "{head} does not want {tail}", "{head}不想要{tail}", doing="{head} does not want to {tail}"),
    Relation("DesireOf", "{head} is wanted by {tail}", "{head}是{tail}想要的"),
    Relation(
        "CausesDesire",
        "{head:gerund} makes one want {tail}",
        "{head}让人想{tail}",
        doing="{head:gerund} makes one want to {tail}",
    ),
    Relation("CreatedBy", "{head} is created by {tail}", "{head}由{tail}创造"),
    Relation("MadeOf", "{head} is made of {tail}", "{head}由{tail}制成"),
    Relation("NotMadeOf", "{head} is not made of {tail}", "{head}不由{tail}制成"),
    Relation("ReceivesAction", "{head} can be {tail:passive}", "{head}可以{tail}"),
    Relation("DefinedAs", "{head} is defined as {tail}", "{head}的意思是{tail}"),
    Relation("SymbolOf", "{head} is a symbol of {tail}", "{head}象征{tail}"),
    Relation(
        "MannerOf",
        "{head:gerund} is a way of {tail}",
        "{head}是{tail}的一种方式",
        doing="{head:gerund} is a way to {tail}",
    ),
    Relation("InstanceOf", "{head} is an instance of {tail}", "{head}是{tail}的一个例子"),
    Relation("InheritsFrom", "{head} inherits from {tail}", "{head}继承自{tail}"),
    Relation("Synonym", "{head} means the same as {tail}", "{head}和{tail}意思相同", symmetric=True),
    Relation("Antonym", "{head} is the opposite of {tail}", "{head}和{tail}相反", symmetric=True),
    Relation("DistinctFrom", "{head} is different from {tail}", "{head}不同于{tail}", symmetric=True),
    Relation("SimilarTo", "{head} is similar to {tail}", "{head}和{tail}相似", symmetric=True),
    Relation("HasContext", "{head} goes with {tail}", "{head}常和{tail}有关"),
    Relation("Entails", "{head:gerund} entails {tail:gerund}", "{head}意味着{tail}"),
    Relation("DerivedFrom", "{head} is derived from {tail}", "{head}来自{tail}", informative=False),
    Relation(
        "EtymologicallyRelatedTo",
        "{head} shares its origin with {tail}",
        "{head}与{tail}同源",
        symmetric=True,
        informative=False,
    ),
    Relation("EtymologicallyDerivedFrom", "{head} comes from the word {tail}", "{head}源于{tail}", informative=False),
    Relation("ExternalURL", "{head} is described at {tail}", "{head}见{tail}", informative=False),
    Relation("HasPainCharacter", "{head} has a pain that is {tail}", "{head}的疼痛是{tail}"),
    Relation("HasPainIntensity", "{head} has a pain that is {tail}", "{head}的疼痛程度是{tail}"),
    # Event relations of ATOMIC, so that its files can be built into a graph and read well.
    Relation("xNeed", "before {head} one needs {tail}", "{head}之前需要{tail}"),
    Relation("xIntent", "{head} is done because one wants {tail}", "{head}是因为想{tail}"),
    Relation("xWant", "after {head} one wants {tail}", "{head}之后想{tail}"),
    Relation("xEffect", "{head} has the effect that one {tail}", "{head}的结果是{tail}"),
    Relation("xReact", "{head} makes one feel {tail}", "{head}让人感到{tail}"),
    Relation("xAttr", "one who does {head} is {tail}", "{head}的人是{tail}的"),
    Relation("oWant", "after {head} others want {tail}", "{head}之后别人想{tail}"),
    Relation("oEffect", "{head} has the effect that others {tail}", "{head}使别人{tail}"),
    Relation("oReact", "{head} makes others feel {tail}", "{head}让别人感到{tail}"),
)
RELATIONS: dict[str, Relation] = {relation.name: relation for relation in _KNOWN}
_FOLDED: dict[str, str] = {name.lower(): name for name in RELATIONS}
_SLOT = re.compile(r"\{(head|tail)(?::(gerund|passive))?\}")
_CLAUSE = re.compile(r"(?:you|it|i|he|she|we|they|your|one) \w")
"""A goal that is told as a reason: "you be hungry"."""
_ZH_CLAUSE = re.compile(r"很|不|难|容易|越来越|比|总|常|最|非常|太|没|有点")
_ZH_ADJECTIVE = 2
"""Characters of a Chinese adjective that "是...的" stands well around."""
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


@functools.lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """The relation's usual spelling (`isa`, `/r/IsA` and `is_a` become `IsA`); an unknown one is kept as it is."""
    bare = name.strip().removeprefix("/r/")
    return _FOLDED.get(bare.replace("_", "").replace(" ", "").lower(), bare)


def relation(name: str) -> Relation:
    """The relation of that name; one that nobody described is worded from its name ("LivesIn": "lives in")."""
    known = RELATIONS.get(name)
    if known is not None:
        return known
    spoken = _CAMEL.sub(" ", name.rsplit("/", 1)[-1]).replace("_", " ").lower().strip()
    return Relation(name, f"{{head}} {spoken} {{tail}}", f"{{head}} {spoken} {{tail}}")


def connecting_words(name: str, language: Language) -> str:
    """What a relation's wording says between and around its two concepts, e.g. "is used for"."""
    return " ".join(_SLOT.sub(" ", relation(name).wording(language)).split())


def verbalise(fact: Fact, language: Language) -> str:
    """A fact in words, e.g. "sushi is made of rice", "eating lunch is done to relax"."""
    known = relation(fact.relation)
    if language == "zh":
        return _chinese(known, fact)
    goal = known.name == "MotivatedByGoal" and _CLAUSE.match(fact.tail)
    template = "{head:gerund} is done because {tail}" if goal else known.en
    if known.doing and not goal and is_doing(fact.tail):
        template = known.doing
    return _fill(template, fact)


def _chinese(known: Relation, fact: Fact) -> str:
    template = known.zh
    if known.name == "HasProperty" and (_ZH_CLAUSE.match(fact.tail) or len(fact.tail) > _ZH_ADJECTIVE):
        template = "{head}{tail}"  # a predicate of its own: 时间过得飞快, not 时间是过得飞快的
    elif known.name == "HasProperty" and fact.tail.endswith("的"):
        template = "{head}是{tail}"
    return _fill(template, fact)


def _fill(template: str, fact: Fact) -> str:
    pieces = _pieces(template)
    return "".join([piece if form is None else form(getattr(fact, piece)) for piece, form in pieces])


@functools.lru_cache(maxsize=4096)
def _pieces(template: str) -> tuple[tuple[str, Callable[[str], str] | None], ...]:
    """A template's text, and its slots, each with what makes the form that it wants of an end."""
    pieces: list[tuple[str, Callable[[str], str] | None]] = []
    at = 0
    for slot in _SLOT.finditer(template):
        pieces += [(template[at : slot.start()], None), (slot[1], _FORMS[slot[2] or ""])]
        at = slot.end()
    return tuple(piece for piece in (*pieces, (template[at:], None)) if piece[0])


def _as_it_is(concept: str) -> str:
    return concept


_FORMS: dict[str, Callable[[str], str]] = {"": _as_it_is, "gerund": gerund, "passive": passive}
