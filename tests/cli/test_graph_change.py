"""`dialore graph edit`, `verify` and `export`."""

from __future__ import annotations

import json

import pytest

FACTS = "sushi\tMadeOf\trice\t2\nsushi\tAtLocation\tJapan\t1\nrice\tIsA\tgrain\t1\n"


@pytest.fixture
def graph(call, tmp_path):
    (tmp_path / "facts.tsv").write_text(FACTS, "utf-8")
    assert call("graph", "build", tmp_path / "facts.tsv", "--out", tmp_path / "my.graph").code == 0
    return tmp_path / "my.graph"


@pytest.fixture
def write(tmp_path):
    def write(text, name="more.tsv"):
        (tmp_path / name).write_text(text, "utf-8")
        return tmp_path / name

    return write


def report(done):
    return {key: value for key, value in done.lines[0].items() if value and key not in {"fingerprint", "concepts"}}


def test_add_and_delete(call, graph, write):
    added = call("graph", "edit", graph, "--add", write("miso\tIsA\tfood\nsushi\tMadeOf\trice\t1\n"), "--json")
    assert report(added) == {"added": 1, "unchanged": 1, "facts": 4}
    wrong = write("sushi\tMadeOf\trice\nno\tIsA\tsuch\n", "wrong.tsv")
    lighter = write("sushi\tMadeOf\trice\t0.5\n")
    changed = call("graph", "edit", graph, "--add", lighter, "--delete", wrong, "--json")
    assert report(changed) == {"added": 1, "deleted": 1, "missing": 1, "facts": 4}
    assert 0.5 in [fact["weight"] for fact in json.loads(call("graph", "show", "rice", "-g", graph, "--json").out)]
    deleted = call("graph", "edit", graph, "--delete", write("rice\tIsA\tgrain\n"), "--json")
    assert report(deleted) == {"deleted": 1, "facts": 3}
    assert call("graph", "edit", graph, "--compact").code == 0
    verified = call("graph", "verify", graph, "--json")
    assert (verified.code, json.loads(verified.out)) == (0, {"problems": []})


def test_wrong_files_leave_the_graph(call, graph, write, tmp_path):
    before = graph.read_bytes()
    assert "line 2" in call("graph", "edit", graph, "--add", write("a\tIsA\tb\nshort\n")).complaint
    assert "no such graph" in call("graph", "edit", tmp_path / "none.graph", "--add", write("a\tIsA\tb\n")).complaint
    assert "not a graph" in call("graph", "verify", write("a\tIsA\tb\n")).complaint
    assert graph.read_bytes() == before


def test_a_few_bad_lines_are_shown_and_left_out(call, write, tmp_path):
    lines = [f"head {number}\tIsA\tthing\n" for number in range(2000)]
    for place in range(150, 2000, 150):
        lines[place] = "no tabs at all\n"
    done = call("graph", "build", write("".join(lines)), "--out", tmp_path / "g")
    assert done.code == 0
    assert done.err.count("left out: ") == 11
    assert "line 151" in done.err
    assert "3 more lines" in done.err
    for place in range(20, 2000, 20):
        lines[place] = "no tabs at all\n"
    assert (
        "of 2,000 lines do not parse"
        in call("graph", "build", write("".join(lines)), "--out", tmp_path / "g").complaint
    )


def test_damage_is_found(call, graph):
    # Wherever it stands: pages that nothing uses any more hold copies of it.
    graph.write_bytes(graph.read_bytes().replace(b"Japan", b"Jopan"))
    done = call("graph", "verify", graph)
    assert done.code == 1
    assert str(graph) in done.out


@pytest.mark.parametrize("name", ["facts.tsv.gz", "facts.jsonl", "out.tsv"])
def test_export_builds_the_same_graph(call, graph, write, tmp_path, name):
    call(
        "graph",
        "edit",
        graph,
        "--add",
        write('{"head": "茶", "relation": "OddOne", "tail": "x y", "weight": 0.3}\n', "more.jsonl"),
    )
    assert call("graph", "export", graph, "--out", tmp_path / "x" / name).code == 0
    assert call("graph", "build", tmp_path / "x" / name, "--out", tmp_path / "again.graph").code == 0
    both = [call("graph", "export", path, "--format", "jsonl").out for path in (graph, tmp_path / "again.graph")]
    assert sorted(both[0].splitlines()) == sorted(both[1].splitlines())
    assert "more.jsonl" in both[1]
    prints = [
        json.loads(call("graph", "show", "-g", path, "--json").out)["fingerprint"]
        for path in (graph, tmp_path / "again.graph")
    ]
    assert prints[0] == prints[1]


def test_export_refuses(call, graph, tmp_path):
    assert "did you mean tsv" in call("graph", "export", graph, "--format", "tvs").complaint
    assert "is the graph itself" in call("graph", "export", graph, "--out", graph).complaint
