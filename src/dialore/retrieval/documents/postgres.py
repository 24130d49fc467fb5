"""The document store of a database server: PostgreSQL with pgvector, for what outgrows a machine (extra `postgres`).

An index is a schema. Terms are a `tsvector` under a GIN index, ranked by BM25 in SQL; vectors are half-precision under
an HNSW index, so that their ranking is approximate among many.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dialore.errors import InputError, MissingExtraError
from dialore.retrieval.bm25 import K1, B, rarity
from dialore.retrieval.documents.filters import ALL, Filter
from dialore.retrieval.documents.store import AGAIN, BUILD, Transaction, selective
from dialore.retrieval.fusion import DECIMALS

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg_pool import ConnectionPool
except ImportError as error:
    raise MissingExtraError("a document index in PostgreSQL", "postgres") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from dialore.retrieval.documents.store import IndexSettings, Row

_CONNECTIONS = 8
_SECONDS = 10.0
_WIDEST = 1000  # candidates of the vectors' index that pgvector looks at, at most
_TABLES = """
CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;
CREATE TABLE passages (number BIGINT PRIMARY KEY, id BIGINT, document BIGINT, length INTEGER, text TEXT, title TEXT,
    url TEXT, file TEXT, page INTEGER, metadata_number BIGINT, terms TSVECTOR{vector});
CREATE UNIQUE INDEX passages_document ON passages (document, id);
CREATE INDEX passages_id ON passages (id);
CREATE INDEX passages_metadata ON passages (metadata_number);
CREATE TABLE metadata (number BIGINT PRIMARY KEY, document BIGINT, content TEXT, fields JSONB);
CREATE INDEX passages_terms ON passages USING gin (terms);
CREATE TABLE frequencies (term TEXT PRIMARY KEY, passages BIGINT);
"""
_BM25 = f"""
SELECT number, round(sum(weight * count * {K1 + 1} / (count + {K1} * ({1 - B} + {B} * length / ?)))::numeric,
    {DECIMALS})::float8 AS score
FROM (SELECT number, length, lexeme, array_length(positions, 1) AS count
      FROM passages, unnest(terms) AS held (lexeme, positions, weights) WHERE terms @@ ?::tsquery{{seen}}) AS found
JOIN unnest(?::text[], ?::float8[]) AS asked (term, weight) ON lexeme = term
GROUP BY number ORDER BY score DESC, number LIMIT ?"""


class PostgresStore:
    """An index in a schema, `postgresql://user@host/database#name`; raises InputError where no server answers."""

    def __init__(self, url: str) -> None:
        address, _, name = url.partition("#")
        self.name = name or "documents"
        try:
            parts = conninfo_to_dict(address)
        except psycopg.ProgrammingError as error:
            raise InputError(f"not an address of PostgreSQL: {str(error).strip()}", hint="check the URL") from error
        self.shown = f"{parts.get('host', '')}/{parts.get('dbname', '')}#{self.name}"
        if not re.fullmatch(r"\w{1,60}", self.name):
            raise InputError(f"{self.name!r} is no name of an index", hint="take letters, digits and _")
        settings = f'-c search_path="{self.name}",public -c lock_timeout=30s'
        conninfo = make_conninfo(address, options=settings)
        with self._explain_errors():  # What is wrong is said at once; a pool tries again until its time is up.
            psycopg.connect(conninfo, connect_timeout=int(_SECONDS)).close()
        self._pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
            conninfo, min_size=0, max_size=_CONNECTIONS, timeout=_SECONDS, open=True
        )

    def size(self) -> int:
        """Bytes of the tables with their indexes."""
        with self.read() as transaction:
            tables = "SELECT COALESCE(SUM(pg_total_relation_size(c.oid)), 0) FROM pg_class c WHERE c.relkind = 'r' AND "
            rows = transaction.ask(f"{tables} c.relnamespace = current_schema()::regnamespace")
            return int(rows.fetchone()[0])

    def close(self) -> None:
        """See `SqliteStore`."""
        self._pool.close()

    @contextmanager
    def read(self, filter_: Filter = ALL) -> Iterator[_PostgresTransaction]:
        """See `SqliteStore`."""
        with self._explain_errors(), self._pool.connection() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield _PostgresTransaction(connection, self.shown, filter_)

    @contextmanager
    def write(self, fresh: IndexSettings | None = None) -> Iterator[_PostgresTransaction]:
        """See `SqliteStore`."""
        with self._explain_errors(), self._pool.connection() as connection:
            transaction = _PostgresTransaction(connection, self.shown)
            transaction.ask("SELECT pg_advisory_xact_lock(hashtext(?))", f"dialore documents {self.name}")
            if fresh is not None:
                transaction.ask(f'DROP SCHEMA IF EXISTS "{self.name}" CASCADE')
                transaction.ask(f'CREATE SCHEMA "{self.name}"')
                for statement in filter(str.strip, _TABLES.split(";")):
                    vector = f", vector HALFVEC({fresh.dimension})" if fresh.dimension else ""
                    transaction.ask(statement.replace("{vector}", vector))
                transaction.begin(fresh)
            yield transaction
            transaction.finish()
            if fresh is not None and fresh.dimension:
                transaction.ask("CREATE INDEX passages_vector ON passages USING hnsw (vector halfvec_ip_ops)")

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Say what the server says as our errors."""
        try:
            yield
        except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
            raise InputError(f"no such document index: {self.shown}", hint=BUILD) from error
        except errors.LockNotAvailable as error:
            message = f"{self.shown} is being changed by another process"
            raise InputError(message, hint="wait until it is done") from error
        except errors.UndefinedFile as error:
            raise InputError("the server has no pgvector", hint="install it beside PostgreSQL") from error
        except psycopg.Error as error:
            message, hint = f"{self.shown}: {' '.join(str(error).split())}", f"check the server, or {AGAIN}"
            if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:  # not said by the server
                hint = "does the server run, and are host, port, database, user and password right?"
                message = f"cannot reach {message}"
            raise InputError(message, hint=hint) from error


