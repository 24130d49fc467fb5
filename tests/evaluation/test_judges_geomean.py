"""GeoMean: the paper's own rows, recomputed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dialore.evaluation.base import SampleScore, Score
from dialore.evaluation.geomean import (
    DCRAG_COMPONENTS,
    RAGAS_ABOUT,
    RAGAS_COMPONENTS,
    geomean,
)
from dialore.evaluation.registry import Context, load_metric
from dialore.evaluation.report.tables import combiner
from dialore.evaluation.statistics import as_table, compare_paired
from dialore.experiments.scoring import score_of

# DCRAG, Table 1: PPL, DI-2, CDP, CDF, MEEP, Infor., Overall, GeoMean.
TABLE_1 = [
    (26.48, 57.46, 68.67, 22.77, 61.40, 59.50, 86.42, 55.23),
    (20.40, 53.00, 60.00, 14.44, 47.10, 55.25, 76.92, 45.77),
    (35.48, 63.49, 74.33, 38.83, 48.53, 62.17, 83.17, 59.86),
    (27.14, 59.27, 74.00, 27.24, 61.38, 61.75, 86.67, 58.30),
    (25.55, 57.14, 75.67, 27.52, 58.13, 59.75, 85.42, 57.27),
    (21.24, 57.10, 82.00, 33.68, 59.18, 61.83, 86.92, 60.73),
    (29.01, 59.70, 85.67, 41.60, 71.48, 72.92, 92.75, 68.45),
    (35.06, 70.91, 45.33, 8.63, 69.67, 60.08, 81.67, 46.00),
    (27.58, 77.80, 50.00, 10.93, 70.50, 59.42, 82.50, 49.49),
    (36.62, 77.17, 52.33, 11.47, 66.07, 58.92, 81.92, 49.53),
    (27.94, 78.51, 52.00, 11.27, 68.73, 59.75, 82.58, 49.99),
    (18.56, 77.57, 58.67, 14.51, 80.64, 68.83, 88.33, 56.45),
]
# Table 3, the rows whose four columns are printed: CDP, CDF, MEEP, Overall, GeoMean.
TABLE_3 = [
    (85.67, 41.60, 71.48, 92.75, 68.45),
    (82.67, 38.83, 66.25, 91.33, 65.39),
    (82.67, 34.21, 66.88, 92.00, 64.38),
    (76.33, 32.18, 59.33, 86.33, 60.58),
]
METRICS = [load_metric(name, Context()) for name in (*DCRAG_COMPONENTS, *RAGAS_COMPONENTS)]
ABOUTS = {metric.about.name: metric.about for metric in METRICS}


def scores_of(row):
    """A printed row as our metrics would score it, each on its own scale."""
    scales = {name: ABOUTS[name].scale or 100.0 for name in DCRAG_COMPONENTS}
    return {
        name: Score(name, value * scales[name] / 100, n=300) for name, value in zip(DCRAG_COMPONENTS, row, strict=True)
    }


@pytest.mark.parametrize("row", TABLE_1)
def test_table_1_is_the_mean_of_six_columns(row):
    found = geomean(scores_of(row[1:7]))
    assert found.value == pytest.approx(row[7], abs=0.05)
    assert found.n == 300


@pytest.mark.parametrize("row", TABLE_3)
def test_table_3s_rows_are_of_six_columns_too(row):
    # With the two columns that it leaves out as in Table 1's neighbourhood; its four alone are off by more than 1.
    assert abs(math.prod(row[:4]) ** 0.25 - row[4]) > 0.2
    left_out = row[4] ** 6 / math.prod(row[:4])
    assert 57.1 * 59.5 < left_out < 59.7 * 73.0


def test_scales_are_the_metrics_own():
    assert (ABOUTS["cdp"].scale, ABOUTS["overall"].scale, ABOUTS["meep"].scale, ABOUTS["cdf"].scale) == (100, 5, 100, 0)


@pytest.mark.parametrize("name", DCRAG_COMPONENTS)
def test_without_a_component_it_is_not_available(name):
    scores = scores_of(TABLE_1[0][1:7])
    gone = {other: score for other, score in scores.items() if other != name}
    none = scores | {name: Score(name, None, reason="no judge was given")}
    for some in (gone, none):
        found = geomean(some)
        assert found.value is None
        assert name in found.reason


def test_nothing_below_0_has_a_geometric_mean():
    scores = {name: Score(name, value, n=2) for name, value in zip(RAGAS_COMPONENTS, (0.5, 0.5, -0.1), strict=True)}
    assert "below 0" in geomean(scores, about=RAGAS_ABOUT).reason
    scores["ragas-answer-relevance"] = Score("ragas-answer-relevance", 0.5, n=2)
    assert geomean(scores, about=RAGAS_ABOUT).value == pytest.approx(50)


def measured(draw, shift=0.0, size=60):
    """Measures of every component of DCRAG's GeoMean, by dialogue and repetition."""
    found = {"distinct-2": {(n, 0): tuple(draw.integers(0, 400, 12).astype(float)) for n in range(size)}}
    for name, scale in (("cdp", 100), ("cdf", 40), ("meep", 100), ("informativeness", 5), ("overall", 5)):
        found[name] = {(n, 0): ((0.4 + shift + 0.2 * draw.random()) * scale, 1.0)[:1] for n in range(size)}
    return found


def test_its_interval_is_the_jackknifes_and_holds_the_figure():
    measures = measured(np.random.default_rng(1))
    scores = {name: score_of(combiner(name), [SampleScore(v) for v in by.values()]) for name, by in measures.items()}
    found = geomean(scores, measures=measures)
    metric = combiner("geomean")
    rows = as_table(list(metric.joined(measures).values()))
    assert metric.combine(rows) == pytest.approx(found.value)
    without = [metric.combine(np.delete(rows, n, axis=0)) for n in range(len(rows))]
    assert metric.without_each(rows, np.arange(len(rows))) == pytest.approx(without)
    error = np.sqrt((len(rows) - 1) * np.var(without))
    assert (found.high - found.low) / 2 == pytest.approx(1.959964 * error, rel=1e-6)
    assert found.low < found.value < found.high


def test_two_systems_are_tested_by_their_pairs():
    metric = combiner("geomean")
    draw = np.random.default_rng(2)
    tables = [as_table(list(metric.joined(measured(draw, shift)).values())) for shift in (0.0, 0.0, 0.15)]
    assert compare_paired(metric, tables[0], tables[1])[1] > 0.05
    assert compare_paired(metric, tables[2], tables[0])[1] < 0.001


def test_a_response_without_a_component_is_left_out_of_the_interval_alone():
    measures = measured(np.random.default_rng(3))
    del measures["meep"][0, 0]
    assert len(combiner("geomean").joined(measures)) == 59
