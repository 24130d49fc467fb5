"""Declared sources: any number, with descriptions and dependencies, a directed acyclic graph (SAFARI, Section 4.1).

A declaration is YAML (or JSON), a list of sources or `{sources: [...], demonstrations: {...}}`. A source has

    name          what plans call it
    kind          persona, documents, graph, web, or model (what the language model knows itself)
    description   one text, or {en: ..., zh: ...}: what the planner is told that it holds
    from          what it is opened from: a persona file, a document index, a graph, a search engine (`searxng:URL`,
                  `brave:`, `corpus:PATH`); a path is looked for beside the declaration first. Without it: the
                  dialogue's own persona and the documents under it, or what the command line has opened for the kind
    depends_on    names of the sources whose pieces it is retrieved by
    join          how: `filter` (documents under the chosen persona sentences alone) or `query` (their text is joined
                  to the query); `filter` where it can be, else `query`
    top           how many pieces; the method says, where this does not
    retriever     how its pieces are ranked: `dialogue` (see `dialogue_ranking`) or `trained:FOLDER` (`dialore train
                  retriever`; both of a persona and its documents alone),
                  or a reranker's spec (`bm25`, `okapi`, `dense`, `fused`, `cross:NAME`); of a graph, its ranking

and a demonstration `{turns: [...], plan: [...], knowledge: {source: [...]}, response: ...}`, listed by language.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from dialore.dialogue import Dialogue
from dialore.errors import DialoreError, InputError, UnknownNameError, describe
from dialore.files import parse_yaml, read_text
from dialore.sources.base import KnowledgeSource, SearchResult, list_knowledge
from dialore.sources.persona import PersonaDocuments, PersonaSource, read_persona
from dialore.sources.registry import KINDS
from dialore.text import LANGUAGES, Language

if TYPE_CHECKING:
    from dialore.knowledge import Knowledge
    from dialore.retrieval.reranking import Reranker

_Join = Literal["filter", "query"]
_NAME = re.compile(r"[^\W\d_][\w-]*(?: [\w-]+)*")
_FORM = "a source is {name: ..., kind: persona|documents|graph|web|model, description: ...}"
_WIDER = 5
"""How many times more pieces are asked for than are wanted, where a reranker chooses among them."""


def _both_languages(value: object) -> object:
    """One text for both languages; where only one language is given, it serves the other too."""
    if isinstance(value, str):
        return dict.fromkeys(LANGUAGES, value)
    if isinstance(value, dict) and len(value) == 1 and set(value) <= set(LANGUAGES):
        return dict.fromkeys(LANGUAGES, next(iter(value.values())))
    return value


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Declaration(BaseModel):
    """One source as a file declares it; see the module."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: str
    kind: str
    description: Annotated[dict[Language, str], BeforeValidator(_both_languages)]
    opened_from: str | None = Field(default=None, alias="from")
    depends_on: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    join: _Join | None = None
    top: int | None = Field(default=None, ge=1)
    retriever: str | None = None

    @field_validator("name")
    @classmethod
    def _can_be_planned(cls, name: str) -> str:
        if not _NAME.fullmatch(name) or name.casefold() in {"null", "none"}:
            raise ValueError("a name is words of letters, digits and -, beginning with a letter, and not NULL")
        return name

    @field_validator("kind")
    @classmethod
    def _can_be_opened(cls, kind: str) -> str:
        known = [*(name for name, source_kind in KINDS.items() if source_kind.is_declared), "model"]
        if kind not in known:
            raise ValueError(f"a kind is one of {', '.join(map(repr, known))}")
        return kind

    @field_validator("description")
    @classmethod
    def _in_every_language(cls, description: dict[Language, str]) -> dict[Language, str]:
        if not description or not all(text.strip() for text in description.values()):
            raise ValueError("the planner has nothing else to go by: a text is wanted")
        return {language: " ".join(text.split()) for language, text in description.items()}


class Demonstration(BaseModel):
    """One example of planning and assembling, for the in-context setting (SAFARI, Section 4.3).

    Speakers alternate, and the last turn is answered. `knowledge` holds the pieces retrieved from each planned source.
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
    """Return a declaration from text; `place` names it in errors. Raises InputError where it is malformed."""
    data = parse_yaml(text, place, _FORM)
    try:
        return DeclarationFile.model_validate({"sources": data} if isinstance(data, list) else data)
    except ValidationError as error:
        raise InputError(f"{place}: {_name_problem(describe(error), data)}", hint=_FORM) from error


def _name_problem(problem: str, data: object) -> str:
    """Return a problem of `sources[1]` with that source's name, where it has one."""
    listed = data.get("sources") if isinstance(data, dict) else data
    match = re.search(r"sources\[(\d+)\]", problem)
    if match and isinstance(listed, list) and isinstance(entry := listed[int(match[1])], dict) and entry.get("name"):
        return f"source {entry['name']!r}: {problem}"
    return problem


