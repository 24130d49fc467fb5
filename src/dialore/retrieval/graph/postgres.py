"""A graph in PostgreSQL, for those who already run one: loaded with COPY, read through a small pool of connections.

A schema holds a graph, the URL's fragment naming it (`postgresql://host/database#company`; `dialore` without one):

| table | columns |
|---|---|
| `graph` | one row: the load's tables' suffix, and the graph's description as JSON |
| `concepts_<load>` | id, name, form (normal form), stems, degree |
| `facts_<load>` | head, relation, tail, weight, provenance as numbers; head_name, tail_name |

Each load is one transaction and has tables of its own: a killed one leaves the old graph, and readers of a graph that
was replaced are told so. There are no vectors: see `LinearCosines`.
"""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from contextlib import closing, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag

import numpy as np
from numpy.typing import NDArray

from dialore.errors import GraphError, MissingExtraError
from dialore.retrieval.graph.store import Edges, FactStore, GraphMeta, concept_key, places_among, read_meta
from dialore.retrieval.graph.writing import Collector, fact_hashes, fingerprint_of, merge_rows, name_hashes
from dialore.text import is_chinese, normalise

try:
    import psycopg
    from psycopg import errors, sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg_pool import ConnectionPool
except ImportError as error:
    raise MissingExtraError("a graph in PostgreSQL", "postgres") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from psycopg.abc import Params
    from psycopg.rows import TupleRow

    from dialore.knowledge import Fact
    from dialore.retrieval.graph.writing import Step

    _Connection = psycopg.Connection[TupleRow]

FORMAT = 2
_DEFAULT = "dialore"  # the graph's name where a URL has none
SECONDS = 10
"""How long to wait for a connection."""
_LOAD = "load it with `dialore.retrieval.graph.load_store`"
_REMEMBERED = 200_000
"""Names, forms and keys that a store keeps of each, about 20 MB: a linked dialogue asks for the same ones again."""
_HEADS = 1000  # concepts whose facts are asked for at once when all are read
_BATCH = 4096
_LONGEST_NAME = 63  # bytes of an identifier; PostgreSQL cuts longer ones without a word
_MAX_KEY = 500  # bytes of a text that is indexed as it is; longer ones are hashed

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


