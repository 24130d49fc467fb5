"""The graph in PostgreSQL, on a real server: what can go wrong, and that it stays whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from dialore.errors import GraphError, UnknownNameError
from dialore.knowledge import Fact
from dialore.retrieval.graph import load_store
from dialore.retrieval.graph.opening import open_store
from tests.retrieval.graph.graphs import ROOT, facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.retrieval.graph.postgres_server import PostgresServer

psycopg = pytest.importorskip("psycopg", reason="PostgreSQL's driver is not here: pip install 'dialore[postgres]'")
pytest.importorskip("psycopg_pool", reason="PostgreSQL's driver is not here: pip install 'dialore[postgres]'")

SMALL = facts("sushi | MadeOf | rice | 2", "rice | AtLocation | field", "茶 | IsA | 饮料")


def failure(url: str) -> str:
    with pytest.raises(GraphError) as caught:
        open_store(url)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return str(caught.value)


def triples(url: str) -> list[str]:
    with closing(open_store(url)) as store:
        return sorted(fact.triple for fact in store.facts())


def do(server: PostgresServer, *statements: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def tables(server: PostgresServer, name: str) -> set[str]:
    query = "SELECT table_name FROM information_schema.tables WHERE table_schema = '%s'"
    return {str(row[0]) for row in do(server, query % name)}


def test_no_server_is_one_clear_line_without_the_password() -> None:
    text = failure("postgresql://someone:geheim@127.0.0.1:1/facts?connect_timeout=2#kitchen")
    assert text.startswith("cannot reach postgresql://127.0.0.1:1/facts#kitchen: ")
    assert "geheim" not in text
    assert "someone" not in text


def test_what_is_no_graph(postgres_server: PostgresServer) -> None:
    assert "there is no graph" in failure(postgres_server.url("nothing"))
    assert "nowhere" in failure(postgres_server.url(database="nowhere"))
    assert "not a URL" in failure("postgresql://[")
    assert "too long" in failure(postgres_server.url("long" * 20))
    do(postgres_server, "CREATE SCHEMA foreign_one", "CREATE TABLE foreign_one.graph (other text)")
    assert "there is no graph" in failure(postgres_server.url("foreign_one"))
    with pytest.raises(UnknownNameError, match="postgresql"):
        open_store("postgressql://host/database")


def test_another_layout_is_named(postgres_server: PostgresServer) -> None:
    url = postgres_server.url("newer")
    load_store(SMALL, url).close()
    do(postgres_server, "UPDATE newer.graph SET meta = jsonb_set(meta, '{format}', '99')")
    assert "layout 99" in failure(url)
    do(postgres_server, """UPDATE newer.graph SET meta = '{"other": 1}'""")
    assert "not a graph or is damaged" in failure(url)


def test_graphs_stand_side_by_side_and_carry_their_names(postgres_server: PostgresServer) -> None:
    one, two = (postgres_server.url(name) for name in ("one", 'two%20"; DROP SCHEMA one'))
    load_store(SMALL, one).close()
    with load_store(facts("tea | IsA | drink"), two) as store:
        assert store.meta.name == 'two "; DROP SCHEMA one'
        assert next(store.facts()).graph == 'two "; DROP SCHEMA one'
    assert triples(two) == ["(tea, IsA, drink)"]
    assert len(triples(one)) == 3


def test_a_reader_of_a_graph_that_was_replaced_is_told(postgres_server: PostgresServer) -> None:
    url = postgres_server.url("replaced")
    with load_store(SMALL, url) as reader:
        load_store(facts("tea | IsA | drink", "sushi | IsA | food"), url).close()
        with pytest.raises(GraphError, match=r"loaded anew.*open it again"):
            reader.find("sushi")
    assert len(tables(postgres_server, "replaced")) == 3


def test_a_server_that_was_started_anew_is_read_on(postgres_server: PostgresServer) -> None:
    with load_store(SMALL, postgres_server.url("again")) as store:
        assert store.find("sushi") is not None
        postgres_server.stop()
        postgres_server.start()
        assert store.find("field") is not None


def test_a_server_that_is_gone(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dialore.retrieval.graph.postgres.SECONDS", 1)
    with load_store(SMALL, postgres_server.url("gone")) as store:
        postgres_server.stop()
        try:
            with pytest.raises(GraphError, match="cannot reach postgresql://"):
                store.find("sushi")
        finally:
            postgres_server.start()
        # The pool tries again at growing intervals, and a question waits for a second alone.
        for _ in range(20):
            with suppress(GraphError):
                assert store.find("sushi") is not None
                break
        else:
            pytest.fail("the server runs again, and no question is answered")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (Fact("a", "IsA", "\0"), "0x00"),
        (Fact(" ", "IsA", "b"), "blank"),
        (None, "cannot be read"),
    ],
)
def test_a_load_that_fails_leaves_the_old_graph(postgres_server: PostgresServer, bad: Fact | None, said: str) -> None:
    url = postgres_server.url("kept")
    load_store(SMALL, url).close()
    before = tables(postgres_server, "kept")

    def items() -> Iterator[Fact]:
        yield from facts("tea | IsA | drink")
        if bad is None:
            raise GraphError("the file cannot be read")
        yield bad

    with pytest.raises(GraphError, match=said):
        load_store(items(), url)
    with pytest.raises(GraphError, match="no facts"):
        load_store([], url)
    assert len(triples(url)) == 3
    assert tables(postgres_server, "kept") == before


def test_a_load_that_is_killed_leaves_the_old_graph(postgres_server: PostgresServer) -> None:
    url = postgres_server.url("killed")
    load_store(SMALL, url).close()
    before = tables(postgres_server, "killed")
    script = f"""
        import sys
        from dialore.knowledge import Fact
        from dialore.retrieval.graph.postgres import load_store
        def step(name, done, total):
            if name == "copying facts" and done > 8000:
                print("half", flush=True)
                sys.stdin.read()
        load_store((Fact(f"head {{n}}", "IsA", "thing") for n in range(20000)), {url!r}, on_step=step)
    """
    load = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with load:
        assert load.stdout is not None
        assert load.stdout.readline() == b"half\n"
        with pytest.raises(GraphError, match="being loaded by another"):
            load_store(SMALL, url)
        load.send_signal(signal.SIGKILL)
    assert len(triples(url)) == 3
    deadline = time.monotonic() + 20  # the server notices when it next writes to the dead client
    while tables(postgres_server, "killed") != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert tables(postgres_server, "killed") == before
    load_store(facts("tea | IsA | drink"), url).close()
    assert triples(url) == ["(tea, IsA, drink)"]


def test_who_may_only_read_can_read_and_not_load(postgres_server: PostgresServer) -> None:
    url = postgres_server.url("lent")
    load_store(SMALL, url).close()
    grants = ("GRANT USAGE ON SCHEMA lent TO reader", "GRANT SELECT ON ALL TABLES IN SCHEMA lent TO reader")
    do(postgres_server, "CREATE ROLE reader LOGIN", *grants)
    readers = url.replace("dialore@", "reader@")
    assert len(triples(readers)) == 3
    with pytest.raises(GraphError, match="permission denied"):
        load_store(SMALL, readers)
    do(postgres_server, "REVOKE SELECT ON ALL TABLES IN SCHEMA lent FROM reader")
    assert "permission denied" in failure(readers)


def test_an_open_store_cannot_write(postgres_server: PostgresServer) -> None:
    store = load_store(SMALL, postgres_server.url("still"))
    pool = store._pool  # type: ignore[attr-defined]
    with store, pool.connection() as connection, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        connection.execute("CREATE TABLE still.more (x int)")


def test_questions_are_answered_from_indexes(postgres_server: PostgresServer) -> None:
    with load_store(SMALL, postgres_server.url("indexed")) as store:
        queries = {**store._by, "facts": store._edges}  # type: ignore[attr-defined]
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            connection.execute("SET enable_seqscan = off")  # which is quicker for a graph of three facts
            for name, query in queries.items():
                asked = {"asked": [1, 2]} if name == "facts" else [[1] if name == "id" else ["sushi"]]
                rows = connection.execute(b"EXPLAIN " + query.as_bytes(connection), asked).fetchall()
                plan = "\n".join(row[0] for row in rows)
                assert "Index" in plan, plan
                assert "Seq Scan" not in plan, plan


def test_a_dialogue_costs_few_round_trips(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with load_store(SMALL, postgres_server.url("counted")) as store:
        asked: list[object] = []
        fetch = store._fetch  # type: ignore[attr-defined]
        monkeypatch.setattr(store, "_fetch", lambda *query: (asked.append(query), fetch(*query))[1])
        sushi, rice = store.find("sushi"), store.find("rice")
        assert sushi is not None
        assert rice is not None
        edges = store.edges_of([sushi, rice])
        assert {store.fact(edges, row).triple for row in range(len(edges))} == {
            "(sushi, MadeOf, rice)",
            "(rice, AtLocation, field)",
        }
        assert len(asked) == 3
        assert [store.degree(sushi), store.find("Sushi"), store.find("nothing")] == [1, sushi, None]
        assert store.find("nothing") is None
        assert len(asked) == 4


def test_what_is_remembered_is_bounded(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dialore.retrieval.graph.postgres._REMEMBERED", 20)
    many = facts(*(f"head {number} | IsA | tail {number}" for number in range(200)))
    with load_store(many, postgres_server.url("bounded")) as store:
        for _ in range(2):
            for number in range(200):
                concept = store.find(f"head {number}")
                assert concept is not None
                assert store.concept(concept) == f"head {number}"
        assert sorted(fact.triple for fact in store.facts()) == sorted(fact.triple for fact in many)
        assert store._found.cache_info().currsize == 20  # type: ignore[attr-defined]


def test_threads_share_few_connections(postgres_server: PostgresServer) -> None:
    with load_store(SMALL, postgres_server.url("shared")) as store:
        threads = [threading.Thread(target=lambda: [store.edges_of([0, 1]) for _ in range(20)]) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (count,) = do(postgres_server, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
        assert 1 <= int(str(count[0])) <= 9 + 1
