"""BM25, how texts are cut for it, and the fusion of rankings."""

from __future__ import annotations

import builtins
import math
import random
import sys
from collections import Counter

import numpy as np
import pytest

from dialore.errors import InputError, MissingExtraError, UnknownNameError
from dialore.retrieval import Bm25, Cutter, reciprocal_ranks
from dialore.retrieval.lexical_tantivy import TantivyBm25

ENGINES = ("exact", "tantivy")
WORDS = ("sushi", "rice", "ramen", "soup", "tokyo", "kyoto", "temple", "train", "garden", "tea", "ceremony", "river")


def corpus(size: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 30))) for _ in range(size)]


def by_the_formula(texts: list[str], query: str, k1: float, b: float, cut: Cutter) -> list[float]:
    """Robertson and Zaragoza's BM25, term by term."""
    tallies = [Counter(cut(text)) for text in texts]
    lengths = [sum(tally.values()) for tally in tallies]
    mean = sum(lengths) / len(lengths)
    scores = []
    for tally, length in zip(tallies, lengths, strict=True):
        score = 0.0
        for term in cut(query):
            having = sum(term in other for other in tallies)
            rarity = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
            count = tally[term]
            if not count:
                continue
            score += rarity * count * (k1 + 1) / (count + k1 * (1 - b + b * length / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.9, 0.4), (2.0, 0.0), (0.0, 1.0), (1.5, 1.0)])
def test_exact_bm25_is_the_formula(k1, b):
    texts = corpus(80)
    for query in ("tea ceremony in Kyoto", "rice rice soup", "the trains", "nothing of it"):
        wanted = by_the_formula(texts, query, k1, b, Cutter())
        engine = Bm25(texts, k1=k1, b=b)
        assert engine.engine == "exact"
        assert engine.scores(query) == pytest.approx(wanted, abs=1e-4)
        order = sorted(range(len(texts)), key=lambda row: (-round(wanted[row], 4), row))
        assert [hit.row for hit in engine.search(query, 10)] == [row for row in order if wanted[row] > 0][:10]


def test_tantivy_ranks_as_the_formula_does():
    # Lengths up to 39 are kept as they are by tantivy; beyond, in steps.
    texts = corpus(400, seed=1)
    engine = Bm25(texts, engine="tantivy")
    for query in ("tea ceremony in Kyoto", "rice rice soup", "a temple garden by the river"):
        wanted = by_the_formula(texts, query, 1.2, 0.75, Cutter())
        found = engine.search(query, 20)
        assert [hit.score for hit in found] == pytest.approx(sorted(wanted, reverse=True)[:20], abs=2e-3)
        assert engine.scores(query) == pytest.approx(wanted, abs=2e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_every_engine_does(engine):
    texts = ["The cats are running home.", "A dog sleeps.", "", "猫在家里睡觉。", "cats", "cats"]
    bm25 = Bm25(texts, engine=engine)
    assert len(bm25) == 6
    assert {hit.row for hit in bm25.search("a CAT runs", 10)} == {0, 4, 5}
    assert [hit.row for hit in bm25.search("cat", 2)] == [4, 5]  # equal ones by place
    assert [hit.row for hit in bm25.search("家里的猫", 3)] == [3]
    assert bm25.search("the of and", 5) == bm25.search("", 5) == bm25.search("zebra", 5) == bm25.search("cat", 0) == []
    assert bm25.scores("dog").tolist().index(max(bm25.scores("dog"))) == 1
    assert Bm25([], engine=engine).search("cat") == []


def test_other_constants_have_the_exact_engine_and_wrong_ones_none():
    assert Bm25(["a"], k1=0.9, b=0.4).engine == "exact"
    for constants in ({"k1": -1.0}, {"b": 1.5}):
        with pytest.raises(InputError, match="out of range"):
            Bm25(["a"], **constants)
    with pytest.raises(InputError, match=r"k1 = 1.2"):
        Bm25(["a"], k1=2.0, engine="tantivy")
    with pytest.raises(UnknownNameError, match="did you mean exact"):
        Bm25(["a"], engine="exakt")


def test_a_missing_tantivy_names_its_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "tantivy":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "tantivy", raising=False)
    with pytest.raises(MissingExtraError, match=r"dialore\[documents\]"):
        Bm25(["a text"], engine="tantivy")
    assert Bm25(["a text"]).search("text")[0].row == 0


