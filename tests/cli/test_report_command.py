"""`dialore report` and `dialore annotate` on a real small run."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sqlite3
from contextlib import closing

import pytest

from dialore.experiments.store import FILE, RunStore

pytest.importorskip("scipy", reason="the evaluation extra is not installed")


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """A run of two methods by the no model over six dialogues, scored."""
    from dialore.cli import main

    folder = tmp_path_factory.mktemp("runs")
    lines = [
        {
            "id": f"d{n}",
            "turns": [f"I like {what}.", "Why?", f"Because {what} is good."],
            "reference": f"I like {what} too.",
        }
        for n, what in enumerate(("tea", "rain", "bread", "music", "the sea", "my garden"))
    ]
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    config = folder / "small.yaml"
    config.write_text(
        f"name: small\ndataset: {{name: jsonl, path: {data}}}\n"
        "systems: [vanilla, t-rag]\nmodels: [{model: lexical}]\n",
        "utf-8",
    )
    run = folder / "run"
    for arguments in (
        ["run", config, "--out", run, "-y"],
        None,
        ["score", run, "-x", "f1", "-x", "distinct-2", "-x", "kf1"],
    ):
        if arguments is None:  # without a model all methods say the same
            with RunStore.open(run) as store:
                for job in store.jobs():
                    response = store.response(job)
                    store.add(job, response.model_copy(update={"text": f"{response.text} {job.system}"}))
            continue
        with pytest.raises(SystemExit) as left:
            main([str(each) for each in arguments])
        assert not left.value.code
    return run


def test_all_forms_by_default(call, scored, tmp_path):
    done = call("report", scored, "--out", tmp_path / "out", "--plots", "--json")
    assert done.code == 0, done.err
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"report.html", "report.md", "report.tex", "report.csv", "plots"}
    assert (tmp_path / "out" / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    lines = list(csv.DictReader(io.StringIO((tmp_path / "out" / "report.csv").read_text("utf-8"))))
    assert {(line["system"], line["metric"]) for line in lines} == {
        (system, metric) for system in ("vanilla", "t-rag") for metric in ("f1", "distinct-2", "kf1")
    }
    plots = sorted(path.name for path in (tmp_path / "out" / "plots").iterdir())
    assert "f1-bars.svg" in plots
    assert all(str(tmp_path) in path for path in done.lines[0]["files"])


def test_one_form_one_metric_and_a_title(call, scored, tmp_path):
    done = call("report", scored, "--markdown", "-x", "f1", "--title", "Mine", "--out", tmp_path / "out")
    assert done.code == 0
    (path,) = (tmp_path / "out").iterdir()
    text = path.read_text("utf-8")
    assert text.startswith("# Mine\n")
    assert "distinct" not in text
    assert done.out.strip() == str(path)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--baseline", "vanila"], "did you mean vanilla"),
        (["-x", "f2"], "did you mean f1"),
        (["--sizes", "7"], "no model and size"),
        (["--sizes", "no model=big"], "no model and size"),
        (["--sizes", "nobody=7"], "unknown model"),
    ],
)
def test_what_it_does_not_know(call, scored, arguments, word):
    assert word in call("report", scored, *arguments).complaint


def test_no_run(call, tmp_path):
    assert "no run in" in call("report", tmp_path).complaint


def test_sheets_out_and_in_and_agreement(call, scored, tmp_path):
    done = call("annotate", "export", scored, "--out", tmp_path / "sheets", "--annotators", 2, "-n", 5, "--json")
    assert done.code == 0, done.err
    key = json.loads((tmp_path / "sheets.key.json").read_text("utf-8"))
    sheets = sorted((tmp_path / "sheets").glob("*.csv"))
    assert len(sheets) == 2
    questions = ("naturalness", "coherence", "engagingness", "informativeness")
    for sheet in sheets:
        assert "t-rag" not in sheet.read_text("utf-8")
        rows = list(csv.DictReader(io.StringIO(sheet.read_text("utf-8-sig"))))
        for row in rows:
            side = "AB"[key["items"][row["item"]]["systems"].index("t-rag")]
            row.update(dict.fromkeys(questions, side))
        with sheet.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    out = tmp_path / "annotations.jsonl"
    done = call("annotate", "import", *sheets, "--key", tmp_path / "sheets.key.json", "--out", out, "--json")
    assert done.lines[0]["annotations"] == 40
    (findings,) = call("annotate", "agreement", out, "--json").lines
    assert [each["same"] for each in findings["agreement"]] == [1.0] * 4
    assert {(c["first"], c["rate"]["wins"]) for c in findings["contests"]} == {("t-rag", 10)}
    assert "t-rag / vanilla" in call("annotate", "agreement", out).out


def test_the_report_has_what_people_said_of_the_run(call, scored, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(scored, run)
    done = call("annotate", "export", run, "--annotators", 2, "-n", 4, "--json")
    assert done.lines[0]["key"] == str(run / "sheets-dcrag.key.json")
    folder = run / "sheets-dcrag"
    for path in folder.glob("*.xlsx"):
        path.unlink()
    text = call("annotate", "agreement", folder)
    assert f"no sheet in {folder} is filled in" in " ".join(text.err.split())
    assert call("report", run, "--markdown").code == 0
    assert "no sheet in" in (run / "report" / "report.md").read_text("utf-8")
    for sheet in folder.glob("*.csv"):
        lines = list(csv.reader(io.StringIO(sheet.read_text("utf-8-sig"))))
        with sheet.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([lines[0], *([*line[:-5], *"AAAA", ""] for line in lines[1:])])
    done = call("report", run, "--out", tmp_path / "out", "--json")
    assert "people.csv" in {path.name for path in (tmp_path / "out").iterdir()}
    assert "2 annotators, 4 items" in (tmp_path / "out" / "report.html").read_text("utf-8")
    shown = call("annotate", "agreement", folder, "--json").lines[0]
    lines = list(csv.DictReader(io.StringIO((tmp_path / "out" / "people.csv").read_text("utf-8"))))
    wins = {line["criterion"]: int(line["wins"]) for line in lines if line["wins"]}
    assert wins == {each["criterion"]: each["rate"]["wins"] for each in shown["contests"]}
    errors = tmp_path / "errors.jsonl"
    call("annotate", "import", *folder.glob("*.csv"), "--key", run / "sheets-dcrag.key.json", "--out", errors)
    assert call("report", run, "--sheets", errors, "--latex", "--out", tmp_path / "tex").code == 0
    assert "Contests: Which response is better? (dcrag)" in (tmp_path / "tex" / "report.tex").read_text("utf-8")
    assert "out.key.json" in call("report", run, "--sheets", tmp_path / "out").complaint


def test_a_run_that_people_alone_judge_has_a_report(call, run_unscored, tmp_path):
    assert "nothing is scored" in call("report", run_unscored).complaint
    assert call("annotate", "export", run_unscored, "-n", 2).code == 0
    assert call("report", run_unscored, "--out", tmp_path / "out").code == 0
    assert "## People" in (tmp_path / "out" / "report.md").read_text("utf-8")


@pytest.fixture
def run_unscored(scored, tmp_path):
    """The run without its scores."""
    shutil.copytree(scored, tmp_path / "unscored")
    with closing(sqlite3.connect(tmp_path / "unscored" / FILE)) as database, database:
        database.execute("delete from metrics")
    return tmp_path / "unscored"


def test_the_key_is_kept_apart(call, scored, tmp_path):
    out = tmp_path / "sheets"
    assert "among the sheets" in call("annotate", "export", scored, "--out", out, "--key", out / "key.json").complaint
    (tmp_path / "sheets.key.json").write_text("{}")
    assert "is there already" in call("annotate", "export", scored, "--out", out).complaint
    assert "unknown form" in call("annotate", "export", scored, "--out", tmp_path / "b", "--form", "rankin").complaint
