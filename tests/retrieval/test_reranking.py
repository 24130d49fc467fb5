"""Rerankers: a handful of texts put in order for a query."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from dialore.errors import InputError, UnknownNameError
from dialore.retrieval import reranking
from dialore.retrieval.bm25 import Bm25, split_terms
from dialore.retrieval.fusion import fuse_lists, fuse_scores
from dialore.retrieval.reranking import (
    Reranker,
    bm25_reranker,
    cross_encoder_reranker,
    dense_reranker,
    fused_reranker,
    load_reranker,
)
from dialore.retrieval.static import StaticEmbedder
from tests.retrieval.tiny_transformer import WORDS, needs_sentence_transformers

TEXTS = [
    "The ferry leaves the harbour at nine every morning.",
    "Sourdough bread needs a starter of flour and water.",
    "Tickets for the museum are cheaper on Mondays.",
    "Bakers knead dough until it is smooth.",
]
CHINESE = ["渡轮每天早上九点离开港口。", "酸面包需要用面粉和水做酵头。", "博物馆的门票星期一比较便宜。"]
SPECS = ["bm25", "dense", "fused", "dense:static", "fused:static"]


@pytest.fixture(scope="module", params=SPECS)
def reranker(request):
    return load_reranker(request.param)


def test_the_text_that_answers_comes_first(reranker):
    ranked = reranker.rerank("When does the ferry leave?", TEXTS, 2)
    assert ranked[0][0] == 0
    assert len(ranked) == 2
    assert ranked[0][1] > ranked[1][1]


@pytest.mark.parametrize(("query", "best"), [("面包怎么做", 1), ("门票多少钱", 2)])
def test_chinese_too(reranker, query, best):
    assert reranker.rerank(query, CHINESE, 1)[0][0] == best


def test_nothing_to_rank_and_nothing_wanted(reranker):
    assert reranker.rerank("ferry", [], 5) == []
    assert reranker.rerank("ferry", TEXTS, 0) == []
    assert sorted(at for at, _ in reranker.rerank("ferry", TEXTS, 99)) == [0, 1, 2, 3]
    assert len(reranker.rerank("", ["", "a"], 5)) == 2


def test_a_negative_top_is_refused(reranker):
    with pytest.raises(InputError, match="-1"):
        reranker.rerank("ferry", TEXTS, -1)


def test_equal_texts_keep_their_order(reranker):
    assert [at for at, _ in reranker.rerank("bread", [TEXTS[2], TEXTS[1], TEXTS[1]], 3)] == [1, 2, 0]


def test_bm25_splits_a_set_of_texts_once(monkeypatch):
    split: list[str] = []
    counted = functools.partial(Bm25, tokeniser=lambda text: split.append(text) or split_terms(text))
    monkeypatch.setattr(reranking, "Bm25", counted)
    reranker = bm25_reranker()
    assert reranker.rerank("bread", TEXTS, 4) == reranker.rerank("bread", TEXTS, 4)
    assert split == [*TEXTS, "bread", "bread"]


def test_names_load_the_same_again(reranker):
    assert isinstance(reranker, Reranker)
    again = load_reranker(reranker.name)
    assert again.rerank("bread dough", TEXTS, 4) == reranker.rerank("bread dough", TEXTS, 4)


def test_bm25_by_hand():
    """Two texts of two words, the query's word once in the first: idf ln 2, and 1 * 2.2 / (1 + 1.2) = 1."""
    (first, score), (second, rest) = bm25_reranker().rerank("harbour", ["harbour wall", "garden wall"], 2)
    assert (first, second) == (0, 1)
    assert score == pytest.approx(0.6931, abs=1e-4)
    assert rest == 0.0


def test_bm25_finds_other_forms_of_a_word():
    assert bm25_reranker().rerank("baker", TEXTS, 1)[0][0] == 3


def test_a_rare_word_says_more_than_a_common_one():
    texts = ["a red house", "a red barn", "a red fox", "an old lighthouse"]
    assert bm25_reranker().rerank("red lighthouse", texts, 1)[0][0] == 3


def test_fused_adds_cosines_to_shares_of_the_best_bm25_score():
    query = "museum tickets on Mondays"
    ranked = dict(fused_reranker().rerank(query, TEXTS, 4))
    lexical, cosines = bm25_reranker().scores(query, TEXTS), dense_reranker().scores(query, TEXTS)
    for place, score in ranked.items():
        assert score == pytest.approx((lexical[place] / lexical.max() + 1.5 * cosines[place]) / 2.5, abs=1e-6)
    assert next(iter(ranked)) == 2


