"""The report as CSV: a row for each system and metric, with full precision, for whatever is to be computed next."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dialore.evaluation.report.build import Report

COLUMNS = (
    "run",
    "dataset",
    "model",
    "system",
    "method",
    "options",
    "metric",
    "higher_is_better",
    "scale",
    "value",
    "low",
    "high",
    "n",
    "place",
    "baseline",
    "difference",
    "difference_low",
    "difference_high",
    "pairs",
    "p_bootstrap",
    "p_wilcoxon",
    "mark",
    "problems",
    "reason",
)


def render_csv(report: Report) -> str:
    """One row for each system and metric; what is not available is an empty field, with the reason at the end."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for group in report.table.groups:
        for row in group.rows:
            for about, cell in zip(report.table.metrics, row.cells, strict=True):
                writer.writerow(
                    {
                        "run": row.system.run,
                        "dataset": row.system.dataset,
                        "model": row.system.model,
                        "system": row.system.name,
                        "method": row.system.method,
                        "options": json.dumps(row.system.options, ensure_ascii=False, sort_keys=True),
                        "metric": about.name,
                        "higher_is_better": str(about.higher_is_better).lower(),
                        "scale": about.scale,
                        "value": number(cell.score.value),
                        "low": number(cell.score.low),
                        "high": number(cell.score.high),
                        "n": cell.score.n,
                        "place": cell.place or "",
                        "mark": cell.mark,
                        "problems": json.dumps(cell.score.problems, sort_keys=True) if cell.score.problems else "",
                        "reason": cell.score.reason,
                    }
                    | _compared(cell.comparison)
                )
            for about, reason in report.table.absent:
                known = {"run": row.system.run, "dataset": row.system.dataset, "model": row.system.model}
                known |= {"system": row.system.name, "method": row.system.method, "metric": about.name}
                writer.writerow({**known, "n": 0, "reason": reason})
    return text.getvalue()


def number(value: float | None) -> str:
    """A number that reads back as the same; empty where there is none."""
    return "" if value is None or math.isnan(value) else repr(float(value))


def _compared(comparison: object) -> dict[str, object]:
    from dialore.evaluation.report.comparison import Comparison

    if not isinstance(comparison, Comparison):
        return {}
    return {
        "baseline": comparison.baseline.name,
        "difference": number(comparison.difference),
        "difference_low": number(comparison.low),
        "difference_high": number(comparison.high),
        "pairs": comparison.pairs,
        "p_bootstrap": number(comparison.bootstrap),
        "p_wilcoxon": number(comparison.wilcoxon),
    }
