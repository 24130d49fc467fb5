"""ConceptNet's URIs in any table, and lines at fault within what is allowed."""

from __future__ import annotations

import gzip
import json

import pytest

from dialore.errors import GraphError
from dialore.retrieval.graph.facts import Rejects, read_facts

URI = "/a/[/r/IsA/,/c/en/otter/n/,/c/en/animal/]"
ROWS = [("/r/IsA", "/c/en/otter/n/wn/animal", "/c/en/sea_animal"), ("/r/IsA", "/c/fr/loutre", "/c/en/otter")]
TABLES = {
    "cut.tsv": "\n".join("\t".join(row) for row in ROWS),
    "cut.csv": "\n".join(",".join(row) for row in ROWS),
    "turned.tsv": "\n".join(f"{start}\t{name}\t{end}" for name, start, end in ROWS),
    "headed.csv": f'uri,rel,start,end,json\n"{URI}",/r/IsA,/c/en/otter,/c/en/sea_animal,"{{""dataset"": ""/d/x""}}"',
    "quoted.tsv": f'"{URI}"\t"/r/IsA"\t"/c/en/otter"\t"/c/en/sea_animal"\t"{{""dataset"": ""/d/x""}}"',
    "facts.jsonl": json.dumps({"head": "/c/en/otter", "relation": "/r/IsA", "tail": "/c/en/sea_animal"}),
}


@pytest.mark.parametrize("name", TABLES)
def test_uris_are_read_in_any_table(tmp_path, name):
    path = tmp_path / name
    path.write_text(TABLES[name] + "\n", "utf-8")
    found = [(fact.head, fact.relation, fact.tail) for fact in read_facts(path, languages=("en",))]
    assert found == [("otter", "IsA", "sea animal")]
    assert not list(read_facts(path, languages=("zh",)))


GOOD = f'{URI}\t/r/IsA\t/c/en/otter\t/c/en/animal\t{{"weight": 1.0}}\n'.encode()


@pytest.mark.parametrize(
    "bad",
    [
        GOOD.replace(b"otter\t", b"ott\xe9r\t"),
        GOOD.replace(b'{"weight": 1.0}', b'{"dataset": "\\ud83d"}'),
        GOOD.replace(b'{"weight": 1.0}', b'{"dataset": "\xff"}'),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_line_that_is_no_text_is_left_out_and_named(tmp_path, bad, ending):
    path = tmp_path / f"dump.{ending}"
    content = GOOD * 150 + bad + GOOD * 50
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    rejects = Rejects()
    assert len(list(read_facts(path, rejects=rejects))) == 200
    assert "line 151" in rejects.first[0]
    path.write_bytes(gzip.compress(bad * 9) if ending.endswith("gz") else bad * 9)
    with pytest.raises(GraphError, match=r"lines do not parse|line 1"):
        list(read_facts(path, rejects=Rejects()))


@pytest.mark.parametrize(("bad", "header"), [(0, ""), (0, "start,rel,end\n"), (99, "start,rel,end\n")])
def test_a_line_of_a_table_that_is_no_csv_is_left_out_and_named(tmp_path, bad, header):
    lines = ["tea,IsA,drink\n"] * 150
    lines.insert(bad, f"{'x' * 140_000},IsA,drink\n")  # a cell is longer than the reader takes
    path = tmp_path / "facts.csv"
    path.write_text(lines[0] + header + "".join(lines[1:]) if bad == 0 else header + "".join(lines))
    rejects = Rejects()
    assert len(list(read_facts(path, rejects=rejects))) == 150
    assert f"line {bad + 1 + bool(bad and header)}" in rejects.first[0]


def test_so_it_is_in_tables_and_jsonl(tmp_path):
    table, objects = tmp_path / "facts.tsv", tmp_path / "facts.jsonl"
    table.write_bytes(b"tea\tIsA\tdrink\n" * 150 + b"caf\xe9\tIsA\tdrink\n")
    line = b'{"head": "tea", "relation": "IsA", "tail": "drink"}\n'
    objects.write_bytes(line * 150 + line.replace(b'"drink"', b'"drink", "provenance": "\\udc00"'))
    for path in (table, objects):
        rejects = Rejects()
        assert len(list(read_facts(path, rejects=rejects))) == 150
        assert "line 151" in rejects.first[0]
