"""Scores against several accepted responses."""

from __future__ import annotations

import numpy as np
import pytest

from dialore.dialogue import Dialogue
from dialore.evaluation.base import Sample
from dialore.evaluation.registry import Context, load_metric
from dialore.response import Response

SHORT, LONG = "We close at noon today.", "The shop is open until the early evening on every working day."


async def figure(name, text, **reference):
    metric = load_metric(name, Context())
    dialogue = Dialogue(id="d", turns=["When do you close?"], **reference)
    score = await metric.measure(Sample(dialogue, Response(id="d", method="m", text=text)))
    return metric.combine(np.array([score.values]))


@pytest.mark.parametrize("name", ["f1", "rouge-l", "rouge-l-nlgeval", "meteor-exact-stem", "bleu-2", "bleu-nlgeval"])
async def test_a_response_like_any_reference_is_right(name):
    """The first reference does not count more than the others."""
    for module in ("rouge_score", "nltk", "sacrebleu"):
        pytest.importorskip(module)
    best = await figure(name, LONG, reference=LONG)
    assert await figure(name, LONG, references=[SHORT, LONG]) == pytest.approx(best)
    assert await figure(name, LONG, references=[LONG, SHORT]) == pytest.approx(best)
    assert await figure(name, LONG, reference=SHORT) < best / 2


async def test_bleu_of_several_references_is_that_of_sacrebleu():
    bleu = pytest.importorskip("sacrebleu").BLEU()
    text = "The shop closes at noon on every working day."
    expected = bleu.corpus_score([text], [[SHORT], [LONG]]).score
    assert await figure("bleu-4", text, references=[SHORT, LONG]) == pytest.approx(expected)


async def test_a_dialogue_whose_reference_was_taken_away_has_none():
    dialogue = Dialogue(id="d", turns=["Hi."], references=[SHORT, LONG])
    assert dialogue.accepted_responses == (SHORT, LONG)
    assert dialogue.model_copy(update={"reference": None}).accepted_responses == ()
