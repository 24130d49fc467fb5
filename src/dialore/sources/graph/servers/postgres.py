"""A graph in PostgreSQL, for those who already run one: loaded with COPY, read through a small pool of connections.

A schema holds a graph, the URL's fragment naming it (`postgresql://host/database#company`; `dialore` without one):

| table | columns |
|---|---|
| `graph` | one row: the load's tables' suffix, and the graph's description as JSON |
| `concepts_<load>` | id, name, form (normal form), stems, degree |
| `facts_<load>` | head, relation, tail, weight, provenance as numbers; head_name, tail_name |

Each load has tables of its own and is one transaction: a load that is killed leaves the old graph, and a reader of a
graph that has been replaced is told so instead of being given another graph's numbers. Names stand in the facts, for
a hub's 50,000 facts would else be joined with as many concepts at each question.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag

import numpy as np

from dialore.errors import GraphError, MissingExtraError
from dialore.sources.graph.servers.copying import MergedFacts
from dialore.sources.graph.servers.remote import (
    DEFAULT,
    SECONDS,
    Column,
    FoundConcept,
    FoundFacts,
    RemoteStore,
    closed,
    one_line,
    parsed_meta,
)

try:
    import psycopg
    from psycopg import errors, sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg_pool import ConnectionPool, PoolTimeout
except ImportError as error:
    raise MissingExtraError("a graph in PostgreSQL", "postgres") from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from psycopg.abc import Params
    from psycopg.rows import TupleRow

    from dialore.knowledge import Fact
    from dialore.sources.graph.servers.copying import Step
    from dialore.sources.graph.store.layout import GraphMeta

    _Connection = psycopg.Connection[TupleRow]

FORMAT = 1
_LONGEST_NAME = 63
"""Bytes of an identifier; PostgreSQL cuts longer ones without a word."""

_TABLES = """
CREATE TABLE {concepts} (id integer PRIMARY KEY, name text NOT NULL, form text NOT NULL, stems text,
                         degree integer NOT NULL);
CREATE TABLE {facts} (head integer NOT NULL, relation smallint NOT NULL, tail integer NOT NULL, weight real NOT NULL,
                      provenance integer NOT NULL, head_name text NOT NULL, tail_name text NOT NULL)
"""
_INDEXES = """
CREATE UNIQUE INDEX ON {concepts} (form);
CREATE INDEX ON {concepts} (stems) WHERE stems IS NOT NULL;
CREATE INDEX ON {facts} (head);
CREATE INDEX ON {facts} (tail);
ANALYZE {concepts};
ANALYZE {facts}
"""
_CONCEPTS = "SELECT id, name, degree FROM {concepts} WHERE {column} = ANY(%s) ORDER BY id"
# A hub's rows as one value: numpy reads it as it is, where 50,000 rows would each be made a tuple first.
_FACTS = """
SELECT string_agg(int4send(head) || int2send(relation) || int4send(tail) || float4send(weight) || int4send(provenance),
                  ''::bytea), array_agg(other)
