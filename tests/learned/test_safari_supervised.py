"""SAFARI's supervised files, end to end: their own commands train tiny models, which then plan and respond."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from dialore.experiments.config import missing_inputs, read_config
from tests.learned.conftest import entries
from tests.llm.tiny_causal import make_tiny_causal
from tests.test_examples import command

for needed in (
    "torch",
    "transformers",
    "accelerate",
    "peft",
    "sentence_transformers",
    "onnx",
    "onnxruntime",
    "sacrebleu",
):
    pytest.importorskip(needed, reason=f"{needed} is not installed: pip install 'dialore[finetune,evaluation]'")

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = ("table-4-supervised", "table-6-supervised", "table-7", "table-8")
QUICK = "--set epochs=1 --set length=256"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with data, examples, and what stands for the bases that they name."""
    import torch
    from transformers import AutoTokenizer, GPTNeoXConfig, GPTNeoXForCausalLM

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("supervised")
    (folder / "data" / "kbp").mkdir(parents=True)
    for split, count, seed in (("train", 24, 1), ("dev", 12, 2), ("test", 2, 3)):
        text = json.dumps(entries(count, seed), ensure_ascii=False)
        (folder / "data" / "kbp" / f"{split}.json").write_text(text, encoding="utf-8")
    shutil.copytree(EXAMPLES / "safari", folder / "examples" / "safari")
    for kind in ("llama", "gpt_neox"):
        make_tiny_causal(folder / kind, positions=1024)
    # Of the modules that ChatGLM has, too: query_key_value.
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    words = len(AutoTokenizer.from_pretrained(folder / "gpt_neox"))
    config = GPTNeoXConfig(vocab_size=words, bos_token_id=0, eos_token_id=0, max_position_embeddings=1024, **size)
    GPTNeoXForCausalLM(config).save_pretrained(folder / "gpt_neox")
    return folder


def trained(commands):
    """Yield the commands that train, with bases and settings for a test."""
    bases = {"bigscience/bloom-560m": "gpt_neox", "Qwen/Qwen3-0.6B": "llama"}
    bases["google-bert/bert-base-chinese"] = "scratch"
    for one in commands:
        if not one.startswith("dialore train "):
            continue
        base = re.search(r"--base (\S+)", one)[1]
        yield f"{one.replace(base, bases.get(base, 'scratch'))} {QUICK}"


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`")
@pytest.mark.parametrize("name", FILES)
def test_a_supervised_file_trains_runs_and_is_scored(name, world, monkeypatch):
    monkeypatch.chdir(world)
    path = Path("examples/safari") / f"{name}.yaml"
    config = read_config(path)
    missing = [said for said in missing_inputs(config) if said.startswith("models/")]
    folders = {said.partition(": ")[0] for said in missing}
    made = [one for one in trained(config.data.commands) if not folders.isdisjoint(one.split())]
    assert len(made) == len(missing)  # each is missing with the command that makes it
    for one in made:
        command(one)
    said = json.loads(command(f"dialore run {path} --json"))
    assert (said["failed"], said["missing"]) == (0, 0)
    systems = json.loads(command(f"dialore score runs/{config.name} --json"))
    assert len(systems) == len(config.systems) * len(config.models)
    for system in systems:
        for metric in ("bleu-1", "rouge-l", "planning-accuracy"):
            assert metric not in config.metrics or system["scores"][metric]["value"] is not None
