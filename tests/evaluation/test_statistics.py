"""Statistics: against hand-worked figures, reference libraries, and what must hold of any interval or test."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dialore.errors import InputError
from dialore.evaluation import statistics
from dialore.evaluation.base import Mean, MetricInfo
from dialore.evaluation.geomean import ABOUT as GEOMEAN
from dialore.evaluation.geomean import GeoMean
from dialore.evaluation.registry import Context, load_metric

pytest.importorskip("scipy", reason="the evaluation extra is not installed")


class Plain(Mean):
    about = MetricInfo("plain", "", "the mean")


class Slow:
    """The same figure, combined anew for each resample."""

    about = MetricInfo("slow", "", "the mean")

    def combine(self, values):
        return float(values[:, 0].mean())


class Ratio:
    """A corpus figure: matches over totals."""

    about = MetricInfo("ratio", "", "matches over totals")

    def combine(self, values):
        return float(self.of_sums(values.sum(axis=0)))

    def of_sums(self, sums):
        return sums[..., 0] / sums[..., 1]


def column(values):
    return np.asarray(values, dtype=np.float64)[:, None]


def test_adding_up_gives_the_same_interval_as_combining_each_resample():
    values = column(np.random.default_rng(1).normal(5, 2, 60))
    quick, slow = statistics.bootstrap(Plain(), values), statistics.bootstrap(Slow(), values)
    assert (quick.value, quick.low, quick.high) == pytest.approx((slow.value, slow.low, slow.high), abs=1e-12)


def test_the_interval_of_a_mean_is_that_of_the_normal_approximation():
    values = column(np.random.default_rng(2).normal(10, 3, 400))
    found = statistics.bootstrap(Plain(), values, resamples=4000)
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(found.value - half, abs=0.05)
    assert found.high == pytest.approx(found.value + half, abs=0.05)


def test_a_corpus_figure_is_a_quotient_of_sums_and_not_a_mean_of_quotients():
    values = np.array([[1.0, 1.0], [1.0, 9.0]])
    assert statistics.bootstrap(Ratio(), values).value == pytest.approx(0.2)


def test_one_response_has_a_figure_and_no_interval():
    found = statistics.bootstrap(Plain(), column([3.0]))
    assert found.value == 3.0
    assert math.isnan(found.low)
    with pytest.raises(InputError, match="no measures"):
        statistics.bootstrap(Plain(), np.empty((0, 1)))


def test_pairs_see_a_difference_that_is_smaller_than_the_spread():
    draw = np.random.default_rng(3)
    base = draw.normal(0, 10, 200)
    first, second = column(base + 0.5 + draw.normal(0, 1, 200)), column(base)
    difference, p = statistics.compare_paired(Plain(), first, second)
    assert difference.low > 0
    assert p < 0.01
    back, _ = statistics.compare_paired(Plain(), second, first)
    assert back.value == pytest.approx(-difference.value)
    assert back.low == pytest.approx(-difference.high)


def test_equal_systems_do_not_differ():
    values = column([1.0, 2.0, 3.0])
    assert statistics.compare_paired(Plain(), values, values)[1] == 1.0
    assert statistics.wilcoxon([1, 2, 3], [1, 2, 3]) == 1.0


class Rare:
    """A quotient that most resamples of few have not: NaN."""

    def of_sums(self, sums):
        with np.errstate(invalid="ignore"):
            return sums[..., 0] / sums[..., 1]

    def combine(self, values):
        return float(self.of_sums(values.sum(axis=0)))


def test_resamples_without_a_figure_are_no_evidence():
    nothing = np.zeros((6, 2))
    some = np.array([[1.0, 1.0], [0.0, 1.0], *[[0.0, 0.0]] * 4])
    difference, p = statistics.compare_paired(Rare(), nothing, some)
    assert math.isnan(difference.value)
    assert math.isnan(p)
    other = some[::-1].copy()
    _, p = statistics.compare_paired(Rare(), some, other)
    assert p > 0.5


def test_under_no_difference_a_test_errs_as_often_as_it_says():
    draw = np.random.default_rng(4)
    ps = [
        statistics.compare_paired(Plain(), column(draw.normal(size=40)), column(draw.normal(size=40)), seed=n)[1]
        for n in range(200)
    ]
    assert 0.01 <= np.mean(np.array(ps) < 0.05) <= 0.12


def test_hand_worked_wilcoxon():
    # Differences 1, 2, 3, 4, -5, all ranked by size: the smaller rank sum is that of -5, which is 5.
    # Of the 32 ways to sign five ranks 10 give a sum of 5 or less, as many one of 10 or more.
    assert statistics.wilcoxon([2, 4, 6, 8, 0], [1, 2, 3, 4, 5]) == pytest.approx(2 * 10 / 32)


@pytest.mark.parametrize("kind", ["spearman", "kendall", "pearson"])
def test_correlations(kind):
    assert statistics.correlation([1, 2, 3, 4], [1, 2, 3, 4], kind)[0] == pytest.approx(1)
    assert statistics.correlation([1, 2, 3, 4], [4, 3, 2, 1], kind)[0] == pytest.approx(-1)
    assert math.isnan(statistics.correlation([1, 1, 1], [1, 2, 3], kind)[0])


def test_kendall_takes_account_of_ties():
    # Five concordant pairs of six, one tied in the second series alone: tau-b is 5 / sqrt(6 * 5).
    assert statistics.correlation([1, 2, 3, 4], [1, 2, 2, 3], "kendall")[0] == pytest.approx(5 / math.sqrt(30))


def test_win_rate():
    found = statistics.win_rate(["win"] * 8 + ["loss"] * 1 + ["tie"] * 3)
    assert (found.wins, found.losses, found.ties, found.n) == (8, 1, 3, 12)
    assert found.p == pytest.approx(20 / 512)
    assert found.share == pytest.approx(9.5 / 12)
    assert found.low < 8 / 12 < found.high
    assert statistics.win_rate(["tie"]).p == 1.0


def test_kappas_agree_with_scikit_learn_and_by_hand():
    sklearn = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(5)
    first = [str(n) for n in draw.integers(3, size=200)]
    second = [a if draw.random() < 0.7 else str(draw.integers(3)) for a in first]
    assert statistics.cohen_kappa(first, second) == pytest.approx(sklearn.cohen_kappa_score(first, second), abs=1e-12)
    # Observed agreement 2/3, expected 1/2.
    assert statistics.fleiss_kappa([["a", "a"], ["b", "b"], ["a", "b"]]) == pytest.approx((2 / 3 - 1 / 2) / (1 / 2))
    assert math.isnan(statistics.cohen_kappa(["a", "a"], ["a", "a"]))


def test_krippendorff_takes_missing_ratings():
    # The example of Krippendorff (2011), nominal: alpha 0.743.
    a = [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None]
    b = [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3]
    c = [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None]
    d = [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None]
    assert statistics.krippendorff_alpha([a, b, c, d], "nominal") == pytest.approx(0.743, abs=5e-4)
    assert math.isnan(statistics.krippendorff_alpha([[1, 1], [1, 1]]))


def test_corrections_by_hand():
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    corrected = statistics.holm([0.01, math.nan, 0.04])
    assert corrected[0] == pytest.approx(0.02)
    assert math.isnan(corrected[1])


def test_corrections_agree_with_statsmodels():
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    draw = np.random.default_rng(6)
    for n in (1, 2, 7, 40):
        ps = draw.random(n) ** 3
        assert statistics.holm(list(ps)) == pytest.approx(multitest.multipletests(ps, method="holm")[1])
    assert statistics.holm([]) == []


def test_what_is_not_paired_is_refused():
    with pytest.raises(InputError, match="not pairs"):
        statistics.wilcoxon([1, 2], [1])


def equal_systems(draw, metric, n):
    """Measures of two systems that do not differ."""
    if metric == "mean":
        return Plain(), *(draw.normal(size=(n, 1)) for _ in range(2))
    if metric == "distinct-1":
        return load_metric(metric, Context()), *(draw.integers(40, size=(n, 6)).astype(float) for _ in range(2))
    if metric == "geomean":
        tables = (np.hstack([draw.uniform(1, 5, (n, 5)), draw.integers(40, size=(n, 6))]) for _ in range(2))
        return GeoMean(GEOMEAN), *tables
    totals = draw.integers(4, 12, size=(2, n, 1)) + np.arange(4, 0, -1)
    matches = draw.binomial(totals, [0.5, 0.3, 0.2, 0.1])
    lengths = np.stack([totals[..., 0], np.broadcast_to(totals[0, :, 0], totals.shape[:2])], axis=-1)
    return load_metric("bleu-4", Context()), *np.concatenate([matches, totals, lengths], axis=-1).astype(float)


@pytest.mark.parametrize("metric", ["mean", "bleu-4", "distinct-1", "geomean"])
@pytest.mark.parametrize("n", [2, 3, 5, 6, 10, 30])
def test_equal_systems_differ_significantly_no_more_often_than_stated(metric, n):
    draw, times = np.random.default_rng(n), 120
    ps = np.array(
        [
            statistics.compare_paired(*equal_systems(draw, metric, n), resamples=2, randomisations=199)[1]
            for _ in range(times)
        ]
    )
    assert ps.min() >= 2 / 2**n
    for level in (0.05, 0.01):
        error = math.sqrt(level * (1 - level) / times)
        assert np.mean(ps < level) <= level + 3 * error
    if n < statistics.MIN_PAIRS:
        assert ps.min() > 0.05


def test_exact_randomisation_by_hand():
    first, second = column([1, 2, 3, 4, 0]), column([0, 0, 0, 0, 5])
    # Sums of signed 1, 2, 3, 4, 5 that are at least 5 or at most -5: 22 of 32.
    sums = [sum(d if swap >> k & 1 else -d for k, d in enumerate([1, 2, 3, 4, 5])) for swap in range(32)]
    expected = sum(abs(total) >= 5 for total in sums) / 32
    assert statistics.compare_paired(Plain(), first, second)[1] == pytest.approx(expected)
    assert statistics.compare_paired(Plain(), column([1, 2]), column([0, 1]))[1] == pytest.approx(0.5)


def test_systems_whose_responses_have_different_lengths_are_compared():
    draw = np.random.default_rng(1)
    metric = load_metric("distinct-1", Context())
    first, second = draw.integers(40, size=(7, 9)).astype(float), draw.integers(40, size=(7, 4)).astype(float)
    difference, p = statistics.compare_paired(metric, first, second)
    back, same = statistics.compare_paired(metric, second, first)
    assert difference.value == pytest.approx(-back.value)
    assert p == same


def test_pairs_that_tie_are_no_evidence():
    first, second = np.zeros((40, 1)), np.zeros((40, 1))
    first[:4] = 1
    assert statistics.compare_paired(Plain(), first, second)[1] == pytest.approx(2 / 2**4)
    assert statistics.wilcoxon(first[:, 0], second[:, 0]) == pytest.approx(2 / 2**4)


def test_few_pairs_have_no_interval():
    difference, _ = statistics.compare_paired(Plain(), column([1, 2, 3]), column([0, 0, 0]))
    assert difference.value == 2
    assert math.isnan(difference.low)


def test_repeated_subsets_agree_with_combining_them():
    draw = np.random.default_rng(9)
    for name in ("distinct-1", "geomean"):
        metric, first, second = equal_systems(draw, name, 7)
        values = np.vstack([first, second])
        subsets = draw.random((20, len(values))) < 0.5
        expected = [metric.combine(values[subset]) for subset in subsets]
        assert metric.of_subsets(values, subsets) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["spearman", "kendall", "pearson"])
def test_three_pairs_in_order_are_no_significant_correlation(kind):
    assert statistics.correlation([1, 2, 3], [1, 2, 3], kind)[1] == pytest.approx(2 / 6)


def test_krippendorff_of_published_examples():
    # Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", C and D: four observers, twelve units.
    rows = ["1 2 3 3 2 1 4 1 2 . . .", "1 2 3 3 2 2 4 1 2 5 . 3", ". 3 3 3 2 3 4 2 2 5 1 .", "1 2 3 3 2 4 4 1 2 5 1 ."]
    table = [[None if cell == "." else float(cell) for cell in row.split()] for row in rows]
    found = {
        level: statistics.krippendorff_alpha(table, level) for level in ("nominal", "ordinal", "interval", "ratio")
    }
    assert found == pytest.approx({"nominal": 0.743, "ordinal": 0.815, "interval": 0.849, "ratio": 0.797}, abs=6e-4)
    # The same, A and B: two observers.
    first, second = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    assert statistics.krippendorff_alpha([first, second], "nominal") == pytest.approx(0.095, abs=6e-4)
    first, second = [1, 1, 2, 2, 4, 3, 3, 3, 5, 4, 4, 1], [2, 1, 2, 2, 2, 3, 3, 3, 5, 4, 4, 4]
    nltk = pytest.importorskip("nltk.metrics.agreement")
    data = [(rater, item, v) for rater, row in enumerate([first, second]) for item, v in enumerate(row)]
    for level, distance in {"nominal": None, "interval": lambda a, b: (a - b) ** 2}.items():
        task = nltk.AnnotationTask(data, **({"distance": distance} if distance else {}))
        assert statistics.krippendorff_alpha([first, second], level) == pytest.approx(task.alpha())
