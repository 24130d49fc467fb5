"""Bad input for every command that trains: one line that says what is wrong, and nothing half-written."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from tests.learned.conftest import entries, small  # noqa: F401

pytest.importorskip("lightgbm")

LIGHT = {"planner": ("planner", "kbp"), "ranker": ("retriever", "kbp")}
"""What is typed after `dialore train`, of recipes that learn from a data set with plans without torch."""
DUAL = ("--set", "kind=dual")
EVERY = {**LIGHT, "generator": ("generator", "kbp", "--base", "scratch")}


@pytest.fixture(params=EVERY)
def train(request, call, tmp_path):
    """Train on data made by `change` from good data; returns what the command said, and whether it left anything."""

    def run(change):
        data, out = tmp_path / "data", tmp_path / "out" / "model"
        data.mkdir()
        change(data)
        done = call("train", *EVERY[request.param], "--data", str(data), "--out", str(out))
        return done, sorted(path.name for path in tmp_path.glob("out/*"))

    return run


def write(folder, split, talks):
    (folder / f"{split}.json").write_text(json.dumps(talks, ensure_ascii=False), encoding="utf-8")


def test_a_missing_field_is_named(train):
    def change(data):
        talks = entries(20, 1)
        del talks[3]["persona_kg"]
        write(data, "train", talks)
        write(data, "dev", entries(12, 2))

    done, left = train(change)
    assert re.search(r"train\.json, line 1, entry 4: field persona_kg", done.complaint)
    assert not left


@pytest.mark.parametrize("train", LIGHT, indirect=True)
def test_one_class_only(train):
    done, left = train(lambda data: write(data, "train", entries(20, 1, plans=(0,))))
    assert "nothing to learn" in done.complaint
    assert not left


def test_a_dialogue_of_dev_in_train_is_refused(train):
    def change(data):
        talks, held = entries(20, 1), entries(3, 2)
        write(data, "train", [*talks, held[2]])
        write(data, "dev", held)

    done, left = train(change)
    assert " of the held-out file is in the training file, too" in done.complaint
    assert not left


def stopped_by(error, monkeypatch):
    def grow(*_, **__):
        raise error

    monkeypatch.setattr("dialore.learned.pieces.grow", grow)


@pytest.mark.parametrize("train", LIGHT, indirect=True)
def test_an_interrupted_run_leaves_the_model_before_it(train, small, tmp_path, monkeypatch):  # noqa: F811
    before = tmp_path / "out" / "model"
    before.mkdir(parents=True)
    (before / "model.json").write_text("{}", encoding="utf-8")
    stopped_by(KeyboardInterrupt(), monkeypatch)
    done, left = train(lambda data: shutil.copy(small / "train.json", data))
    assert done.code == 130
    assert left == ["model"]
    assert [path.name for path in before.iterdir()] == ["model.json"]


@pytest.mark.parametrize("train", LIGHT, indirect=True)
def test_not_enough_memory_says_what_to_lower(train, small, monkeypatch):  # noqa: F811
    stopped_by(MemoryError(), monkeypatch)
    done, left = train(lambda data: shutil.copy(small / "train.json", data))
    assert "not enough memory to train on 300 responses (give fewer dialogues)" in done.complaint
    assert not left


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (["retriever", "kbp", "--set", "epochs=2"], "trees are not fine-tuned"),
        (["nli", "kbp", "--set", "lora=true"], "trees are not fine-tuned"),
        (["retriever", "kbp", *DUAL, "--set", "lora=true", "--base", "scratch"], "LoRA is for language models"),
        (["generator", "kbp", "--set", "precision=fp8", "--base", "scratch"], "precision"),
        (["generator", "kbp"], "--base"),
        (["retriever", "kbp", *DUAL], "--base"),
        (["planner", "kbp", "--set", "label=shift"], "label"),
        (["planner", "kbp", "--base", "scratch"], "trees are not fine-tuned"),
    ],
)
def test_options_that_say_nothing_are_refused(call, small, tmp_path, said, complaint):  # noqa: F811
    done = call("train", *said, "--data", str(small), "--out", str(tmp_path / "model"))
    assert done.code == 2
    assert complaint in done.complaint
    assert not (tmp_path / "model").exists()
