"""Building a graph merges, keeps what it was given, and replaces the old file only by a whole new one."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from dialore.errors import GraphError
from dialore.knowledge import Fact
from dialore.retrieval.graph import GraphStore, build_graph, writing
from dialore.retrieval.graph.checking import problems_of
from dialore.retrieval.graph.facts import read_facts
from dialore.text import normalise
from tests.retrieval.graph.graphs import ROOT, build, development_data, embedder, facts
from tests.retrieval.graph.test_change import change

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OLD = facts("sushi | MadeOf | rice | 2.828", "cook | CapableOf | make sushi | 0.1", "茶 | IsA | 饮料")
ROWS = tuple[str, str, str, float, str]


def rows(path: Path) -> set[ROWS]:
    with GraphStore(path) as store:
        return {(fact.head, fact.relation, fact.tail, fact.weight, fact.provenance) for fact in store.facts()}


def expected(items: list[Fact]) -> set[ROWS]:
    return {(fact.head, fact.relation, fact.tail, fact.weight, fact.provenance) for fact in items}


def files(folder: Path) -> list[str]:
    """What lies in a folder, without the log and the shared memory of graphs that are open."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm")))


def test_export_equals_import(tmp_path: Path) -> None:
    assert rows(build(tmp_path / "g.graph", OLD)) == expected(OLD)
    assert files(tmp_path) == ["g.graph"]


def test_an_export_builds_the_same_graph_again(tmp_path: Path) -> None:
    source = [*OLD, Fact("a", "IsA", "b", 1 / 3, "x"), Fact("Zoë's café", "IsA", "a" * 2000, 1e-7, "y")]
    first = build(tmp_path / "first.graph", source)
    with GraphStore(first) as store:
        exported = list(store.facts())
    assert rows(build(tmp_path / "second.graph", exported)) == rows(first)


def test_duplicates_are_merged_keeping_the_heaviest(tmp_path: Path) -> None:
    items = [
        Fact("Tea", "IsA", "drink", 1.0, "first"),
        Fact("tea", "IsA", "Drink", 3.0, "heaviest"),
        Fact("TEA", "IsA", "drink", 2.0, "last"),
        Fact("tea", "RelatedTo", "drink", 9.0, "another relation"),
        Fact("drink", "IsA", "tea", 9.0, "another direction"),
    ]
    report = build_graph(items, tmp_path / "g.graph", name="g", embedder=embedder())
    assert (report.facts, report.merged, report.concepts) == (3, 2, 2)
    assert report.relations == {"IsA": 2, "RelatedTo": 1}
    assert report.bytes == (tmp_path / "g.graph").stat().st_size
    assert rows(tmp_path / "g.graph") == {
        ("Tea", "IsA", "drink", 3.0, "heaviest"),
        ("Tea", "RelatedTo", "drink", 9.0, "another relation"),
        ("drink", "IsA", "Tea", 9.0, "another direction"),
    }


def test_equal_weights_keep_the_first(tmp_path: Path) -> None:
    items = [Fact("tea", "IsA", "drink", 1.0, "first"), Fact("tea", "IsA", "drink", 1.0, "second")]
    assert {row[4] for row in rows(build(tmp_path / "g.graph", items))} == {"first"}


def test_loops_hubs_and_long_names(tmp_path: Path) -> None:
    hub = [Fact("hub", "RelatedTo", f"leaf {number}", number + 0.5, "t") for number in range(3000)]
    odd = [Fact("echo", "RelatedTo", "echo", 1.0, "t"), Fact("长" * 900, "IsA", "x" * 600 + "y", 1.0, "t")]
    odd += [Fact("长" * 900 + "尾", "IsA", "x" * 600 + "z", 1.0, "t"), Fact("!!!", "IsA", "..?", 1.0, "t")]
    path = build(tmp_path / "g.graph", hub + odd)
    assert rows(path) == expected(hub + odd)
    with GraphStore(path) as store:
        for fact in odd:
            number = store.find(fact.head)
            assert number is not None
            assert store.concept(number) == fact.head
        centre = store.find("HUB")
        assert centre is not None
        assert store.degree(centre) == 3000
        assert len(store.edges_of([centre])) == 3000
        echo = store.find("echo")
        assert echo is not None
        assert len(store.edges_of([echo])) == 1


