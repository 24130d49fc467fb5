"""The graph store: facts in a file, how they are read, written, changed and ranked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.retrieval.graph.changes import GraphEditor
    from dialore.retrieval.graph.facts import export_graph, read_facts
    from dialore.retrieval.graph.store import GraphStore
    from dialore.retrieval.graph.writing import build_graph

__all__ = ["GraphEditor", "GraphStore", "build_graph", "export_graph", "read_facts"]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.retrieval.graph.writing": ["build_graph"],
        "dialore.retrieval.graph.changes": ["GraphEditor"],
        "dialore.retrieval.graph.facts": ["export_graph", "read_facts"],
        "dialore.retrieval.graph.store": ["GraphStore"],
    },
)
