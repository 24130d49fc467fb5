"""GeoMean: one figure for a system, the geometric mean of several of its scores in per cent (DCRAG, Tables 1 and 3).

The paper does not say which columns enter. Its own figures do: of all sets of Table 1's columns, only Distinct-2, CDP,
CDF, MEEP, informativeness and overall score together give every printed row, to 0.01; perplexity does not enter.
Table 3 prints four of the six, but the same figure for the full system.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dialore.evaluation.base import About, Score

if TYPE_CHECKING:
    from collections.abc import Mapping

DCRAG_COMPONENTS = ("distinct-2", "cdp", "cdf", "meep", "informativeness", "overall")
RAGAS_COMPONENTS = ("ragas-context-relevance", "ragas-faithfulness", "ragas-answer-relevance")
ABOUT = About(
    "geomean",
    "DCRAG (EMNLP 2024), Tables 1 and 3",
    f"Geometric mean of {', '.join(DCRAG_COMPONENTS)}, each in per cent of its scale (cdf as it is).",
    needs=DCRAG_COMPONENTS,
    scale=100.0,
    level="corpus",
)
RAGAS_ABOUT = About(
    "ragas-geomean",
    "DCRAG (EMNLP 2024), Figure 3 and Appendix A.4",
    "Geometric mean of RAGAs' context relevance, faithfulness and answer relevance, in per cent.",
    needs=RAGAS_COMPONENTS,
    scale=100.0,
    level="corpus",
)


def in_per_cent(value: float, about: About) -> float:
    """A score in per cent of its metric's scale; as it is where the metric has none."""
    return value * 100 / about.scale if about.scale else value


def geomean(scores: Mapping[str, Score], abouts: Mapping[str, About], *, about: About = ABOUT) -> Score:
    """The geometric mean of a system's scores, each in per cent of its scale.

    Args:
        scores: the system's, by metric.
        abouts: what the metrics are, for their scales.
        about: which GeoMean: its `needs` are the components.

    Returns:
        The figure, without an error bar; none, with the reason, where a component is not
        there or is below 0.
    """
    lacking = [name for name in about.needs if name not in scores or scores[name].value is None]
    if lacking:
        return Score(about.name, None, reason=f"{', '.join(lacking)} not available")
    values = {name: in_per_cent(scores[name].value or 0.0, abouts[name]) for name in about.needs}
    if negative := [name for name, value in values.items() if value < 0]:
        return Score(about.name, None, reason=f"{', '.join(negative)} below 0")
    figure = math.prod(values.values()) ** (1 / len(values))
    return Score(about.name, figure, n=min(scores[name].n for name in about.needs))
