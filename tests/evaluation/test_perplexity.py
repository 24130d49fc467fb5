"""Perplexity as a metric: a tiny random model, the history as context, many texts in a batch."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from dialore.dialogue import Dialogue
from dialore.errors import ModelError
from dialore.evaluation.base import Sample
from dialore.evaluation.perplexity import _MicroBatches, context_of
from dialore.evaluation.registry import Context, load_metric
from dialore.experiments.scoring import measure, score_of
from dialore.llm.perplexity import Likelihood, LocalLikelihood, Scored
from dialore.response import Response
from tests.llm.tiny_causal import make_tiny_causal, needs_torch

DIALOGUES = [
    Dialogue(id="tea", turns=["green tea is warm", "and the river?"]),
    Dialogue(id="sea", turns=["the river runs to the sea"]),
]
TEXTS = ["people talk about books", "the sea is warm"]


def samples(texts=TEXTS):
    return [
        Sample(dialogue, Response(id=dialogue.id, method="m", text=text))
        for dialogue, text in zip(DIALOGUES, texts, strict=True)
    ]


@needs_torch
@pytest.mark.filterwarnings("ignore")
async def test_it_is_that_of_the_responses_tokens_given_their_histories(tmp_path):
    make_tiny_causal(tmp_path)
    metric = load_metric("perplexity", Context(language_model=f"hf:{tmp_path}"))
    assert str(tmp_path) in metric.identity
    measures = await asyncio.gather(*(metric.measure(sample) for sample in samples()))
    direct = await LocalLikelihood(str(tmp_path)).score(
        [
            Scored("green tea is warm\nand the river?\n", "people talk about books"),
            Scored("the river runs to the sea\n", "the sea is warm"),
        ]
    )
    for measured, likelihood in zip(measures, direct, strict=True):
        assert measured.values == pytest.approx((-likelihood.log_probability, likelihood.tokens), abs=1e-3)
    summed, tokens = sum(m.values[0] for m in measures), sum(m.values[1] for m in measures)
    score = score_of(metric, measures)
    assert score.value == pytest.approx(math.exp(summed / tokens))
    assert score.low <= score.value <= score.high
    assert not metric.about.higher_is_better


class Judge:
    """Likelihoods by a rule: a text's length; a text of x's is too long."""

    name = "rule"

    def __init__(self):
        self.batches = []

    async def score(self, pairs, on_step=None):
        self.batches.append(list(pairs))
        await asyncio.sleep(0)
        if any("xxx" in pair.text for pair in pairs):
            raise ModelError("a text is too long")
        return [Likelihood(-2.0 * len(pair.text), len(pair.text)) for pair in pairs]

    async def close(self):
        pass


def perplexity_of(model):
    metric = load_metric("perplexity", Context())
    metric._batches = _MicroBatches(model)
    return metric


async def test_what_is_asked_for_one_by_one_is_scored_in_batches():
    model = Judge()
    metric = perplexity_of(model)
    many = samples() * 20
    measures = await asyncio.gather(*(metric.measure(sample) for sample in many))
    assert len(model.batches) < 5
    assert sum(len(batch) for batch in model.batches) == 40
    assert model.batches[0][0] == Scored(context_of(DIALOGUES[0]), TEXTS[0])
    assert metric.combine(np.array([measure.values for measure in measures])) == pytest.approx(math.exp(2.0))


async def test_one_text_that_is_too_long_fails_alone():
    metric = perplexity_of(Judge())
    good, bad = samples(["short", "xxx"])
    found = await asyncio.gather(*(measure(metric, s.dialogue, s.response) for s in (good, bad, good)))
    assert [each.problem for each in found] == [None, "failed", None]
    assert "too long" in found[1].reason


async def test_without_a_model_or_a_text_it_is_not_available():
    without = load_metric("perplexity", Context())
    measured = await without.measure(samples()[0])
    assert (measured.problem, measured.reason) == ("unavailable", "no language model was given")
    score = score_of(without, [measured])
    assert score.value is None
    assert "no language model" in score.reason
    empty = await perplexity_of(Judge()).measure(samples(["", "x"])[0])
    assert empty.reason == "the response is empty"


def test_a_figure_too_large_for_a_number_is_not_available():
    from dialore.evaluation.base import SampleScore

    score = score_of(load_metric("perplexity", Context()), [SampleScore((9000.0, 1.0)), SampleScore((9000.0, 1.0))])
    assert score.value is None
