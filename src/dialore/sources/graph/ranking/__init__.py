"""From a set of facts to the best of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.sources.graph.ranking.settings import RANKINGS, Ranking

__all__ = [
    "RANKINGS",
    "Ranking",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.sources.graph.ranking.settings": ["RANKINGS", "Ranking"],
    },
)
