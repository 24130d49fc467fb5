"""The document store of the standard library: SQLite with FTS5 for terms, and int8 vectors that numpy scans.

One file holds an index. A change is one transaction, so that a writer that is killed leaves the old state; readers go
on with the state that they see while another process writes (write-ahead logging).
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dialore.errors import InputError
from dialore.retrieval.bm25 import scores_of
from dialore.retrieval.ranking import DECIMALS, Quantised, quantise, rank_quantised
from dialore.sources.documents.tables import AGAIN, BUILD, Transaction, selective

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dialore.sources.documents.tables import NewPassage, Settings

_OURS = 0x644C6F72
"""SQLite's application id of our files."""
PATIENCE = 30.0
"""Seconds that a writer waits for another."""
_TABLES = """
DROP TABLE IF EXISTS passages;
DROP TABLE IF EXISTS vectors;
DROP TABLE IF EXISTS frequencies;
DROP TABLE IF EXISTS search;
CREATE TABLE passages (number INTEGER PRIMARY KEY, id INTEGER, document INTEGER, length INTEGER, text TEXT, title TEXT,
    url TEXT, file TEXT, page INTEGER, extra TEXT);
CREATE UNIQUE INDEX passages_document ON passages (document, id);
CREATE INDEX passages_id ON passages (id);
CREATE TABLE vectors (number INTEGER PRIMARY KEY, vector BLOB);
CREATE VIRTUAL TABLE search USING fts5(terms, tokenize="ascii tokenchars ''''");
CREATE VIRTUAL TABLE frequencies USING fts5vocab(search, 'row');
"""


class _Matrix(NamedTuple):
    """The vectors of one version of an index, with their passages' numbers."""

    version: int
    removals: int
    numbers: NDArray[np.int64]
    vectors: Quantised


