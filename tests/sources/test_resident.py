"""A graph's pages are let go of where a process would keep many, and read again as if they had stayed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.shape import shaped_graph

from dialore.sources.graph import GraphStore
from dialore.sources.graph.store import resident
from tests.sources.graphs import build

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets go of a mapping's pages")


def pages_of(path: Path) -> int:
    """Kilobytes of a file that are mapped into this process's memory."""
    inode, total, inside = str(path.stat().st_ino), 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if "-" in fields[0]:
            inside = fields[4] == inode
        elif inside and fields[0] == "Rss:":
            total += int(fields[1])
    return total


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("resident") / "shaped.graph", list(shaped_graph(30_000).facts()))


def test_pages_of_earlier_questions_are_let_go_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "LIMIT", -1 << 40)
    with GraphStore(path) as store:
        whole = [store.degree(number) for number in range(store.meta.concepts)]
        before = pages_of(path)
        edges = store.edges_of([0])
        for _ in range(64):
            store.refresh()
        assert pages_of(path) < before / 4
        assert store.edges_of([0]) is not edges
        assert (store.edges_of([0]).head == edges.head).all()
        assert [store.degree(number) for number in range(store.meta.concepts)] == whole


def test_pages_stay_where_they_are_few(path: Path) -> None:
    with GraphStore(path) as store:
        for number in range(store.meta.concepts):
            store.degree(number)
        before = pages_of(path)
        for _ in range(64):
            store.refresh()
        assert pages_of(path) >= before > 0
