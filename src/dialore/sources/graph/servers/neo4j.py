"""A graph in Neo4j, for those who already run one: loaded in batches, read by queries that only parameters fill.

| what | holds |
|---|---|
| `(:DialoreGraph)` | name, graph (the name and a load's suffix), meta (the graph's description as JSON) |
| `(:DialoreConcept)` | graph, id, name, form (normal form), stems, degree |
| `[:FACT]` | relation, weight, provenance |

A load writes concepts of its own and is seen when its last query has named it, so a load that is killed leaves the
old graph; the next one removes what it left. The URL's fragment names the graph, its path the database:
`neo4j://user:password@host:7687/neo4j#company`.
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

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
    import neo4j
    from neo4j.exceptions import AuthError, ConfigurationError, DriverError, Neo4jError
except ImportError as error:
    raise MissingExtraError("a graph in Neo4j", "neo4j") from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dialore.knowledge import Fact
    from dialore.sources.graph.servers.copying import Step
    from dialore.sources.graph.store.layout import GraphMeta

FORMAT = 1
_REMOVED = 10_000
"""Concepts that one query removes: a server keeps a query's changes in memory until it ends."""

META = "MATCH (g:DialoreGraph {name: $name}) RETURN g.graph AS graph, g.meta AS meta"
BY_IDS = """
UNWIND $key AS number
MATCH (c:DialoreConcept {graph: $graph, id: number})
RETURN c.id AS id, c.name AS name, c.degree AS degree
"""
BY_FORM = "MATCH (c:DialoreConcept {graph: $graph, form: $key}) RETURN c.id AS id, c.name AS name, c.degree AS degree"
BY_STEMS = """
MATCH (c:DialoreConcept {graph: $graph, stems: $key})
RETURN c.id AS id, c.name AS name, c.degree AS degree ORDER BY id
"""
FACTS = """
UNWIND $asked AS number
MATCH (h:DialoreConcept {graph: $graph, id: number})-[f:FACT]->(t:DialoreConcept)
RETURN h.id AS head, f.relation AS relation, t.id AS tail, f.weight AS weight, f.provenance AS provenance,
       t.name AS other
UNION ALL
UNWIND $asked AS number
MATCH (t:DialoreConcept {graph: $graph, id: number})<-[f:FACT]-(h:DialoreConcept)
WHERE NOT h.id IN $asked
RETURN h.id AS head, f.relation AS relation, t.id AS tail, f.weight AS weight, f.provenance AS provenance,
       h.name AS other
"""
BY: dict[Column, str] = {"id": BY_IDS, "form": BY_FORM, "stems": BY_STEMS}
SCHEMA = (
    "CREATE CONSTRAINT dialore_graph_name IF NOT EXISTS FOR (g:DialoreGraph) REQUIRE g.name IS UNIQUE",
    "CREATE CONSTRAINT dialore_concept_id IF NOT EXISTS FOR (c:DialoreConcept) REQUIRE (c.graph, c.id) IS UNIQUE",
    "CREATE INDEX dialore_concept_form IF NOT EXISTS FOR (c:DialoreConcept) ON (c.graph, c.form)",
    "CREATE INDEX dialore_concept_stems IF NOT EXISTS FOR (c:DialoreConcept) ON (c.graph, c.stems)",
    "CALL db.awaitIndexes(300)",
)
ADD_CONCEPTS = """
UNWIND $rows AS row
CREATE (c:DialoreConcept {graph: $graph, id: row.id, name: row.name, form: row.form, degree: row.degree})
SET c.stems = row.stems
RETURN count(c) AS written
"""
ADD_FACTS = """
UNWIND $rows AS row
MATCH (h:DialoreConcept {graph: $graph, id: row.head})
MATCH (t:DialoreConcept {graph: $graph, id: row.tail})
CREATE (h)-[f:FACT {relation: row.relation, weight: row.weight, provenance: row.provenance}]->(t)
RETURN count(f) AS written
"""
SHOW = "MERGE (g:DialoreGraph {name: $name}) SET g.graph = $graph, g.meta = $meta"
REMOVE_OTHERS = """
MATCH (c:DialoreConcept) WHERE c.graph STARTS WITH $prefix AND c.graph <> $graph
WITH c LIMIT $limit
DETACH DELETE c
RETURN count(*) AS removed
"""


class Neo4jStore(RemoteStore):
    """A graph in Neo4j, opened for reading. Many threads may read at once.

    Args:
        url: `neo4j://user:password@host:port/database#graph`, or with `bolt`, `neo4j+s` and their kin. Without a user
            the environment's `NEO4J_USERNAME` and `NEO4J_PASSWORD` hold.

    Raises:
        GraphError: no server, no such database or graph, or one of another version.
        MissingExtraError: the driver is not installed.
    """

    def _open(self, url: str) -> tuple[str, GraphMeta]:
        self._server = server = _Server(url)
        try:
            self._graph, meta = _read_meta(server)
        except GraphError:
            server.close()
            raise
        self._relations = {name: number for number, name in enumerate(meta.relations)}
        self._provenances = {name: number for number, name in enumerate(meta.provenances)}
        return server.place, meta

    @classmethod
    def _fill(cls, facts: Iterable[Fact], url: str, name: str, step: Step) -> None:
        server = _Server(url)
        try:
            server.ask(META, name=server.name)  # before anything long is begun
            _write(server, MergedFacts(facts, name or server.name, FORMAT), step)
        finally:
            server.close()

    def close(self) -> None:
        """Close the connections; a second time does nothing."""
        self._server.close()

    def _concepts_by(self, column: Column, keys: list[Any]) -> Sequence[FoundConcept]:
        key = keys if column == "id" else keys[0]
        return [FoundConcept(*row) for row in self._server.ask(BY[column], graph=self._graph, key=key)]

    def _facts_of(self, concepts: list[int]) -> FoundFacts:
        rows = self._server.ask(FACTS, graph=self._graph, asked=concepts)
        columns = list(zip(*rows, strict=True)) or [()] * 6
        head, tail = (np.array(columns[place], np.int64) for place in (0, 2))
        relation = np.array([self._relations[name] for name in columns[1]], np.int64)
        provenance = np.array([self._provenances[name] for name in columns[4]], np.int64)
        return FoundFacts(head, relation, tail, np.array(columns[3], np.float64), provenance, columns[5])


