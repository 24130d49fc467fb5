"""The consistency model: its pairs are the paper's, it tells them apart, and it serves P.C, K.C and weave's check."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dialore.errors import InputError
from dialore.evaluation.registry import Context, load_metric
from dialore.methods.weave import Weave
from dialore.trained import open_trained, read_card

pytest.importorskip("lightgbm")

from dialore.learned.examples import read_examples
from dialore.learned.nli import PROTOCOLS, RANDOM, SAME_PERSONA, make_pairs, protocol_rows, swap_detail, train_nli
from tests.methods.test_weave import ASKED, Model, answer, stage_of


@pytest.fixture(scope="module")
def examples(small):
    return read_examples("kbp", small / "train.json")


def test_every_gold_piece_is_a_positive_and_negatives_are_of_each_kind(examples):
    pairs = make_pairs(examples)
    assert sum(pair.is_positive for pair in pairs) == sum(map(len, examples.gold))
    assert {pair.protocol for pair in pairs} >= {*PROTOCOLS} - {"swapped"}
    for pair in pairs:
        one = examples.dialogues[pair.response]
        assert pair.text == one.reference
        assert (pair.piece in examples.gold[pair.response]) == pair.is_positive
        if pair.protocol == SAME_PERSONA:
            assert (pair.piece in one.persona, pair.kind) == (True, "persona")
        if pair.protocol == "other document":
            assert any(pair.piece in under for under in one.extra["documents"].values())
    # As many random negatives as positives: the paper's protocol.
    assert sum(pair.protocol == RANDOM for pair in pairs) == sum(pair.is_positive for pair in pairs)


def test_the_paper_s_negatives_are_random_ones_alone(examples):
    """SAFARI, Appendix C: (ground, response) against "randomly sampled (unrelated, response)", one each."""
    pairs = make_pairs(examples, hard=False)
    protocols = [pair.protocol for pair in pairs]
    assert protocols.count("positive") == protocols.count(RANDOM) == len(pairs) / 2
    for pair in pairs:
        assert (pair.piece in examples.gold[pair.response]) == pair.is_positive


@pytest.mark.parametrize(
    ("text", "response", "expected"),
    [
        ("壮族是55个民族中人口最多的民族", "我们是55个少数民族中人口最多的", "number"),
        ("西安的小吃是肉夹馍", "是肉夹馍", "西安的小吃是凉皮"),
        ("西安的小吃是肉夹馍", "是好吃的", ""),  # the response says nothing that could be exchanged
    ],
)
def test_a_number_or_a_name_that_the_response_has_is_exchanged(text, response, expected):
    swapped = swap_detail(text, response, {"小吃": ["肉夹馍", "凉皮"]}, np.random.default_rng(0))
    if expected == "number":
        assert swapped != text
        assert len(swapped) == len(text)
        assert "55" not in swapped
    else:
        assert swapped == expected


def test_it_tells_pairs_of_dialogues_apart_that_it_has_not_seen(small, trained):
    model = open_trained(str(trained / "nli"), "entailment")
    pairs = make_pairs(read_examples("kbp", small / "dev.json"))
    entailed = model.entails([(pair.piece, pair.text) for pair in pairs])
    assert np.mean([holds == pair.is_positive for holds, pair in zip(entailed, pairs, strict=True)]) > 0.9
    assert set(protocol_rows(pairs)) <= set(read_card(trained / "nli")["measured"])
    assert model.entails([]) == []


def test_the_same_seed_gives_the_same_files(examples, trained, tmp_path):
    train_nli(examples, lambda *_: None).save(tmp_path / "again", examples)
    for name in ("arrays.npz", "pairs.txt", "model.json", "README.md"):
        assert (tmp_path / "again" / name).read_bytes() == (trained / "nli" / name).read_bytes()


def test_consistency_metrics_take_it(trained):
    metric = load_metric("knowledge-consistency", Context(nli=f"trained:{trained / 'nli'}"))
    assert metric.identity == f"trained:{trained / 'nli'}"
    assert metric._model is load_metric("persona-consistency", Context(nli=f"trained:{trained / 'nli'}"))._model
    with pytest.raises(InputError, match="is a trained planner, not a nli"):
        load_metric("knowledge-consistency", Context(nli=f"trained:{trained / 'planner'}"))


async def test_weave_tests_citations_by_it_without_a_call(trained):
    model = Model({"needs": ASKED, "draft": "They open at ten [1].", "write": "I do not know."})
    checked = f"trained:{trained / 'nli'}"
    response, _ = await answer(model, check=checked)
    found = stage_of(response, "check-draft").output["unsupported"]
    assert response.usage.calls == (3 if found else 2)
    with pytest.raises(InputError, match="holds no trained model"):
        Weave(check=f"trained:{trained / 'nothing'}")


def test_a_file_without_any_piece_is_refused(small, tmp_path):
    data = json.loads((small / "train.json").read_text(encoding="utf-8"))
    for entry in data:
        for turn in entry["conversation"]:
            turn["P-K"] = []
    (tmp_path / "train.json").write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    with pytest.raises(InputError, match="no response stands on a persona sentence or document"):
        train_nli(read_examples("kbp", tmp_path / "train.json"), lambda *_: None)
