"""Human evaluation: blind sheets for annotators, their answers read back, agreement and significance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.evaluation.human.agreement import Findings, analyse
    from dialore.evaluation.human.criteria import CriteriaSet, criteria_set, criteria_sets
    from dialore.evaluation.human.items import Item, Key, gather, make_items
    from dialore.evaluation.human.reading import Annotation, read_key, read_sheet

__all__ = [
    "Annotation",
    "CriteriaSet",
    "Findings",
    "Item",
    "Key",
    "analyse",
    "criteria_set",
    "criteria_sets",
    "gather",
    "make_items",
    "read_key",
    "read_sheet",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.evaluation.human.agreement": ["Findings", "analyse"],
        "dialore.evaluation.human.criteria": ["CriteriaSet", "criteria_set", "criteria_sets"],
        "dialore.evaluation.human.items": ["Item", "Key", "gather", "make_items"],
        "dialore.evaluation.human.reading": ["Annotation", "read_key", "read_sheet"],
    },
)
