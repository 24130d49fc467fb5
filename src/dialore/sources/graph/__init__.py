"""The commonsense graph: a memory-mapped store, linking, and demands-guided retrieval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.sources.graph.facts.readers import read_facts
    from dialore.sources.graph.linking.linker import Link, Linker
    from dialore.sources.graph.servers.stores import load_store, open_store
    from dialore.sources.graph.several import open_graph, open_graphs
    from dialore.sources.graph.source import Graph, Retrieval
    from dialore.sources.graph.starter import starter_graph
    from dialore.sources.graph.store.embedded import GraphStore
    from dialore.sources.graph.store.protocol import FactStore
    from dialore.sources.graph.writing.build import BuildReport, build_graph
    from dialore.sources.graph.writing.change import ChangeReport, GraphEditor
    from dialore.sources.graph.writing.export import export_graph

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
    "open_graph",
    "open_graphs",
    "open_store",
    "read_facts",
    "starter_graph",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.sources.graph.writing.build": ["BuildReport", "build_graph"],
        "dialore.sources.graph.writing.change": ["ChangeReport", "GraphEditor"],
        "dialore.sources.graph.writing.export": ["export_graph"],
        "dialore.sources.graph.linking.linker": ["Link", "Linker"],
        "dialore.sources.graph.store.protocol": ["FactStore"],
        "dialore.sources.graph.facts.readers": ["read_facts"],
        "dialore.sources.graph.source": ["Graph", "Retrieval"],
        "dialore.sources.graph.several": ["open_graph", "open_graphs"],
        "dialore.sources.graph.starter": ["starter_graph"],
        "dialore.sources.graph.store.embedded": ["GraphStore"],
        "dialore.sources.graph.servers.stores": ["load_store", "open_store"],
    },
)
