"""Every `dialore train` command that examples and pages print is run to its end, as printed, on tiny bases.

The data is a few dialogues of our own. What is not trained is answered by an endpoint that fits each stage's schema.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from benchmarks.endpoint import endpoint

from dialore.experiments.config import read_config
from dialore.experiments.store import Job, RunStore
from dialore.llm.distilled import write_lines
from dialore.trained import open_trained, read_card
from dialore.training.presets import PRESETS
from tests.example_data import _internet, _lines, write_data
from tests.learned.conftest import entries
from tests.learned.test_decision import pairs
from tests.learned.test_stages import dcrag_rows
from tests.test_examples import command
from tests.test_train_commands import COMPLETE, EXAMPLES, ROOT
from tests.tiny_bases import write_tiny_bases

NEEDED = (
    "torch",
    "transformers",
    "accelerate",
    "peft",
    "sentence_transformers",
    "onnx",
    "onnxruntime",
    "lightgbm",
    "sacrebleu",
)
for needed in NEEDED:
    pytest.importorskip(needed, reason=f"{needed} is not installed: pip install 'dialore[finetune,learn,evaluation]'")

pytestmark = pytest.mark.filterwarnings("ignore")
FILES = [path for path in EXAMPLES if any(shown.path == path for shown in COMPLETE)]
PAGES = [shown for shown in COMPLETE if shown.path not in FILES]
LIMIT = "--limit 2"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with data, examples and bases, and the commands that were run in it so far."""
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("trained")
    data = write_data(folder)
    for split, count, seed in (("train", 10, 1), ("dev", 10, 2), ("test", 1, 3)):
        _write(data / "kbp" / f"{split}.json", entries(count, seed))
    # One dialogue in ten of those that are distilled is held out.
    things = {f"thing {number}": (f"thing {number}", f"It has {number} parts.", "I see.") for number in range(20)}
    (data / "wizard_of_internet" / "train.jsonl").write_text(_lines(_internet(things)), "utf-8")
    (data / "woi").mkdir()
    _write(data / "woi" / "train.json", pairs(12, 1))
    _write(data / "woi" / "dev.json", pairs(4, 2))
    write_lines(folder / "rows.jsonl", [row.model_dump() for row in dcrag_rows()])
    (folder / "shared").mkdir()
    (folder / "shared" / "data").symlink_to(data)
    shutil.copytree(ROOT / "examples", folder / "examples")
    write_tiny_bases(folder)
    return folder, set()


@pytest.fixture(autouse=True)
def _model(world, monkeypatch, url, tmp_path_factory):
    monkeypatch.chdir(world[0])
    monkeypatch.setenv("DIALORE_BASE_URL", url)
    monkeypatch.setenv("DIALORE_MODEL", "wait-0")
    monkeypatch.setenv("DIALORE_CACHE", str(tmp_path_factory.getbasetemp() / "trained-cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def url():
    with endpoint() as base_url:
        yield base_url


def _write(path, content):
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")


def run_once(text, done):
    """Run a command unless it was run before; what was trained is checked."""
    if text in done:
        return
    command(text)
    done.add(text)
    if text.startswith("dialore train "):
        check_card(text)


def check_card(text):
    """Check that the folder of a training command is written, and that its card names what it was made of."""
    options = dict(re.findall(r"--(base|as|out|data) (\S+)", text))
    card = read_card(Path(options["out"]))
    recipe, source = text.split()[2:4]
    if "base" in options:
        assert card["settings"]["base"] == options["base"]
        assert card["settings"]["preset"] == options.get("as", "")
        assert card["loss"]["epochs"] >= 1
    for name, value in PRESETS[options["as"]].tuning.items() if "as" in options else ():
        assert card["settings"][name] in (value, list(value) if isinstance(value, tuple) else value), name
    # Rows are named by the model that answered them.
    assert card["data"]["dataset"] == ("wait-0" if recipe == "stages" else source)
    assert card["use"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_with_trained_rows_runs_by_its_own_commands(path, world):
    _, done = world
    config = read_config(path)
    for text in config.data.commands:
        run_once(text, done)
    printed = re.findall(r"^#   (dialore (?:run|score) .*)$", path.read_text("utf-8"), re.MULTILINE)
    run = next(text for text in printed if text.startswith("dialore run "))
    result = json.loads(command(f"{run} {LIMIT} --json"))
    assert (result["failed"], result["missing"]) == (0, 0)
