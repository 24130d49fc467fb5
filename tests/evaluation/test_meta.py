"""Agreement of metrics with human judgements."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.evaluation.base import Mean, MetricInfo, SampleScore, unavailable
from dialore.evaluation.meta import (
    Judgement,
    agreements,
    area_under_curve,
    context_weights,
    read_judgements,
    resample_correlations,
    threshold_accuracy,
)
from dialore.evaluation.report.tables import combiner
from dialore.response import Response


def test_judged_responses_are_dialogues_with_more_keys(tmp_path):
    path = tmp_path / "judged.jsonl"
    line = {
        "turns": ["Hi."],
        "response": "Yo.",
        "knowledge": ["F."],
        "ratings": {"overall": 4},
        "labels": {"true": False},
    }
    path.write_text(
        json.dumps(line) + "\n" + json.dumps({"id": "b", "turns": ["Ho."], "response": "No."}) + "\n", "utf-8"
    )
    one, other = read_judgements(path)
    assert one.id not in {"", "b"}
    assert other.id == "b"
    assert [again.id for again in read_judgements(path)] == [one.id, "b"]
    assert (one.ratings, one.labels, one.system) == ({"overall": 4.0}, {"true": False}, "")
    assert [(piece.text, piece.used) for piece in one.response.knowledge] == [("F.", True)]
    assert (other.response.text, other.ratings, other.labels) == ("No.", {}, {})


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ({"turns": ["Hi."]}, "field response: Field required"),
        ({"turns": ["Hi."], "response": "Yo.", "ratings": {"overall": "good"}}, "field ratings.overall"),
        ({"turns": ["Hi."], "response": "Yo.", "labels": {"true": "yes"}}, "field labels.true"),
        ({"response": "Yo."}, "field turns"),
    ],
)
def test_a_malformed_judgement_names_place_and_field(tmp_path, line, wanted):
    path = tmp_path / "judged.jsonl"
    path.write_text(json.dumps(line), encoding="utf-8")
    with pytest.raises(InputError, match=wanted) as caught:
        read_judgements(path)
    assert "judged" in str(caught.value)
    assert "\n" not in str(caught.value)


class Found(Mean):
    """A metric whose measures are given."""

    def __init__(self, better=True, level="response"):
        self.about = MetricInfo("found", "", "", higher_is_better=better, level=level)


def judgement(number, context, system="", rating=None, label=None):
    return Judgement(
        Dialogue(id=f"j{number}", turns=[f"Hi, {context}."]),
        Response(id=f"j{number}", method="m", text="Yo."),
        system,
        {} if rating is None else {"overall": rating},
        {} if label is None else {"good": label},
    )


@pytest.fixture(scope="module")
def series():
    draw = np.random.default_rng(7)
    first = draw.integers(0, 6, size=120).astype(float)
    return first, np.round(first + draw.normal(0, 2, size=120))


def test_resampled_coefficients_are_scipys_of_the_resample(series):
    first, second = series
    weights = context_weights([str(place // 4) for place in range(120)], 25, 3)
    found = resample_correlations(first, second, weights)
    for place, drawn in enumerate(weights):
        a, b = (np.repeat(values, drawn.astype(int)) for values in series)
        assert found["spearman"][place] == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-9)
        assert found["kendall"][place] == pytest.approx(stats.kendalltau(a, b).statistic, abs=1e-9)
        assert found["pearson"][place] == pytest.approx(stats.pearsonr(a, b).statistic, abs=1e-9)


def test_contexts_are_drawn_whole():
    weights = context_weights(["a", "a", "b", "c", "a"], 40, 0)
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 0] == weights[:, 4]).all()
    assert (weights[:, [0, 2, 3]].sum(axis=1) == 3).all()
    assert weights[:, 2].std() > 0


def test_area_under_the_curve_is_scikit_learns(series):
    values, truth = series[0], series[1] > 2
    weights = context_weights([str(place) for place in range(120)], 20, 0)
    area, p = area_under_curve(values, truth, weights)
    assert area.value == pytest.approx(roc_auc_score(truth, values), abs=1e-12)
    drawn = [roc_auc_score(truth, values, sample_weight=row) for row in weights]
    assert (area.low, area.high) == pytest.approx(tuple(np.percentile(drawn, [2.5, 97.5])), abs=1e-9)
    assert p < 0.01


def test_a_threshold_is_never_fitted_to_what_it_is_tried_on():
    contexts = [str(place) for place in range(200)]
    draw = np.random.default_rng(1)
    truth = draw.random(200) < 0.5
    assert threshold_accuracy(truth * 1.0, truth, contexts) == 1.0
    assert threshold_accuracy(draw.random(200), truth, contexts) == pytest.approx(0.5, abs=0.1)
    assert threshold_accuracy(truth * 1.0, truth, ["one"] * 200) is None


@pytest.mark.parametrize("better", [True, False])
def test_agreement_is_positive_whichever_way_is_better(series, better):
    sign = 1 if better else -1
    judgements = [judgement(n, str(n), rating=float(value)) for n, value in enumerate(series[1])]
    measures = {f"j{n}": SampleScore((sign * float(value),)) for n, value in enumerate(series[0])}
    (found,) = agreements(Found(better), judgements, measures, resamples=100)
    wanted = stats.spearmanr(*series)
    assert found.figures["spearman"].value == pytest.approx(wanted.statistic)
    assert found.p["spearman"] == pytest.approx(wanted.pvalue)
    assert found.figures["spearman"].low < wanted.statistic < found.figures["spearman"].high


def test_what_has_no_measure_is_left_out_and_what_does_not_vary_has_no_figure(series):
    judgements = [judgement(n, str(n), rating=float(value)) for n, value in enumerate(series[1])]
    measures = {f"j{n}": SampleScore((float(value),)) for n, value in enumerate(series[0])}
    half = measures | {f"j{n}": unavailable("no knowledge") for n in range(60)}
    assert agreements(Found(), judgements, half, resamples=50)[0].n == 60
    flat = dict.fromkeys(measures, SampleScore((1.0,)))
    (found,) = agreements(Found(), judgements, flat, resamples=50)
    assert found.figures == {}
    assert "does not vary" in found.reason
    (none,) = agreements(Found(), judgements, {}, resamples=50)
    assert "too few" in none.reason


def test_systems_are_compared_by_their_figures():
    judgements = [
        judgement(n, str(n // 3), system, rating=float(level * 10 + n % 2))
        for n, (level, system) in enumerate((level, f"s{level}") for _ in range(20) for level in range(3))
    ]
    measures = {one.id: SampleScore((one.ratings["overall"] ** 2,)) for one in judgements}
    responses, systems = agreements(Found(), judgements, measures, resamples=100)
    assert (responses.level, systems.level, systems.n) == ("response", "system", 3)
    assert systems.figures["spearman"].value == pytest.approx(1)
    assert systems.figures["kendall"].low == pytest.approx(1)
    assert 0.9 < systems.figures["pearson"].value < 1
    (alone,) = agreements(Found(level="corpus"), judgements, measures, resamples=100)
    assert alone.level == "system"


def test_labels_have_areas_and_accuracies():
    judgements = [judgement(n, str(n), label=n % 3 == 0) for n in range(90)]
    measures = {f"j{n}": SampleScore((float(n % 3 == 0) + n / 1000,)) for n in range(90)}
    (found,) = agreements(Found(), judgements, measures, resamples=50)
    assert (found.figures["auc"].value, found.accuracy, found.majority) == (1.0, 1.0, pytest.approx(2 / 3))


def test_values_that_differ_by_rounding_alone_tie():
    """0.1 + 0.2 is no better than 0.3."""
    ratings = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    values = [0.1 + 0.2, 0.3, 0.1 + 0.2, 0.4, 0.5, 0.6]
    told = [judgement(n, f"c{n}", rating=rating) for n, rating in enumerate(ratings)]
    measures = {one.id: SampleScore((value,)) for one, value in zip(told, values, strict=True)}
    (found,) = agreements(combiner("f1"), told, measures, resamples=10)
    wanted = stats.spearmanr([0.3, 0.3, 0.3, 0.4, 0.5, 0.6], ratings).statistic
    assert found.figures["spearman"].value == pytest.approx(wanted)
