"""`problems_of` finds what is wrong in each table; a full disk, a folder and export leave what they should."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import lmdb
import pytest

from dialore.retrieval.graph import GraphStore
from dialore.retrieval.graph.changes import problems_of
from dialore.retrieval.graph.facts import export_graph, read_facts
from dialore.retrieval.graph.lmdb_file import unpack_side
from dialore.retrieval.graph.store import Table, id_key
from tests.retrieval.graph.graphs import ROOT, build, facts
from tests.retrieval.graph.test_change import change, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

ITEMS = facts(
    "sushi | MadeOf | rice | 2",
    "sushi | IsA | food",
    "rice | IsA | food | 3",
    "cook | CapableOf | cooked carving | 0.1",
)


def put(path: Path, table: bytes, key: bytes, new: Callable[[bytes], bytes | None]) -> None:
    env = lmdb.open(str(path), subdir=False, lock=False, map_size=2**26)
    with env.begin(write=True) as transaction:
        value = new(transaction.get(table + key) or b"")
        if value is None:
            transaction.delete(table + key)
        else:
            transaction.put(table + key, value)
    env.close()


def meta(**fields: object) -> Callable[[bytes], bytes]:
    return lambda raw: json.dumps({**json.loads(raw), **fields}).encode()


def side(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[bytes], bytes]:
    """Change the facts of a side; the parts of their ends stay."""

    def changed(raw: bytes) -> bytes:
        records, parts = unpack_side(raw)
        new = change(records.copy())
        kept = parts[: int(new["parts"].sum())]
        return len(new).to_bytes(4, "little") + new.tobytes() + kept.tobytes()

    return changed


def norm(records: np.ndarray) -> np.ndarray:
    records["norm"] *= 1.5
    return records


def elsewhere(records: np.ndarray) -> np.ndarray:
    records["other"][0] = 255
    return records


@pytest.mark.parametrize(
    ("table", "key", "new", "said"),
    [
        (Table.IN, id_key(1), lambda _: None, "have heads and"),
        (Table.OUT, id_key(0), side(lambda records: records[:1]), "have heads and"),
        (Table.OUT, id_key(0), side(norm), "both directions"),
        (Table.OUT, id_key(0), side(lambda records: records[::-1]), "have facts before heavier ones"),
        (Table.OUT, id_key(0), side(elsewhere), "name concepts that are not there"),
        (Table.OUT, id_key(0), lambda raw: raw[:-4], "without the parts"),
        (Table.CONCEPTS, id_key(0), lambda _: bytes(4) + b"sashimi", "not found by their names"),
        (Table.CONCEPTS, id_key(0), lambda _: bytes(4) + b"\xff\xfe", "cannot be read"),
        (Table.IDS, b"rice", lambda _: None, "not found by their names"),
        (Table.IDS, b"ramen", lambda _: id_key(0), "table ids has"),
        (Table.KEYS, b"cook carv", lambda _: None, "not found by their stems"),
        (Table.META, b"meta", meta(facts=5), "where it says 5"),
        (Table.META, b"meta", meta(fingerprint="0123456789abcdef"), "fingerprint"),
        (Table.PARTS, id_key(0), lambda raw: bytes(len(raw)), "lengths of"),
        (Table.PARTS, id_key(0), lambda _: None, "without the parts"),
        (Table.META, b"relations", lambda raw: raw[:1024], "relations have"),
    ],
)
def test_each_damage_is_found(
    tmp_path: Path, table: bytes, key: bytes, new: Callable[[bytes], bytes | None], said: str
) -> None:
    path = build(tmp_path / "g.graph", ITEMS)
    assert problems_of(path) == []
    put(path, table, key, new)
    problems = problems_of(path)
    assert any(said in problem for problem in problems), problems


def test_a_changed_graph_is_whole(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", ITEMS)
    change(path, add=facts("miso | IsA | food | 9"), delete=ITEMS[:1])
    change(path, delete=ITEMS[3:])
    with GraphStore(path) as store:
        assert (problems_of(path), store.meta.facts, store.meta.concepts) == ([], 3, 6)


@pytest.mark.parametrize("name", ["out.tsv", "out.jsonl", "out.tsv.gz"])
def test_an_export_is_read_as_the_same_facts(tmp_path: Path, name: str) -> None:
    odd = facts(
        "a hub | OddOne | x | 0.3", "rel | IsA | 茶 馆", *(f"a hub | OddOne | y{n} | {n / 7}" for n in range(1, 41))
    )
    path = build(tmp_path / "g.graph", [*ITEMS, *odd])
    with GraphStore(path) as store:
        assert export_graph(store, tmp_path / name, "jsonl" if "jsonl" in name else "tsv") == len(ITEMS) + len(odd)
    assert rows(build(tmp_path / "again.graph", read_facts(tmp_path / name))) == rows(path)
    left = sorted(item.name for item in tmp_path.iterdir() if not item.name.endswith("-lock"))
    assert left == sorted(["again.graph", "g.graph", name])


def test_a_full_disk_leaves_the_graph_as_it_was(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", ITEMS)
    change(path, add=facts("miso | IsA | food"))
    before = rows(path)
    size = path.stat().st_size
    script = f"""
        import resource
        from pathlib import Path
        from dialore.errors import GraphError
        from tests.retrieval.graph.graphs import embedder, facts
        from tests.retrieval.graph.test_change import change
        embedder().encode(["loaded"])
        resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
        try:
            change(Path({str(path)!r}), add=facts(*(f"new {{n}} | IsA | food" for n in range(3000))))
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
    assert rows(path) == before
    assert problems_of(path) == []