class _Server:
    """A database of a Neo4j server, and the name of the graph in it."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            address = f"{parts.hostname or 'localhost'}:{parts.port or 7687}"
        except ValueError as error:
            raise GraphError(
                "not a URL of a Neo4j database", mend="write neo4j://user:password@host:port/database#graph"
            ) from error
        self.name = unquote(parts.fragment) or DEFAULT
        if "#" in self.name:
            raise GraphError(f"the graph's name has a #: {self.name!r}", mend="name it without")
        self._database = parts.path.strip("/") or None
        self.place = f"{parts.scheme}://{address}/{self._database or ''}#{self.name}"
        user = unquote(parts.username or "") or os.environ.get("NEO4J_USERNAME", "")
        password = unquote(parts.password or "") or os.environ.get("NEO4J_PASSWORD", "")
        routing = f"?{parts.query}" if parts.query else ""
        self._closed = False
        with self.errors():
            self._driver = neo4j.GraphDatabase.driver(
                f"{parts.scheme}://{address}{routing}",
                auth=(user, password) if user else None,
                connection_timeout=SECONDS,
                connection_acquisition_timeout=SECONDS,
                max_transaction_retry_time=SECONDS,
            )

    def close(self) -> None:
        self._closed = True
        self._driver.close()

    def ask(self, query: str, **parameters: object) -> list[list[Any]]:
        """The rows of a query that reads, in one round trip; asked again once where that may help."""
        with self.errors():
            try:
                return self._run(query, parameters, neo4j.READ_ACCESS)
            except (DriverError, Neo4jError) as error:
                if not error.is_retryable():
                    raise
                return self._run(query, parameters, neo4j.READ_ACCESS)

    def tell(self, query: str, **parameters: object) -> list[list[Any]]:
        """The rows of a query that writes, in a transaction of its own."""
        with self.errors():
            return self._run(query, parameters, neo4j.WRITE_ACCESS)

    def _run(self, query: str, parameters: dict[str, object], mode: str) -> list[list[Any]]:
        if self._closed:
            raise closed(self.place)
        # A query outside a transaction is sent and answered at once; all rows of it come without being asked again.
        with self._driver.session(database=self._database, default_access_mode=mode, fetch_size=-1) as session:
            return session.run(query, parameters).values()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What the server or the driver says, as GraphErrors of one line."""
        try:
            yield
        except AuthError as error:
            raise GraphError(
                f"{self.place} refuses the user: {_line(error)}",
                mend="put user and password into the URL, or into NEO4J_USERNAME and NEO4J_PASSWORD",
            ) from error
        except ConfigurationError as error:
            raise GraphError(f"{self.place}: {_line(error)}", mend="check the URL") from error
        except Neo4jError as error:
            raise GraphError(f"{self.place}: {_line(error)}", mend="see the server's log") from error
        except DriverError as error:
            raise GraphError(
                f"cannot reach {self.place}: {_line(error)}", mend="does the server run, and are host and port right?"
            ) from error


def _line(error: Neo4jError | DriverError) -> str:
    return one_line(getattr(error, "message", None) or error)


def _read_meta(server: _Server) -> tuple[str, GraphMeta]:
    rows = server.ask(META, name=server.name)
    graph, text = rows[0] if rows else ("", None)
    return graph, parsed_meta(text, server.place, FORMAT)


def _write(server: _Server, merged: MergedFacts, step: Step) -> None:
    prefix = f"{server.name}#"
    graph = prefix + secrets.token_hex(4)
    for query in SCHEMA:
        server.tell(query)
    for concepts in merged.concepts(step):
        _add(server, ADD_CONCEPTS, graph, [concept._asdict() for concept in concepts])
    names, origins = merged.meta.relations, merged.meta.provenances
    for facts in merged.facts(step):
        rows: list[dict[str, object]] = [
            {
                "head": fact.head,
                "relation": names[fact.relation],
                "tail": fact.tail,
                "weight": fact.weight,
                "provenance": origins[fact.provenance],
            }
            for fact in facts
        ]
        _add(server, ADD_FACTS, graph, rows)
    server.tell(SHOW, name=server.name, graph=graph, meta=merged.meta.model_dump_json())
    while server.tell(REMOVE_OTHERS, prefix=prefix, graph=graph, limit=_REMOVED) != [[0]]:
        step("removing the old graph", 0, 1)


def _add(server: _Server, query: str, graph: str, rows: list[dict[str, object]]) -> None:
    # A load that ends removes what others of its name are writing; theirs must not pass for whole.
    if rows and server.tell(query, graph=graph, rows=rows) != [[len(rows)]]:
        raise GraphError(f"{server.place} was loaded by another meanwhile", mend="open it, or load it again")
