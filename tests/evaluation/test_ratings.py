"""Agreement of metrics with people's ratings."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from dialore.evaluation.base import Mean, MetricInfo, SampleScore, unavailable
from dialore.evaluation.ratings import Rated, agreements, area_under_curve, context_weights, resample_correlations
from dialore.evaluation.report.tables import combiner


class Found(Mean):
    """A metric whose measures are given."""

    def __init__(self, better=True, level="response"):
        self.about = MetricInfo("found", "", "", higher_is_better=better, level=level)


@pytest.fixture(scope="module")
def series():
    draw = np.random.default_rng(7)
    first = draw.integers(0, 6, size=120).astype(float)
    return first, np.round(first + draw.normal(0, 2, size=120))


def test_resampled_coefficients_are_scipys_of_the_resample(series):
    first, second = series
    weights = context_weights([str(place // 4) for place in range(120)], 25)
    found = resample_correlations(first, second, weights)
    for place, drawn in enumerate(weights):
        a, b = (np.repeat(values, drawn.astype(int)) for values in series)
        assert found["spearman"][place] == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-9)
        assert found["kendall"][place] == pytest.approx(stats.kendalltau(a, b).statistic, abs=1e-9)
        assert found["pearson"][place] == pytest.approx(stats.pearsonr(a, b).statistic, abs=1e-9)


def test_contexts_are_drawn_whole():
    weights = context_weights(["a", "a", "b", "c", "a"], 40)
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 0] == weights[:, 4]).all()
    assert (weights[:, [0, 2, 3]].sum(axis=1) == 3).all()
    assert weights[:, 2].std() > 0


def test_area_under_the_curve_is_scikit_learns(series):
    values, truth = series[0], series[1] > 2
    weights = context_weights([str(place) for place in range(120)], 20)
    area, p = area_under_curve(values, truth, weights)
    assert area.value == pytest.approx(roc_auc_score(truth, values), abs=1e-12)
    drawn = [roc_auc_score(truth, values, sample_weight=row) for row in weights]
    assert (area.low, area.high) == pytest.approx(tuple(np.percentile(drawn, [2.5, 97.5])), abs=1e-9)
    assert p < 0.01


@pytest.mark.parametrize("better", [True, False])
def test_agreement_is_positive_whichever_way_is_better(series, better):
    sign = 1 if better else -1
    rated = [Rated(str(n), "", {"overall": float(value)}) for n, value in enumerate(series[1])]
    measures = [SampleScore((sign * float(value),)) for value in series[0]]
    (found,) = agreements(Found(better), rated, measures, resamples=100)
    wanted = stats.spearmanr(*series)
    assert found.figures["spearman"].value == pytest.approx(wanted.statistic)
    assert found.p["spearman"] == pytest.approx(wanted.pvalue)
    assert found.figures["spearman"].low < wanted.statistic < found.figures["spearman"].high


def test_what_has_no_measure_is_left_out_and_what_does_not_vary_has_no_figure(series):
    rated = [Rated(str(n), "", {"overall": float(value)}) for n, value in enumerate(series[1])]
    measures = [SampleScore((float(value),)) for value in series[0]]
    half = [unavailable("no knowledge")] * 60 + measures[60:]
    assert agreements(Found(), rated, half, resamples=50)[0].n == 60
    (found,) = agreements(Found(), rated, [SampleScore((1.0,))] * 120, resamples=50)
    assert found.figures == {}
    assert "does not vary" in found.reason
    (none,) = agreements(Found(), rated, [unavailable("no knowledge")] * 120, resamples=50)
    assert "too few" in none.reason


def test_systems_are_compared_by_their_figures():
    levels = [level for _ in range(20) for level in range(3)]
    rated = [Rated(str(n // 3), f"s{level}", {"overall": level * 10.0 + n % 2}) for n, level in enumerate(levels)]
    measures = [SampleScore((one.ratings["overall"] ** 2,)) for one in rated]
    responses, systems = agreements(Found(), rated, measures, resamples=100)
    assert (responses.level, systems.level, systems.n) == ("response", "system", 3)
    assert systems.figures["spearman"].value == pytest.approx(1)
    assert systems.figures["kendall"].low == pytest.approx(1)
    assert 0.9 < systems.figures["pearson"].value < 1
    (alone,) = agreements(Found(level="corpus"), rated, measures, resamples=100)
    assert alone.level == "system"


def test_labels_have_areas():
    rated = [Rated(str(n), "", {"good": n % 3 == 0}) for n in range(90)]
    measures = [SampleScore((float(n % 3 == 0) + n / 1000,)) for n in range(90)]
    (found,) = agreements(Found(), rated, measures, resamples=50)
    assert {name: figure.value for name, figure in found.figures.items()} == {"auc": 1.0}


def test_values_that_differ_by_rounding_alone_tie():
    """0.1 + 0.2 is no better than 0.3."""
    ratings = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    rated = [Rated(f"c{n}", "", {"overall": rating}) for n, rating in enumerate(ratings)]
    measures = [SampleScore((value,)) for value in (0.1 + 0.2, 0.3, 0.1 + 0.2, 0.4, 0.5, 0.6)]
    (found,) = agreements(combiner("f1"), rated, measures, resamples=10)
    wanted = stats.spearmanr([0.3, 0.3, 0.3, 0.4, 0.5, 0.6], ratings).statistic
    assert found.figures["spearman"].value == pytest.approx(wanted)
