"""Exact ranking: right, deterministic, and the int8 form close to it."""

from __future__ import annotations

import numpy as np
import pytest

from dialore.errors import InputError
from dialore.retrieval.fusion import best, quantise, rank_quantised


@pytest.fixture(scope="module")
def vectors():
    rows = np.random.default_rng(0).normal(size=(5000, 64)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_best_come_first(vectors):
    indices, scores = best(vectors @ vectors[7], 50)
    expected = np.argsort(-(vectors.astype(np.float64) @ vectors[7].astype(np.float64)), kind="stable")[:50]
    assert indices[0] == 7
    assert scores[0] == 1
    assert set(indices) == set(expected)
    assert (np.diff(scores) <= 0).all()
    assert (indices.dtype, scores.dtype) == (np.int64, np.float32)


def test_scores_have_four_decimals(vectors):
    _, scores = best(vectors @ vectors[0], 20)
    assert np.array_equal(scores, np.round(scores, 4))


def test_ties_fall_by_index_also_at_the_edge():
    vectors = np.tile(np.array([[1, 0]], dtype=np.float32), (9, 1))
    vectors[4] = [0, 1]
    indices, _ = best(vectors @ np.array([1, 0], dtype=np.float32), 6)
    assert indices.tolist() == [0, 1, 2, 3, 5, 6]


def test_differences_below_rounding_are_ties():
    query = np.array([1, 0], dtype=np.float32)
    vectors = np.array([[0.70001, 0], [0.70003, 0], [0.6, 0]], dtype=np.float32)
    assert best(vectors @ query, 2)[0].tolist() == [0, 1]


def test_more_wanted_than_there_are(vectors):
    assert len(best(vectors[:3] @ vectors[0], 10)[0]) == 3
    assert len(best(vectors[:0] @ vectors[0], 10)[0]) == 0
    assert len(best(vectors @ vectors[0], 0)[0]) == 0


def test_int8_is_close_to_float(vectors):
    indices, scores = best(vectors @ vectors[9], 50)
    near, near_scores = rank_quantised(vectors[9], quantise(vectors), 50)
    assert near[0] == 9
    assert len(set(indices) & set(near)) >= 45
    assert np.abs(scores - near_scores).max() < 0.01


@pytest.mark.parametrize("top", [1, 50, 5000])
def test_int8_rows_are_ranked_as_if_all_were_scored_with_the_float_query(vectors, top):
    quantised = quantise(np.vstack([vectors, vectors[:100]]))
    rows = quantised.vectors.astype(np.float32)
    for query in vectors[:20]:
        wanted, scores = best(np.einsum("ij,j->i", rows, query) * quantised.scales, top)
        found, near = rank_quantised(query, quantised, top)
        assert np.array_equal(found, wanted)
        assert np.array_equal(near, scores)


def test_a_query_or_rows_without_length_rank_last(vectors):
    quantised = quantise(np.vstack([np.zeros(64, np.float32), vectors[:2]]))
    assert rank_quantised(vectors[1], quantised, 3)[0].tolist()[0] == 2
    assert rank_quantised(np.zeros(64, np.float32), quantised, 2)[0].tolist() == [0, 1]
    assert len(rank_quantised(vectors[0], quantise(vectors[:0]), 5)[0]) == 0


def test_zero_rows_survive_quantising():
    quantised = quantise(np.array([[0, 0], [0.6, -0.8]], dtype=np.float32))
    assert not quantised.vectors[0].any()
    assert np.allclose(quantised.vectors[1] * quantised.scales[1], [0.6, -0.8], atol=0.005)


def test_a_negative_top_is_refused():
    with pytest.raises(InputError, match="negative"):
        best(np.ones(2), -1)
