"""`dialore train ... --as NAME`: the papers' settings, by what they print and what their releases set."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from dialore.cli.training import Request, TrainSettings
from dialore.errors import InputError
from dialore.experiments.config import read_config
from dialore.training.presets import PRESETS
from tests.test_train_commands import parse  # noqa: F401

ROOT = Path(__file__).parents[2]


def tuning(command, name, **given):
    settings = TrainSettings(**given)
    request = Request(command, "kbp", Path("data"), Path("out"), None, name, None, settings, json=False)
    return request.tuning(epochs=5, batch=32, length=96)


def test_safari_s_settings():
    """Section 5.1: batch size 8, 3 epochs; the release's lora/train.py, lora/train_belle.py and lora_llama.json."""
    chatglm, belle = (tuning("generator", f"safari-{name}") for name in ("chatglm", "belle"))
    for one in (chatglm, belle):
        assert (one.epochs, one.batch * one.accumulation, one.length, one.lora) == (3, 8, 512, True)
        assert (one.schedule, one.warmup, one.decay, one.alpha) == ("cosine", 1000, 0.1, 32)
    assert (chatglm.rate, chatglm.rank, chatglm.dropout, chatglm.modules) == (5e-4, 8, 0.1, ("query_key_value",))
    assert (belle.rate, belle.rank, belle.dropout, len(belle.modules)) == (8e-6, 16, 0.05, 7)


@pytest.mark.parametrize("name", ["dpr", "rocketqa"])
def test_safari_s_retrievers(name):
    """Appendix C: 5 epochs, 512 tokens; both are dual encoders of (context, piece)."""
    one = tuning("retriever", name)
    assert (one.epochs, one.length) == (5, 512)
    assert (PRESETS[name].whole, PRESETS[name].dot) == (True, True)
    assert PRESETS["dpr"].base.endswith("bert-base-chinese")


def test_what_is_given_wins_and_a_preset_is_of_its_command():
    assert tuning("generator", "safari-belle", rate=1e-3, epochs=1.0).rate == 1e-3
    assert tuning("retriever", None).length == 96
    assert dataclasses.replace(tuning("generator", None), epochs=3, batch=8, length=512).rank == 8
    with pytest.raises(InputError, match=r"preset.*dpr"):
        tuning("generator", "dpr")


def test_lora_of_modules_that_the_model_lacks_is_refused(tmp_path):
    pytest.importorskip("peft", reason="the finetune extra is not installed")
    from dialore.training.finetune import finetune
    from dialore.training.trainer import Job
    from tests.learned.test_finetune import CARD, DEV, TRAIN
    from tests.llm.tiny_causal import make_tiny_causal

    make_tiny_causal(tmp_path / "base")
    chatglm = tuning("generator", "safari-chatglm")
    with pytest.raises(InputError, match="no query_key_value for LoRA to adapt"):
        finetune("causal", Job(str(tmp_path / "base"), tmp_path / "out", chatglm), TRAIN, DEV, CARD)


def training_table():
    """The rows of "Everything that trains in the papers" of docs/learn.md, by column."""
    page = (ROOT / "docs" / "learn.md").read_text("utf-8")
    section = page.split("## Everything that trains in the papers\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(head, row, strict=True)) for row in rows]


def figures(cell):
    """The numbers of a cell, those of a product among them."""
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", cell)]


def test_the_table_of_all_that_trains_has_the_presets_settings(parse):  # noqa: F811
    rows = training_table()
    assert {row["preset"].strip("`") for row in rows} == {*PRESETS, "-"}
    for row in rows:
        (file,) = re.findall(r"\(\.\./(examples/[\w/-]+\.yaml)\)", row["file"])
        if row["preset"] == "-":
            continue
        name = row["preset"].strip("`")
        preset = PRESETS[name]
        data = "rows.jsonl" if preset.command == "stages" else "kbp --data data"
        _, _, one = parse(f"dialore train {preset.command} {data} --as {name} --out models/x")
        assert row["base"].split(",")[0] == preset.base
        assert row["base"].endswith("LoRA") == one.lora
        assert figures(row["epochs"]) == [one.epochs]
        assert figures(row["rate"]) == [one.rate]
        assert figures(row["length"]) == [one.length]
        assert figures(row["batch"])[0] == one.batch * one.accumulation
        assert figures(row["batch"])[1:] in ([], [one.batch, one.accumulation])
        assert ("dot product" in row["loss"]) == preset.dot
        commands = read_config(ROOT / file).data.commands
        training = [each for each in commands if each.startswith(f"dialore train {preset.command} ")]
        assert any(f" --as {name} " in each for each in training), (name, file)


def test_the_page_of_learning_has_the_table_of_its_template():
    template = (ROOT / "scripts" / "learn_page.md").read_text("utf-8")
    page = (ROOT / "docs" / "learn.md").read_text("utf-8")
    start = "## Everything that trains in the papers"
    assert template.split(start)[1] == page.split(start)[1]
