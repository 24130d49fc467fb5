"""The pages of docs/: made pages are what the code says, links lead somewhere, and every command shown is run."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from benchmarks.endpoint import endpoint

from dialore.cli import main
from dialore.experiments.config import make_config, read_config
from dialore.methods.registry import describe_method, method_class
from dialore.prompts.library import PromptLibrary
from dialore.settings import read_settings
from tests.example_data import write_data
from tests.test_notebooks import NOTEBOOKS, run_cells

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "make_docs.py"))
MADE = SCRIPT["PAGES"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    return [block for found, block in BLOCK.findall((DOCS / page).read_text("utf-8")) if found == language]


@pytest.mark.parametrize("page", sorted(MADE))
def test_a_made_page_is_what_the_code_says(page):
    assert (DOCS / page).read_text("utf-8") == MADE[page](), "run python scripts/make_docs.py"


@pytest.mark.parametrize("name", sorted(SCRIPT["figures"]()))
def test_a_figure_is_what_the_code_says(name):
    assert (DOCS / "figures" / name).read_text("utf-8") == SCRIPT["figures"]()[name], "run python scripts/make_docs.py"


def test_public_signatures_are_those_that_are_kept():
    """A change of them is a change for users: `python scripts/make_docs.py` keeps it, CHANGELOG.md tells it."""
    assert SCRIPT["SIGNATURES"].read_text("utf-8") == SCRIPT["signatures"]()


@pytest.mark.parametrize("name", json.loads((DOCS / "figures" / "steps.json").read_text("utf-8")))
def test_the_steps_of_a_method_are_those_that_it_says(name):
    """The drawings' steps come from runs of the demo: they have the stages of the class, and as many steps."""
    rows = json.loads((DOCS / "figures" / "steps.json").read_text("utf-8"))[name]
    method = describe_method(method_class(name), PromptLibrary())
    drawn = {label.split(" ×")[0] for caption, boxes in rows for label, kind in boxes if kind == "model"}
    stages = {stage["name"] for stage in method["stages"]}
    assert all(any(label.startswith(stage) for stage in stages) for label in drawn), drawn - stages
    assert len(drawn) >= len(stages) - 1  # a check that is an option, or one of several ways
    said = re.search(r"(\d+) (?:in a row|steps)", method["calls"]) or re.match(r"(\d+)", method["calls"])
    assert sum(caption.startswith("step") for caption, _ in rows) == int(said[1])


def test_every_page_has_its_place_in_the_site():
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    assert set(re.findall(r"[\w-]+\.md", nav)) == {path.name for path in DOCS.glob("*.md")}


def test_what_fidelity_names_exists_and_every_file_stands_in_it():
    folders = {path.parent.name for path in (ROOT / "examples").glob("*/*.yaml")}
    assert set(SCRIPT["NUMBERED"]) == folders - {"injections", "real", "simulate"}
    for path in (ROOT / "examples").glob("*.yaml"):  # what lies apart from the papers must say that it repeats none
        assert "repeats no paper" in " ".join(read_config(path).about.split())
    assert SCRIPT["fidelity_problems"]((DOCS / "fidelity.md").read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("said", "instead", "problem"),
    [
        ("plan_topics`", "plan_topic`", "there is no methods/dcrag.py: plan_topic"),
        ("`top: 50`", "`tops: 50`", "there is no tops: 50"),
        ("`on_invalid_plan: repair`", "`on_invalid_plan: no`", "there is no on_invalid_plan: no"),
        ("`bleu-2`", "`bleu-9`", "there is no bleu-9"),
        ("criteria `scg-qp-errors`", "criteria `scg-qp-error`", "there is no scg-qp-error"),
        ("`prompts/edit/model-answer.paper`", "`prompts/edit/answer.paper`", "there is no prompts/edit/answer.paper"),
        ("score --set nli`", "score --set nl`", "there is no dialore score --set nl"),
        ("`edit-questions`; `bleu", "`edit-question`; `bleu", "there is no edit-question"),
        ("](../examples/edit/table-4.yaml)", "]", "edit: table-4 is a file in one place only"),
        ("| Table 8: one", "| one", "safari: Table 8 is not told"),
        ("| **Differs**: which checkpoint", "| which checkpoint", "it does not say how far it is as published"),
        (
            "**Cannot be had here**: not served any more |",
            "**Cannot be had here** |",
            "or why not",
        ),
    ],
)
def test_what_is_wrong_with_fidelity_is_said(said, instead, problem):
    page = (DOCS / "fidelity.md").read_text("utf-8")
    assert said in page
    found = SCRIPT["fidelity_problems"](page.replace(said, instead))
    assert any(problem in each for each in found), found


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", (DOCS / page).read_text("utf-8")):
        assert (DOCS / target).exists(), target