Named = TypeVar("Named", "Declaration", "DeclaredSource")


def in_order(entries: Iterable[Named]) -> list[Named]:
    """Return sources, each after those that it depends on, else as they stand; raise InputError for circles."""
    by_name: dict[str, Named] = {}
    folded: dict[str, str] = {}
    for entry in entries:
        other = folded.setdefault(entry.name.casefold(), entry.name)
        if other != entry.name or other in by_name:
            problem = "differ in case alone" if other != entry.name else "have the same name"
            raise InputError(f"the sources {other!r} and {entry.name!r} {problem}", hint="give each its own name")
        by_name[entry.name] = entry
    order: dict[str, None] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            cycle = " -> ".join([*path[path.index(name) :], name])
            raise InputError(f"the sources depend on each other in a circle: {cycle}", hint="take one dependency out")
        if name in order:
            return
        for before in by_name[name].depends_on:
            if before not in by_name:
                raise UnknownNameError(f"source that {name!r} depends on", before, by_name)
            visit(before, (*path, name))
        order[name] = None

    for name in by_name:
        visit(name, ())
    return [by_name[name] for name in order]


@dataclass(frozen=True, slots=True)
class DeclaredSource:
    """A source that is declared (see the module) and opened; the language model's own knowledge has no `source`."""

    name: str
    kind: str
    description: Mapping[Language, str]
    source: KnowledgeSource | None = None
    depends_on: tuple[str, ...] = ()
    join: _Join = "query"
    top: int | None = None


