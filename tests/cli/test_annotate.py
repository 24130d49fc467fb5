"""`dialore annotate` with XLSX: sheets out, filled in, in again, agreement; and what is said where openpyxl is not."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys

import pytest

from dialore.evaluation.base import SampleScore
from dialore.experiments.config import make_config
from dialore.experiments.run import run_experiment
from dialore.experiments.store import Job, RunStore
from dialore.session import open_model
from tests.experiments.conftest import write_dialogues

pytest.importorskip("scipy", reason="the evaluation extra is not installed")


@pytest.fixture
def run(tmp_path):
    """A run of two systems over six dialogues by the no model."""
    data = write_dialogues(tmp_path / "dialogues.jsonl", 6)
    given = {"name": "small", "dataset": {"name": "jsonl", "path": str(data)}, "systems": ["vanilla", "dcrag"]}
    config = make_config(given | {"models": [{"model": "lexical"}]})
    assert asyncio.run(run_experiment(config, tmp_path / "run", open_model)).ok == 12
    with RunStore.open(tmp_path / "run") as store:  # without a model all methods say the same
        for job in store.jobs():
            response = store.response(job)
            store.add(job, response.model_copy(update={"text": f"{response.text} {job.system}"}))
    return tmp_path / "run"


def test_xlsx_out_and_in_and_agreement(call, run, tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="the evaluation extra is not installed")
    done = call("annotate", "export", run, "--out", tmp_path / "sheets", "--annotators", 2)
    assert done.code == 0, done.err
    assert "no XLSX" not in done.err
    key = json.loads((tmp_path / "sheets.key.json").read_text("utf-8"))
    sheets = sorted((tmp_path / "sheets").glob("*.xlsx"))
    assert [path.name for path in sheets] == ["annotator-1.xlsx", "annotator-2.xlsx"]
    for path in sheets:
        book = openpyxl.load_workbook(path)
        for row in book["answers"].iter_rows(min_row=2):
            side = "AB"[key["items"][row[0].value]["systems"].index("dcrag")]
            for cell in row[4:-1]:
                cell.value = side
        book.save(path)
    out = tmp_path / "annotations.jsonl"
    done = call("annotate", "import", *sheets, "--key", tmp_path / "sheets.key.json", "--out", out, "--json")
    assert (done.lines[0]["annotations"], done.lines[0]["empty"]) == (48, 0)
    (findings,) = call("annotate", "agreement", out, "--json").lines
    assert {(c["first"], c["rate"]["wins"], c["rate"]["losses"]) for c in findings["contests"]} == {("dcrag", 12, 0)}
    assert [each["same"] for each in findings["agreement"]] == [1.0] * 4
    assert (
        call(
            "annotate",
            "import",
            sheets[0],
            sheets[0].with_suffix(".csv"),
            "--key",
            tmp_path / "sheets.key.json",
            "--out",
            out,
        ).code
        == 0
    )  # the CSV is empty
    both = (sheets[0], tmp_path / sheets[0].name)
    both[1].write_bytes(sheets[0].read_bytes())
    refused = call("annotate", "import", *both, "--key", tmp_path / "sheets.key.json", "--out", out)
    assert "two sheets are called annotator-1" in refused.complaint


def test_without_openpyxl_there_is_csv_and_a_word(call, run, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "openpyxl" else find(name))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    done = call("annotate", "export", run, "--out", tmp_path / "sheets", "--annotators", 1)
    assert done.code == 0
    assert {path.suffix for path in (tmp_path / "sheets").iterdir()} == {".csv"}
    assert "no XLSX" in done.err
    assert "[evaluation]'" in done.err
    sheet = tmp_path / "anna.xlsx"
    sheet.write_bytes(b"")
    refused = call("annotate", "import", sheet, "--key", tmp_path / "sheets.key.json")
    assert refused.code == 2
    assert "[evaluation]'" in refused.complaint


def test_a_system_is_shown_by_its_name_whatever_signs_are_in_it(call, tmp_path):
    answers = [
        {"annotator": "anna", "item": f"i{number}", "dialogue": f"d{number}", "criteria": "dcrag", "form": form}
        | {"criterion": "coherence", "systems": systems, "winner": systems[0] if form == "pairwise" else None}
        | {"values": {systems[0]: 2 + number % 2} if form == "likert" else {}}
        for form, systems in (("pairwise", ["[/b] a", "b [no-facts]"]), ("likert", ["[/b] c"]))
        for number in range(3)
    ]
    for form, names in (("pairwise", ("[/b] a", "b [no-facts]")), ("likert", ("[/b] c",))):
        lines = [json.dumps(each) for each in answers if each["form"] == form]
        (tmp_path / f"{form}.jsonl").write_text("\n".join(lines), "utf-8")
        done = call("annotate", "agreement", tmp_path / f"{form}.jsonl")
        assert done.code == 0
        assert all(name in done.out for name in names)


def test_the_lowest_scores_may_be_what_people_look_at(call, run, tmp_path):
    out = ("--out", tmp_path / "sheets", "--annotators", 1, "--form", "likert", "-s", "vanilla", "-n", 2, "--json")
    refused = call("annotate", "export", run, *out, "--lowest", "f1")
    assert refused.code == 2
    assert "dialore score" in refused.complaint
    with RunStore.open(run) as store, store.writing():
        store.set_metric("f1", {"name": "f1", "paper": "", "definition": ""})
        system = next(each.number for each in store.systems() if each.title == "vanilla")
        values = {place: SampleScore((value,)) for place, value in enumerate((0.5, 0.1, 0.9, 0.2, 0.7, 0.4))}
        store.measure({"f1": {Job(place, system, 0): measure for place, measure in values.items()}})
    assert call("annotate", "export", run, *out, "--lowest", "f1").code == 0
    key = json.loads((tmp_path / "sheets.key.json").read_text("utf-8"))
    assert {each["dialogue"] for each in key["items"].values()} == {"d1", "d3"}


def test_lowest_of_sorts_by_one_system_and_exports_others(call, run, tmp_path):
    with RunStore.open(run) as store, store.writing():
        store.set_metric("f1", {"name": "f1", "paper": "", "definition": ""})
        numbers = {system.title: system.number for system in store.systems()}
        scores = {"vanilla": (0.5, 0.1, 0.9, 0.2, 0.7, 0.4), "dcrag": (0.0, 0.9, 0.1, 0.9, 0.9, 0.9)}
        for title, values in scores.items():
            jobs = {Job(place, numbers[title], 0): SampleScore((value,)) for place, value in enumerate(values)}
            store.measure({"f1": jobs})

    def exported(name, *options):
        out = ("--out", tmp_path / name, "--annotators", 1, "--form", "likert", "-s", "dcrag", "-n", 2, "--json")
        assert call("annotate", "export", run, *out, "--lowest", "f1", *options).code == 0
        items = json.loads((tmp_path / f"{name}.key.json").read_text("utf-8"))["items"].values()
        return {item["dialogue"] for item in items}, {title for item in items for title in item["systems"]}

    assert exported("own") == ({"d0", "d2"}, {"dcrag"})
    assert exported("other", "--lowest-of", "vanilla") == ({"d1", "d3"}, {"dcrag"})
    assert call("annotate", "export", run, "--lowest-of", "vanilla").code == 2