def test_tantivy_on_disk_is_changed_whole_or_not_at_all(tmp_path):
    index = TantivyBm25(tmp_path / "terms")
    with index.changing() as change:
        for row, text in enumerate(["tea", "tea rice", "rice"]):
            change.add(row, text.split())
    assert index.best(["tea"], 5) == []  # of the moment when it was opened
    index.refresh()
    assert [row for row, _ in index.best(["tea"], 5)] == [0, 1]
    assert [row for row, _ in index.best(["tea"], 1, lambda row: row != 0)] == [1]
    with pytest.raises(TypeError), index.changing() as change:  # noqa: PT012 - the failure comes amid a change
        change.delete([0])
        change.add("no row", ["tea"])
    again = TantivyBm25(tmp_path / "terms")
    assert len(again) == 3
    with again.changing() as change:
        change.delete([0])
        change.delete_from(2)
        change.add(2, ["tea"])
    again.refresh()
    assert {row for row, _ in again.best(["tea"], 5)} == {1, 2}


def test_terms_are_cut_by_script():
    cut = Cutter()
    assert cut("The dogs' bowls weren't cleaned in 2019, e.g.") == ["dog", "bowl", "clean", "2019"]
    assert cut("北京大学的 Wi-Fi running") == ["wi", "fi", "run", "北京", "大学", "北京大学"]
    assert Cutter(chinese="words")("北京大学") == ["北京大学"]
    assert Cutter(chinese="characters", stop_words=True)("我的茶") == ["我", "的", "茶"]
    assert Cutter(chinese="bigrams", stop_words=True)("喝绿茶") == ["喝绿", "绿茶"]
    assert Cutter(stems=False, stop_words=True)("The dogs") == ["the", "dogs"]
    assert cut("x" * 500) == []
    with pytest.raises(UnknownNameError, match="did you mean words"):
        Cutter(chinese="word")


def test_reciprocal_ranks_are_the_formula():
    fused = reciprocal_ranks([["a", "b", "c"], ["c", "a"], ["d"]])
    assert dict(fused) == pytest.approx({"a": 1 / 61 + 1 / 62, "c": 1 / 63 + 1 / 61, "d": 1 / 61, "b": 1 / 62})
    assert [item for item, _ in fused] == ["a", "c", "d", "b"]
    assert [item for item, _ in reciprocal_ranks([["a"], ["b"]], weights=[1, 2])] == ["b", "a"]
    assert [item for item, _ in reciprocal_ranks([["a"], ["b"]], k=1)] == ["a", "b"]
    assert reciprocal_ranks([["a", "a", "b"]]) == reciprocal_ranks([["a", "b"]])
    assert reciprocal_ranks([]) == []
    with pytest.raises(InputError, match="3 weights for 1 ranking"):
        reciprocal_ranks([["a"]], weights=[1, 2, 3])


def test_a_sketch_finds_what_an_exact_scan_finds():
    from dialore.retrieval.ranking import quantise
    from dialore.retrieval.sketches import FEW, nearest, sketch

    noise = np.random.default_rng(0)
    centres = noise.standard_normal((500, 96)).astype(np.float32)
    rows = centres[noise.integers(0, 500, FEW + 9000)] + noise.standard_normal((FEW + 9000, 96)).astype(np.float32)
    vectors = quantise((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32))
    columns = np.ascontiguousarray(sketch(vectors.vectors.astype(np.float32)).T)
    dead = np.zeros(len(rows), dtype=np.bool_)
    shared = []
    for row in range(20):
        query = (rows[row] / np.linalg.norm(rows[row])).astype(np.float32)
        [exact] = nearest(query[None], vectors, None, 10)
        assert exact[0][0] == row
        [found] = nearest(query[None], vectors, columns, 10)
        assert found[0] == exact[0]
        shared.append(len(dict(exact).keys() & dict(found).keys()) / 10)
        dead[:] = False
        dead[row] = True
        for kept in (None, columns):
            assert row not in dict(nearest(query[None], vectors, kept, 10, dead)[0])
    assert np.mean(shared) > 0.95


def test_a_query_finds_the_same_among_others_as_alone():
    from dialore.retrieval.ranking import quantise
    from dialore.retrieval.sketches import FEW, nearest, sketch

    noise = np.random.default_rng(1)
    rows = noise.standard_normal((FEW + 3000, 300)).astype(np.float32)
    rows[5] = -rows[4]  # differs in every bit
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    vectors = quantise(rows)
    columns = np.ascontiguousarray(sketch(rows).T)
    assert len(columns) == 8
    queries = rows[:9]
    alone = [nearest(query[None], vectors, columns, 20)[0] for query in queries]
    assert nearest(queries, vectors, columns, 20) == alone
    assert [found[0][0] for found in alone] == list(range(9))
    # Of the rows that differ in the fewest bits, those with the highest cosines.
    bits = np.unpackbits(columns[:, :, None].view(np.uint8), axis=2)
    differing = (bits != bits[:, 4:5]).sum(axis=(0, 2))
    edge = np.sort(differing)[1999]
    cosines = np.where(differing <= edge, vectors.vectors.astype(np.float32) @ rows[4] * vectors.scales, -1)
    assert [row for row, _ in alone[4]] == np.argsort(-np.round(cosines, 4), kind="stable")[:20].tolist()
