"""Human judgements as published, and how far metrics agree with them."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from dialore.dialogue import Dialogue
from dialore.errors import InputError, UnknownNameError
from dialore.evaluation.base import About, Mean, Measure, Sample, unavailable
from dialore.evaluation.judgements import SETS, Judgement, judgement_set
from dialore.evaluation.meta import agreements
from dialore.evaluation.meta_resampling import (
    area_under_curve,
    context_weights,
    resampled_correlations,
    threshold_accuracy,
)
from dialore.evaluation.overlap import KnowledgeCopy
from dialore.response import Response
from tests.data_folder import FOLDER, real_file

# Name, judgements, contexts, systems, criteria, and the first response's beginning.
REAL = [
    (
        "topicalchat_usr",
        360,
        60,
        6,
        ["overall", "understandable", "natural", "maintains_context", "engaging", "uses_knowledge"],
        "i recently met",
    ),
    ("begin_dev_wow", 430, 424, 4, ["attributable"], "crayola shifted"),
    ("begin_dev_topicalchat", 383, 382, 4, ["attributable"], "yes, there is no rule"),
    ("xdial_dailydialog_zhao_en", 900, 100, 1, ["overall"], "cash , credit card"),
    ("xdial_dailydialog_zhao_zh", 900, 100, 1, ["overall"], "现金"),
    ("xdial_dailydialog_gupta_en", 500, 100, 1, ["overall"], "great . why"),
    ("xdial_dailydialog_gupta_zh", 500, 100, 1, ["overall"], "太好了"),
    ("alexa_factual_expert", 926, 926, 1, ["factual_correctness", "not_hallucinated"], "the term accounting"),
]


@pytest.mark.parametrize(("name", "count", "contexts", "systems", "criteria", "begins"), REAL)
def test_a_published_file_is_read_whole(name, count, contexts, systems, criteria, begins):
    of = judgement_set(name)
    real_file(f"judgements/{of.file}.gz")
    found = of.read(FOLDER)
    assert len(found) == len({one.id for one in found}) == count
    assert len({one.context for one in found}) == contexts
    assert len({one.system for one in found}) == systems
    assert list(dict.fromkeys(key for one in found for key in (*one.ratings, *one.labels))) == criteria
    assert found[0].response.text.startswith(begins)
    assert {one.dialogue.language for one in found} == {of.language}


def test_what_the_real_files_say_of_their_responses():
    for name in ("topicalchat_usr", "begin_dev_wow", "alexa_factual_expert"):
        real_file(f"judgements/{SETS[name].file}.gz")
    usr = SETS["topicalchat_usr"].read(FOLDER)
    assert sum(one.dialogue.reference is None for one in usr) == 60
    assert sum(not one.dialogue.knowledge for one in usr) == 48
    same = [one for one in usr if one.context == usr[0].context and one.system != usr[0].system]
    assert {one.dialogue.reference for one in same} == {usr[0].response.text}
    begin = SETS["begin_dev_wow"].read(FOLDER)
    assert sum(one.labels["attributable"] for one in begin) == 180
    alexa = SETS["alexa_factual_expert"].read(FOLDER)
    assert sum(one.labels["not_hallucinated"] for one in alexa) == 726
    assert sum("factual_correctness" not in one.ratings for one in alexa) == 1  # a 3 on a scale of 0 to 1
    assert alexa[0].dialogue.last.speaker == "B"
    assert alexa[0].dialogue.responder == "A"


async def test_what_copies_its_knowledge_is_attributable():
    of = judgement_set("begin_dev_wow")
    real_file(f"judgements/{of.file}.gz")
    judgements, metric = of.read(FOLDER), KnowledgeCopy()
    measures = {one.id: await metric.measure(Sample(one.dialogue, one.response)) for one in judgements}
    over_responses, over_systems = agreements(metric, judgements, measures, resamples=200)
    assert over_responses.auc.low < over_responses.auc.value < over_responses.auc.high
    assert over_responses.auc.value > 0.9
    assert over_responses.accuracy > over_responses.majority + 0.2
    assert (over_systems.level, over_systems.n) == ("system", 4)
    assert over_systems.correlations["pearson"].value > 0.9


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("topicalchat_usr", "{}", "expected a list"),
        ("topicalchat_usr", "[", "not valid JSON"),
        ("topicalchat_usr", '[{"model": "m"}]', "entry 1: field dialog_history: no text"),
        (
            "topicalchat_usr",
            '[{"model": "m", "dialog_history": "Hi.", "response": "Yo.", "fact": "_nofact", "overall": "good"}]',
            "entry 1: field overall: 'good' is no number",
        ),
        ("topicalchat_usr", "[]", "no judgement"),
        ("begin_dev_wow", "model_name\tmessage\tresponse\tknowledge\n a\tb\tc\td\n", "line 2: field begin_label"),
        (
            "begin_dev_wow",
            "model_name\tmessage\tresponse\tknowledge\tbegin_label\na\tb\tc\td\tMaybe\n",
            "'Maybe' is none of",
        ),
        ("xdial_dailydialog_zhao_zh", "english_ctx,english_res,ratings\nHi.,Yo.,4\n", "line 2: field chinese_ctx"),
        ("xdial_dailydialog_zhao_en", 'english_ctx,english_res,ratings\n"Hi', "line"),
        ("alexa_factual_expert", "context,response,knowledge,Hallucination\nA: x,y,z,perhaps\n", "neither yes nor no"),
        ("alexa_factual_expert", "context,response,knowledge,Hallucination\nx,y,z,No\n", "field context: no turn"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_a_malformed_file_names_line_and_field(tmp_path, name, text, wanted, zipped):
    data = text.encode()
    path = tmp_path / (SETS[name].file + ".gz" * zipped)
    path.write_bytes(gzip.compress(data) if zipped else data)
    with pytest.raises(InputError, match=wanted) as caught:
        SETS[name].read(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_unknown_set_and_a_missing_file(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean topicalchat_usr"):
        judgement_set("topicalchat-usr")
    with pytest.raises(InputError, match="no file begin_dev_wow"):
        SETS["begin_dev_wow"].read(tmp_path)


def test_a_small_file_of_each_form_is_read(tmp_path):
    entry = {"model": "m", "dialog_history": "Hi.\nHo.\n", "response": "Yo.", "fact": "F.", "overall": 3}
    entry |= dict.fromkeys(("understandable", "uses_knowledge"), 1) | dict.fromkeys(
        ("natural", "maintains_context", "engaging"), 2
    )
    truth = {**entry, "model": "Original Ground Truth", "response": "Right.", "fact": "_nofact\n"}
    (tmp_path / "topicalchat_usr.json").write_text(json.dumps([entry, truth]), encoding="utf-8")
    one, other = SETS["topicalchat_usr"].read(tmp_path)
    assert (one.dialogue.texts, one.dialogue.reference, one.dialogue.knowledge) == (("Hi.", "Ho."), "Right.", ("F.",))
    assert (one.response.knowledge[0].text, one.ratings["overall"]) == ("F.", 3.0)
    assert (other.dialogue.reference, other.dialogue.knowledge, other.response.knowledge) == (None, (), [])


class Found(Mean):
    """A metric whose measures are given."""

    def __init__(self, better=True, level="response"):
        self.about = About("found", "", "", higher_is_better=better, level=level)


def judgement(number, context, system="", rating=None, label=None):
    return Judgement(
        f"j{number}",
        Dialogue(id=f"j{number}", turns=["Hi."]),
        Response(id=f"j{number}", method="m", text="Yo."),
        context,
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
    found = resampled_correlations(first, second, weights)
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
    measures = {f"j{n}": Measure((sign * float(value),)) for n, value in enumerate(series[0])}
    (found,) = agreements(Found(better), judgements, measures, resamples=100)
    wanted = stats.spearmanr(*series)
    assert found.correlations["spearman"].value == pytest.approx(wanted.statistic)
    assert found.p["spearman"] == pytest.approx(wanted.pvalue)
    assert found.correlations["spearman"].low < wanted.statistic < found.correlations["spearman"].high


def test_what_has_no_measure_is_left_out_and_what_does_not_vary_has_no_figure(series):
    judgements = [judgement(n, str(n), rating=float(value)) for n, value in enumerate(series[1])]
    measures = {f"j{n}": Measure((float(value),)) for n, value in enumerate(series[0])}
    half = measures | {f"j{n}": unavailable("no knowledge") for n in range(60)}
    assert agreements(Found(), judgements, half, resamples=50)[0].n == 60
    flat = dict.fromkeys(measures, Measure((1.0,)))
    (found,) = agreements(Found(), judgements, flat, resamples=50)
    assert (found.correlations, found.auc) == ({}, None)
    assert "does not vary" in found.reason
    (none,) = agreements(Found(), judgements, {}, resamples=50)
    assert "too few" in none.reason


def test_systems_are_compared_by_their_figures():
    judgements = [
        judgement(n, str(n // 3), system, rating=float(level * 10 + n % 2))
        for n, (level, system) in enumerate((level, f"s{level}") for _ in range(20) for level in range(3))
    ]
    measures = {one.id: Measure((one.ratings["overall"] ** 2,)) for one in judgements}
    responses, systems = agreements(Found(), judgements, measures, resamples=100)
    assert (responses.level, systems.level, systems.n) == ("response", "system", 3)
    assert systems.correlations["spearman"].value == pytest.approx(1)
    assert systems.correlations["kendall"].low == pytest.approx(1)
    assert 0.9 < systems.correlations["pearson"].value < 1
    (alone,) = agreements(Found(level="corpus"), judgements, measures, resamples=100)
    assert alone.level == "system"


def test_labels_have_areas_and_accuracies():
    judgements = [judgement(n, str(n), label=n % 3 == 0) for n in range(90)]
    measures = {f"j{n}": Measure((float(n % 3 == 0) + n / 1000,)) for n in range(90)}
    (found,) = agreements(Found(), judgements, measures, resamples=50)
    assert (found.auc.value, found.accuracy, found.majority) == (1.0, 1.0, pytest.approx(2 / 3))
