"""The graph in Neo4j: the official driver against a server of the tests' own that speaks its protocol."""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from dialore.errors import GraphError
from dialore.sources.graph.servers.stores import load_store, open_store
from tests.sources.bolt_server import BoltServer
from tests.sources.cypher_queries import QUERIES
from tests.sources.graphs import facts

if TYPE_CHECKING:
    from collections.abc import Iterator

store_module = pytest.importorskip("neo4j", reason="Neo4j's driver is not here: pip install 'dialore[neo4j]'")

SMALL = facts("sushi | MadeOf | rice | 2", "rice | AtLocation | field", "茶 | IsA | 饮料")


@pytest.fixture
def server() -> Iterator[BoltServer]:
    """An empty server, a test's own."""
    server = BoltServer()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NEO4J_USERNAME", "NEO4J_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def failure(url: str) -> str:
    with pytest.raises(GraphError) as caught:
        open_store(url)
    assert "\n" not in str(caught.value)
    assert caught.value.mend
    assert "geheim" not in str(caught.value)
    return str(caught.value)


def triples(url: str) -> list[str]:
    with closing(open_store(url)) as store:
        return sorted(fact.triple for fact in store.facts())


def texts_of_the_store() -> list[str]:
    from dialore.sources.graph.servers import neo4j as module

    texts = [value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)]
    return [text for text in (*texts, *module.SCHEMA) if " " in text and not text.startswith("load it")]


def test_every_query_is_the_one_that_was_read_here() -> None:
    assert {" ".join(text.split()) for text in texts_of_the_store()} == set(QUERIES)


@pytest.mark.parametrize("text", texts_of_the_store())
def test_nothing_is_ever_written_into_a_query(text: str) -> None:
    assert not set(text) & set("'\"%`"), "a value stands in the query"
    for opening, closing_one in ("()", "[]", "{}"):
        assert text.count(opening) == text.count(closing_one)


def test_what_is_sent(server: BoltServer) -> None:
    many = facts(*(f"head {number} | IsA | tail {number % 7} | {number}" for number in range(5000)))
    url = server.url("many", database="people")
    with load_store(many, url) as store:
        written = [
            (text.split()[2:4], len(parameters["rows"]))
            for text, parameters, *_ in server.asked
            if "rows" in parameters
        ]
        assert [size for _, size in written] == [4096, 911, 4096, 904]
        assert {"dialore_concept_id", "dialore_concept_form", "dialore_concept_stems"} <= server.database.schema
        server.asked.clear()
        (concept,) = [store.find("HEAD 17")]
        assert concept is not None
        edges = store.edges_of([concept])
        assert store.fact(edges, 0).triple == "(head 17, IsA, tail 3)"
    # One round trip to find it, one for its facts and their names; to read, in the database that the URL names.
    assert [(mode, database) for *_, mode, database in server.asked] == [("r", "people")] * 2
    assert server.asked[0][1] == {"graph": server.database.graphs["many"][0], "key": "head 17"}
    assert len(triples(url)) == 5000


def test_routing_and_the_environments_user(server: BoltServer, monkeypatch: pytest.MonkeyPatch) -> None:
    load_store(SMALL, server.url("routed", scheme="neo4j")).close()
    monkeypatch.setenv("NEO4J_USERNAME", "neo4j")
    monkeypatch.setenv("NEO4J_PASSWORD", "geheim: #1")
    assert len(triples(server.url("routed", scheme="neo4j", user=""))) == 3


def test_a_server_that_refuses(server: BoltServer) -> None:
    assert "refuses the user" in failure(server.url("kitchen", user="neo4j:geheimer@"))
    assert "refuses the user" in failure(server.url("kitchen", user=""))
    assert "there is no graph" in failure(server.url("kitchen"))
    assert "has a #" in failure(server.url("a%23b"))
    server.failures = [("Neo.ClientError.Database.DatabaseNotFound", "No database\nof that name")]
    assert "No database of that name" in failure(server.url("kitchen", database="nowhere"))


def test_no_server() -> None:
    text = failure("bolt://neo4j:geheim@127.0.0.1:1/#kitchen")
    assert text.startswith("cannot reach bolt://127.0.0.1:1/#kitchen: ")
    assert "not a URL" in failure("bolt://127.0.0.1:port/#kitchen")


def test_another_layout_is_named(server: BoltServer) -> None:
    load_store(SMALL, server.url("newer")).close()
    graph, meta = server.database.graphs["newer"]
    server.database.graphs["newer"] = (graph, meta.replace('"format":1', '"format":99'))
    assert "layout 99" in failure(server.url("newer"))
    server.database.graphs["newer"] = (graph, "{}")
    assert "not a graph or is damaged" in failure(server.url("newer"))


def test_a_question_is_asked_again_where_that_may_help(server: BoltServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "neo4j")
    with load_store(SMALL, server.url("kitchen")) as store:
        server.drops = 1
        assert store.find("sushi") is not None
        server.failures = [("Neo.TransientError.General.MemoryPoolOutOfMemoryError", "later")]
        assert store.find("rice") is not None
        server.failures = [("Neo.ClientError.Statement.SyntaxError", "never")]
        with pytest.raises(GraphError, match="never"):
            store.find("field")
        assert store.find("field") is not None


def test_a_load_that_fails_leaves_the_old_graph_and_the_next_removes_what_it_left(server: BoltServer) -> None:
    url = server.url("kitchen")
    load_store(SMALL, url).close()

    def step(name: str, done: int, total: int) -> None:
        if name == "copying facts":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_store(facts("tea | IsA | drink"), url, on_step=step)
    assert len(triples(url)) == 3
    assert sum(map(bool, server.database.concepts.values())) == 2
    load_store(facts("tea | IsA | drink"), server.url("kitchen sink")).close()
    load_store(facts("coffee | IsA | drink"), url).close()
    assert triples(url) == ["(coffee, IsA, drink)"]
    assert triples(server.url("kitchen%20sink")) == ["(tea, IsA, drink)"]
    assert sum(map(len, server.database.facts.values())) == 2
    assert sum(map(len, server.database.concepts.values())) == 4


def test_two_loads_at_once(server: BoltServer) -> None:
    url = server.url("kitchen")

    def step(name: str, done: int, total: int) -> None:
        if name == "copying concepts":
            load_store(facts("tea | IsA | drink"), url).close()

    with pytest.raises(GraphError, match="loaded by another"):
        load_store(SMALL, url, on_step=step)
    assert triples(url) == ["(tea, IsA, drink)"]


def test_threads_share_connections(server: BoltServer) -> None:
    with load_store(SMALL, server.url("kitchen")) as store:
        threads = [threading.Thread(target=lambda: [store.edges_of([0, 1]) for _ in range(10)]) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert server.connections <= 3 + 6