@dataclass(frozen=True, slots=True)
class DeclaredSources:
    """Declared sources as a directed acyclic graph, each after those that it depends on, and examples by language.

    `opened` closes what was opened for this declaration, and nothing else.
    """

    entries: Sequence[DeclaredSource]
    demonstrations: Mapping[Language, Sequence[Demonstration]] = field(default_factory=dict)
    opened: ExitStack = field(default_factory=ExitStack)

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in that order."""
        return tuple(entry.name for entry in self.entries)

    def find(self, name: str) -> DeclaredSource | None:
        """Return the source of that name, whatever its case; None where there is none."""
        wanted = " ".join(name.split()).casefold()
        return next((entry for entry in self.entries if entry.name.casefold() == wanted), None)

    def __getitem__(self, name: str) -> DeclaredSource:
        """Return the source of that name; raise UnknownNameError where there is none."""
        entry = self.find(name)
        if entry is None:
            raise UnknownNameError("source", name, self.names)
        return entry

    def needed_by(self, name: str) -> tuple[str, ...]:
        """Return all that a source depends on, however far away, each after what it depends on itself."""
        needed: dict[str, None] = {}
        for before in self[name].depends_on:
            needed |= dict.fromkeys((*self.needed_by(before), before))
        return tuple(needed)

    def close(self) -> None:
        """Close what was opened for this declaration."""
        self.opened.close()


class Reranked:
    """A source whose pieces are put in order by a reranker: some times as many are asked for as are wanted."""

    def __init__(self, source: KnowledgeSource, reranker: Reranker) -> None:
        self.source, self.reranker = source, reranker
        self.name, self.kind = source.name, source.kind

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """See `KnowledgeSource`; the reranker reads the query as it was sent."""
        result = SearchResult.of(await self.source.search(query, dialogue, top * _WIDER, scope))
        sent = query if result.query is None else result.query
        try:
            ranked = await asyncio.to_thread(self.reranker.rerank, sent, [piece.text for piece in result], top)
        except DialoreError as error:
            error.query = sent
            raise
        pieces = (result[at].model_copy(update={"score": round(score, 4)}) for at, score in ranked)
        return SearchResult(pieces, query=result.query, notes=result.notes, failures=result.failures)

    def every(self, dialogue: Dialogue) -> Iterator[Knowledge]:
        """See `Listed`."""
        return list_knowledge(self.source, dialogue)

    def close(self) -> None:
        """Close the source."""
        self.source.close()


def open_declared(path: Path, opened: Mapping[str, object] | None = None) -> DeclaredSources:
    """Return the sources that a file declares; what has no `from` is one of `opened`, by methods' names.

    Raises InputError where the file is malformed, dependencies go in a circle, or a source cannot be opened.
    """
    file = read_declaration(read_text(path), path.name)
    return _open_entries(file, opened or {}, folder=path.parent, place=path.name)


def default_sources(
    opened: Mapping[str, object], *, retriever: str = "dialogue", paper: bool = False
) -> DeclaredSources:
    """Return what is planned over where nothing is declared: persona -> documents (SAFARI), and what is open.

    That is `persona` (its file stands in for dialogues without one), `documents` (planned over as `library`), `graph`
    and `web`. The retriever ranks the persona and the documents under it. With `paper`, both are described as in the
    paper's prompt (Table 12).
    """
    file = _shipped("default.yaml")
    described = _shipped("paper.yaml") if paper else file
    entries = [entry.model_copy(update={"retriever": retriever}) for entry in described.sources]
    for kind in KINDS.values():
        if kind.holds and opened.get(kind.name) is not None:
            name = kind.planned_as or kind.name
            entries.append(Declaration(name=name, kind=kind.name, description=dict(kind.holds)))
    return _open_entries(file.model_copy(update={"sources": entries}), opened, folder=None, place="default.yaml")


def _shipped(name: str) -> DeclarationFile:
    return read_declaration((resources.files("dialore") / "data" / "declared" / name).read_text("utf-8"), name)


def _open_entries(
    file: DeclarationFile, opened: Mapping[str, object], *, folder: Path | None, place: str
) -> DeclaredSources:
    """Open what is declared, paths relative to the folder; where one cannot be opened, close those before it."""
    with ExitStack() as own:
        opening = _Opening(opened, folder, place, own)
        for entry in in_order(file.sources):
            opening.add(entry)
        return DeclaredSources(list(opening.done.values()), file.demonstrations, own.pop_all())


@dataclass(frozen=True, slots=True)
class _Opening:
    """The sources of a declaration on their way: what is open already, where paths are looked for, and what is done."""

    opened: Mapping[str, Any]
    folder: Path | None
    place: str
    own: ExitStack
    done: dict[str, DeclaredSource] = field(default_factory=dict)

    def add(self, entry: Declaration) -> None:
        """Open an entry, whose dependencies are open, and what it depends on decides how it is joined to them."""
        before = [self.done[name].source for name in entry.depends_on]
        under = next((source for source in before if isinstance(source, PersonaSource)), None)
        if entry.kind != "documents" or entry.opened_from is not None:
            under = None
        join: _Join = "query" if under is None or entry.join == "query" else "filter"
        if entry.join == "filter" != join:
            raise self._fault(
                entry,
                " cannot be filtered by what it depends on",
                "join: query; filter is for documents without `from` that depend on a persona",
            )
        source: KnowledgeSource | None = None
        if entry.kind == "model":
            if entry.opened_from is not None or entry.retriever is not None:
                problem = ": what the model knows is opened from nothing and ranked by nothing"
                raise self._fault(entry, problem, "leave `from` and `retriever` out")
        elif entry.kind == "persona":
            source = self._persona(entry)
        elif under is not None and (join == "filter" or self.opened.get("documents") is None):
            source = PersonaDocuments(under, retriever=entry.retriever, name=entry.name)
        else:
            source = self._other(entry)
        self.done[entry.name] = DeclaredSource(
            entry.name, entry.kind, entry.description, source, entry.depends_on, join, entry.top
        )

    def _persona(self, entry: Declaration) -> PersonaSource:
        given = self.opened.get("persona")
        persona = given.persona if isinstance(given, PersonaSource) else {}
        if entry.opened_from is not None:
            persona = read_persona(Path(self._located(entry)))
        return PersonaSource(persona, retriever=entry.retriever or "dialogue", name=entry.name)

    def _other(self, entry: Declaration) -> KnowledgeSource:
        """Return a source that is open already, or one by itself; where its kind cannot rank it so, a reranker does."""
        kind, retriever = KINDS[entry.kind], entry.retriever
        if retriever is not None and (retriever == "dialogue" or retriever.startswith("trained:")):
            problem = f": the retriever `{retriever}` ranks a persona and its documents"
            raise self._fault(entry, problem, "take bm25, dense, fused or cross:NAME")
        source: Any = self.opened.get(entry.kind) if entry.opened_from is None else None
        if source is not None:
            source = copy.copy(source) if entry.kind == "graph" else source
        elif entry.opened_from is None and entry.kind != "graph":
            problem = f" has no `from`, and no {entry.kind} is open"
            raise self._fault(entry, problem, f"add from: ..., or set {kind.setting}")
        else:
            settings = {kind.ranker: retriever} if retriever is not None and kind.ranks_by(retriever) else {}
            source = kind.open([self._located(entry)] if entry.opened_from is not None else [], settings)
            self.own.callback(source.close)
            retriever = None if settings else retriever
        if entry.kind == "graph":  # traces call it as it is declared; one that is open ranks as it did
            source.name, retriever = entry.name, None
        if retriever is None:
            return cast("KnowledgeSource", source)
        from dialore.retrieval.reranking import load_reranker

        return Reranked(source, load_reranker(retriever))

    def _located(self, entry: Declaration) -> str:
        location = str(entry.opened_from)
        return location if self.folder is None else KINDS[entry.kind].located(location, self.folder)

    def _fault(self, entry: Declaration, problem: str, hint: str) -> InputError:
        return InputError(f"{self.place}: source {entry.name!r}{problem}", hint=hint)
