"""`problems_of` finds what is wrong in each table; a full disk, a folder and export leave what they should."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from dialore.retrieval.graph import GraphStore
from dialore.retrieval.graph.checking import problems_of
from dialore.retrieval.graph.facts import export_graph, read_facts
from dialore.retrieval.graph.store import pack_side, unpack_side
from tests.retrieval.graph.graphs import ROOT, build, change_file, change_meta, facts, read_file
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


def edit_side(path: Path, column: str, concept: int, edit: Callable[[np.ndarray], np.ndarray]) -> None:
    """Edit the facts of one side of a concept; the parts of their other ends stay."""
    [(raw,)] = read_file(path, f"SELECT {column} FROM facts WHERE concept = ?", concept)
    records, parts = unpack_side((raw, None))
    records = edit(records.copy())
    packed, _ = pack_side(records, parts[: int(records["parts"].sum())])
    change_file(path, f"UPDATE facts SET {column} = ? WHERE concept = ?", packed, concept)


def longer_vectors(records: np.ndarray) -> np.ndarray:
    records["norm"] *= 1.5
    return records


def unknown_ends(records: np.ndarray) -> np.ndarray:
    records["other"][0] = 255
    return records


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE facts SET incoming = NULL WHERE concept = 1", "by head and"),
        ("UPDATE facts SET degree = 7 WHERE concept = 1", "by its degree"),
        (lambda path: edit_side(path, "outgoing", 0, lambda records: records[:1]), "by head and"),
        (lambda path: edit_side(path, "outgoing", 0, longer_vectors), "differ by head and by tail"),
        (lambda path: edit_side(path, "outgoing", 0, lambda records: records[::-1]), "not sorted by weight"),
        (lambda path: edit_side(path, "outgoing", 0, unknown_ends), "unknown tail"),
        ("UPDATE facts SET outgoing = substr(outgoing, 1, length(outgoing) - 4) WHERE concept = 0", "lack the parts"),
        ("UPDATE concepts SET name = CAST(x'fffe' AS TEXT) WHERE id = 0", "cannot be read"),
        ("UPDATE concepts SET name = 'sashimi' WHERE id = 0", "not found by their names"),
        ("UPDATE concepts SET form = NULL WHERE name = 'rice'", "not found by their names"),
        ("UPDATE concepts SET stems = NULL WHERE name = 'cooked carving'", "not found by their stems"),
        (lambda path: change_meta(path, facts=5), "says 5"),
        (lambda path: change_meta(path, fingerprint="0123456789abcdef"), "fingerprint"),
        ("UPDATE parts SET block = zeroblob(length(block))", "vector lengths"),
        ("UPDATE meta SET value = substr(value, 1, 1024) WHERE key = 'relations'", "relations have"),
    ],
)
def test_each_damage_is_found(tmp_path: Path, damage: str | Callable[[Path], None], said: str) -> None:
    path = build(tmp_path / "g.graph", ITEMS)
    assert problems_of(path) == []
    if isinstance(damage, str):
        change_file(path, damage)
    else:
        damage(path)
    problems = problems_of(path)
    assert any(said in problem for problem in problems), problems


def test_damaged_pages_are_found(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", facts(*(f"head {number} | IsA | tail {number % 5}" for number in range(2000))))
    whole = bytearray(path.read_bytes())
    middle = len(whole) // 2
    whole[middle : middle + 8192] = bytes(8192)
    path.write_bytes(whole)
    assert problems_of(path) != []


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
    assert {"again.graph", "g.graph", name} == {item.name for item in tmp_path.iterdir()}


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
    assert "write" in done.stdout, done.stderr
    assert rows(path) == before
    assert problems_of(path) == []
