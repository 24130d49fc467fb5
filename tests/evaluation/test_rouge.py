"""ROUGE without rouge-score's slow table: the figures are those of rouge-score."""

from __future__ import annotations

import random
import time

import pytest

from dialore.evaluation.overlap import common_subsequence_length, rouge_f1

rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")


@pytest.mark.parametrize("seed", range(40))
def test_the_longest_common_subsequence_is_rouge_scores(seed):
    draw = random.Random(seed)
    first, second = ([draw.choice("abcdef") for _ in range(draw.randint(0, 90))] for _ in range(2))
    table = rouge_scorer._lcs_table(first, second)
    assert common_subsequence_length(first, second) == table[-1][-1]


def test_rouge_l_of_long_texts_is_fast():
    draw = random.Random(1)
    first, second = ([str(draw.randrange(500)) for _ in range(20_000)] for _ in range(2))
    begin = time.process_time()
    assert 0 < common_subsequence_length(first, second) < 20_000
    assert time.process_time() - begin < 10


@pytest.mark.parametrize(
    ("reference", "response"),
    [
        ("the histories of tea", "history of teas, and of coffee"),
        ("old boats old boats", "old boats"),
        ("who was running the cafés?", "Who runs the café"),
        ("tea", ""),
        ("", "tea"),
        ("tea", "coffee"),
    ],
)
def test_stemmed_figures_are_rouge_scores(reference, response):
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    expected = {name: score.fmeasure for name, score in scorer.score(reference, response).items()}
    assert rouge_f1(reference, response, "en") == pytest.approx(expected)