def test_without_a_word_of_the_query_the_cosine_decides():
    assert fuse_scores(np.zeros(2), np.array([0.1, 0.5])).tolist() == pytest.approx([0.06, 0.3])


def test_what_one_list_lacks_counts_as_its_last():
    by_terms, near = [("a", 4.0), ("b", 2.0)], [("b", 0.8), ("c", 0.4)]
    fused = dict(fuse_lists(by_terms, near, depth=2))
    assert list(fused) == ["b", "a", "c"]
    assert fused["a"] == pytest.approx((1 + 1.5 * 0.4) / 2.5)
    assert fused["c"] == pytest.approx((0.5 + 1.5 * 0.4) / 2.5)
    # BM25 found no more than these two, so that "c" has no word of the query.
    assert dict(fuse_lists(by_terms, near, depth=3))["c"] == pytest.approx(1.5 * 0.4 / 2.5)


def test_dense_embeds_a_text_once():
    encoded: list[str] = []

    class Counting(StaticEmbedder):
        def encode(self, texts):
            encoded.extend(texts)
            return super().encode(texts)

    reranker = dense_reranker(Counting())
    first = reranker.rerank("bread", TEXTS, 4)
    assert reranker.rerank("bread", TEXTS, 4) == first
    assert len(encoded) == len(TEXTS) + 1


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [("bm52", UnknownNameError), ("dense:nothing", UnknownNameError), ("bm25:x", InputError), ("cross:", InputError)],
)
def test_a_bad_spec_is_one_clear_line(spec, wrong):
    with pytest.raises(wrong) as caught:
        load_reranker(spec)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    """A random cross-encoder of a few thousand weights, made here; `labels` scores a pair."""
    folder = tmp_path_factory.mktemp("cross")

    def make(labels: int = 1) -> str:
        import torch
        from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

        path = folder / f"labels-{labels}"
        path.mkdir()
        (path / "vocab.txt").write_text("\n".join(WORDS))
        BertTokenizerFast(vocab=str(path / "vocab.txt")).save_pretrained(path)
        torch.manual_seed(3)
        config = BertConfig(
            vocab_size=len(WORDS),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            num_labels=labels,
            initializer_range=0.5,
        )
        BertForSequenceClassification(config).save_pretrained(path)
        return str(path)

    return make


@needs_sentence_transformers
def test_a_cross_encoder_reads_query_and_text_together(cross_encoder):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    path = cross_encoder()
    ranked = load_reranker(f"cross:{path}").rerank("when does the ferry leave", TEXTS, 4)
    assert sorted(at for at, _ in ranked) == [0, 1, 2, 3]

    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModelForSequenceClassification.from_pretrained(path)
    with torch.no_grad():
        pairs = tokenizer(["when does the ferry leave"] * 4, TEXTS, padding=True, return_tensors="pt")
        logits = model(**pairs).logits[:, 0]
    assert [at for at, _ in ranked] == torch.argsort(-logits, stable=True).tolist()
    assert load_reranker(f"cross:{path}").rerank("x", [], 3) == []


@needs_sentence_transformers
def test_a_classifier_is_no_reranker(cross_encoder):
    with pytest.raises(InputError, match="3 scores"):
        cross_encoder_reranker(cross_encoder(3))


@needs_sentence_transformers
def test_a_model_that_is_not_there_is_one_clear_line(tmp_path):
    with pytest.raises(InputError, match="local folder"):
        load_reranker(f"cross:{tmp_path / 'nowhere'}")


def test_okapi_is_the_bm25_of_rank_bm25():
    """Figures of that package over jieba's tokens; "的" is in most texts, so that it gets a quarter of the mean."""
    texts = ["我 是 素食 者", "西安的塔在陕西。", "西安的城墙", "豆腐的做法：用大豆"]
    found = load_reranker("okapi").rerank("用户：西安的塔高吗？ ", texts, 4)
    assert [at for at, _ in found] == [0, 3, 2, 1]
    assert [score for _, score in found] == pytest.approx([1.3220, 0.9816, 0.2193, 0.1676], abs=1e-4)
    # Of texts that share nothing with the query, the last comes first there.
    assert [at for at, _ in load_reranker("okapi").rerank("hello", ["a", "b", "c"], 2)] == [2, 1]
