"""`verify` finds what is wrong in each table; a full disk, a folder and export leave what they should."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import lmdb
import numpy as np
import pytest

from dialore.sources.graph import GraphStore
from dialore.sources.graph.facts.readers import read_facts
from dialore.sources.graph.store.layout import EDGE, TABLES, id_key
from dialore.sources.graph.writing.export import export_graph
from dialore.sources.graph.writing.verify import verify
from tests.sources.graphs import ROOT, build, facts
from tests.sources.test_change import change, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ITEMS = facts(
    "sushi | MadeOf | rice | 2", "sushi | IsA | food", "rice | IsA | food | 3", "cook | CapableOf | make sushi | 0.1"
)


def put(path: Path, table: bytes, key: bytes, new: Callable[[bytes], bytes | None]) -> None:
    env = lmdb.open(str(path), subdir=False, lock=False, max_dbs=len(TABLES), map_size=2**26)
    handle = env.open_db(table, create=False)
    with env.begin(write=True) as transaction:
        value = new(transaction.get(key, db=handle) or b"")
        if value is None:
            transaction.delete(key, db=handle)
        else:
            transaction.put(key, value, db=handle)
    env.close()


def meta(**fields: object) -> Callable[[bytes], bytes]:
    return lambda raw: json.dumps({**json.loads(raw), **fields}).encode()


def norm(raw: bytes) -> bytes:
    records = np.frombuffer(raw, EDGE).copy()
    records["norm"] *= 1.5
    return records.tobytes()


@pytest.mark.parametrize(
    ("table", "key", "new", "said"),
    [
        (b"in", id_key(1), lambda _: None, "have heads and"),
        (b"out", id_key(0), lambda raw: raw[: EDGE.itemsize], "have heads and"),
        (b"out", id_key(0), norm, "both directions"),
        (b"out", id_key(0), lambda raw: raw[EDGE.itemsize :] + raw[: EDGE.itemsize], "before heavier ones"),
        (b"out", id_key(0), lambda raw: b"\xff" + raw[1:], "name concepts that are not there"),
        (b"names", id_key(0), lambda _: b"sashimi", "not found by their names"),
        (b"names", id_key(0), lambda _: b"\xff\xfe", "cannot be read"),
        (b"ids", b"rice", lambda _: None, "not found by their names"),
        (b"keys", b"sushi", lambda _: None, "not found by their stems"),
        (b"meta", b"meta", meta(facts=5), "where it says 5"),
        (b"meta", b"meta", meta(fingerprint="0123456789abcdef"), "fingerprint"),
        (b"meta", b"scales", lambda raw: raw[4:], "scales"),
        (b"meta", b"scales", lambda raw: np.full(len(raw) // 4, 9, "<f4").tobytes(), "lengths of"),
        (b"meta", b"ends", lambda raw: raw[:-4], "vectors of"),
        (b"meta", b"relations", lambda raw: raw[:1024], "relations have"),
    ],
)
def test_each_damage_is_found(
    tmp_path: Path, table: bytes, key: bytes, new: Callable[[bytes], bytes | None], said: str
) -> None:
    path = build(tmp_path / "g.graph", ITEMS)
    assert verify(path).problems == []
    put(path, table, key, new)
    problems = verify(path).problems
    assert any(said in problem for problem in problems), problems


def test_changes_are_counted_and_what_is_torn_is_told(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", ITEMS)
    change(path, add=facts("miso | IsA | food | 9"), delete=ITEMS[:1])
    report = verify(path)
    assert (report.problems, report.facts, report.torn_bytes) == ([], 4, 0)
    assert report.changed == 4
    with path.open("ab") as file:
        file.write(b"DLCH torn")
    report = verify(path)
    assert (report.problems, report.facts, report.torn_bytes) == ([], 4, 9)


@pytest.mark.parametrize("name", ["out.tsv", "out.jsonl", "out.tsv.gz"])
def test_an_export_is_read_as_the_same_facts(tmp_path: Path, name: str) -> None:
    odd = facts(
        "a hub | OddOne | x | 0.3", "rel | IsA | 茶 馆", *(f"a hub | OddOne | y{n} | {n / 7}" for n in range(40))
    )
    path = build(tmp_path / "g.graph", [*ITEMS, *odd])
    with GraphStore(path) as store:
        assert export_graph(store, tmp_path / name, "jsonl" if "jsonl" in name else "tsv") == len(ITEMS) + len(odd)
    assert rows(build(tmp_path / "again.graph", read_facts(tmp_path / name))) == rows(path)
    assert sorted(item.name for item in tmp_path.iterdir()) == sorted(["again.graph", "g.graph", name])


def test_a_full_disk_leaves_the_graph_as_it_was(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", ITEMS)
    change(path, add=facts("miso | IsA | food"))
    before = path.read_bytes()
    script = f"""
        import resource
        from pathlib import Path
        from dialore.errors import GraphError
        from tests.sources.graphs import embedder, facts
        from tests.sources.test_change import change
        embedder().encode(["loaded"])
        resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before)} + 600, {len(before)} + 600))
        try:
            change(Path({str(path)!r}), add=facts(*(f"new {{n}} | IsA | food" for n in range(100))))
        except GraphError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "cannot write" in done.stdout, done.stderr
    assert path.read_bytes() == before
