"""Declared sources, open and in order: a directed acyclic graph (SAFARI, Section 4.1). `declaration` has the file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from dialore.dialogue import read_text
from dialore.errors import InputError, UnknownNameError
from dialore.sources.declaration import in_order, read_declaration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from dialore.knowledge import Source
    from dialore.sources.base import KnowledgeSource
    from dialore.sources.declaration import Demonstration, Join
    from dialore.sources.graph_knowledge import GraphLike
    from dialore.text import Language


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


def open_declared(path: Path, opened: Mapping[str, object] | None = None) -> DeclaredSources:
    """The sources that a file declares.

    Args:
        path: the declaration; see `declaration`.
        opened: sources that are open already, by the names of `open_sources`; they stand in for what has no `from`.

    Raises:
        InputError: the file cannot be read or is malformed, dependencies go in a circle, a source cannot be opened.
        UnknownNameError: a source depends on one that is not declared; a retriever or engine that is not known.
    """
    from dialore.sources.declared_kinds import open_entries

    file = read_declaration(read_text(path), path.name)
    return open_entries(file, opened or {}, folder=path.parent, place=path.name)


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