class _PostgresTransaction(Transaction):
    """One state of an index in a database, or a change of it; see `Transaction`."""

    mark = "%s"
    day_of = "CASE WHEN text ~ '^[0-9]{4}-[0-9]{2}' THEN text END"
    field_items = (
        f"SELECT 1 FROM (SELECT text, number, {day_of} AS day FROM (SELECT value #>> '{{}}' AS text,"
        " CASE WHEN jsonb_typeof(value) = 'number' OR"
        " value #>> '{}' ~ '^[-+]{0,1}[0-9]{1,200}([.][0-9]{1,200}){0,1}$' THEN (value #>> '{}')::float8 END AS number"
        " FROM (SELECT metadata.fields #> ?::text[] AS held) AS field, jsonb_array_elements(CASE WHEN held IS NULL"
        " THEN '[]' WHEN jsonb_typeof(held) = 'array' THEN held ELSE jsonb_build_array(held) END) AS value"
        ") AS own) AS item"
    )

    def _path_of(self, *steps: str) -> object:
        return list(steps)

    def among(self, column: str, values: Collection[Any]) -> tuple[str, object]:
        return f"{column} = ANY(?)", list(values)

    def vocabulary(self, letter: str) -> list[str]:
        return [term for (term,) in self.ask("SELECT term FROM frequencies WHERE left(term, 1) = ?", letter)]

    def by_terms(self, terms: Counter[str], top: int) -> list[tuple[int, float]]:
        """See `Transaction`: exact BM25 of what has any of the most informative terms."""
        frequencies = dict(self.ask("SELECT term, passages FROM frequencies WHERE term = ANY(?)", list(terms)))
        chosen = selective(terms, frequencies)
        if not chosen:
            return []
        state = self.state()
        asked = [term for term in terms if frequencies.get(term)]
        rare = rarity(state.passages, np.array([frequencies[term] for term in asked]))
        weights = rare * [terms[term] for term in asked]
        mean = max(state.length / state.passages, 1e-9)
        match = " | ".join(map(_quote_lexeme, chosen))
        sql = _BM25.replace("{seen}", self._seen_each)
        return list(self.ask(sql, mean, match, *self._seen_values, asked, weights.tolist(), top))

    def by_vector(self, query: NDArray[np.float32], top: int) -> list[tuple[int, float]]:
        """See `Transaction`: by the vectors' index, approximately among many."""
        self.ask("SELECT set_config('hnsw.ef_search', ?, true)", str(min(max(top, 40), _WIDEST)))
        self.ask("SELECT set_config('hnsw.iterative_scan', 'strict_order', true)")
        sql = f"SELECT number, -(vector <#> ?::halfvec) FROM passages WHERE TRUE{self._seen_each}"
        sql += " ORDER BY vector <#> ?::halfvec LIMIT ?"
        vector = _vector(query)
        rows = self.ask(sql, vector, *self._seen_values, vector, top)
        scored = ((number, round(float(score), DECIMALS)) for number, score in rows)
        return sorted((pair for pair in scored if pair[1] > 0), key=lambda pair: (-pair[1], pair[0]))

    def update_approximate(self, on_added: Callable[[int, int], None]) -> None:
        """See `Transaction`: the server keeps its own, made when the index was built."""

    def _insert(self, rows: Sequence[Row], terms: Sequence[Sequence[str]], vectors: NDArray[np.float32] | None) -> None:
        columns = "number, id, document, length, text, title, url, file, page, metadata_number, terms"
        columns += "" if vectors is None else ", vector"
        having: Counter[str] = Counter()
        with self._connection.cursor().copy(f"COPY passages ({columns}) FROM STDIN") as copy:
            for position, (row, own_terms) in enumerate(zip(rows, terms, strict=True)):
                lexemes = " ".join(f"{_quote_lexeme(term)}:{at}" for at, term in enumerate(own_terms, start=1))
                columns_of_row: list[Any] = [*row, lexemes]
                if vectors is not None:
                    columns_of_row.append(_vector(vectors[position]))
                copy.write_row(columns_of_row)
                having.update(set(own_terms))
        self.ask(
            "INSERT INTO frequencies SELECT * FROM unnest(?::text[], ?::bigint[]) "
            "ON CONFLICT (term) DO UPDATE SET passages = frequencies.passages + excluded.passages",
            list(having),
            list(having.values()),
        )

    def _insert_metadata(self, rows: Sequence[tuple[int, int, str]]) -> None:
        if not rows:
            return
        # Kept as JSON for filters, and as text, because a JSONB value does not keep the order of its fields.
        with self._connection.cursor().copy("COPY metadata (number, document, content, fields) FROM STDIN") as copy:
            for row in rows:
                copy.write_row((*row, row[2]))

    def _remove(self, condition: str, value: object) -> None:
        lost = f"SELECT unnest(tsvector_to_array(terms)) AS lexeme {condition}"
        self.ask(
            "UPDATE frequencies SET passages = passages - gone FROM "
            f"(SELECT lexeme, COUNT(*) AS gone FROM ({lost}) AS each GROUP BY lexeme) AS terms WHERE term = lexeme",
            value,
        )


def _quote_lexeme(term: str) -> str:
    """Return a term as a lexeme of PostgreSQL's text search."""
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"


def _vector(vector: NDArray[np.float32]) -> str:
    return "[" + ",".join(f"{value:.6g}" for value in vector.tolist()) + "]"
