"""What an experiment file wants that is not here, all of it at once."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from dialore.cli import main
from dialore.datasets.published import published_sets
from dialore.errors import install
from dialore.experiments.config import missing_inputs, read_config
from tests.example_data import write_data

EXAMPLES = Path(__file__).parents[2] / "examples"
OURS = [*(EXAMPLES / "scg-qp").glob("*.yaml"), *(EXAMPLES / "edit").glob("*.yaml")]


def said(path, monkeypatch, *, extras=True, **changes):
    monkeypatch.setattr("dialore.experiments.config.find_spec", lambda name: object() if extras else None)
    return missing_inputs(read_config(path, changes))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_missing_file_is_named_with_what_makes_it(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    missing = said(path, monkeypatch)
    config = read_config(path)
    if config.dataset.path.is_file():  # that of the package
        missing = ["", *missing]
    else:
        assert missing[0].startswith(f"{config.dataset.path}: ")
    if config.dataset.path.stem in published_sets().get(config.dataset.name, {"splits": ()})["splits"]:
        get = (
            f"dialore data get {config.dataset.name} --split {config.dataset.path.stem} --out {config.dataset.path}  # "
        )
        assert get in missing[0]
    places = [place for kind in ("graph", "documents", "samples") for place in config.sources.places(kind)]
    places = [place for place in places if place != "pool:"]  # passages of the dialogues themselves, no file
    # Models are named as the run's, for stages, and in options.
    entries = re.sub(r"^ *#.*$", "", path.read_text("utf-8").partition("\ndataset:")[2], flags=re.MULTILINE)
    trained = set(re.findall(r"(?:hf|trained):(models/[\w-]+)", entries))
    ways = dict(line.split(": ", 1) for line in missing[1:])
    assert len(ways) == len(missing) - 1
    named = list(ways)
    assert named[: len(places)] == places
    assert trained <= set(named)
    outputs = [*places, *trained]
    assert all(ways[name].startswith("dialore ") and name in ways[name] for name in outputs)
    # The others are inputs of the commands that are listed.
    for name in set(named) - set(outputs):
        assert ways[name]
        assert any(f" {name} " in f"{way} " for other, way in ways.items() if other != name)


def test_what_the_command_line_says_counts_and_what_is_there_is_not_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = EXAMPLES / "scg-qp" / "table-1.yaml"
    assert any("data/woi.index: dialore documents build" in line for line in said(path, monkeypatch, **SEARCH))
    write_data(tmp_path)
    assert len(said(path, monkeypatch, **SEARCH)) == 1
    shutil.copy(tmp_path / "data" / "coq" / "test.jsonl", tmp_path / "data" / "woi.index")
    assert not said(path, monkeypatch, **SEARCH)


SEARCH = {"sources.search": "corpus:data/woi.index"}


@pytest.mark.parametrize("path", OURS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_extras_are_named_too_but_for_models_that_are_rehearsed(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    missing = said(path, monkeypatch, extras=False)
    text = path.read_text("utf-8")
    wanted = [name for name in ("hf:google/flan-t5-large", "hf:allenai/cosmo-xl") if f'"{name}"' in text]
    assert all(f"{name}: {install('local')}" in missing for name in wanted)
    reranker = f"cross:cross-encoder/ms-marco-MiniLM-L-6-v2: {install('sentence-transformers')}"
    assert any(line.startswith(f"{reranker}, or leave it: -o reranker=fused") for line in missing) == ("cross:" in text)
    rehearsed = said(path, monkeypatch, extras=False, **{"model.model": "rehearsal"})
    assert not any("hf:" in line for line in rehearsed)


def test_the_command_lists_them_a_line_each_and_leaves(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["run", str(EXAMPLES / "edit" / "table-2-wow.yaml"), "--model", "rehearsal"])
    assert left.value.code == 2
    *missing, error = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[2] for line in missing] == [
        "data/wizard_of_wikipedia/test_random_split.json",
        "data/wow.base",
        "data/wizard_of_wikipedia/train.json",
    ]
    assert "missing inputs: 3" in error
    assert not (tmp_path / "runs").exists()


def test_systems_and_models_may_be_named_alone(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("dataset: {name: everyday}\nsystems: [vanilla]\nmodels: [rehearsal]\n", "utf-8")
    config = read_config(path)
    assert (config.systems[0].method, config.models[0].model) == ("vanilla", "rehearsal")
