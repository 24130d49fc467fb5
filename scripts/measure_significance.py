"""Measure how often equal systems differ significantly, by metric and number of dialogues; print a Markdown table.

Each cell is the share of simulated comparisons with p < 0.05 and p < 0.01, in per cent. Both systems draw
their measures from one distribution, so that a calibrated test stays below 5 and 1.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from dialore.evaluation.base import Mean
from dialore.evaluation.geomean import ABOUT, GeoMean
from dialore.evaluation.registry import Context, load_metric
from dialore.evaluation.statistics import randomisation_test

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.evaluation.base import Metric

DIALOGUES = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30)
RANDOMISATIONS = 999


def mean_rows(draw: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Return normal values."""
    return draw.normal(size=(count, 1))


def bleu_rows(draw: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Return matches, totals and lengths of texts of 6 to 30 tokens."""
    length = draw.integers(6, 31, size=(count, 1))
    totals = length - np.arange(4)
    matches = draw.binomial(totals, [0.5, 0.25, 0.12, 0.06])
    return np.hstack([matches, totals, length, draw.integers(6, 31, size=(count, 1))]).astype(float)


def distinct_rows(draw: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Return 12 n-grams per response, of a Zipf distribution."""
    return draw.zipf(1.3, size=(count, 12)).astype(float) % 2**40


def geomean_rows(draw: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Return five judged values and the n-grams of Distinct."""
    return np.hstack([draw.uniform(1, 5, size=(count, 5)), distinct_rows(draw, count)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1000, help="simulated comparisons per cell")
    parser.add_argument("--dialogues", type=int, nargs="+", default=DIALOGUES, help="rows of the table")
    arguments = parser.parse_args()
    metrics: list[tuple[str, Metric | Mean, object]] = [
        ("means", Mean(), mean_rows),
        ("BLEU-4", load_metric("bleu-4", Context()), bleu_rows),
        ("Distinct-2", load_metric("distinct-2", Context()), distinct_rows),
        ("GeoMean", GeoMean(ABOUT), geomean_rows),
    ]
    print("| dialogues |", " | ".join(name for name, _, _ in metrics), "|")
    print("|---:" * (len(metrics) + 1) + "|")
    for count in arguments.dialogues:
        cells = []
        for _, metric, rows in metrics:
            draw = np.random.default_rng(count)
            ps = np.array([_p(metric, rows, draw, count) for _ in range(arguments.times)])
            cells.append(f"{100 * np.mean(ps < 0.05):.1f}, {100 * np.mean(ps < 0.01):.1f}")
        print(f"| {count} |", " | ".join(cells), "|", flush=True)


def _p(metric: Metric | Mean, rows: object, draw: np.random.Generator, count: int) -> float:
    assert callable(rows)
    first, second = rows(draw, count), rows(draw, count)
    return randomisation_test(metric, first, second, np.arange(count), randomisations=RANDOMISATIONS)


if __name__ == "__main__":
    main()
