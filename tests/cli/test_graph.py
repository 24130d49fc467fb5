"""`dialore graph`."""

from __future__ import annotations

import json

import pytest

FACTS = "sushi\tMadeOf\trice\t2\nsushi\tAtLocation\tJapan\t1\nrice\tIsA\tgrain\t1\nsushi\tMadeOf\trice\t1\n"


@pytest.fixture
def facts(tmp_path):
    path = tmp_path / "facts.tsv"
    path.write_text(FACTS, "utf-8")
    return path


@pytest.fixture
def graph(call, facts, tmp_path):
    assert call("graph", "build", facts, "--out", tmp_path / "my.graph").code == 0
    return tmp_path / "my.graph"


def test_build_says_what_it_did(call, facts, tmp_path):
    done = call("graph", "build", facts, "--out", tmp_path / "g", "--name", "food", "--json")
    report = done.lines[0]
    assert (report["facts"], report["concepts"], report["merged"]) == (3, 4, 1)
    assert report["relations"] == {"MadeOf": 1, "AtLocation": 1, "IsA": 1} or sum(report["relations"].values()) == 3
    assert json.loads(call("graph", "show", "-g", tmp_path / "g", "--json").out)["name"] == "food"


def test_a_malformed_line_leaves_the_old_graph_in_place(call, facts, graph, tmp_path):
    before = graph.read_bytes()
    facts.write_text(FACTS + "a line without tabs\n", "utf-8")
    complaint = call("graph", "build", facts, "--out", graph).complaint
    assert "line 5" in complaint
    assert graph.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


def test_wrong_names_of_build(call, facts, graph, tmp_path):
    assert "did you mean tsv" in call("graph", "build", facts, "--out", graph, "--format", "tvs").complaint
    assert "unknown language: 'fr'" in call("graph", "build", facts, "--out", graph, "-l", "fr").complaint
    assert "no such file" in call("graph", "build", tmp_path / "none.tsv", "--out", graph, "--format", "tsv").complaint


def test_a_slip_of_the_pen_overwrites_no_data(call, facts, tmp_path):
    letter = tmp_path / "letter.txt"
    letter.write_text("dear", "utf-8")
    assert "is not a graph" in call("graph", "build", facts, "--out", letter).complaint
    assert letter.read_text("utf-8") == "dear"
    assert "is one of the files" in call("graph", "build", facts, "--out", facts).complaint
    assert "is a folder" in call("graph", "build", facts, "--out", tmp_path).complaint
    assert call("graph", "build", facts, "--out", letter, "--force").code == 0


def test_stats(call, graph):
    data = json.loads(call("graph", "show", "-g", graph, "--json").out)
    assert (data["facts"], data["concepts"]) == (3, 4)
    assert data["relations"] == {"MadeOf": 1, "AtLocation": 1, "IsA": 1}
    assert data["best_connected"]["sushi"] == 2
    assert "3 facts, 4 concepts" in call("graph", "show", "-g", graph).out
    assert "starter" in call("graph", "show").out


def test_show(call, graph):
    done = call("graph", "show", "rice", "-g", graph, "--json")
    assert {(fact["head"], fact["relation"], fact["tail"]) for fact in done.lines[0]} == {
        ("sushi", "MadeOf", "rice"),
        ("rice", "IsA", "grain"),
    }
    assert done.lines[0][0]["weight"] == 2
    assert "MadeOf" in call("graph", "show", "sushi", "-g", graph).out
    assert "did you mean Japan" in call("graph", "show", "Japam", "-g", graph).complaint


def test_retrieve_tells_foreseen_from_unforeseen(call, graph):
    settings = ("graph", "search", "-g", graph, "-q", "sushi", "-t", "rice", "-t", "wasabi")
    data = json.loads(call(*settings, "--json").out)
    assert [fact["text"] for fact in data["foreseen"]] == ["sushi is made of rice"]
    assert data["unforeseen_found"] == 2
    assert data["unlinked"] == ["wasabi"]
    words = call(*settings).out
    assert "foreseen: 1 fact" in words
    assert "no concept" in words
    assert "nothing to look for" in call("graph", "search", "-g", graph).complaint


@pytest.mark.parametrize("command", [("show", "-g"), ("show", "rice", "-g"), ("search", "-q", "rice", "-g")])
def test_a_graph_that_is_none(call, graph, tmp_path, command):
    cut = tmp_path / "cut.graph"
    cut.write_bytes(graph.read_bytes()[: graph.stat().st_size // 2])
    assert f"{cut} is damaged" in call("graph", *command, cut).complaint
    cut.write_text("not a graph at all", "utf-8")
    assert "not a graph" in call("graph", *command, cut).complaint
    assert "no such graph" in call("graph", *command, tmp_path / "none").complaint


def test_several_graphs_answer_as_one(call, tmp_path):
    """The company's own facts beside the starter graph's, each keeping its graph's name."""
    facts = tmp_path / "ours.tsv"
    facts.write_text("sore throat\tCausesDesire\tour honey lozenge\n", encoding="utf-8")
    call("graph", "build", facts, "--out", tmp_path / "ours.graph", "--name", "ours")
    talk = tmp_path / "talk.json"
    talk.write_text('{"turns": ["My sore throat is killing me."]}', encoding="utf-8")
    answer = call("ground", talk, "-M", "t-rag", "-g", "starter", "-g", tmp_path / "ours.graph", "--json").lines[0]
    graphs = {item["fact"]["graph"] for item in answer["knowledge"]}
    assert graphs == {"starter", "ours"}
