"""The commonsense graph: a memory-mapped store, linking, and demands-guided retrieval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.sources.graph.build import BuildReport, build_graph
    from dialore.sources.graph.change import ChangeReport, GraphEditor
    from dialore.sources.graph.export import export_graph
    from dialore.sources.graph.linking import Link, Linker
    from dialore.sources.graph.protocol import FactStore
    from dialore.sources.graph.readers import read_facts
    from dialore.sources.graph.source import Graph, Retrieval
    from dialore.sources.graph.starter import starter_graph
    from dialore.sources.graph.store import GraphStore
    from dialore.sources.graph.stores import load_store, open_store

__all__ = [
    "BuildReport",
    "ChangeReport",
    "FactStore",
    "Graph",
    "GraphEditor",
    "GraphStore",
    "Link",
    "Linker",
    "Retrieval",
    "build_graph",
    "export_graph",
    "load_store",
    "open_store",
    "read_facts",
    "starter_graph",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.sources.graph.build": ["BuildReport", "build_graph"],
        "dialore.sources.graph.change": ["ChangeReport", "GraphEditor"],
        "dialore.sources.graph.export": ["export_graph"],
        "dialore.sources.graph.linking": ["Link", "Linker"],
        "dialore.sources.graph.protocol": ["FactStore"],
        "dialore.sources.graph.readers": ["read_facts"],
        "dialore.sources.graph.source": ["Graph", "Retrieval"],
        "dialore.sources.graph.starter": ["starter_graph"],
        "dialore.sources.graph.store": ["GraphStore"],
        "dialore.sources.graph.stores": ["load_store", "open_store"],
    },
)
