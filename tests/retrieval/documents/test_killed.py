"""Writers that are killed at any moment leave the old state or the new one, and nobody waits for them."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dialore
from dialore.errors import InputError
from dialore.retrieval.documents.indexing import add_documents, build_documents
from dialore.retrieval.documents.opening import open_store
from dialore.sources.documents import DocumentIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow
CHANGES = """
    import sys
    from pathlib import Path
    from dialore.retrieval.documents import sqlite
    from dialore.retrieval.documents.indexing import add_documents, delete_documents, build_documents
    sqlite.APPROXIMATE_FROM = int(sys.argv[3])
    path, first = Path(sys.argv[1]), int(sys.argv[2])
    build_documents(path.with_name("warm"), texts=["What is imported once is there before the first change."])
    more = [f"So is what only a change to {m} passages imports." for m in range(50)]
    add_documents(path.with_name("warm"), texts=more)
    print("ready", flush=True)
    for n in range(first, first + 1000):
        add_documents(path, texts=[f"change {n} passage {m} kept" for m in range(30)], texts_name=f"n{n}")
        if n % 3 == 2:
            delete_documents(path, files=[f"n{n - 1}"])
        if n % 5 == 4:
            texts = [f"change {n} passage {m} kept" for m in range(30)]
            build_documents(path, texts=texts, texts_name=f"n{n}")
"""


def check(path: Path) -> int:
    """Every change is there whole or not at all, in every file of the index alike; returns the latest one's number."""
    with DocumentIndex(path) as index:
        passages = [piece.text for piece in index.passages()]
        by_change: dict[int, set[str]] = {}
        for text in passages:
            by_change.setdefault(int(text.split()[1]), set()).add(text)
        assert all(len(texts) == 30 for texts in by_change.values()), {n: len(t) for n, t in by_change.items()}
        assert len(passages) == 30 * len(by_change) == len(index)
        assert sum(document.passages for document in index.documents()) == len(index)
        for retriever in ("bm25", "dense"):
            found = {piece.text for piece in index.by(retriever).find("change passage kept", 10_000)}
            assert found <= set(passages)
            # A graph of neighbours may miss one of many that are nearly alike.
            least = 0.95 if retriever == "dense" and list(path.parent.glob(f"{path.name}.*.hnsw")) else 1
            assert len(found) >= least * len(passages)
    return max(by_change)


@contextmanager
def writing(path: Path, first: int, approximate_from: int = 200_000) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that changes the index from change `first` on, until it is killed at the end."""
    environment = {**os.environ, "PYTHONPATH": str(Path(dialore.__file__).parents[1])}
    command = [sys.executable, "-c", textwrap.dedent(CHANGES), str(path), str(first), str(approximate_from)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        try:
            yield writer
        finally:
            writer.kill()


def test_a_reader_goes_on_while_another_process_writes(tmp_path):
    path = tmp_path / "index"
    build_documents(path, texts=[f"change 0 passage {m} kept" for m in range(30)], texts_name="n0")
    states, deadline = set(), time.monotonic() + 60
    with DocumentIndex(path) as index, writing(path, 1) as writer:
        while len(states) < 6 and time.monotonic() < deadline:
            changes = Counter(piece.text.split()[1] for piece in index.find("change passage kept", 10_000))
            assert set(changes.values()) == {30}, changes  # each answer is of one state, whatever is being written
            states.add(frozenset(changes))
        assert writer.poll() is None
    assert len(states) == 6, "the reader did not see what the other process wrote"
    assert check(path) >= 4


@pytest.mark.skipif(os.name == "nt", reason="processes are killed otherwise there")
@pytest.mark.parametrize("approximate_from", [200_000, 40], ids=["exact", "approximate"])
def test_kills_at_random_moments(tmp_path, approximate_from):
    path = tmp_path / "index"
    build_documents(path, texts=[f"change 0 passage {m} kept" for m in range(30)], texts_name="n0")
    draw, latest, started = random.Random(7), 1, time.monotonic()
    add_documents(path, texts=[f"change 1 passage {m} kept" for m in range(30)], texts_name="n1")
    change = time.monotonic() - started  # seconds that one takes on this machine now
    reached = []
    for _ in range(20):
        with writing(path, latest + 1, approximate_from):
            time.sleep(draw.uniform(0.2, 4) * change)
        latest = check(path)
        reached.append(latest)
    assert reached[-1] > 1, "no change was ever finished: the kills show nothing"
    add_documents(path, texts=[f"change {latest + 1} passage {m} kept" for m in range(30)], texts_name="last")
    assert check(path) == latest + 1
    with closing(open_store(path)) as store, store.read() as transaction:
        valid = transaction.settings().approximate
    left = {file.name for file in tmp_path.iterdir() if "index" in file.name}
    assert left == {"index", *([valid.file] if valid else [])}  # nothing is left of the killed


@pytest.mark.parametrize("moment", ["insert", "finish"])
def test_a_change_that_fails_leaves_the_old_state(tmp_path, monkeypatch, moment):
    path = tmp_path / "index"
    build_documents(path, texts=[f"change 0 passage {m} kept" for m in range(30)], texts_name="n0")

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(f"dialore.retrieval.documents.sqlite._SqliteTransaction.{moment}", fail)
    new = [f"change 1 passage {m} kept" for m in range(30)]
    for change in (add_documents, build_documents):
        with pytest.raises(InputError, match="disk is full"):
            change(path, texts=new, texts_name="n1")
        assert check(path) == 0
    monkeypatch.undo()
    assert add_documents(path, texts=new, texts_name="n1").passages == 60
    assert check(path) == 1


def test_one_writer_at_a_time(tmp_path, monkeypatch):
    path = tmp_path / "index"
    build_documents(path, texts=["tea"])
    monkeypatch.setattr("dialore.retrieval.documents.sqlite.PATIENCE", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match="being changed by another process"):
            add_documents(path, texts=["rice"])
        with pytest.raises(InputError, match="being changed by another process"):
            build_documents(path, texts=["rice"])
        assert DocumentIndex(path).find("tea")[0].text == "tea"  # readers do not wait
    assert add_documents(path, texts=["rice"]).passages == 2