class SqliteStore:
    """An index in a file.

    Args:
        path: the file.

    Raises:
        InputError: it is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: list[sqlite3.Connection] = []
        self._inode = 0
        self._lock = threading.Lock()
        self._matrix: _Matrix | None = None
        if path.is_dir():
            old = (path / "index.json").is_file()
            said = "is a document index of an older version" if old else "is not a document index but a folder"
            raise InputError(f"{path} {said}", mend=f"{AGAIN} under another name" if old else "name a file")

    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def close(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def read(self) -> Iterator[SqliteTransaction]:
        """One state of the index, whatever others write meanwhile; raises InputError where there is none."""
        with self._explained():
            inode = self._stat().st_ino
            if inode != self._inode:  # another file is in its place
                self.close()
                self._inode, self._matrix = inode, None
            connection, kept = self._connect()
            try:
                connection.execute("BEGIN")
                yield SqliteTransaction(connection, self)
                connection.execute("ROLLBACK")
            except BaseException:
                kept = False
                raise
            finally:
                if kept and inode == self._inode:
                    self._idle.append(connection)
                else:
                    connection.close()

    def _connect(self) -> tuple[sqlite3.Connection, bool]:
        """A connection for one question, and whether it may be used again."""
        with suppress(IndexError):
            return self._idle.pop(), True
        if os.access(self.path.absolute().parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            return self._open("mode=rw"), True
        # Who may not write beside the file reads it as it lies there; where a writer is at work, by its log.
        beside = self.path.with_name(f"{self.path.name}-wal").exists()
        return self._open("mode=ro" if beside else "mode=ro&immutable=1"), False

    def _open(self, how: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?{how}",
            uri=True,
            timeout=PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )
        with ExitStack() as failed:
            failed.callback(connection.close)
            # Asked of SQLite: whoever opens and closes the file by himself takes the process's locks from it.
            if self.path.stat().st_size and connection.execute("PRAGMA application_id").fetchone() != (_OURS,):
                raise InputError(f"{self.path} is not a document index", mend=BUILD)
            failed.pop_all()
        return connection

    def _stat(self) -> os.stat_result:
        try:
            return self.path.stat()
        except FileNotFoundError as error:
            raise InputError(f"no such document index: {self.path}", mend=BUILD) from error
        except OSError as error:
            raise InputError(f"cannot open {self.path}: {error.strerror}", mend="check its permissions") from error

    @contextmanager
    def write(self, fresh: Settings | None = None) -> Iterator[SqliteTransaction]:
        """A change of the index: whole at the end of the body, or nothing of it where that fails.

        Args:
            fresh: the settings of a new index, in the place of what is there.

        Raises:
            InputError: no such index, it cannot be written, or another writer has it for 30 seconds.
        """
        with self._explained():
            new = fresh is not None and not self.path.exists()
            if new:
                try:
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    self.path.touch()
                except OSError as error:
                    raise InputError(f"cannot write {self.path}: {error.strerror}", mend="name another file") from error
            self._stat()
            connection = self._open("mode=rw")
            try:
                yield from self._change(connection, fresh)
            except BaseException:
                connection.close()
                if new:
                    self.path.unlink(missing_ok=True)
                raise
            connection.close()

    def _change(self, connection: sqlite3.Connection, fresh: Settings | None) -> Iterator[SqliteTransaction]:
        connection.execute("PRAGMA cache_size = -65536")
        if fresh is not None:
            connection.execute(f"PRAGMA application_id = {_OURS}")
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        transaction = SqliteTransaction(connection, self)
        if fresh is not None:
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            transaction.begin(fresh)
        yield transaction
        transaction.finish()
        if fresh is not None:
            connection.execute("INSERT INTO search (search) VALUES ('optimize')")
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what SQLite says as our errors."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _error(self, error: sqlite3.Error) -> InputError:
        said = str(error)
        if "not a database" in said:
            return InputError(f"{self.path} is not a document index", mend=BUILD)
        if "locked" in said:
            return InputError(f"{self.path} is being changed by another process", mend="wait until it is done")
        if "fts5" in said:
            return InputError("this Python's SQLite has no FTS5", mend="take a Python from python.org or your system")
        if "no such table: state" in said:
            return InputError(f"{self.path} was never finished", mend=AGAIN)
        if "readonly" in said or "unable to open" in said or "full" in said:
            return InputError(f"cannot open or write {self.path}: {said}", mend="check its permissions and the disk")
        return InputError(f"{self.path} is damaged: {said}", mend=f"delete it and {AGAIN}")

    def matrix(self, transaction: SqliteTransaction) -> _Matrix:
        """The vectors as a transaction sees them: kept from question to question, read anew where they changed."""
        state = transaction.state()
        with self._lock:
            known = self._matrix
            if known is None or known.version != state.version:
                grown = known is not None and known.removals == state.removals and known.version < state.version
                known = self._matrix = transaction.vectors(known if grown else None)
        return known


class SqliteTransaction(Transaction):
    """One state of an index in a file, or a change of it; see `Transaction`."""

    _connection: sqlite3.Connection

    def __init__(self, connection: sqlite3.Connection, store: SqliteStore) -> None:
        super().__init__(connection, str(store.path))
        self._store = store

    def among(self, column: str, values: Collection[Any]) -> tuple[str, object]:
        """See `Transaction`."""
        return f"{column} IN (SELECT value FROM json_each(?))", json.dumps(list(values))

    def by_terms(self, terms: Counter[str], top: int) -> list[tuple[int, float]]:
        """See `Transaction`. FTS5 finds the candidates; their scores are exact BM25, as of texts in memory."""
        condition, value = self.among("term", terms)
        frequencies = dict(self.ask(f"SELECT term, doc FROM frequencies WHERE {condition}", value))
        chosen = selective(terms, frequencies)
        if not chosen:
            return []
        match = " OR ".join('"' + term.replace('"', '""') + '"' for term in chosen)
        sql = "SELECT rowid, terms FROM search WHERE search MATCH ? ORDER BY rank LIMIT ?"
        found = self.ask(sql, match, 2 * top).fetchall()
        state = self.state()
        tallies = [Counter(text.split(" ")) for _, text in found]
        scores = scores_of(terms, tallies, frequencies, state.passages, state.length / state.passages)
        ranked = sorted(zip((number for number, _ in found), scores, strict=True), key=lambda pair: (-pair[1], pair[0]))
        return ranked[:top]

    def by_vector(self, query: NDArray[np.float32], top: int) -> list[tuple[int, float]]:
        """See `Transaction`: an exact scan."""
        matrix = self._store.matrix(self)
        rows, scores = rank_quantised(query, matrix.vectors, top)
        found = zip(matrix.numbers[rows].tolist(), scores.astype(float).round(DECIMALS).tolist(), strict=True)
        return [pair for pair in found if pair[1] > 0]

    def vectors(self, known: _Matrix | None) -> _Matrix:
        """All vectors, those that are known and not read again among them."""
        state = self.state()
        kind = np.dtype([("vector", "i1", (self.settings().dimension,)), ("scale", "<f4")])
        after = int(known.numbers[-1]) if known is not None and len(known.numbers) else 0
        numbers: list[int] = []
        parts: list[bytes] = []
        for number, vector in self.ask("SELECT number, vector FROM vectors WHERE number > ? ORDER BY number", after):
            numbers.append(number)
            parts.append(vector)
        rows = np.frombuffer(b"".join(parts), kind)
        found = Quantised(np.ascontiguousarray(rows["vector"]), np.ascontiguousarray(rows["scale"]))
        held = np.array(numbers, np.int64)
        if known is not None:
            held = np.concatenate([known.numbers, held])
            whole = np.concatenate([known.vectors.vectors, found.vectors])
            found = Quantised(whole, np.concatenate([known.vectors.scales, found.scales]))
        return _Matrix(state.version, state.removals, held, found)

    def _insert(
        self, numbers: Sequence[int], passages: Sequence[NewPassage], vectors: NDArray[np.float32] | None
    ) -> None:
        many = self._connection.executemany
        rows = (passage.row(number) for number, passage in zip(numbers, passages, strict=True))
        many("INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        terms = zip(numbers, (" ".join(passage.terms) for passage in passages), strict=True)
        many("INSERT INTO search (rowid, terms) VALUES (?, ?)", terms)
        if vectors is not None:
            made = quantise(vectors)
            pairs = zip(made.vectors, made.scales.astype("<f4"), strict=True)
            blobs = (row.tobytes() + scale.tobytes() for row, scale in pairs)
            many("INSERT INTO vectors VALUES (?, ?)", zip(numbers, blobs, strict=True))

    def _remove(self, condition: str, value: object) -> None:
        self.ask(f"DELETE FROM search WHERE rowid IN (SELECT number {condition})", value)
        self.ask(f"DELETE FROM vectors WHERE number IN (SELECT number {condition})", value)
