"""`dialore train` and `dialore models`."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.learned.conftest import small  # noqa: F401

pytest.importorskip("lightgbm")


PAGE = Path(__file__).parents[2] / "docs" / "learn.md"


def test_every_command_of_the_page_works_in_the_order_shown(call, small, tmp_path):  # noqa: F811
    shutil.copytree(small, tmp_path / "data" / "kbp")
    (block,) = re.findall(r"^```\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    done = [call(*shlex.split(line)[1:]) for line in block.splitlines()]
    assert [each.code for each in done] == [0, 0, 0, 0], [each.err for each in done]
    assert "F1 of NULL" in done[0].out
    assert "both: persona" in done[1].out
    assert "ranker" in done[2].out
    assert done[3].out.startswith("# A trained planner of Dialore")
    listed = json.loads(call("models", "models", "--json").out)
    assert [(one["path"], one["kind"]) for one in listed] == [
        ("models/planner", "planner"),
        ("models/ranker", "ranker"),
    ]
    assert json.loads(call("models", "models/ranker", "--json").out)["measured"]["persona"]["mean"] > 90


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("models", "nowhere"), "there is no folder nowhere"),
        (("train", "planner", "kbp", "--data", "nowhere", "--out", "model"), "nowhere has no train.json"),
        (("train", "retriever", "kbp", "--data", ".", "--out", "m", "--set", "kind=tree"), "did you mean trees?"),
    ],
)
def test_mistakes_are_one_line(call, arguments, message):
    assert message in call(*arguments).complaint
