"""`dialore train` and `dialore models`."""

from __future__ import annotations

import json

import pytest

from tests.training.conftest import small  # noqa: F401

pytest.importorskip("lightgbm")


def test_a_ranker_is_trained_listed_and_shown(call, small, tmp_path):  # noqa: F811
    out = tmp_path / "models" / "ranker"
    done = call("train", "retriever", "kbp", "--data", str(small), "--out", str(out), "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["measured"]["persona"]["mean"] > 90
    listed = call("models", "list", str(out.parent), "--json")
    assert [(one["path"], one["kind"]) for one in json.loads(listed.out)] == [(str(out), "ranker")]
    assert "ranker" in call("models", "list", str(out.parent)).out
    assert call("models", "show", str(out)).out.startswith("# A trained ranker of Dialore")
    assert json.loads(call("models", "show", str(out), "--json").out)["seed"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("models", "list", "nowhere"), "there is no folder nowhere"),
        (("models", "show", "nowhere"), "nowhere holds no trained model"),
        (("train", "planner", "kbp", "--data", "nowhere", "--out", "model"), "nowhere has no train.json"),
        (("train", "retriever", "kbp", "--data", ".", "--out", "m", "--kind", "rankr"), "did you mean ranker?"),
    ],
)
def test_mistakes_are_one_line(call, arguments, message):
    assert message in call(*arguments).complaint
