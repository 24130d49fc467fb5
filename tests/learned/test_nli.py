"""The consistency model: its pairs are the paper's, it tells them apart, and it serves P.C, K.C and weave's check."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from dialore.errors import InputError
from dialore.evaluation.registry import Context, load_metric
from dialore.learned import TrainedEntailment, describe
from dialore.methods.weave import Weave

pytest.importorskip("lightgbm")

from dialore.learned import read_examples, save_trained, train_nli
from dialore.learned.entailment import PROTOCOLS, _swap_detail, make_pairs, protocols
from tests.methods.test_weave import ASKED, Model, answer, stage_of


@pytest.fixture(scope="module")
def examples(small):
    return read_examples("kbp", small / "train.json")


def test_every_gold_piece_is_a_positive_and_negatives_are_of_each_kind(examples):
    pairs = make_pairs(examples)
    assert int(pairs.labels.sum()) == sum(map(len, examples.gold))
    for (piece, response), label, at, protocol, kind in zip(
        pairs.texts, pairs.labels, pairs.of, pairs.protocol, pairs.kinds, strict=True
    ):
        one = examples.dialogues[at]
        assert response == one.reference
        assert (piece in examples.gold[at]) == bool(label)
        if protocol == PROTOCOLS.index("same persona"):
            assert (piece in one.persona, kind) == (True, "persona")
        if protocol == PROTOCOLS.index("other document"):
            assert any(piece in under for under in one.extra["documents"].values())
    # As many random negatives as positives: the paper's protocol.
    assert int((pairs.protocol == 0).sum()) == int(pairs.labels.sum())


def test_the_paper_s_negatives_are_random_ones_alone(examples):
    """SAFARI, Appendix C: (ground, response) against "randomly sampled (unrelated, response)", one each."""
    pairs = make_pairs(examples, hard=False)
    assert {*pairs.protocol.tolist()} == {-1, 0}
    assert (pairs.labels == 1).sum() == (pairs.labels == 0).sum()
    for (text, _), label, at in zip(pairs.texts, pairs.labels, pairs.of, strict=True):
        assert (text in examples.gold[at]) == bool(label)


@pytest.mark.parametrize(
    ("text", "response", "expected"),
    [
        ("壮族是55个民族中人口最多的民族", "我们是55个少数民族中人口最多的", "number"),
        ("西安的小吃是肉夹馍", "是肉夹馍", "西安的小吃是凉皮"),
        ("西安的小吃是肉夹馍", "是好吃的", ""),  # the response says nothing that could be exchanged
    ],
)
def test_a_number_or_a_name_that_the_response_has_is_exchanged(text, response, expected):
    swapped = _swap_detail(text, response, {"小吃": ["肉夹馍", "凉皮"]}, np.random.default_rng(0))
    if expected == "number":
        assert swapped != text
        assert len(swapped) == len(text)
        assert "55" not in swapped
    else:
        assert swapped == expected


def test_it_tells_pairs_of_dialogues_apart_that_it_has_not_seen(small, trained):
    model = TrainedEntailment(trained / "nli")
    pairs = make_pairs(read_examples("kbp", small / "dev.json"))
    right = np.array(model.entails(pairs.texts)) == pairs.labels
    assert right.mean() > 0.9
    assert set(protocols(pairs)) <= set(describe(trained / "nli")["measured"])
    assert model.entails([]) == []


def test_the_same_seed_gives_the_same_files(examples, trained, tmp_path):
    save_trained(tmp_path / "again", examples, *train_nli(examples, lambda *_: None))
    for name in ("weights.npz", "model.json", "README.md"):
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


def test_it_is_used_with_numpy_alone(trained):
    code = (
        "import sys\nfrom pathlib import Path\nfrom dialore.learned import TrainedEntailment\n"
        f"TrainedEntailment(Path({str(trained / 'nli')!r})).entails([('a', 'b')])\n"
        "assert not {'sklearn', 'lightgbm', 'scipy', 'torch'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_without_any_piece_is_refused(small, tmp_path):
    data = json.loads((small / "train.json").read_text(encoding="utf-8"))
    for entry in data:
        for turn in entry["conversation"]:
            turn["P-K"] = []
    (tmp_path / "train.json").write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    with pytest.raises(InputError, match="no response stands on a persona sentence or document"):
        train_nli(read_examples("kbp", tmp_path / "train.json"), lambda *_: None)
