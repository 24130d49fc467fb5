"""The embedded graph: a memory-mapped file, its changes, and the protocol that every store keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.sources.graph.store.embedded import GraphStore
    from dialore.sources.graph.store.protocol import FactStore

__all__ = [
    "FactStore",
    "GraphStore",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.sources.graph.store.embedded": ["GraphStore"],
        "dialore.sources.graph.store.protocol": ["FactStore"],
    },
)
