"""SCG-QP's reranking without a model: people's queries find the sentences that people picked for them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from dialore.retrieval.reranking import load_reranker
from tests.data_folder import real_file

ROOT = Path(__file__).parents[2]
EXPECTED = json.loads((Path(__file__).parent / "expected" / "scg-qp.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def measuring():
    spec = importlib.util.spec_from_file_location("measure_reranking", ROOT / "scripts" / "measure_reranking.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def turns(measuring):
    return measuring.read_turns(real_file(EXPECTED["data"]))


# What is expected of all turns takes minutes; of a sample of them it is measured again here.
@pytest.mark.parametrize("kind", ["dialogue", "thirty", "all"])
def test_the_figures_on_wizard_of_the_internet(measuring, turns, kind):
    assert len(turns) == EXPECTED["turns"]
    sample = EXPECTED["sample"]
    asked, sentences = measuring.drawn(turns, measuring.candidates_of(turns, kind), sample["turns"][kind])
    for spec, expected in sample["figures"][kind].items():
        found = measuring.measure(asked, sentences, load_reranker(spec))
        for name in ("recall@1", "recall@5", "mrr"):
            assert found[name] == pytest.approx(expected[name], abs=0.002), (spec, name)


def test_a_query_finds_more_than_the_last_turn_does():
    for rows in EXPECTED["figures"].values():
        for spec in ("bm25", "dense", "fused"):
            assert rows[spec]["mrr"] > rows[f"{spec}, turn"]["mrr"]


def test_the_default_reranker_is_the_best_of_these_where_it_is_used():
    rows = EXPECTED["figures"]["thirty"]
    assert max(("bm25", "dense", "fused"), key=lambda spec: rows[spec]["mrr"]) == "fused"


FIXTURE = [
    {
        "id": "1",
        "meta": ["I bake."],
        "dialogue": [
            ["I made bread today.", "With sourdough?"],
            ["Yes! How old can a starter get?", "Some are a century old."],
        ],
        "query": [[], ["oldest sourdough starter"]],
        "KB": [[], ["The oldest sourdough starters are more than a century old."]],
    },
    {
        "id": "2",
        "meta": [],
        "dialogue": [
            ["I saw a heron.", "Herons stand still for hours."],
            ["They do.", "They eat frogs."],
            ["And you?", "Me not."],
        ],
        "query": [["heron hunting"], ["what herons eat"], []],
        "KB": [["A heron hunts by standing still."], ["Herons eat fish and frogs."], []],
    },
]


def test_measuring_on_dialogues_of_our_own(measuring, tmp_path):
    path = tmp_path / "valid.json"
    path.write_text(json.dumps(FIXTURE), encoding="utf-8")
    turns = measuring.read_turns(path)
    assert [turn.query for turn in turns] == ["oldest sourdough starter", "heron hunting", "what herons eat"]
    assert turns[1].last == "I saw a heron."
    assert turns[2].own == ("A heron hunts by standing still.", "Herons eat fish and frogs.")
    own = measuring.candidates_of(turns, "dialogue")
    everything = measuring.candidates_of(turns, "all")
    assert [len(sentences) for sentences in own] == [1, 2, 2]
    assert [len(sentences) for sentences in everything] == [3, 3, 3]
    assert measuring.candidates_of(turns, "thirty") == everything
    figures = measuring.measure(turns, everything, load_reranker("bm25"))
    assert (figures["recall@1"], figures["recall@5"], figures["mrr"]) == (1, 1, 1)
    by_turn = measuring.measure(turns, everything, load_reranker("bm25"), by_turn=True)
    assert by_turn["recall@1"] < 1
