"""From a phrase to the concepts that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.sources.graph.linking.linker import Link, Linker, best_links

__all__ = [
    "Link",
    "Linker",
    "best_links",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.sources.graph.linking.linker": ["Link", "Linker", "best_links"],
    },
)