def test_the_fingerprint_tells_facts_and_weights_apart(tmp_path: Path) -> None:
    def fingerprint(items: list[Fact], name: str = "g") -> str:
        with GraphStore(build(tmp_path / "g.graph", items, name)) as store:
            return store.meta.fingerprint

    first = fingerprint(OLD)
    assert fingerprint(OLD, "another name") == first
    assert fingerprint([*OLD, OLD[0]]) == first
    heavier = [*OLD[:2], Fact("茶", "IsA", "饮料", 2.0)]
    assert len({first, fingerprint(heavier), fingerprint(OLD[:2])}) == 3
    renamed = [*OLD[:2], Fact("茶", "PartOf", "饮料", 1.0)]
    assert fingerprint(renamed) != first


def test_real_graph_round_trip(tmp_path: Path) -> None:
    source = list(read_facts(development_data("conceptnet_cn100k/valid.txt.gz")))
    assert {row[:3] for row in rows(build(tmp_path / "g.graph", source))} == {
        (fact.head, fact.relation, fact.tail) for fact in source
    }
    assert all(normalise(fact.head) == fact.head for fact in source)


# --- what it refuses


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([], "no facts"),
        ([Fact("tea", "IsA", "drink"), Fact("", "IsA", "drink")], "blank"),
        ([Fact("tea", "IsA", "_")], "blank"),
        ([Fact("tea", f"Relation{number}", "drink") for number in range(5000)], "4,096 relations"),
        ([Fact("tea", "IsA", "drink", 1.0, f"page {number}") for number in range(65_537)], "65,536 provenances"),
    ],
    ids=["none", "blank", "underscore", "relations", "provenances"],
)
def test_facts_that_cannot_be_kept_are_refused(tmp_path: Path, items: list[Fact], said: str) -> None:
    target = build(tmp_path / "g.graph", OLD)
    with pytest.raises(GraphError, match=said):
        build(target, items)
    assert rows(target) == expected(OLD)
    assert files(tmp_path) == ["g.graph"]


def test_all_relations_that_fit_are_told_apart(tmp_path: Path) -> None:
    items = [Fact("tea", f"Relation{number}", "drink", 1.0, "t") for number in range(4096)]
    path = build(tmp_path / "g.graph", items)
    assert rows(path) == expected(items)
    with GraphStore(path) as store:
        assert len(store.edges_of([0, 1])) == 4096


def test_a_reader_s_error_is_passed_on_and_keeps_the_old_graph(tmp_path: Path) -> None:
    target = build(tmp_path / "g.graph", OLD)
    bad = tmp_path / "bad.tsv"
    bad.write_text("tea\tIsA\tdrink\nrice\n", encoding="utf-8")
    with pytest.raises(GraphError, match=r"bad\.tsv, line 2"):
        build(target, read_facts(bad))
    assert rows(target) == expected(OLD)
    assert files(tmp_path) == ["bad.tsv", "g.graph"]


def test_any_other_error_of_the_facts_is_not_called_a_full_disk(tmp_path: Path) -> None:
    def broken() -> Iterator[Fact]:
        yield OLD[0]
        raise TimeoutError("the share went away")

    with pytest.raises(TimeoutError):
        build(tmp_path / "g.graph", broken())
    assert files(tmp_path) == []


def test_a_folder_in_the_way_is_told_before_the_facts_are_read(tmp_path: Path) -> None:
    (tmp_path / "g.graph").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")

    def unread() -> Iterator[Fact]:
        pytest.fail("the facts were read")
        yield OLD[0]

    for target in (tmp_path / "g.graph", tmp_path / "file" / "g.graph"):
        with pytest.raises(GraphError, match="cannot write"):
            build(target, unread())


def test_missing_folders_are_made_and_the_file_is_private(tmp_path: Path) -> None:
    target = build(tmp_path / "new" / "folder" / "g.graph", OLD)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


# --- readers of the old graph


def test_readers_go_on_with_the_old_graph_and_then_see_the_new(tmp_path: Path) -> None:
    target = build(tmp_path / "g.graph", OLD)
    with GraphStore(target) as reader, GraphStore(target) as other:
        with reader.read():
            build(target, facts("moon | IsA | satellite"))
            assert reader.find("sushi") is not None
            assert reader.find("moon") is None
            assert other.find("moon") is not None
        assert reader.find("moon") is not None
    assert files(tmp_path) == ["g.graph"]


def test_the_log_of_a_deleted_graph_is_not_read_as_that_of_a_new_one(tmp_path: Path) -> None:
    target = build(tmp_path / "g.graph", OLD)
    with GraphStore(target) as store, store.read():
        change(target, add=facts("moon | IsA | satellite"))
        target.unlink()
        assert target.with_name("g.graph-wal").stat().st_size > 0
        build(target, facts("sun | IsA | star"))
        assert rows(target) == expected(facts("sun | IsA | star"))
    assert problems_of(target) == []


