"""The document store of the standard library: SQLite with FTS5 for terms, and int8 vectors that are scanned.

A change is one transaction: a writer that is killed leaves the old state, and readers go on with theirs meanwhile. Of
many vectors a graph of neighbours (HNSW, by usearch) in a file beside the index, which names it, proposes passages;
their scores are computed from the vectors in the index, so that an old file costs time and gives no wrong score.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dialore.errors import InputError, MissingExtraError
from dialore.files import create_private, whole_file
from dialore.retrieval.bm25 import rarity, saturation, scores_of
from dialore.retrieval.documents.filters import ALL, Filter
from dialore.retrieval.documents.store import (
    AGAIN,
    BUILD,
    Approximate,
    IndexSettings,
    Row,
    State,
    Transaction,
    selective,
)
from dialore.retrieval.fusion import DECIMALS, Quantised, best, quantise, rank_quantised
from dialore.sqlite_errors import classify_sqlite_error, explain_sqlite_error

APPLICATION_ID = 0x644C6F72
"""SQLite's application id of the files of indices."""
PATIENCE = 30.0
"""Seconds that a writer waits for another."""
_CHECKPOINT_WAIT_MS = 2000
"""How long a change that deleted text waits for readers of the former state, whose log still holds that text."""
_COLUMNS_KEPT = 32
"""Columns that are kept, of all filters; the one that was not asked for longest goes first."""
APPROXIMATE_FROM = 200_000
"""Passages from which on an approximate index is made; among fewer, exact search takes milliseconds."""
_GROWN = 0.1  # the share of passages that it may lack before it is brought up to date
_HNSW: dict[str, Any] = {"connectivity": 32, "expansion_add": 128, "expansion_search": 512}
"""Its M, efConstruction and ef: recall is .99 of exact search among 164,593 sentences, .98 among three million."""
_BATCH = 50_000  # vectors that are added at once
_TABLES = """
DROP TABLE IF EXISTS passages;
DROP TABLE IF EXISTS metadata;
DROP TABLE IF EXISTS vectors;
DROP TABLE IF EXISTS frequencies;
DROP TABLE IF EXISTS search;
CREATE TABLE passages (number INTEGER PRIMARY KEY, id INTEGER, document INTEGER, length INTEGER, text TEXT, title TEXT,
    url TEXT, file TEXT, page INTEGER, metadata_number INTEGER);
CREATE UNIQUE INDEX passages_document ON passages (document, id);
CREATE INDEX passages_id ON passages (id);
CREATE INDEX passages_metadata ON passages (metadata_number);
CREATE TABLE metadata (number INTEGER PRIMARY KEY, document INTEGER,
    content TEXT CHECK (json_valid(content)));
CREATE TABLE vectors (number INTEGER PRIMARY KEY, vector BLOB);
CREATE VIRTUAL TABLE search USING fts5(terms, tokenize="ascii tokenchars ''''");
CREATE VIRTUAL TABLE frequencies USING fts5vocab(search, 'row');
"""


class _Column(NamedTuple):
    """The vectors of an index's passages in one state, or their lengths in terms, by numbers above `after`."""

    state: State
    after: int
    numbers: NDArray[np.int64]
    values: tuple[NDArray[Any], ...]


