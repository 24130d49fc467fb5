"""Errors of SQLite are told by their codes, wherever they come from."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from dialore.errors import InputError
from dialore.sqlite_errors import ExplainedConnection, classify_sqlite_error, explain_sqlite_error

CODES = {
    sqlite3.SQLITE_FULL: ("full", "room"),
    sqlite3.SQLITE_IOERR_WRITE: ("io", "quota"),
    sqlite3.SQLITE_IOERR_FSYNC: ("io", "quota"),
    sqlite3.SQLITE_READONLY_DBMOVED: ("readonly", "read-only"),
    sqlite3.SQLITE_CANTOPEN: ("cannot-open", "permissions"),
    sqlite3.SQLITE_BUSY_SNAPSHOT: ("busy", "wait"),
    sqlite3.SQLITE_NOTADB: ("not-a-database", "another"),
    sqlite3.SQLITE_CORRUPT_VTAB: ("damaged", "rebuild it"),
    sqlite3.SQLITE_ERROR: ("other", "rebuild it"),
}


@pytest.mark.parametrize("code", CODES)
def test_an_error_names_file_cause_and_remedy(code):
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorcode = code
    problem, remedy = CODES[code]
    assert classify_sqlite_error(error) == problem
    explained = explain_sqlite_error(error, Path("file.idx"), description="an index", rebuild="rebuild it")
    assert "file.idx" in explained.message
    assert remedy in explained.hint
    if problem not in {"damaged", "other"}:
        assert "rebuild" not in explained.hint


def test_a_connection_explains_its_errors_but_not_violated_constraints(tmp_path):
    path = tmp_path / "data.sqlite"
    with contextlib.closing(sqlite3.connect(path, factory=ExplainedConnection)) as database:
        database.explain_as = {"path": path, "description": "data", "other_file": "none"}
        database.execute("CREATE TABLE t (a UNIQUE)")
        with pytest.raises(InputError, match=r"data\.sqlite"):
            database.execute("SELECT * FROM missing")
        database.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError):
            database.execute("INSERT INTO t VALUES (1)")


def test_a_failed_commit_at_the_end_of_a_transaction_names_the_file(tmp_path):
    path = tmp_path / "data.sqlite"
    with (
        contextlib.closing(sqlite3.connect(path, timeout=0, factory=ExplainedConnection)) as database,
        contextlib.closing(sqlite3.connect(path)) as reader,
    ):
        database.explain_as = {"path": path, "description": "data", "other_file": "none"}
        database.execute("CREATE TABLE t (a)")
        database.execute("INSERT INTO t VALUES (1), (2)")
        database.commit()
        rows = reader.execute("SELECT a FROM t")
        assert next(rows) == (1,)  # the reader holds its lock until it has read the last row
        with pytest.raises(InputError, match=r"data\.sqlite"), database:
            database.execute("INSERT INTO t VALUES (3)")


def limited(code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process that may write files of 4 KiB at most."""
    resource = pytest.importorskip("resource")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    command = [sys.executable, "-B", "-c", code, *arguments]
    return subprocess.run(command, cwd=cwd, preexec_fn=limit, capture_output=True, text=True, check=False, timeout=120)


def test_an_index_on_a_disk_that_fails_is_sound_and_not_to_be_deleted(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number}.txt").write_text(f"Ship {number} has a red funnel.\n" * 20, "utf-8")
    main = "from dialore.cli import main; main()"
    built = subprocess.run(
        [sys.executable, "-c", main, "documents", "build", "i.idx", "texts"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    (tmp_path / "w.txt").write_text("Whales.", "utf-8")
    failed = limited(main, "documents", "add", "i.idx", "w.txt", cwd=tmp_path)
    assert failed.returncode == 2
    assert "i.idx" in failed.stderr
    assert "damaged" not in failed.stderr
    assert "quota" in failed.stderr
    again = subprocess.run(
        [sys.executable, "-c", main, "documents", "add", "i.idx", "w.txt"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "i.idx").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX")
def test_runs_caches_and_stores_name_their_file(tmp_path):
    code = """
import asyncio, sys
from pathlib import Path
from dialore.errors import DialoreError
from dialore.experiments.store import RunStore
from dialore.llm.cache import _open
from dialore.server.store import ServerStore

def report(work):
    try:
        work()
    except DialoreError as error:
        print(str(error))

async def serve():
    store = ServerStore("store.sqlite")
    try:
        await store.open()
    finally:
        await store.close()

report(lambda: RunStore.create(Path("run")))
report(lambda: _open(Path("cache.sqlite")))
report(lambda: asyncio.run(serve()))
"""
    done = limited(code, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stdout + done.stderr
    for line, name in zip(lines, ("run.sqlite", "cache.sqlite", "store.sqlite"), strict=True):
        assert name in line
        assert "quota" in line
        assert "delete" not in line
