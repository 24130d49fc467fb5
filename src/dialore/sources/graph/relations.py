"""Relations of commonsense graphs: their wording in both languages and how they behave."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dialore.knowledge import Fact
    from dialore.text import Language


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation.

    Attributes:
        name: as in ConceptNet.
        en: English wording with `{head}` and `{tail}`.
        zh: Chinese wording.
        symmetric: whether head and tail may change places.
        informative: whether it says something about the world rather than about the word.
    """

    name: str
    en: str
    zh: str
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
    Relation("UsedFor", "{head} is used for {tail}", "{head}用来{tail}"),
    Relation("NotUsedFor", "{head} is not used for {tail}", "{head}不用来{tail}"),
    Relation("CapableOf", "{head} can {tail}", "{head}会{tail}"),
    Relation("NotCapableOf", "{head} cannot {tail}", "{head}不会{tail}"),
    Relation("AtLocation", "{head} is found at {tail}", "{head}在{tail}"),
    Relation("LocationOfAction", "{head} happens at {tail}", "{head}发生在{tail}"),
    Relation("LocatedNear", "{head} is near {tail}", "{head}在{tail}附近", symmetric=True),
    Relation("Causes", "{head} causes {tail}", "{head}会引起{tail}"),
    Relation("NotCauses", "{head} does not cause {tail}", "{head}不会引起{tail}"),
    Relation("HasSubevent", "{head} involves {tail}", "{head}时会{tail}"),
    Relation("HasFirstSubevent", "{head} begins with {tail}", "{head}先要{tail}"),
    Relation("HasLastSubevent", "{head} ends with {tail}", "{head}最后要{tail}"),
    Relation("HasPrerequisite", "{head} requires {tail}", "{head}之前需要{tail}"),
    Relation("HasProperty", "{head} is {tail}", "{head}是{tail}的"),
    Relation("NotHasProperty", "{head} is not {tail}", "{head}不{tail}"),
    Relation("MotivatedByGoal", "{head} is done to {tail}", "{head}是为了{tail}"),
    Relation("ObstructedBy", "{head} is prevented by {tail}", "{head}会被{tail}阻碍"),
    Relation("Desires", "{head} wants {tail}", "{head}想要{tail}"),
    Relation("NotDesires", "{head} does not want {tail}", "{head}不想要{tail}"),
    Relation("DesireOf", "{head} is wanted by {tail}", "{head}是{tail}想要的"),
    Relation("CausesDesire", "{head} makes one want to {tail}", "{head}让人想{tail}"),
    Relation("CreatedBy", "{head} is created by {tail}", "{head}由{tail}创造"),
    Relation("MadeOf", "{head} is made of {tail}", "{head}由{tail}制成"),
    Relation("NotMadeOf", "{head} is not made of {tail}", "{head}不由{tail}制成"),
    Relation("ReceivesAction", "{head} can be {tail}", "{head}可以被{tail}"),
    Relation("DefinedAs", "{head} is defined as {tail}", "{head}的意思是{tail}"),
    Relation("SymbolOf", "{head} is a symbol of {tail}", "{head}象征{tail}"),
    Relation("MannerOf", "{head} is a way to {tail}", "{head}是{tail}的一种方式"),
    Relation("InstanceOf", "{head} is an instance of {tail}", "{head}是{tail}的一个例子"),
    Relation("InheritsFrom", "{head} inherits from {tail}", "{head}继承自{tail}"),
    Relation("Synonym", "{head} means the same as {tail}", "{head}和{tail}意思相同", symmetric=True),
    Relation("Antonym", "{head} is the opposite of {tail}", "{head}和{tail}相反", symmetric=True),
    Relation("DistinctFrom", "{head} is different from {tail}", "{head}不同于{tail}", symmetric=True),
    Relation("SimilarTo", "{head} is similar to {tail}", "{head}和{tail}相似", symmetric=True),
    Relation("HasContext", "{head} goes with {tail}", "{head}常和{tail}有关"),
    Relation("Entails", "{head} entails {tail}", "{head}意味着{tail}"),
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
    return " ".join(relation(name).wording(language).replace("{head}", " ").replace("{tail}", " ").split())


def verbalise(fact: Fact, language: Language) -> str:
    """A fact in words, e.g. "sushi is made of rice"."""
    before, _, after = relation(fact.relation).wording(language).partition("{tail}")
    return before.replace("{head}", fact.head) + fact.tail + after.replace("{head}", fact.head)
