"""What all forms of a report say in the same words: how to read the table, how it was tested, what it cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dialore.evaluation.report.numbers import duration, share, three

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.evaluation.base import About
    from dialore.evaluation.report.comparison import Comparison
    from dialore.evaluation.report.survey import Survey
    from dialore.evaluation.report.tables import MainTable

COST_HEAD = (
    "system",
    "responses",
    "calls",
    "prompt tokens",
    "completion tokens",
    "cached calls",
    "retries",
    "p50",
    "p95",
)
OUTCOME_HEAD = ("system", "ok", "failed", "stages", "parsed at once", "repaired", "unparsed", "failed stages")


def arrow(about: About) -> str:
    """Which way is better."""
    return "↑" if about.higher_is_better else "↓"


def unit(about: About) -> str:
    """The unit that its figures are in, as a table's head shows it."""
    return "%" if about.scale == 100 else ""


def how_to_read(table: MainTable) -> list[str]:
    """Sentences below the table."""
    said = ["Figures have three significant digits; ± is half of the 95% bootstrap interval."]
    if any(cell.place for group in table.groups for row in group.rows for cell in row.cells):
        where = "of its group" if table.has_groups else "of its column"
        said.append(f"The best figure {where} is bold, the second underlined.")
    if table.comparisons:
        said += tests(table.comparisons)
    return [*table.remarks, *said]


def tests(made: Sequence[Comparison]) -> list[str]:
    """How the comparisons were tested, and on how many pairs."""
    pairs = sorted({each.pairs for each in made})
    counted = f"{pairs[0]}" if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]}"
    baselines = dict.fromkeys(each.baseline.name for each in made)
    said = [
        f"* p < 0.05, ** p < 0.01: better or worse than {', '.join(baselines)}, on {counted} dialogues that both "
        "systems answered: by the paired bootstrap (for Distinct, the jackknife), and for metrics of single responses "
        "by Wilcoxon's signed-rank test as well (the larger p counts), Holm-corrected over the systems compared on a "
        "metric."
    ]
    if any(math.isnan(each.p) for each in made):
        said.append("Where a test says nothing, there is no mark.")
    return said


def significant(made: Sequence[Comparison]) -> list[str]:
    """Of each system, the metrics on which it is better or worse than the baseline, significantly."""
    by_system: dict[int, list[Comparison]] = {}
    for each in made:
        by_system.setdefault(id(each.system), []).append(each)
    said = []
    for some in by_system.values():
        system, baseline = some[0].system.name, some[0].baseline.name
        parts = [
            f"{word} on {', '.join(f'{each.metric}{each.mark}' for each in found)}"
            for word, is_better in (("better", True), ("worse", False))
            if (found := [each for each in some if each.mark and each.is_better == is_better])
        ]
        if parts:
            said.append(f"{system} is {' and '.join(parts)} than {baseline}.")
        else:
            said.append(f"{system}: no difference from {baseline} is significant.")
    return said


def cost_row(survey: Survey) -> list[str]:
    """Calls and tokens of one response on average, and how long responses took."""
    middle, slow = survey.quantile(0.5), survey.quantile(0.95)
    totals = survey.system.totals
    calls = totals.get("calls", 0.0)
    return [
        f"{survey.responses:,}",
        *(_mean(survey.per_response(name)) for name in ("calls", "prompt_tokens", "completion_tokens")),
        share(totals.get("cached", 0.0), calls) if calls else "–",
        f"{totals.get('retries', 0.0):,.0f}",
        "–" if middle is None else duration(middle),
        "–" if slow is None else duration(slow),
    ]


def outcome_row(survey: Survey) -> list[str]:
    """Responses and stages by outcome."""
    counts = survey.outcomes
    stages = sum(counts.values())
    return [
        f"{survey.ok:,}",
        f"{survey.failed:,}",
        f"{stages:,}",
        *(share(counts[outcome], stages) for outcome in ("ok", "repaired", "unparsed", "failed")),
    ]


def _mean(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else three(value)