class PostgresStore(FactStore):
    """A graph in PostgreSQL, opened for reading, without vectors. Many threads may read at once.

    The URL is `postgresql://user:password@host:port/database#graph`; `place` is that for people: no user, no password.
    Raises GraphError where there is no server, no such database or graph, or one of another version.
    """

    def __init__(self, url: str) -> None:
        self._target = target = _Target(url)
        self.place = target.place
        query = sql.SQL("SELECT load, meta::text FROM {}").format(sql.Identifier(target.schema, "graph"))
        with target.errors(), psycopg.connect(target.conninfo, autocommit=True) as connection:
            try:
                row = connection.execute(query).fetchone()
            except (errors.UndefinedTable, errors.UndefinedColumn):
                row = None
        if row is None:
            raise GraphError(f"there is no graph at {target.place}", hint=f"{_LOAD}, or name it after a # in the URL")
        load, self.meta = row[0], read_meta(row[1], target.place, FORMAT, _LOAD)
        concepts, facts = (sql.Identifier(target.schema, f"{table}_{load}") for table in ("concepts", "facts"))
        self._by = {
            column: sql.SQL(_CONCEPTS).format(concepts=concepts, column=sql.Identifier(column))
            for column in ("id", "form", "stems")
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
        self._found = lru_cache(_REMEMBERED)(self._concepts_by)
        self._names: dict[int, str] = {}
        self._degrees: dict[int, int] = {}

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
                    raise GraphError(f"the graph {self.place} is closed", hint="open it again") from None
                self._pool.check()
                return self._fetch(query, params)

    def _fetch(self, query: sql.Composed, params: Params) -> list[tuple[Any, ...]]:
        with self._pool.connection() as connection:
            return connection.execute(query, params, binary=True).fetchall()

    # --- concepts

    def _concepts_by(self, column: str, *keys: str | int) -> tuple[int, ...]:
        """Ids of the concepts that have one of the keys there; their names and degrees are remembered."""
        rows = self._ask(self._by[column], [list(keys)])
        self._remember(self._names, ((number, name) for number, name, _ in rows))
        self._remember(self._degrees, ((number, degree) for number, _, degree in rows))
        return tuple(number for number, _, _ in rows)

    def _remember(self, memory: dict[int, Any], items: Iterable[tuple[int, Any]]) -> None:
        # Cleared before what is new comes in, so that the names of the facts just fetched are all there.
        if len(memory) > _REMEMBERED:
            memory.clear()
        memory.update(items)

    def _of(self, number: int, memory: dict[int, Any]) -> Any:  # noqa: ANN401 - a name or a degree
        while number not in memory:
            if not self._concepts_by("id", number):
                raise GraphError(f"{self.place} has no concept {number}", hint="load it again, or open it again")
        return memory[number]

    def find(self, name: str) -> int | None:
        """See `FactStore`."""
        numbers = self._found("form", _key_text(normalise(name)))
        return numbers[0] if numbers else None

    def with_stems(self, key: str) -> list[int]:
        """See `FactStore`."""
        return list(self._found("stems", _key_text(key))) if key else []

    def concept(self, number: int) -> str:
        """See `FactStore`."""
        return str(self._of(number, self._names))

    def degree(self, number: int) -> int:
        """See `FactStore`."""
        return int(self._of(number, self._degrees))

    # --- facts

    def edges_of(
        self, concepts: Iterable[int], query: NDArray[np.float32] | None = None, most: int | None = None
    ) -> Edges:
        """See `FactStore`: all in one round trip; the names of their other ends come with them and are remembered."""
        numbers = sorted(set(concepts))
        asked = np.array(numbers, np.uint32)
        ((packed, names),) = self._ask(self._edges, {"asked": numbers})
        rows = np.frombuffer(packed or b"", _ROW)
        head, tail = rows["head"].astype(np.uint32), rows["tail"].astype(np.uint32)
        head_place, tail_place = places_among(asked, head), places_among(asked, tail)
        self._remember(self._names, zip(np.where(head_place < 0, head, tail).tolist(), names or [], strict=True))
        degrees = np.bincount(head_place[head_place >= 0], minlength=len(asked))
        degrees += np.bincount(tail_place[tail_place >= 0], minlength=len(asked))
        return Edges(
            head=head,
            relation=rows["relation"].astype(np.uint16),
            tail=tail,
            weight=rows["weight"].astype(np.float32),
            provenance=rows["provenance"].astype(np.uint16),
            head_place=head_place,
            tail_place=tail_place,
            asked=asked,
            degrees=degrees,
        )

    def facts(self) -> Iterator[Fact]:
        """See `FactStore`."""
        for start in range(0, self.meta.concepts, _HEADS):
            heads = range(start, min(start + _HEADS, self.meta.concepts))
            self._concepts_by("id", *heads)
            edges = self.edges_of(heads)
            order = np.lexsort((edges.tail, edges.relation, -edges.weight, edges.head))
            for row in order[edges.head_place[order] >= 0].tolist():
                yield self.fact(edges, row)


def _key_text(text: str) -> str:
    """Return a text as a key that servers can index: hashed where it is long or has what they cannot hold."""
    encoded = text.encode()
    if len(encoded) <= _MAX_KEY and "\0" not in text:
        return text
    return "\x01" + hashlib.blake2b(encoded, digest_size=32).hexdigest()


class _Target:
    """A URL's database, the graph's schema, and its name for people, without user and password."""

    def __init__(self, url: str) -> None:
        address, fragment = urldefrag(url)
        self.schema = unquote(fragment) or _DEFAULT
        if len(self.schema.encode()) > _LONGEST_NAME:
            raise GraphError(f"the graph's name is too long: {self.schema!r}", hint=f"at most {_LONGEST_NAME} bytes")
        try:
            given = conninfo_to_dict(address)
        except psycopg.Error as error:
            hint = "write postgresql://user:password@host:port/database#graph"
            raise GraphError("not a URL of a PostgreSQL database", hint=hint) from error
        self.conninfo = make_conninfo(address, **{"connect_timeout": SECONDS, **given})
        parts = [str(given.get(key) or "") for key in ("host", "port", "dbname")]
        host = ":".join(part for part in parts[:2] if part)
        self.place = f"postgresql://{host}/{parts[2]}#{self.schema}"

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Yield what the server or the way to it says, as GraphErrors of one line."""
        try:
            yield
        except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
            raise GraphError(f"{self.place} was loaded anew or removed", hint="open it again") from error
        except psycopg.Error as error:
            message, hint = f"{self.place}: {' '.join(str(error).split())}", ""
            if isinstance(error, errors.InsufficientPrivilege):
                hint = "grant the user the right, or name another"
            elif isinstance(error, psycopg.OperationalError):  # PoolTimeout is one too
                message = f"cannot reach {message}"
                hint = "does the server run, and are host, port, database, user and password right?"
            raise GraphError(message, hint=hint) from error


def _read_only(connection: _Connection) -> None:
    connection.execute("SET default_transaction_read_only = on")


# --- loading


def load_store(facts: Iterable[Fact], url: str, *, name: str = "", on_step: Step | None = None) -> PostgresStore:
    """Load facts into a server's graph, in place of the one of that name if there is one, and open it.

    Args:
        facts: the facts; duplicates are merged, keeping the heaviest weight.
        url: where to, as for `open_store`.
        name: the graph's name, carried by its facts; the URL's fragment if not given.
        on_step: called with a step's name, what is done of it and its total.

    Raises:
        GraphError: no facts, not a URL, a server that cannot be reached or refuses, another load under way; the old
            graph, if any, stays.
    """
    target = _Target(url)
    with (
        target.errors(),
        tempfile.TemporaryDirectory() as folder,
        psycopg.connect(target.conninfo, autocommit=True) as connection,
        connection.transaction(),
        closing(Collector(Path(folder), target.place)) as collector,
    ):
        lock = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
        if connection.execute(lock, [f"dialore {target.schema}"]).fetchone() != (True,):
            raise GraphError(f"{target.place} is being loaded by another", hint="wait for it to end")
        collector.collect(facts)
        if not collector.concepts:
            raise GraphError("no facts to make a graph of", hint="check the file and its languages")
        _write(connection, target, collector, name or target.schema, on_step or (lambda *_: None))
    return PostgresStore(url)


def _write(connection: _Connection, target: _Target, collector: Collector, name: str, step: Step) -> None:
    load = secrets.token_hex(4)
    concepts, facts = (sql.Identifier(target.schema, f"{table}_{load}") for table in ("concepts", "facts"))
    graph, schema = sql.Identifier(target.schema, "graph"), sql.Identifier(target.schema)
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
    connection.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} (load text NOT NULL, meta jsonb NOT NULL)").format(graph))
    connection.execute(sql.SQL(_TABLES).format(concepts=concepts, facts=facts))
    names, rows = [name for batch in collector.names() for name in batch], merge_rows(collector.facts())
    degrees = np.bincount(np.concatenate([rows["head"], rows["tail"]]), minlength=len(names)).tolist()
    forms = (_key_text(normalise(name)) for name in names)
    stems = (_key_text(key) if (key := concept_key(name)) else None for name in names)  # None for punctuation alone
    every = zip(range(len(names)), names, forms, stems, degrees, strict=True)
    _copy(connection, concepts, "int4 text text text int4", every, partial(step, "copying concepts"), len(names))
    columns = rows[["head", "relation", "tail", "weight", "provenance"]]
    batches = (columns[start : start + _BATCH].tolist() for start in range(0, len(rows), _BATCH))
    rest = ((*fact, names[fact[0]], names[fact[2]]) for batch in batches for fact in batch)
    _copy(connection, facts, "int4 int2 int4 float4 int4 text text", rest, partial(step, "copying facts"), len(rows))
    step("indexing", 0, 1)
    connection.execute(sql.SQL(_INDEXES).format(concepts=concepts, facts=facts))
    for (old,) in connection.execute(sql.SQL("DELETE FROM {} RETURNING load").format(graph)).fetchall():
        tables = [sql.Identifier(target.schema, f"{table}_{old}") for table in ("concepts", "facts")]
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}, {}").format(*tables))
    relations = list(collector.relations)
    meta = GraphMeta(
        format=FORMAT,
        name=name,
        languages=sorted({"zh" if is_chinese(concept) else "en" for concept in names}),
        concepts=len(names),
        facts=len(rows),
        relations=relations,
        provenances=list(collector.provenances),
        fingerprint=fingerprint_of(fact_hashes(rows, name_hashes(names), name_hashes(relations))),
    )
    connection.execute(sql.SQL("INSERT INTO {} VALUES (%s, %s)").format(graph), [load, meta.model_dump_json()])
    step("indexing", 1, 1)


def _copy(
    connection: _Connection,
    table: sql.Identifier,
    types: str,
    rows: Iterable[tuple[Any, ...]],
    step: Callable[[int, int], None],
    total: int,
) -> None:
    copying = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(table)
    with connection.cursor() as cursor, cursor.copy(copying) as copy:
        copy.set_types(types.split())
        for done, row in enumerate(rows, start=1):
            copy.write_row(row)
            if done % _BATCH == 0:
                step(done, total)
        step(total, total)
