"""How sources are declared in a file: any number, with descriptions and dependencies (SAFARI, Section 4.1).

A declaration is YAML (or JSON), a list of sources or `{sources: [...], demonstrations: {...}}`. A source has

    name          what plans call it
    kind          persona, documents, graph, web, or model (what the language model knows itself)
    description   one text, or {en: ..., zh: ...}: what the planner is told that it holds
    from          what it is opened from: a persona file, a document index, a graph, a search engine (`searxng:URL`,
                  `brave:`, `corpus:PATH`); paths are relative to the declaration. Without it: the dialogue's own
                  persona and the documents under it, or what the command line has opened for the kind
    depends_on    names of the sources whose pieces it is retrieved by
    join          how: `filter` (documents under the chosen persona sentences alone) or `query` (their text is joined
                  to the query); `filter` where it can be, else `query`
    top           how many pieces; the method says, where this does not
    retriever     how its pieces are ranked: `dialogue` (see `dialogue_ranking`; of a persona and its documents alone),
                  or a reranker's spec (`bm25`, `dense`, `fused`, `cross:NAME`); of a graph, its ranking

and a demonstration `{turns: [...], plan: [...], knowledge: {source: [...]}, response: ...}`, listed by language.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from dialore.dialogue import Dialogue, describe
from dialore.errors import InputError, UnknownNameError
from dialore.knowledge import Source
from dialore.text import LANGUAGES, Language

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Join = Literal["filter", "query"]
_NAME = re.compile(r"[^\W\d_][\w-]*(?: [\w-]+)*")
_FORM = "a source is {name: ..., kind: persona|documents|graph|web|model, description: ...}"


def _by_language(value: object) -> object:
    """One text for both languages; where only one language is given, it serves the other too."""
    if isinstance(value, str):
        return dict.fromkeys(LANGUAGES, value)
    if isinstance(value, dict) and len(value) == 1 and set(value) <= set(LANGUAGES):
        return dict.fromkeys(LANGUAGES, next(iter(value.values())))
    return value


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Declaration(BaseModel):
    """One source as a file declares it; see the module."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: str
    kind: Source
    description: Annotated[dict[Language, str], BeforeValidator(_by_language)]
    opened_from: str | None = Field(default=None, alias="from")
    depends_on: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    join: Join | None = None
    top: int | None = Field(default=None, ge=1)
    retriever: str | None = None

    @field_validator("name")
    @classmethod
    def _can_be_planned(cls, name: str) -> str:
        if not _NAME.fullmatch(name) or name.casefold() in {"null", "none"}:
            raise ValueError("a name is words of letters, digits and -, beginning with a letter, and not NULL")
        return name

    @field_validator("description")
    @classmethod
    def _in_every_language(cls, description: dict[Language, str]) -> dict[Language, str]:
        if not description or not all(text.strip() for text in description.values()):
            raise ValueError("the planner has nothing else to go by: a text is wanted")
        return {language: " ".join(text.split()) for language, text in description.items()}


class Demonstration(BaseModel):
    """One example of planning and assembling, for the in-context setting (SAFARI, Section 4.3).

    Attributes:
        turns: the history; speakers alternate, and the last turn is answered.
        plan: the sources that the response needs, in order; none for NULL.
        knowledge: the pieces retrieved from each.
        response: what was answered.
    """

    model_config = ConfigDict(extra="forbid")

    turns: tuple[str, ...] = Field(min_length=1)
    plan: tuple[str, ...] = ()
    knowledge: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    response: str

    @property
    def dialogue(self) -> Dialogue:
        """The history as a dialogue."""
        return Dialogue.model_validate({"id": "demonstration", "turns": self.turns})


class DeclarationFile(BaseModel):
    """A whole declaration."""

    model_config = ConfigDict(extra="forbid")

    sources: list[Declaration] = Field(min_length=1)
    demonstrations: dict[Language, list[Demonstration]] = Field(default_factory=dict)


def read_declaration(text: str, place: str) -> DeclarationFile:
    """A declaration from text; `place` names it in errors. Raises InputError where it is malformed."""
    import yaml

    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{place}: not valid YAML: {' '.join(str(error).split())}", mend=_FORM) from error
    try:
        return DeclarationFile.model_validate({"sources": data} if isinstance(data, list) else data)
    except ValidationError as error:
        raise InputError(f"{place}: {_named(describe(error), data)}", mend=_FORM) from error


def _named(problem: str, data: object) -> str:
    """A problem of `sources[1]` with that source's name, where it has one."""
    listed = data.get("sources") if isinstance(data, dict) else data
    match = re.search(r"sources\[(\d+)\]", problem)
    if match and isinstance(listed, list) and isinstance(entry := listed[int(match[1])], dict) and entry.get("name"):
        return f"source {entry['name']!r}: {problem}"
    return problem


def in_order(depends_on: Mapping[str, Sequence[str]]) -> list[str]:
    """Names, each after those that it depends on, else as they stand.

    Raises:
        InputError: a cycle, which is named, or names that differ in case alone.
        UnknownNameError: a dependency on a name that is not there.
    """
    folded: dict[str, str] = {}
    for name in depends_on:
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            raise InputError(f"the sources {other!r} and {name!r} differ in case alone", mend="rename one of them")
    order: dict[str, None] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            cycle = " -> ".join([*path[path.index(name) :], name])
            raise InputError(f"the sources depend on each other in a circle: {cycle}", mend="take one dependency out")
        if name in order:
            return
        for before in depends_on[name]:
            if before not in depends_on:
                raise UnknownNameError(f"source that {name!r} depends on", before, depends_on)
            visit(before, (*path, name))
        order[name] = None

    for name in depends_on:
        visit(name, ())
    return list(order)
