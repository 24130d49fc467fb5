"""The commonsense graph: a memory-mapped store, linking, and demands-guided retrieval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.sources.graph.changes import GraphEditor
    from dialore.sources.graph.facts import export_graph, read_facts
    from dialore.sources.graph.postgres import load_store
    from dialore.sources.graph.several import open_graph, open_graphs, open_store
    from dialore.sources.graph.source import Graph, Retrieval
    from dialore.sources.graph.store import FactStore, GraphStore
    from dialore.sources.graph.writing import build_graph

__all__ = [
    "FactStore",
    "Graph",
    "GraphEditor",
    "GraphStore",
    "Retrieval",
    "build_graph",
    "export_graph",
    "load_store",
    "open_graph",
    "open_graphs",
    "open_store",
    "read_facts",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.sources.graph.writing": ["build_graph"],
        "dialore.sources.graph.changes": ["GraphEditor"],
        "dialore.sources.graph.facts": ["export_graph", "read_facts"],
        "dialore.sources.graph.postgres": ["load_store"],
        "dialore.sources.graph.source": ["Graph", "Retrieval"],
        "dialore.sources.graph.several": ["open_graph", "open_graphs", "open_store"],
        "dialore.sources.graph.store": ["FactStore", "GraphStore"],
    },
)
