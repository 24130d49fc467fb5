"""GeoMean: one figure for a system, the geometric mean of several of its scores in per cent (DCRAG, Tables 1 and 3).

The paper does not say which columns enter. Its own figures do: of all sets of Table 1's columns, only Distinct-2, CDP,
CDF, MEEP, informativeness and overall score together give every printed row, to 0.01; perplexity does not enter.
Table 3 prints four of the six, but the same figure for the full system.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dialore.evaluation.base import Jackknifed, MetricInfo, Sample, SampleScore, Score, unavailable
from dialore.evaluation.registry import Context, load_metric
from dialore.evaluation.statistics import as_table, bootstrap

K = TypeVar("K")
Number = TypeVar("Number", float, NDArray[np.float64])

DCRAG_COMPONENTS = ("distinct-2", "cdp", "cdf", "meep", "informativeness", "overall")
RAGAS_COMPONENTS = ("ragas-context-relevance", "ragas-faithfulness", "ragas-answer-relevance")
_DCRAG = f"Geometric mean of {', '.join(DCRAG_COMPONENTS)}, each in per cent of its scale (cdf as it is)."
_RAGAS = "Geometric mean of RAGAs' context relevance, faithfulness and answer relevance, in per cent."
ABOUT = MetricInfo(
    "geomean", "DCRAG (EMNLP 2024), Tables 1 and 3", _DCRAG, DCRAG_COMPONENTS, scale=100.0, level="corpus"
)
RAGAS_ABOUT = MetricInfo(
    "ragas-geomean",
    "DCRAG (EMNLP 2024), Figure 3 and Appendix A.4",
    _RAGAS,
    RAGAS_COMPONENTS,
    scale=100.0,
    level="corpus",
)
ABOUTS = {about.name: about for about in (ABOUT, RAGAS_ABOUT)}


class GeoMean:
    """A geometric mean as a metric: of measures of its components, side by side for each response.

    Columns are one for each component that is a mean; the n-grams of a component that counts distinct ones come last.
    Its error bars come from leaving each dialogue out.
    """

    def __init__(self, about: MetricInfo) -> None:
        self.about = about
        parts = [load_metric(name, Context()) for name in about.needs]
        self.parts = sorted(parts, key=lambda metric: isinstance(metric, Jackknifed))
        self._columns = [slice(n, None if isinstance(m, Jackknifed) else n + 1) for n, m in enumerate(self.parts)]

    async def measure(self, sample: Sample) -> SampleScore:
        """Nothing: it is made of what others measure."""
        return unavailable(f"{self.about.name} is made of the measures of others, not measured: {sample.response.id}")

    def joined(self, measures: Mapping[str, Mapping[K, tuple[float, ...]]]) -> dict[K, tuple[float, ...]]:
        """Return the components' measures of the responses that have all of them."""
        by_part = [measures.get(part.about.name, {}) for part in self.parts]
        common = (key for key in by_part[0] if all(key in measured for measured in by_part))
        return {key: tuple(value for measured in by_part for value in measured[key]) for key in common}

    def combine(self, values: NDArray[np.float64]) -> float:
        """Return the figure of all responses together, 0 to 100; NaN where a component has none, or is below 0."""
        figures = [part.combine(values[:, at]) for part, at in zip(self.parts, self._columns, strict=True)]
        return float(self._mean([np.array(figure) for figure in figures]))

    def without_each(self, values: NDArray[np.float64], dialogues: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the figures without each dialogue."""
        figures = []
        for part, at in zip(self.parts, self._columns, strict=True):
            if isinstance(part, Jackknifed):
                figures.append(part.without_each(values[:, at], dialogues))
            else:
                sums, counts = np.bincount(dialogues, values[:, at.start]), np.bincount(dialogues)
                figures.append((sums.sum() - sums) / (len(values) - counts))
        return self._mean(figures)

    def of_subsets(self, values: NDArray[np.float64], subsets: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the figure of each subset of rows; `subsets` has shape (subsets, rows)."""
        figures = []
        for part, at in zip(self.parts, self._columns, strict=True):
            if isinstance(part, Jackknifed):
                figures.append(part.of_subsets(values[:, at], subsets))
            else:
                figures.append(subsets @ values[:, at.start] / subsets.sum(axis=1))
        return self._mean(figures)

    def _mean(self, figures: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        scaled = [_in_per_cent(figure, part.about) for figure, part in zip(figures, self.parts, strict=True)]
        with np.errstate(divide="ignore", invalid="ignore"):
            figure: NDArray[np.float64] = np.exp(np.log(np.stack(scaled)).mean(axis=0))
        return figure


def _in_per_cent(value: Number, about: MetricInfo) -> Number:
    """Return a score in per cent of its metric's scale; as it is where the metric has none."""
    return value * 100 / about.scale if about.scale else value


def geomean(
    scores: Mapping[str, Score],
    *,
    about: MetricInfo = ABOUT,
    measures: Mapping[str, Mapping[tuple[int, int], tuple[float, ...]]] | None = None,
) -> Score:
    """Return the geometric mean of a system's scores, each in per cent of its scale, with its 95% interval.

    There is none, with the reason, where a component is not there or is below 0; without the components' `measures`, by
    metric, dialogue and repetition, there is no interval.
    """
    lacking = [name for name in about.needs if name not in scores or scores[name].value is None]
    if lacking:
        return Score(about.name, None, reason=f"{', '.join(lacking)} not available")
    metric = GeoMean(about)
    values = {part.about.name: _in_per_cent(scores[part.about.name].value or 0.0, part.about) for part in metric.parts}
    if negative := [name for name, value in values.items() if value < 0]:
        return Score(about.name, None, reason=f"{', '.join(negative)} below 0")
    figure = math.prod(values.values()) ** (1 / len(values))
    low = high = None
    if rows := metric.joined(measures or {}):
        interval = bootstrap(metric, as_table(list(rows.values())), dialogues=[dialogue for dialogue, _ in rows])
        if not math.isnan(interval.low):
            half = (interval.high - interval.low) / 2
            low, high = figure - half, figure + half
    return Score(about.name, figure, low, high, min(scores[name].n for name in about.needs))
