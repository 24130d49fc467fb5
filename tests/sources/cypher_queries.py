"""What the Neo4j store's queries do, in Python, each under its whole text: a changed text must be read again here."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Rows = list[list[Any]]


@dataclass
class Database:
    """Nodes and relationships, as the queries see them.

    Attributes:
        graphs: the DialoreGraph nodes' graph and meta by name.
        concepts: the DialoreConcept nodes' properties by graph, then by id.
        facts: the FACT relationships by graph: head, relation, weight, provenance, tail.
        schema: the names of its constraints and indexes.
    """

    graphs: dict[str, tuple[str, str]] = field(default_factory=dict)
    concepts: dict[str, dict[int, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    facts: dict[str, list[tuple[int, str, float, str, int]]] = field(default_factory=lambda: defaultdict(list))
    schema: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Query:
    """One query.

    Attributes:
        run: does it.
        fields: its columns' names.
        parameters: its parameters' names.
        writes: whether it needs write access.
    """

    run: Callable[..., Rows]
    fields: tuple[str, ...]
    parameters: set[str]
    writes: bool


QUERIES: dict[str, Query] = {}


def query(text: str, *, writes: bool = False) -> Callable[[Callable[..., Rows]], Callable[..., Rows]]:
    """Name the text whose doing a function is."""
    bare = " ".join(text.split())
    last = bare.rsplit("RETURN", 1)[-1] if "RETURN" in bare else ""
    fields = tuple(re.findall(r"\bAS (\w+)", last))

    def register(run: Callable[..., Rows]) -> Callable[..., Rows]:
        QUERIES[bare] = Query(run, fields, set(re.findall(r"\$(\w+)", bare)), writes)
        return run

    return register


@query("MATCH (g:DialoreGraph {name: $name}) RETURN g.graph AS graph, g.meta AS meta")
def meta(database: Database, name: str) -> Rows:
    return [list(database.graphs[name])] if name in database.graphs else []


def _rows(found: Iterable[dict[str, Any]]) -> Rows:
    return [[concept["id"], concept["name"], concept["degree"]] for concept in found]


def _found(database: Database, graph: str, name: str, value: str) -> Rows:
    return _rows(concept for concept in database.concepts[graph].values() if concept.get(name) == value)


@query(
    """
    UNWIND $key AS number
    MATCH (c:DialoreConcept {graph: $graph, id: number})
    RETURN c.id AS id, c.name AS name, c.degree AS degree
    """
)
def by_ids(database: Database, graph: str, key: list[int]) -> Rows:
    return _rows(database.concepts[graph][number] for number in key if number in database.concepts[graph])


@query("MATCH (c:DialoreConcept {graph: $graph, form: $key}) RETURN c.id AS id, c.name AS name, c.degree AS degree")
def by_form(database: Database, graph: str, key: str) -> Rows:
    return _found(database, graph, "form", key)


@query(
    """MATCH (c:DialoreConcept {graph: $graph, stems: $key})
    RETURN c.id AS id, c.name AS name, c.degree AS degree ORDER BY id"""
)
def by_stems(database: Database, graph: str, key: str) -> Rows:
    return sorted(_found(database, graph, "stems", key))


@query(
    """
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
)
def facts(database: Database, graph: str, asked: list[int]) -> Rows:
    def row(other: int, head: int, relation: str, weight: float, provenance: str, tail: int) -> list[Any]:
        return [head, relation, tail, weight, provenance, database.concepts[graph][other]["name"]]

    outgoing, incoming, heads = defaultdict(list), defaultdict(list), set(asked)
    for fact in database.facts[graph]:
        outgoing[fact[0]].append(row(fact[-1], *fact))
        if fact[0] not in heads:
            incoming[fact[-1]].append(row(fact[0], *fact))
    return [found for side in (outgoing, incoming) for number in asked for found in side[number]]


def _schema(name: str) -> Callable[..., Rows]:
    def create(database: Database) -> Rows:
        database.schema.add(name)
        return []

    return create


for _text in (
    "CREATE CONSTRAINT dialore_graph_name IF NOT EXISTS FOR (g:DialoreGraph) REQUIRE g.name IS UNIQUE",
    "CREATE CONSTRAINT dialore_concept_id IF NOT EXISTS FOR (c:DialoreConcept) REQUIRE (c.graph, c.id) IS UNIQUE",
    "CREATE INDEX dialore_concept_form IF NOT EXISTS FOR (c:DialoreConcept) ON (c.graph, c.form)",
    "CREATE INDEX dialore_concept_stems IF NOT EXISTS FOR (c:DialoreConcept) ON (c.graph, c.stems)",
):
    query(_text, writes=True)(_schema(_text.split()[2]))


@query("CALL db.awaitIndexes(300)")
def await_indexes(database: Database) -> Rows:
    return []


@query(
    """
    UNWIND $rows AS row
    CREATE (c:DialoreConcept {graph: $graph, id: row.id, name: row.name, form: row.form, degree: row.degree})
    SET c.stems = row.stems
    RETURN count(c) AS written
    """,
    writes=True,
)
def add_concepts(database: Database, graph: str, rows: list[dict[str, Any]]) -> Rows:
    for row in rows:
        assert row["id"] not in database.concepts[graph]
        database.concepts[graph][row["id"]] = {
            name: row[name] for name in ("id", "name", "form", "degree", "stems") if row[name] is not None
        }
    return [[len(rows)]]


@query(
    """
    UNWIND $rows AS row
    MATCH (h:DialoreConcept {graph: $graph, id: row.head})
    MATCH (t:DialoreConcept {graph: $graph, id: row.tail})
    CREATE (h)-[f:FACT {relation: row.relation, weight: row.weight, provenance: row.provenance}]->(t)
    RETURN count(f) AS written
    """,
    writes=True,
)
def add_facts(database: Database, graph: str, rows: list[dict[str, Any]]) -> Rows:
    known = database.concepts[graph]
    added = [
        (row["head"], row["relation"], row["weight"], row["provenance"], row["tail"])
        for row in rows
        if row["head"] in known and row["tail"] in known
    ]
    database.facts[graph] += added
    return [[len(added)]]


@query("MERGE (g:DialoreGraph {name: $name}) SET g.graph = $graph, g.meta = $meta", writes=True)
def show(database: Database, name: str, graph: str, meta: str) -> Rows:
    database.graphs[name] = (graph, meta)
    return []


@query(
    """
    MATCH (c:DialoreConcept) WHERE c.graph STARTS WITH $prefix AND c.graph <> $graph
    WITH c LIMIT $limit
    DETACH DELETE c
    RETURN count(*) AS removed
    """,
    writes=True,
)
def remove_others(database: Database, prefix: str, graph: str, limit: int) -> Rows:
    others = [
        (owner, number)
        for owner, concepts in database.concepts.items()
        for number in concepts
        if owner.startswith(prefix) and owner != graph
    ][:limit]
    for owner, number in others:
        del database.concepts[owner][number]
        database.facts[owner] = [fact for fact in database.facts[owner] if number not in (fact[0], fact[-1])]
    return [[len(others)]]
