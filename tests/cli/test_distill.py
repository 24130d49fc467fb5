"""`dialore train decision`."""

from __future__ import annotations

import json

import pytest

from tests.training.test_decision import pairs, write

pytest.importorskip("sklearn")


def test_the_command_trains_and_refuses_leaks(tmp_path, call):
    write(tmp_path / "train.json", pairs(20, 1))
    done = call("train", "decision", "wizard-of-internet", "--data", str(tmp_path), "--out", "model", "--json")
    assert json.loads(done.out)["kind"] == "decision"
    assert "A linear model" in call("models", "show", "model").out
    write(tmp_path / "dev.json", pairs(20, 1))
    again = call("train", "decision", "wizard-of-internet", "--data", str(tmp_path), "--out", "model")
    assert "is in the training file, too" in again.complaint
