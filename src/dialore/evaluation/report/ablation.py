"""Ablations: a method with options against the same method without, as differences of figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dialore.evaluation.report.comparison import Comparison, compare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.evaluation.base import About
    from dialore.evaluation.report.data import Results, SystemScores


@dataclass(frozen=True, slots=True)
class Ablation:
    """A full method and its variants on one data set and model.

    Attributes:
        full: the method as it is by default.
        variants: the same method with options, in the run's order.
        comparisons: each variant less the full method, by the variant's place and the metric's name.
    """

    full: SystemScores
    variants: list[SystemScores]
    comparisons: dict[tuple[int, str], Comparison]


def ablations(results: Results, abouts: Sequence[About]) -> list[Ablation]:
    """Every method that stands in the results both without and with options."""
    families: dict[tuple[str, str, str], list[SystemScores]] = {}
    for system in results.systems():
        families.setdefault((system.dataset, system.model, system.method), []).append(system)
    found = []
    for family in families.values():
        full = next((system for system in family if not system.options), None)
        variants = [system for system in family if system.options]
        if full is None or not variants:
            continue
        made = compare(results, [full, *variants], full, abouts)
        places = {id(system): place for place, system in enumerate(variants)}
        found.append(Ablation(full, variants, {(places[id(each.system)], each.metric): each for each in made}))
    return found