class SqliteStore:
    """An index in a file; raises InputError where that is something else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: list[sqlite3.Connection] = []
        self._process = os.getpid()
        self._inherited: list[object] = []
        self._inode = 0
        self._lock = threading.Lock()
        self._columns: dict[tuple[str, Filter], _Column] = {}
        self._approximate: tuple[str, Any] = "", None
        if path.is_dir():
            old = (path / "index.json").is_file()
            problem = "is a document index of an older version" if old else "is not a document index but a folder"
            raise InputError(f"{path} {problem}", hint=f"{AGAIN} under another name" if old else "name a file")

    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def close(self) -> None:
        """Close the idle connections."""
        self._set_inherited_aside()
        while self._idle:
            self._idle.pop().close()

    def _set_inherited_aside(self) -> None:
        """In a forked process, keep the connections of its parent open and unused: SQLite allows nothing else."""
        if self._process != os.getpid():
            self._inherited.append(self._idle)
            self._idle, self._lock, self._process = [], threading.Lock(), os.getpid()

    @contextmanager
    def read(self, filter_: Filter = ALL) -> Iterator[_SqliteTransaction]:
        """Yield one state of the index, whatever others write meanwhile, of the passages that a filter lets through."""
        with self._explain_errors():
            inode = self._stat().st_ino
            if inode != self._inode:  # another file is in its place
                self.close()
                self._inode, self._columns = inode, {}
            connection, kept = self._connect()
            with ExitStack() as failed:
                failed.callback(connection.close)
                connection.execute("BEGIN")
                yield _SqliteTransaction(connection, self, filter_)
                connection.execute("ROLLBACK")
                if kept and inode == self._inode:
                    self._idle.append(connection)
                    failed.pop_all()

    def _connect(self) -> tuple[sqlite3.Connection, bool]:
        """Return a connection for one question, and whether it may be used again."""
        self._set_inherited_aside()
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
            # Asked of SQLite: to open and close the file here would release the locks that the process holds on it.
            if self.path.stat().st_size and connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
                raise InputError(f"{self.path} is not a document index", hint=BUILD)
            connection.execute("CREATE VIRTUAL TABLE temp.occurrences USING fts5vocab(main, search, 'instance')")
            failed.pop_all()
        return connection

    def _stat(self) -> os.stat_result:
        try:
            return self.path.stat()
        except FileNotFoundError as error:
            raise InputError(f"no such document index: {self.path}", hint=BUILD) from error
        except OSError as error:
            raise InputError(f"cannot open {self.path}: {error.strerror}", hint="check its permissions") from error

    @contextmanager
    def write(self, fresh: IndexSettings | None = None) -> Iterator[_SqliteTransaction]:
        """Yield a change of the index, or of a new one in its place with `fresh` settings: all of it, or nothing.

        Raises InputError where there is none, it cannot be written, or another writer has it for 30 seconds.
        """
        with self._explain_errors():
            new = fresh is not None and not self.path.exists()
            if new:
                try:
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    create_private(self.path)
                except OSError as error:
                    raise InputError(f"cannot write {self.path}: {error.strerror}", hint="name another file") from error
            self._stat()
            with ExitStack() as failed, closing(self._open("mode=rw")) as connection:
                if new:
                    failed.callback(self.path.unlink, missing_ok=True)
                yield from self._change(connection, fresh)
                failed.pop_all()

    def _change(self, connection: sqlite3.Connection, fresh: IndexSettings | None) -> Iterator[_SqliteTransaction]:
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("PRAGMA secure_delete = ON")
        if fresh is not None:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before there are tables
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        transaction = _SqliteTransaction(connection, self)
        if fresh is not None:
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            transaction.begin(fresh)
        yield transaction
        transaction.finish()
        may_hold_deleted_text = transaction.has_removed or fresh is not None
        if may_hold_deleted_text:
            # FTS5 only marks terms as deleted; they leave the file when its segments are merged.
            connection.execute("INSERT INTO search (search) VALUES ('optimize')")
        connection.execute("COMMIT")
        # The log may hold deleted text until it is emptied. A reader of the former state keeps a part of it.
        connection.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_WAIT_MS if may_hold_deleted_text else 0}")
        if may_hold_deleted_text:
            _shrink(connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        approximate = transaction.settings().approximate
        # Former ones, and what killed writers left half written; not those of NAME.old.
        own = re.compile(rf"\.?{re.escape(self.path.name)}\.[0-9a-f]{{8}}\.hnsw(?:\.\d+\.tmp)?")
        for path in self.path.parent.iterdir():
            if own.fullmatch(path.name) and not (approximate and path.name == approximate.file):
                with suppress(OSError):  # some systems do not delete what a reader has open: the next change will
                    path.unlink()

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Say what SQLite says as our errors."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._explain(error) from error

    def _explain(self, error: sqlite3.Error) -> InputError:
        if classify_sqlite_error(error) == "other":
            if "no such table: state" in str(error):
                return InputError(f"{self.path} was never finished", hint=AGAIN)
            if "no such module: fts5" in str(error):
                hint = "take a Python from python.org or your system"
                return InputError("this Python's SQLite has no FTS5", hint=hint)
        rebuild = f"delete it and {AGAIN}"
        return explain_sqlite_error(error, self.path, description="a document index", rebuild=rebuild, other_file=BUILD)

    def approximate(self, settings: IndexSettings) -> Any:  # noqa: ANN401 - usearch is imported when first used
        """Return the approximate index that is valid now; None where there is none, or it cannot be read."""
        valid = settings.approximate.file if settings.approximate else ""
        with self._lock:
            if self._approximate[0] != valid:
                self._approximate = "", None
                with suppress(RuntimeError, MissingExtraError):
                    if valid and (path := self.path.with_name(valid)).is_file():
                        graph = _neighbours(settings.dimension)
                        graph.view(str(path))
                        self._approximate = valid, graph
            return self._approximate[1]

    def column(self, name: str, transaction: _SqliteTransaction, after: int = 0) -> _Column:
        """Return a column as a transaction sees it: kept from question to question, read anew where it changed."""
        state, key = transaction.state(), (name, transaction.filter)
        with self._lock:
            known = self._columns.pop(key, None)
            if known is None or known.after != after or known.state.removals != state.removals:
                known = transaction.column(name, None, after)
            elif known.state != state:
                grown = known.state.version < state.version
                known = transaction.column(name, known if grown else None, after)
            while len(self._columns) >= _COLUMNS_KEPT:
                del self._columns[next(iter(self._columns))]
            self._columns[key] = known
        return known


class _SqliteTransaction(Transaction):
    """One state of an index in a file, or a change of it; see `Transaction`."""

    _connection: sqlite3.Connection
    day_of = "CASE WHEN text GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]*' THEN text END"
    field_items = (
        f"SELECT 1 FROM (SELECT text, number, {day_of} AS day FROM (SELECT"
        " CASE type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE CAST(value AS TEXT) END AS text,"
        " CASE WHEN type IN ('integer', 'real') OR type = 'text' AND value GLOB '[-+0-9]*[0-9]*'"
        " AND value NOT GLOB '*[^-+0-9.eE]*' AND value NOT GLOB '*[0-9.][-+]*'"
        " THEN CAST(value AS REAL) END AS number"
        " FROM json_each(metadata.content, ?)) AS own) AS item"
    )

    def __init__(self, connection: sqlite3.Connection, store: SqliteStore, filter_: Filter = ALL) -> None:
        super().__init__(connection, str(store.path), filter_)
        self._store = store

    def _path_of(self, *steps: str) -> object:
        return "$" + "".join(f'."{step}"' for step in steps)

    def among(self, column: str, values: Collection[Any]) -> tuple[str, object]:
        return f"{column} IN (SELECT value FROM json_each(?))", json.dumps(list(values))

    def vocabulary(self, letter: str) -> list[str]:
        sql = "SELECT term FROM frequencies WHERE term >= ? AND term < ?"
        return [term for (term,) in self.ask(sql, letter, chr(ord(letter) + 1))]

    def by_terms(self, terms: Counter[str], top: int) -> list[tuple[int, float]]:
        """See `Transaction`: exact BM25, as FTS5's own ranking of a term's passages takes nine times as long."""
        condition, value = self.among("term", terms)
        frequencies = dict(self.ask(f"SELECT term, doc FROM frequencies WHERE {condition}", value))
        chosen = selective(terms, frequencies)
        if not chosen:
            return []
        state, lengths = self.state(), self._store.column("length", self)
        mean = state.length / state.passages
        having = []
        for term in chosen:
            [listed] = self.ask("SELECT group_concat(doc) FROM occurrences WHERE term = ?", term).fetchone()
            places, counts = np.unique(np.fromstring(listed, np.int64, sep=","), return_counts=True)
            seen = np.isin(places, lengths.numbers, assume_unique=True) if self.filter else slice(None)
            having.append((places[seen], counts[seen]))
        numbers, places = np.unique(np.concatenate([numbers for numbers, _ in having]), return_inverse=True)
        if not len(numbers):
            return []
        long = lengths.values[0][np.searchsorted(lengths.numbers, numbers)]
        counts = np.concatenate([counts for _, counts in having])
        rare = rarity(state.passages, np.array([frequencies[term] for term in chosen]))
        weights = np.repeat(rare * [terms[term] for term in chosen], [len(numbers) for numbers, _ in having])
        scores = np.bincount(places, weights * saturation(counts, long[places], mean))
        if len(chosen) == len(frequencies):
            order, scores = best(scores, top)
            return list(zip(numbers[order].tolist(), scores.tolist(), strict=True))
        # The other terms only add to the scores of the best.
        condition, value = self.among("rowid", numbers[best(scores, 2 * top)[0]].tolist())
        texts = dict(self.ask(f"SELECT rowid, terms FROM search WHERE {condition}", value))
        tallies = [Counter(text.split(" ")) for text in texts.values()]
        exact = scores_of(terms, tallies, frequencies, state.passages, mean)
        return sorted(zip(texts, exact, strict=True), key=lambda pair: (-pair[1], pair[0]))[:top]

    def by_vector(self, query: NDArray[np.float32], top: int) -> list[tuple[int, float]]:
        """See `Transaction`: an exact scan, of a large index only of what its approximate index proposes or lacks."""
        settings = self.settings()
        index = self._store.approximate(settings)
        if index is None or settings.approximate is None or (self.filter and self.count() < APPROXIMATE_FROM):
            return _nearest(query, self._store.column("vector", self), top)
        column = self._store.column("vector", self, settings.approximate.last)
        condition, value = self.among("number", index.search(query, (8 if self.filter else 2) * top).keys.tolist())
        is_seen = f"EXISTS (SELECT 1 FROM passages WHERE passages.number = vectors.number{self._seen_each})"
        seen = f" AND {is_seen}" if self.filter else ""
        sql = f"SELECT number, vector FROM vectors WHERE {condition}{seen} ORDER BY number"
        rows = self.ask(sql, value, *self._seen_values).fetchall()
        proposed = _Column(column.state, 0, *_vectors(rows, settings.dimension))
        nearest = _nearest(query, proposed, top) + _nearest(query, column, top)
        if self.filter and len(nearest) < top:  # the filter left out too much of what was proposed
            return _nearest(query, self._store.column("vector", self), top)
        return sorted(nearest, key=lambda pair: (-pair[1], pair[0]))[:top]

    def _visible_condition(self) -> str:
        """Return the condition that a row of another table is of a passage which the filter lets through."""
        return f" AND number IN (SELECT number FROM passages WHERE TRUE{self._seen})" if self.filter else ""

    def column(self, name: str, known: _Column | None, after: int) -> _Column:
        """Return a column of the passages whose numbers are above `after`; what is known is not read again."""
        state = self.state()
        last = int(known.numbers[-1]) if known is not None and len(known.numbers) else after
        table = "vectors" if name == "vector" else "passages"
        seen = self._visible_condition()
        sql = f"SELECT number, {name} FROM {table} WHERE number > ?{seen} ORDER BY number"
        rows = self.ask(sql, last, *self._seen_values).fetchall()
        values: tuple[NDArray[Any], ...]
        if name == "vector":
            numbers, values = _vectors(rows, self.settings().dimension)
        else:
            numbers, lengths = np.array(rows, np.int64).reshape(-1, 2).T.copy()
            values = (lengths,)
        if known is not None:
            numbers = np.concatenate([known.numbers, numbers])
            values = tuple(map(np.concatenate, zip(known.values, values, strict=True)))
        return _Column(state, after, numbers, values)

    def update_approximate(self, on_added: Callable[[int, int], None]) -> None:
        settings, state = self.settings(), self.state()
        if not settings.dimension or state.passages < APPROXIMATE_FROM:
            return
        former = settings.approximate
        if former is not None:
            held = self.ask("SELECT COUNT(*) FROM vectors WHERE number <= ?", former.last).fetchone()[0]
            if former.passages - held > _GROWN * former.passages or self._store.approximate(settings) is None:
                former = None  # deleted passages cannot be taken out of a graph, and a torn file cannot be extended
            elif state.passages - held <= _GROWN * state.passages:
                return
        after, size = (former.last, former.passages) if former else (0, 0)
        lacking = self.ask("SELECT COUNT(*) FROM vectors WHERE number > ?", after).fetchone()[0]

        graph, path, added = _neighbours(settings.dimension), self._store.path, 0
        if former:
            graph.load(str(path.with_name(former.file)))
        cursor = self.ask("SELECT number, vector FROM vectors WHERE number > ? ORDER BY number", after)
        while rows := cursor.fetchmany(_BATCH):
            numbers, (vectors, scales) = _vectors(rows, settings.dimension)
            graph.add(numbers, vectors.astype(np.float32) * scales[:, None])
            added += len(numbers)
            on_added(added, lacking)
        name = f"{path.name}.{secrets.token_hex(4)}.hnsw"
        with whole_file(path.with_name(name), private=True) as temporary:
            graph.save(str(temporary))
        approximate = Approximate(file=name, last=state.last, passages=size + lacking)
        settings = settings.model_copy(update={"approximate": approximate})
        self.ask("UPDATE state SET settings = ?", settings.model_dump_json())

    def _insert(self, rows: Sequence[Row], terms: Sequence[Sequence[str]], vectors: NDArray[np.float32] | None) -> None:
        many = self._connection.executemany
        numbers = [row[0] for row in rows]
        many("INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        many("INSERT INTO search (rowid, terms) VALUES (?, ?)", zip(numbers, map(" ".join, terms), strict=True))
        if vectors is not None:
            made = quantise(vectors)
            pairs = zip(made.vectors, made.scales.astype("<f4"), strict=True)
            blobs = (row.tobytes() + scale.tobytes() for row, scale in pairs)
            many("INSERT INTO vectors VALUES (?, ?)", zip(numbers, blobs, strict=True))

    def _insert_metadata(self, rows: Sequence[tuple[int, int, str]]) -> None:
        self._connection.executemany("INSERT INTO metadata VALUES (?, ?, ?)", rows)

    def _remove(self, condition: str, value: object) -> None:
        self.ask(f"DELETE FROM search WHERE rowid IN (SELECT number {condition})", value)
        self.ask(f"DELETE FROM vectors WHERE number IN (SELECT number {condition})", value)


def _shrink(connection: sqlite3.Connection) -> None:
    """Give free pages back to the disk, unless another writer has begun: then its change does so."""
    try:
        connection.executescript("PRAGMA incremental_vacuum")  # execute() would free a single page
    except sqlite3.OperationalError as error:
        if classify_sqlite_error(error) != "busy":
            raise


def _neighbours(dimension: int) -> Any:  # noqa: ANN401 - usearch is imported when first used
    """Return an empty approximate index; raises MissingExtraError without usearch."""
    try:
        from usearch.index import Index
    except ImportError:
        raise MissingExtraError("approximate search", "approximate") from None
    return Index(ndim=dimension, metric="cos", dtype="i8", **_HNSW)


def _vectors(rows: Sequence[tuple[int, bytes]], dimension: int) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...]]:
    """Return the numbers of rows of the table of vectors, and their vectors (n, dimension) with their scales (n,)."""
    kind = np.dtype([("vector", "i1", (dimension,)), ("scale", "<f4")])
    read = np.frombuffer(b"".join(vector for _, vector in rows), kind)
    numbers = np.array([number for number, _ in rows], np.int64)
    return numbers, (np.ascontiguousarray(read["vector"]), np.ascontiguousarray(read["scale"]))


def _nearest(query: NDArray[np.float32], column: _Column, top: int) -> list[tuple[int, float]]:
    """Return the numbers and scores of the `top` vectors of a column that are nearest to a query, exactly."""
    rows, scores = rank_quantised(query, Quantised(*column.values), top)
    pairs = zip(column.numbers[rows].tolist(), scores.astype(float).round(DECIMALS).tolist(), strict=True)
    return [pair for pair in pairs if pair[1] > 0]
