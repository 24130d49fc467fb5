"""Several rankings as one, by reciprocal ranks (Cormack, Clarke and Buettcher, SIGIR 2009)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    Item = TypeVar("Item", bound=Hashable)

K = 60.0
"""The constant of the paper: how little the first ranks stand out."""


def reciprocal_ranks(
    rankings: Iterable[Sequence[Item]], *, k: float = K, weights: Sequence[float] | None = None
) -> list[tuple[Item, float]]:
    """Fuse rankings: an item's score is the sum of `weight / (k + rank)` over those that have it, ranks from 1.

    Args:
        rankings: each the best first; an item that stands twice in one counts where it stands first.
        k: the constant of the formula.
        weights: one a ranking; equal where None.

    Returns:
        The items and their scores, the best first; of equal ones that which was met first.

    Raises:
        InputError: another number of weights than of rankings.
    """
    asked = list(rankings)
    if weights is not None and len(weights) != len(asked):
        raise InputError(f"{len(weights)} weights for {len(asked)} rankings", mend="give one weight a ranking")
    scores: dict[Item, float] = {}
    for ranking, weight in zip(asked, weights or [1.0] * len(asked), strict=True):
        for place, item in enumerate(dict.fromkeys(ranking), start=1):
            scores[item] = scores.get(item, 0.0) + weight / (k + place)
    import numpy as np

    # Rounded, so that the same ranks in another order are equal whatever the order of their sum.
    rounded = np.round(np.fromiter(scores.values(), np.float64, len(scores)), 12)
    items = list(scores.items())
    return [items[at] for at in np.argsort(-rounded, kind="stable").tolist()]
