"""BLEU, ROUGE-L and METEOR as nlg-eval has them: against its definitions, and the packages where they are."""

from __future__ import annotations

import math
import random
import shutil

import numpy as np
import pytest

from dialore.dialogue import Dialogue
from dialore.evaluation.base import Sample
from dialore.evaluation.registry import Context, load_metric
from dialore.response import Response

pytest.importorskip("rouge_score", reason="the evaluation extra is not installed")
WORDS = ["the", "The", "cat", "cat.", "sat", "on", "a", "mat", ",", "and", "it's", "happy", "!", "tea"]


def pairs(count=60):
    """Pairs of made-up lines; empty ones, equal ones, lines with line ends and double spaces among them."""
    draw = random.Random(3)
    made = [("", "the cat"), ("the cat", "the cat"), ("the  cat\nsat", "the cat sat on"), ("nothing", "the mat")]
    while len(made) < count:
        made.append(tuple(" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(2)))
    return made


def sample(response, reference, language="en"):
    dialogue = Dialogue(id="d", language=language, turns=["Hi"], reference=reference)
    return Sample(dialogue, Response(id="d", method="m", text=response))


def own(name):
    return load_metric(name, Context())


async def table(metric, given):
    return np.array([(await metric.measure(sample(*pair))).values for pair in given])


def line(text):
    return " ".join(text.splitlines()).strip()


def bleus(given):
    """BLEU-1 to 4 of coco-caption's scorer, with its epsilons."""
    right, guessed, lengths = [0] * 4, [0] * 4, [0, 0]
    for response, reference in given:
        both = [line(text).split() for text in (response, reference)]
        lengths = [total + len(tokens) for total, tokens in zip(lengths, both, strict=True)]
        for n in range(4):
            grams = [[tuple(t[i : i + n + 1]) for i in range(len(t) - n)] for t in both]
            right[n] += sum(min(grams[0].count(gram), grams[1].count(gram)) for gram in set(grams[0]))
            guessed[n] += max(0, len(both[0]) - n)
    product, found = 1.0, []
    for n in range(4):
        product *= (right[n] + 1e-15) / (guessed[n] + 1e-9)
        found.append(product ** (1 / (n + 1)))
    ratio = (lengths[0] + 1e-15) / (lengths[1] + 1e-9)
    return [value * math.exp(1 - 1 / ratio) if 1e-6 < ratio < 1 else value * (ratio >= 1) for value in found]


def rouge(response, reference):
    a, b = line(response).split(" "), line(reference).split(" ")
    longest = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            longest[i + 1][j + 1] = longest[i][j] + 1 if x == y else max(longest[i][j + 1], longest[i + 1][j])
    precision, recall = longest[-1][-1] / len(a), longest[-1][-1] / len(b)
    return (1 + 1.2**2) * precision * recall / (recall + 1.2**2 * precision) if precision else 0.0


async def test_bleu_of_a_corpus_and_of_each_pair():
    values = await table(own("bleu-nlgeval"), pairs())
    assert own("bleu-nlgeval").combine(values) == pytest.approx(100 * np.mean(bleus(pairs())), rel=1e-12)
    for row, pair in zip(values, pairs(), strict=True):
        assert own("bleu-nlgeval").combine(row[None]) == pytest.approx(
            100 * np.mean(bleus([pair])), rel=1e-9, abs=1e-12
        )


async def test_rouge_l_of_each_pair():
    values = await table(own("rouge-l-nlgeval"), pairs())
    assert values[:, 0] == pytest.approx([rouge(*pair) for pair in pairs()], rel=1e-12)


async def test_case_and_punctuation_stay_and_chinese_is_split():
    assert (await table(own("rouge-l-nlgeval"), [("The cat.", "the cat .")])).item() == 0
    chinese = sample("今天下雨了", "今天下雪了", "zh")
    assert (await own("rouge-l-nlgeval").measure(chinese)).values == pytest.approx((0.8,))
    assert (await own("bleu-nlgeval").measure(chinese)).values[:2] == (4.0, 2.0)


STATISTICS = {
    0.3914006785035943: "8 8 4 4 3 3 2 2 0 0 0 0 0 0 0 0 1 1 1 0 3 7 6",
    0.3282147370950948: "5 4 3 2 0 0 2 2 1 1 0 0 0 0 0 0 1 1 0 0 2 4 4",
    0.0: "1 3 0 1" + " 0" * 19,
}
"""What Meteor 1.5 says of three alignments (`EVAL ||| ...`), and their statistics."""


def test_meteors_formula_is_that_of_the_program():
    rows = np.array([[float(number) for number in text.split()] for text in STATISTICS.values()])
    assert own("meteor-nlgeval").of_sums(rows) == pytest.approx(list(STATISTICS), rel=1e-12)
    assert own("meteor-nlgeval").combine(rows) == pytest.approx(0.29201898198721477, rel=1e-12)


async def test_meteor_where_it_cannot_be_had(monkeypatch):
    from dialore.evaluation import meteor

    monkeypatch.setattr(meteor.shutil, "which", lambda name: None)
    meteor.find_program.cache_clear()
    found = await own("meteor-nlgeval").measure(sample("a", "a"))
    meteor.find_program.cache_clear()
    assert (found.problem, "Java" in found.reason) == ("unavailable", True)
    assert (await own("meteor-nlgeval").measure(sample("你好", "你好", "zh"))).problem == "unavailable"


@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed")
async def test_agrees_with_coco_captions_package():
    pytest.importorskip("pycocoevalcap", reason="pycocoevalcap is not installed")
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge

    given = [(line(a), line(b)) for a, b in pairs() if a]
    references, responses = ({n: [pair[k]] for n, pair in enumerate(given)} for k in (1, 0))
    for metric, theirs, scale in (
        (own("bleu-nlgeval"), Bleu(), 100),
        (own("rouge-l-nlgeval"), Rouge(), 1),
        (own("meteor-nlgeval"), Meteor(), 1),
    ):
        rest = {"verbose": 0} if scale == 100 else {}
        wanted, each = theirs.compute_score(references, responses, **rest)
        each = np.mean(each, axis=0) if scale == 100 else np.array(each)
        values = await table(metric, given)
        assert metric.combine(values) == pytest.approx(scale * np.mean(wanted), rel=1e-9)
        assert [metric.combine(row[None]) for row in values] == pytest.approx(list(scale * each), rel=1e-9)
    for pipe in (theirs.meteor_p.stdout, theirs.meteor_p.stderr):  # the package leaves them open
        pipe.close()