@pytest.fixture(scope="module")
def url():
    with endpoint() as base_url:
        yield base_url


@pytest.fixture
def world(tmp_path, monkeypatch, url, new_cache):
    """A folder with everything that the commands name, and an endpoint in the environment."""
    pytest.importorskip("sacrebleu", reason="the evaluation extra is not installed")
    data = write_data(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copy(data / "conceptnet-assertions-5.7.0.csv.gz", tmp_path / "assertions.csv.gz")
    shutil.copy(data / "wizard_of_wikipedia" / "train.json", tmp_path / "wow.json")
    turns = ["Good morning!", "I drink tea in the morning, but my friends want coffee."]
    (tmp_path / "dialogues.jsonl").write_text(json.dumps({"id": "1", "turns": turns}) + "\n", "utf-8")
    (tmp_path / "handbook.md").write_text("# Coffee\n\nTake 60 grams of coffee for a litre. Tea wants less.\n", "utf-8")
    (tmp_path / "news.txt").write_text("The coffee machine has moved to the kitchen.\n", "utf-8")
    for name in ("bart", "out"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"id": "1", "text": f"I am {name}."}) + "\n", "utf-8")
    persona, wiki, _, declared = blocks("sources.md", "yaml")
    (tmp_path / "wiki.yaml").write_text(wiki, "utf-8")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # where `dialore` is
    (tmp_path / "persona.yaml").write_text(persona, "utf-8")
    (tmp_path / "sources.yaml").write_text(declared, "utf-8")
    (tmp_path / "memory.jsonl").write_text(blocks("sources.md", "json")[0], "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIALORE_CACHE", new_cache())
    monkeypatch.setenv("DIALORE_BASE_URL", url)
    monkeypatch.setenv("DIALORE_MODEL", "wait-0")
    return tmp_path


def test_every_snippet_of_python_runs_in_the_order_shown(world):
    tracker = "import sys\nfrom unittest.mock import MagicMock\nsys.modules['mlflow'] = MagicMock()"
    shown = run_cells([tracker, *blocks("python.md", "python"), "print(mlflow.log_metrics.mock_calls)"], world)
    assert "wilcoxon" in shown
    assert "step=8" in shown
    assert "distinct-2.dcrag" in shown
    listed = set(re.findall(r"notebooks/(\w+)\.ipynb", (DOCS / "python.md").read_text("utf-8")))
    assert listed == {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("page", ["experiments.md", "sources.md", "handbook.md", "real.md"])
def test_every_command_works_in_the_order_shown(page, world, capsys):
    if page == "experiments.md":
        run("dialore graph build data/conceptnet-assertions-5.7.0.csv.gz --language en --out data/conceptnet.en.graph")
    shown = [line.split("  #")[0] for block in blocks(page, "") for line in block.splitlines()]
    assert len(shown) >= 4
    for command in shown:
        if " mcp:" in command and find_spec("mcp") is None:
            continue
        assert not run(command), (command, capsys.readouterr().err)


def test_the_server_that_is_shown_is_asked(world):
    pytest.importorskip("mcp.client.client", reason="the MCP SDK is not here: pip install 'dialore[mcp]'")
    assert not run("dialore documents build handbook handbook.md")
    assert not run("dialore ground dialogues.jsonl --method rag --documents mcp:wiki.yaml --out found.jsonl")
    (found,) = json.loads((world / "found.jsonl").read_text("utf-8"))["knowledge"]
    assert (found["source"], found["index"], found["title"]) == ("documents", "wiki", "Coffee")
    assert "60 grams" in found["text"]


def run(command):
    with pytest.raises(SystemExit) as left:
        main(shlex.split(command)[1:])
    return left.value.code


def test_the_settings_file_that_is_shown_is_one(tmp_path):
    (shown,) = blocks("sources.md", "toml")
    (tmp_path / "dialore.toml").write_text(shown, "utf-8")
    settings = read_settings(tmp_path / "dialore.toml")
    assert (settings.model.model, settings.sources.places("documents")) == ("llama3.1", ["handbook"])


def test_the_experiment_file_that_is_shown_is_one():
    (shown,) = blocks("experiments.md", "yaml")
    config = make_config(yaml.safe_load(shown))
    assert [system.title for system in config.systems] == ["vanilla", "-w/o CR", "by Cosmo"]


def test_every_example_is_listed():
    listed = set(re.findall(r"\]\(\.\./(examples/[^)]+)\)", (DOCS / "experiments.md").read_text("utf-8")))
    assert listed == {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.yaml")}
