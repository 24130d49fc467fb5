"""Kinds of sources by name: what each is called in settings and what opens it. A new kind is one entry of `KINDS`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dialore.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from dialore.text import Language


@dataclass(frozen=True, slots=True)
class SourceKind:
    """A kind of source."""

    name: str  # the field in which methods have it
    opener: str  # `module:function`; it gets what was named, a list where `several`, or None, and the `options`
    help: str
    key: str  # its name in settings
    several: bool = False  # several may be named, which are asked as one
    form: type[Path] | type[str] = Path  # what the opener takes of each place
    prefixes: tuple[str, ...] = ("",)  # what may stand before a path ("corpus:", "mcp:")
    # It is opened where none is named: never, where a method cannot do without, or always.
    unnamed: Literal["never", "needed", "always"] = "never"
    options: tuple[str, ...] = ()  # further settings that the opener takes: `opened` is the other sources by name
    ranker: str = ""  # the opener's argument that says how pieces are ranked, where it has one
    rankings: tuple[str, ...] = ()  # what that argument may be; empty for whatever the opener knows
    is_declared: bool = True  # a file of sources may declare it
    # What a planner is told that it holds; without it, it is planned over only where a file declares it.
    holds: Mapping[Language, str] = field(default_factory=dict)
    planned_as: str = ""  # its name in plans, where that is another

    def ranks_by(self, retriever: str) -> bool:
        """Return whether its opener can rank so; else a reranker puts its pieces in order."""
        return bool(self.ranker) and (not self.rankings or retriever in self.rankings)

    @property
    def setting(self) -> str:
        """The dotted name of the setting that names its locations."""
        return f"sources.{self.key}"

    def path_of(self, place: str) -> tuple[str, Path] | None:
        """Return a place's prefix and its path; None where it is no path."""
        prefix = next((prefix for prefix in self.prefixes if place.startswith(prefix)), None)
        return None if prefix is None else (prefix, Path(place.removeprefix(prefix)))

    def located(self, place: str, folder: Path) -> str:
        """Return a place that is a path and exists in the folder, as an absolute path; any other as it is."""
        prefix, given = self.path_of(place) or ("", Path())
        path = folder / given.expanduser()
        return prefix + str(path.resolve()) if given.parts and path.exists() else place

    def open(self, places: Sequence[str], settings: Mapping[str, object] | None = None) -> object:
        """Open what is named; raises InputError where several are named and one is taken, or as the opener does."""
        if len(places) > 1 and not self.several:
            raise InputError(f"{self.setting} takes one location, not {len(places)}", hint=f"name one: {places[0]}")
        named = [self.form(location) for location in places]
        module, _, function = self.opener.partition(":")
        opener = getattr(importlib.import_module(module), function)
        given = {name: value for name, value in (settings or {}).items() if name in {*self.options, self.ranker}}
        opened: object = opener(named if self.several else named[0] if named else None, **given)
        return opened


KINDS: dict[str, SourceKind] = {
    kind.name: kind
    for kind in (
        SourceKind(
            "graph",
            "dialore.sources.graph:open_graphs",
            "The commonsense graph; several are asked as one. Default: starter.",
            key="graph",
            several=True,
            form=str,
            unnamed="needed",
            options=("ranking", "embedder"),
            ranker="ranking",
            holds={
                "en": "everyday commonsense - what things are for, what causes what, what people want",
                "zh": "日常生活的常识，例如物品的用途、事情的因果、人们的愿望",
            },
        ),
        SourceKind(
            "documents",
            "dialore.sources.documents:open_documents",
            "Documents: a file, a folder, an index of `dialore documents build`, mcp:FILE; several are asked as one.",
            key="documents",
            several=True,
            form=str,
            prefixes=("mcp:", ""),
            options=("embedder",),
            ranker="retriever",
            rankings=("bm25", "dense", "fused"),
            holds={
                "en": "a collection of documents with facts on many subjects",
                "zh": "一批文档，收有许多方面的事实",
            },
            planned_as="library",
        ),
        SourceKind(
            "persona",
            "dialore.sources.persona:open_persona",
            "The responder's persona, for dialogues that bring none: text, YAML or JSON.",
            key="persona",
            unnamed="always",
        ),
        SourceKind(
            "memory",
            "dialore.sources.memory:open_memory",
            "What the user said of themselves before, for dialogues that bring no memory: JSONL.",
            key="memory",
            unnamed="always",
            holds={
                "en": 'what "Me" said of himself or herself before - home, family, work, tastes, plans',
                "zh": "“我”在以前的对话里说过的自己的情况，例如住处、家人、工作、喜好、打算",
            },
        ),
        SourceKind(
            "web",
            "dialore.sources.web.source:open_web",
            "Web search: searxng:URL, brave: (key in BRAVE_API_KEY), ddgs:, or corpus:PATH for a document index.",
            key="search",
            form=str,
            prefixes=("corpus:",),
            ranker="reranker",
            holds={
                "en": "web search - news and other facts that change or are not common knowledge",
                "zh": "网络搜索，例如新闻，以及会变化的或不为人熟知的事实",
            },
        ),
        SourceKind(
            "samples",
            "dialore.methods.few_shot:SampleDatabase",
            "A sample database of `dialore samples build`, for msdp.",
            key="samples",
            is_declared=False,
        ),
        SourceKind(
            "sources",
            "dialore.sources.declared:open_declared",
            "A YAML file that declares sources, what they hold and how they depend on each other.",
            key="declared",
            options=("opened",),
            is_declared=False,
        ),
    )
}


def kind_of_key(key: str) -> SourceKind:
    """Return the kind of that name in settings; raise UnknownNameError where there is none."""
    by_key = {kind.key: kind for kind in KINDS.values()}
    if key not in by_key:
        raise UnknownNameError("kind of source", key, by_key)
    return by_key[key]


def setting_of(name: str) -> str:
    """Return the setting that names a source of that kind."""
    return KINDS[name].setting if name in KINDS else f"sources.{name}"