def test_a_read_only_folder_can_be_read_from_and_not_built_into(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    target = build(folder / "g.graph", OLD)
    script = f"""
        import os, sys, tempfile
        from pathlib import Path
        from dialore.errors import GraphError
        from tests.retrieval.graph.graphs import build, embedder, facts
        from tests.retrieval.graph.test_build import OLD, expected, rows
        with tempfile.TemporaryDirectory() as folder:  # all modules loaded while their files can be read
            rows(build(Path(folder) / "g.graph", facts("sun | IsA | star")))
        if os.geteuid() == 0:
            os.setegid(65534); os.seteuid(65534)
        target = Path({str(target)!r})
        assert rows(target) == expected(OLD)
        try:
            build(target, facts("moon | IsA | satellite"))
        except GraphError as error:
            print(error)
    """
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(0o755)
    target.chmod(0o444)
    folder.chmod(0o555)
    try:
        done = python(script)
    finally:
        folder.chmod(0o755)
    assert "cannot write" in done.stdout, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert files(folder) == ["g.graph"]


# --- builds that are ended


def python(script: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


SLOW = """
    import signal, sys, time
    from pathlib import Path
    from dialore.retrieval.graph import build_graph
    from tests.retrieval.graph.graphs import embedder, facts
    # What a shell starts in the background ignores SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    lines = [f"new {number} | IsA | thing {number % 7}" for number in range(20000)]
    def stop(step):
        if step == sys.argv[2]:
            print("midway", flush=True)
            time.sleep(60)
    def slow():
        yield from facts(*lines)
        stop("reading facts")
    build_graph(slow(), Path(sys.argv[1]), name="new", embedder=embedder(), on_step=lambda step, *_: stop(step))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("step", ["reading facts", "merging facts", "writing facts"])
def test_a_build_that_is_ended_leaves_the_old_graph(tmp_path: Path, how: signal.Signals, step: str) -> None:
    target = build(tmp_path / "g.graph", OLD)
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SLOW), str(target), step],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "midway\n"
        begun = time.monotonic()
        if how is signal.SIGKILL:
            # A build that still runs keeps its file while another one of the same graph ends.
            build(target, OLD)
            assert len(files(tmp_path)) == 2
        child.send_signal(how)
        child.wait(timeout=30)
        assert time.monotonic() - begun < 30
    assert rows(target) == expected(OLD)
    assert len(files(tmp_path)) == (2 if how is signal.SIGKILL else 1)
    build(target, facts("moon | IsA | satellite"))
    assert files(tmp_path) == ["g.graph"]
    assert [row[0] for row in rows(target)] == ["moon"]


def test_leftovers_of_other_graphs_are_left_alone(tmp_path: Path) -> None:
    for name in (".g.graph.12ab.tmp", ".g[1].graph.12ab.tmp", ".other.graph.12ab.tmp", "g.graph.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "graph").write_bytes(b"left behind")
    build(tmp_path / "g[1].graph", OLD)
    assert files(tmp_path) == [".g.graph.12ab.tmp", ".other.graph.12ab.tmp", "g.graph.tmp", "g[1].graph"]


def test_a_full_disk_is_one_error_and_keeps_the_old_graph(tmp_path: Path) -> None:
    target = build(tmp_path / "g.graph", OLD)
    done = python(f"""
        import resource
        from pathlib import Path
        from dialore.errors import GraphError
        from tests.retrieval.graph.graphs import build, facts
        lines = facts(*(f"new {{number}} | IsA | thing {{number % 7}}" for number in range(20000)))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            build(Path({str(target)!r}), lines)
        except GraphError as error:
            print(error)
    """)
    assert "write" in done.stdout, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(target) == expected(OLD)
    assert files(tmp_path) == ["g.graph"]


def test_a_really_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small disk here")
    try:
        target = build(disk / "g.graph", OLD)
        many = facts(*(f"new {number} | IsA | thing {number % 7}" for number in range(20_000)))
        with pytest.raises(GraphError, match="cannot write"):
            build(target, many)
        assert rows(target) == expected(OLD)
        assert files(disk) == ["g.graph"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_facts_sorted_a_range_at_a_time_make_the_same_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = facts(*(f"head {n % 300} | Relation{n % 7} | tail {n % 911} | {1 + n % 5}" for n in range(5000)))
    whole = build(tmp_path / "whole.graph", many)
    monkeypatch.setattr(writing, "_SORTED_AT_ONCE", 700)
    ranged = build(tmp_path / "ranged.graph", many)
    assert rows(ranged) == rows(whole)
    assert problems_of(ranged) == []
    assert GraphStore(ranged).meta.fingerprint == GraphStore(whole).meta.fingerprint
