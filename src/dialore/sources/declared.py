"""Sources declared in a file: any number, with descriptions and dependencies (SAFARI, Section 4.1).

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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from dialore.dialogue import Dialogue, describe, read_text
from dialore.errors import InputError, UnknownNameError
from dialore.knowledge import Source
from dialore.text import LANGUAGES, Language

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from dialore.sources.base import KnowledgeSource
    from dialore.sources.graph_knowledge import GraphLike

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


@dataclass(frozen=True, slots=True)
class DeclaredSource:
    """A source that is declared and opened.

    Attributes:
        name: what plans call it.
        kind: its kind.
        description: what it holds, by language.
        source: what is asked; None for the language model's own knowledge, which a method asks for by a prompt.
        depends_on: the sources whose pieces it is retrieved by.
        join: how they are used.
        top: how many pieces; None: as the method says.
        stands_in: it is the starter graph, because neither `from` nor an open graph named another.
    """

    name: str
    kind: Source
    description: Mapping[Language, str]
    source: KnowledgeSource | None = None
    depends_on: tuple[str, ...] = ()
    join: Join = "query"
    top: int | None = None
    stands_in: bool = False


@dataclass(frozen=True, slots=True)
class DeclaredSources:
    """Declared sources as a directed acyclic graph, each after those that it depends on.

    Attributes:
        entries: the sources, in an order that no dependency is against.
        demonstrations: examples by language.
        opened: what `close` closes: what was opened for this declaration and nothing else.
    """

    entries: tuple[DeclaredSource, ...]
    demonstrations: Mapping[Language, Sequence[Demonstration]] = field(default_factory=dict)
    opened: tuple[KnowledgeSource, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in that order."""
        return tuple(entry.name for entry in self.entries)

    def find(self, name: str) -> DeclaredSource | None:
        """The source of that name, whatever its case; None where there is none."""
        wanted = " ".join(name.split()).casefold()
        return next((entry for entry in self.entries if entry.name.casefold() == wanted), None)

    def __getitem__(self, name: str) -> DeclaredSource:
        """The source of that name; raises UnknownNameError where there is none."""
        found = self.find(name)
        if found is None:
            raise UnknownNameError("source", name, self.names)
        return found

    def needed_by(self, name: str) -> tuple[str, ...]:
        """All that a source depends on, however far away, each after what it depends on itself."""
        needed: dict[str, None] = {}
        for before in self[name].depends_on:
            needed |= dict.fromkeys((*self.needed_by(before), before))
        return tuple(needed)

    def without(self, kind: Source) -> DeclaredSources:
        """The sources that are neither of a kind nor depend on one of it; what is open stays open."""
        gone = {entry.name for entry in self.entries if entry.kind == kind}
        kept = tuple(
            entry for entry in self.entries if entry.name not in gone and not gone & set(self.needed_by(entry.name))
        )
        return DeclaredSources(kept, self.demonstrations)

    def on_graph(self, graph: GraphLike) -> DeclaredSources:
        """The same, with a graph in the place of the starter graph where that only stands in."""
        from dialore.sources.graph_knowledge import GraphKnowledge

        entries = [
            replace(entry, source=GraphKnowledge(graph, name=entry.name), stands_in=False) if entry.stands_in else entry
            for entry in self.entries
        ]
        return replace(self, entries=tuple(entries))

    @classmethod
    def of(
        cls,
        entries: Iterable[DeclaredSource],
        demonstrations: Mapping[Language, Sequence[Demonstration]] | None = None,
        opened: Iterable[KnowledgeSource] = (),
    ) -> Self:
        """Sources in whatever order.

        Raises:
            InputError: a name that stands twice, or a cycle of dependencies.
            UnknownNameError: a source depends on one that is not declared.
        """
        listed = list(entries)
        order = in_order({entry.name: entry.depends_on for entry in listed})
        if len(order) < len(listed):
            names = [entry.name for entry in listed]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"the source {twice!r} is declared twice", mend="give each a name of its own")
        by_name = {entry.name: entry for entry in listed}
        return cls(tuple(by_name[name] for name in order), demonstrations or {}, tuple(opened))

    def close(self) -> None:
        """Close what was opened for this declaration."""
        for source in self.opened:
            source.close()


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


def open_declared(path: Path, opened: Mapping[str, object] | None = None) -> DeclaredSources:
    """The sources that a file declares.

    Args:
        path: the declaration; see the module.
        opened: sources that are open already, by the names of `open_sources`; they stand in for what has no `from`.

    Raises:
        InputError: the file cannot be read or is malformed, dependencies go in a circle, a source cannot be opened.
        UnknownNameError: a source depends on one that is not declared; a retriever or engine that is not known.
    """
    from dialore.sources.declared_kinds import open_entries

    file = read_declaration(read_text(path), path.name)
    return open_entries(file, opened or {}, folder=path.parent, place=path.name)


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


def default_sources(opened: Mapping[str, object], *, retriever: str = "dialogue") -> DeclaredSources:
    """What is planned over where nothing is declared: persona -> documents (SAFARI's own case), and what is open.

    Args:
        opened: sources that are open already: `persona` (its file stands in for dialogues without one), `documents`
            (planned over as `library`), `graph`, `web`.
        retriever: ranks the persona and the documents under it.

    Raises:
        UnknownNameError: no retriever is called that.
    """
    from importlib import resources

    from dialore.sources.declared_kinds import KEYS, open_entries

    text = (resources.files("dialore") / "data" / "declared" / "default.yaml").read_text(encoding="utf-8")
    file = read_declaration(text, "default.yaml")
    kept = []
    for entry in file.sources:
        if entry.opened_from == "opened":
            if opened.get(KEYS[entry.kind]) is None:
                continue
            kept.append(entry.model_copy(update={"opened_from": None}))
        else:
            kept.append(entry.model_copy(update={"retriever": retriever}))
    return open_entries(file.model_copy(update={"sources": kept}), opened, folder=None, place="default.yaml")