FROM (
  SELECT head, relation, tail, weight, provenance, tail_name AS other FROM {facts} WHERE head = ANY(%(asked)s)
  UNION ALL
  SELECT head, relation, tail, weight, provenance, head_name AS other FROM {facts}
  WHERE tail = ANY(%(asked)s) AND head <> ALL(%(asked)s)
) AS found
"""
_ROW = np.dtype([("head", ">i4"), ("relation", ">i2"), ("tail", ">i4"), ("weight", ">f4"), ("provenance", ">i4")])


class PostgresStore(RemoteStore):
    """A graph in PostgreSQL, opened for reading. Many threads may read at once.

    Args:
        url: `postgresql://user:password@host:port/database#graph`, with libpq's own parameters and defaults.

    Raises:
        GraphError: no server, no such database or graph, or one of another version.
        MissingExtraError: psycopg is not installed.
    """

    def _open(self, url: str) -> tuple[str, GraphMeta]:
        self._target = target = _Target(url)
        with target.errors(), target.connect() as connection:
            load, meta = _read_meta(connection, target)
        concepts, facts = (sql.Identifier(target.schema, f"{table}_{load}") for table in ("concepts", "facts"))
        columns: tuple[Column, ...] = ("id", "form", "stems")
        self._by = {
            column: sql.SQL(_CONCEPTS).format(concepts=concepts, column=sql.Identifier(column)) for column in columns
        }
        self._edges = sql.SQL(_FACTS).format(facts=facts)
        self._pool: ConnectionPool[_Connection] = ConnectionPool(
            target.conninfo,
            min_size=1,
            max_size=8,
            timeout=SECONDS,
            kwargs={"autocommit": True},
            configure=_read_only,
            open=True,
        )
        return target.place, meta

    @classmethod
    def _fill(cls, facts: Iterable[Fact], url: str, name: str, step: Step) -> None:
        target = _Target(url)
        with target.errors(), target.connect() as connection:
            _lock(connection, target)
            merged = MergedFacts(facts, name or target.schema, FORMAT)
            with connection.transaction():
                _write(connection, target, merged, step)

    def close(self) -> None:
        """Close the connections; a second time does nothing."""
        self._pool.close()

    def _ask(self, query: sql.Composed, params: Params) -> list[tuple[Any, ...]]:
        with self._target.errors():
            try:
                return self._fetch(query, params)
            except psycopg.OperationalError:
                # A server that was started anew has closed the pool's connections: reading again harms nothing.
                if self._pool.closed:
                    raise closed(self.place) from None
                self._pool.check()
                return self._fetch(query, params)

    def _fetch(self, query: sql.Composed, params: Params) -> list[tuple[Any, ...]]:
        with self._pool.connection() as connection:
            return connection.execute(query, params, binary=True).fetchall()

    def _concepts_by(self, column: Column, keys: list[Any]) -> Sequence[FoundConcept]:
        return [FoundConcept(*row) for row in self._ask(self._by[column], [keys])]

    def _facts_of(self, concepts: list[int]) -> FoundFacts:
        ((packed, names),) = self._ask(self._edges, {"asked": concepts})
        rows = np.frombuffer(packed or b"", _ROW)
        head, relation, tail, weight, provenance = (rows[name] for name in _ROW.names or ())
        return FoundFacts(head, relation, tail, weight, provenance, names or [])


class _Target:
    """Where a URL points: the database, the graph's schema, and its name for people, without user and password."""

    def __init__(self, url: str) -> None:
        address, fragment = urldefrag(url)
        self.schema = unquote(fragment) or DEFAULT
        if len(self.schema.encode()) > _LONGEST_NAME:
            raise GraphError(f"the graph's name is too long: {self.schema!r}", mend=f"at most {_LONGEST_NAME} bytes")
        try:
            given = conninfo_to_dict(address)
        except psycopg.Error as error:
            raise GraphError(
                "not a URL of a PostgreSQL database", mend="write postgresql://user:password@host:port/database#graph"
            ) from error
        self.conninfo = make_conninfo(address, **{"connect_timeout": SECONDS, **given})
        parts = [str(given.get(key) or "") for key in ("host", "port", "dbname")]
        host = ":".join(part for part in parts[:2] if part)
        self.place = f"postgresql://{host}/{parts[2]}#{self.schema}"

    def connect(self) -> _Connection:
        return psycopg.connect(self.conninfo, autocommit=True)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What the server or the way to it says, as GraphErrors of one line."""
        try:
            yield
        except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
            raise GraphError(f"{self.place} was loaded anew or removed", mend="open it again") from error
        except errors.InsufficientPrivilege as error:
            raise GraphError(
                f"{self.place}: {one_line(error)}", mend="grant the user the right, or name another"
            ) from error
        except (psycopg.OperationalError, PoolTimeout) as error:
            raise GraphError(
                f"cannot reach {self.place}: {one_line(error)}",
                mend="does the server run, and are host, port, database, user and password right?",
            ) from error
        except psycopg.Error as error:
            raise GraphError(f"{self.place}: {one_line(error)}") from error


def _read_only(connection: _Connection) -> None:
    connection.execute("SET default_transaction_read_only = on")


def _read_meta(connection: _Connection, target: _Target) -> tuple[str, GraphMeta]:
    query = sql.SQL("SELECT load, meta::text FROM {}").format(sql.Identifier(target.schema, "graph"))
    try:
        row = connection.execute(query).fetchone()
    except (errors.UndefinedTable, errors.UndefinedColumn):
        row = None
    load, text = row or ("", None)
    return load, parsed_meta(text, target.place, FORMAT)


def _lock(connection: _Connection, target: _Target) -> None:
    """Hold the graph for writing until the connection ends."""
    row = connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [f"dialore {target.schema}"])
    if row.fetchone() != (True,):
        raise GraphError(f"{target.place} is being loaded by another", mend="wait for it to end")


def _write(connection: _Connection, target: _Target, merged: MergedFacts, step: Step) -> None:
    load = secrets.token_hex(4)
    concepts, facts = (sql.Identifier(target.schema, f"{table}_{load}") for table in ("concepts", "facts"))
    graph, schema = sql.Identifier(target.schema, "graph"), sql.Identifier(target.schema)
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
    connection.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} (load text NOT NULL, meta jsonb NOT NULL)").format(graph))
    connection.execute(sql.SQL(_TABLES).format(concepts=concepts, facts=facts))
    _copy(connection, concepts, ("int4", "text", "text", "text", "int4"), merged.concepts(step))
    types = ("int4", "int2", "int4", "float4", "int4", "text", "text")
    _copy(connection, facts, types, merged.facts(step))
    step("indexing", 0, 1)
    connection.execute(sql.SQL(_INDEXES).format(concepts=concepts, facts=facts))
    for (old,) in connection.execute(sql.SQL("DELETE FROM {} RETURNING load").format(graph)).fetchall():
        tables = [sql.Identifier(target.schema, f"{table}_{old}") for table in ("concepts", "facts")]
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}, {}").format(*tables))
    row = [load, merged.meta.model_dump_json()]
    connection.execute(sql.SQL("INSERT INTO {} VALUES (%s, %s)").format(graph), row)
    step("indexing", 1, 1)


def _copy(
    connection: _Connection, table: sql.Identifier, types: Sequence[str], batches: Iterable[Sequence[tuple[Any, ...]]]
) -> None:
    copying = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(table)
    with connection.cursor() as cursor, cursor.copy(copying) as copy:
        copy.set_types(types)
        for batch in batches:
            for row in batch:
                copy.write_row(row)
