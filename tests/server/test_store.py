"""What a service keeps of its users, in SQLite and, where it is installed, in PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="the serve extra is not installed")
pytest.importorskip("alembic", reason="the serve extra is not installed")

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from dialore.errors import InputError
from dialore.server import store as store_module
from dialore.server.store import CONVERSATIONS, PEOPLE, TABLES, Moment, ServerStore, User, open_engine, read_url
from dialore.sources.statements import Statement
from tests.server.hostile import NAMES

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
ANN, BEN = User("key-1", "ann"), User("key-1", "ben")
OTHER_ANN = User("key-2", "ann")
ROOT = Path(__file__).parents[2]
_numbers = itertools.count()


class Clock:
    """What time it is."""

    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    """Where a store can be: a file, or a database of its own."""
    if request.param == "sqlite":
        return str(tmp_path / "kept" / "store.sqlite")
    server = request.getfixturevalue("postgres_server")
    psycopg = pytest.importorskip("psycopg", reason="PostgreSQL's driver is not here: pip install 'dialore[postgres]'")
    name = f"store_{next(_numbers)}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.url(database=name)


_FORKED = {}
"""The store that forked processes inherit."""


def consents_in_fork():
    return asyncio.run(_FORKED["store"].consents(ANN))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
async def test_a_store_works_in_a_process_that_was_forked(place):
    _FORKED["store"] = store = ServerStore(place)
    await store.open()
    await store.set_consent(ANN, consents=True)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        asked = pool.apply_async(consents_in_fork)
        assert await asyncio.to_thread(asked.get, 20)
    assert await store.consents(ANN)
    await store.close()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def store(place, clock):
    made = ServerStore(place, memory_days=100, kept_days=7, clock=clock)
    await made.open()
    yield made
    await made.close()


def said(text, days=0, turn=""):
    return Statement(text=text, said=NOW - timedelta(days=days), turn=turn)


async def texts(store, user):
    return [each.text for each in await store.statements(user)]


async def test_what_is_said_after_a_clock_went_back_is_the_newest(store, clock):
    await store.set_consent(ANN, consents=True)
    await store.remember(ANN, [said("I live in Leeds.")])
    clock.now = NOW - timedelta(days=2)
    assert await store.remember(ANN, [said("I moved to York.", 2)])
    assert await texts(store, ANN) == ["I moved to York."]


# --- memory


async def test_nobody_is_remembered_who_has_not_consented(store):
    assert not await store.consents(ANN)
    assert await store.remember(ANN, [said("I ski.")]) == []
    assert await texts(store, ANN) == []
    await store.set_consent(ANN, consents=True)
    assert await store.consents(ANN)
    assert not await store.consents(BEN)
    assert [each.text for each in await store.remember(ANN, [said("I ski.", turn="Well, I ski.")])] == ["I ski."]
    (kept,) = await store.statements(ANN)
    assert kept == said("I ski.", turn="Well, I ski.").model_copy(update={"expires": NOW + timedelta(days=100)})
    await store.set_consent(ANN, consents=False)
    assert await texts(store, ANN) == []
    await store.set_consent(ANN, consents=True)
    assert await texts(store, ANN) == [], "withdrawing consent deletes"


async def test_one_users_memory_is_never_anothers(store):
    for user in (ANN, BEN, OTHER_ANN):
        await store.set_consent(user, consents=True)
    await store.remember(ANN, [said("I ski."), said("I live in Leeds.")])
    await store.remember(BEN, [said("I ski.")])
    ski = said("I ski.").id
    leeds, york = said("I live in Leeds."), said("I moved to York.")
    replaced = {each.id: each.closed_by(york) for each in (said("I ski."), leeds)}
    await store.remember(OTHER_ANN, [york], replaced)
    assert set(await texts(store, ANN)) == {"I ski.", "I live in Leeds."}
    assert await store.forget(OTHER_ANN, ski) == 0
    assert await store.forget(BEN) == 1
    assert set(await texts(store, ANN)) == {"I ski.", "I live in Leeds."}
    assert await texts(store, OTHER_ANN) == ["I moved to York."]
    await store.keep_conversation(BEN, "c", [])
    await store.set_consent(BEN, consents=False)
    await store.set_consent(OTHER_ANN, consents=False)
    await store.set_consent(BEN, consents=True)
    assert await store.conversations(BEN) == [], "withdrawing consent deletes conversations, too"
    assert len(await texts(store, ANN)) == 2


@pytest.mark.parametrize("name", NAMES)
async def test_names_are_data(store, name):
    odd = User("key-1", name)
    for user in (ANN, odd):
        await store.set_consent(user, consents=True)
    await store.remember(ANN, [said("I ski.")])
    assert await texts(store, odd) == []
    assert await store.forget(odd) == 0
    assert await texts(store, ANN) == ["I ski."]


async def test_a_name_that_is_no_text_is_refused(store):
    with pytest.raises(InputError, match="name"):
        await store.set_consent(User("key-1", "ann\0"), consents=True)


async def test_what_is_replaced_holds_no_longer_and_stays_with_its_time(store):
    await store.set_consent(ANN, consents=True)
    old, dog = said("I live in Leeds.", 9), said("I have a dog.", 9)
    new, died = said("I moved to York.", 1), said("My dog has died.", 0)
    await store.remember(ANN, [old, dog])
    await store.remember(ANN, [new])  # by the plain rule
    await store.remember(ANN, [died], {dog.id: dog.closed_by(died)})  # as the model said
    assert await texts(store, ANN) == ["My dog has died.", "I moved to York."]
    history = {each.text: each for each in await store.statements(ANN, history=True)}
    assert history["I live in Leeds."].holds_until == new.said
    assert history["I moved to York."].replaces == old.id
    assert history["I have a dog."].holds_until == died.said
    as_of = await store.statements(ANN, as_of=NOW - timedelta(days=2))
    assert {each.text for each in as_of} == {"I live in Leeds.", "I have a dog."}
    assert await store.statements(ANN, as_of=NOW - timedelta(days=10)) == []
    await store.forget(ANN, new.id)
    assert await texts(store, ANN) == ["My dog has died."], "the older one does not come back"
    assert await store.remember(ANN, [said("I live in Hull.", 5), said("I moved to Bath.", 0.5)])
    assert await store.remember(ANN, [said("I live in Ghent.", 0.7)]) == [], "an older one does not replace a newer"
    assert await texts(store, ANN) == ["My dog has died.", "I moved to Bath."]


async def test_the_same_again_is_kept_once_and_for_longer(store):
    await store.set_consent(ANN, consents=True)
    await store.remember(ANN, [said("I ski.", 50)])
    assert [each.text for each in await store.remember(ANN, [said("I ski!", 2)])] == ["I ski."]
    (kept,) = await store.statements(ANN, history=True)
    assert (kept.said, kept.expires) == (NOW - timedelta(days=50), NOW + timedelta(days=98))


async def test_a_statement_is_corrected(store):
    await store.set_consent(ANN, consents=True)
    old, new = said("I live in Leeds.", 9), said("I moved to York.", 1)
    await store.remember(ANN, [old, new])
    changes = {"text": "I lived in Hull.", "holds_from": NOW - timedelta(days=99)}
    assert await store.edit(BEN, old.id, changes) is None
    edited = await store.edit(ANN, old.id, changes)
    assert (edited.text, edited.begins, edited.holds_until) == ("I lived in Hull.", NOW - timedelta(days=99), new.said)
    [kept, corrected] = await store.statements(ANN, history=True)
    assert (corrected, kept.replaces) == (edited, edited.id)
    with pytest.raises(InputError, match="holds until"):
        await store.edit(ANN, new.id, {"holds_until": NOW - timedelta(days=200)})
    assert [each.text for each in await store.statements(ANN)] == ["I moved to York."]


async def test_turns_of_a_users_other_conversations(store, clock):
    await store.set_consent(ANN, consents=True)
    await store.set_consent(BEN, consents=True)
    said_then = {"role": "user", "content": "Tea, please.", "said": (NOW - timedelta(days=2)).isoformat()}
    await store.keep_conversation(ANN, "a", [said_then, {"role": "assistant", "content": "Here you are."}])
    await store.keep_conversation(ANN, "b", [{"role": "user", "content": "Hello."}, {"role": "user", "content": " "}])
    await store.keep_conversation(BEN, "c", [{"role": "user", "content": "Cake."}])
    turns = {(turn.text, turn.speaker, turn.said, turn.turn) for turn in await store.turns(ANN, "b")}
    assert turns == {
        ("Tea, please.", "user", NOW - timedelta(days=2), "a:1"),
        ("Here you are.", "assistant", NOW, "a:2"),
    }
    assert len(await store.turns(ANN)) == 3
    clock.now = NOW + timedelta(days=7)
    assert await store.turns(ANN) == []


async def test_the_newest_thousand_are_kept(store):
    await store.set_consent(ANN, consents=True)
    await store.remember(ANN, [said(f"I know somebody called Name{'x' * n}.", n / 100) for n in range(1005)])
    kept = await texts(store, ANN)
    assert len(kept) == 1000
    assert kept[0] == "I know somebody called Name."


async def test_forgetting_one_and_all(store):
    await store.set_consent(ANN, consents=True)
    await store.remember(ANN, [said("I ski."), said("I swim."), said("I row.")])
    assert await store.forget(ANN, said("I swim.").id) == 1
    assert await store.forget(ANN, said("I swim.").id) == 0
    assert set(await texts(store, ANN)) == {"I ski.", "I row."}
    assert await store.forget(ANN) == 2
    assert await texts(store, ANN) == []
    assert await store.consents(ANN)


async def test_memory_ends_after_its_days(store, clock):
    await store.set_consent(ANN, consents=True)
    await store.remember(ANN, [said("I ski.", 99), said("I swim.", 0)])
    clock.now = NOW + timedelta(days=1)
    assert await texts(store, ANN) == ["I swim."]
    assert await store.sweep() == 1
    assert await store.sweep() == 0


# --- conversations and traces


async def test_conversations_are_kept_for_a_set_time(store, clock):
    turns = [{"role": "user", "content": "你好 \u2028 🎈"}]
    await store.keep_conversation(ANN, "c1", turns)
    assert await store.conversation(ANN, "c1") is None, "nobody has consented"
    await store.set_consent(ANN, consents=True)
    await store.keep_conversation(ANN, "c1", turns)
    clock.now = NOW + timedelta(days=3)
    await store.keep_conversation(ANN, "c2", turns)
    later = [*turns, {"role": "assistant", "content": "Hi."}]
    await store.keep_conversation(ANN, "c2", later)
    assert await store.conversation(ANN, "c1") == turns
    assert await store.conversation(ANN, "c2") == later
    begins = turns[0]["content"]
    assert await store.conversations(ANN) == [("c2", clock.now, begins), ("c1", NOW, begins)]
    assert await store.conversation(BEN, "c1") is None
    assert await store.conversations(BEN) == []
    assert await store.forget(BEN, "c1", CONVERSATIONS) == 0
    clock.now = NOW + timedelta(days=7)
    assert await store.conversation(ANN, "c1") is None
    assert [name for name, *_ in await store.conversations(ANN)] == ["c2"]
    assert await store.sweep() == 1
    assert await store.forget(ANN, "c2", CONVERSATIONS) == 1


async def test_traces_are_their_owners_and_end(store, clock):
    await store.keep_trace(ANN, "trace-1", {"trace": [{"stage": "draft", "seconds": 0.5}]})
    assert await store.trace("key-1", "trace-1") == {"trace": [{"stage": "draft", "seconds": 0.5}]}
    assert await store.trace("key-2", "trace-1") is None
    assert await store.trace("key-1", "trace-2") is None
    await store.keep_trace(BEN, "trace-3", {})
    await store.set_consent(ANN, consents=False)
    assert await store.trace("key-1", "trace-1") is None
    assert await store.trace("key-1", "trace-3") == {}
    clock.now = NOW + timedelta(days=7)
    assert await store.trace("key-1", "trace-3") is None


async def test_closing_waits_for_what_is_under_way_though_nobody_else_does(place):
    begun, go_on = threading.Event(), threading.Event()

    def clock():
        begun.set()
        go_on.wait(10)
        return NOW

    go_on.set()
    store = ServerStore(place, clock=clock)
    await store.open()
    begun.clear()
    go_on.clear()
    keeping = asyncio.create_task(store.keep_trace(ANN, "trace-1", {"said": "hello"}))
    await asyncio.to_thread(begun.wait)
    keeping.cancel()
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0.1)
    assert not closing.done()
    go_on.set()
    await closing
    again = ServerStore(place, clock=clock)
    await again.open()
    assert await again.trace("key-1", "trace-1") == {"said": "hello"}
    await again.close()


async def test_nothing_is_kept_for_no_days(tmp_path):
    store = ServerStore(tmp_path / "store.sqlite", kept_days=0)
    await store.open()
    await store.keep_trace(ANN, "trace-1", {"said": "Zdenko"})
    assert await store.trace("key-1", "trace-1") is None
    await store.close()
    assert b"Zdenko" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


async def test_what_is_used_is_counted_by_stretches_of_time(store, clock):
    assert [await store.count("key-1", "tokens", each, 60) for each in (5, 0, 7)] == [5, 5, 12]
    assert await store.count("key-2", "tokens", 1, 60) == await store.count("key-1", "requests", 1, 60) == 1
    assert sum(await asyncio.gather(*(store.count("key-3", "tokens", 1, 60) for _ in range(10)))) == 55
    clock.now = NOW + timedelta(seconds=60)
    assert await store.count("key-1", "tokens", 1, 60) == 1
    assert await store.sweep() == 4
    assert await store.count("key-1", "tokens", 1, 60) == 2


async def test_work_that_is_given_up_keeps_no_connection(store):
    """A client may go at any moment, while its request waits for the database too."""
    for n in range(60):
        work = [store.keep_trace(ANN, f"{n}", {}), store.statements(ANN), store.count("key-1", "tokens", 1, 60)]
        tasks = [asyncio.create_task(each) for each in work]
        await asyncio.sleep(n / 20_000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(10):
        await store.keep_trace(ANN, "last", {"a": 1})
        assert await store.trace("key-1", "last") == {"a": 1}


# --- workers


WORKER = """
import asyncio, sys
from datetime import UTC, datetime
from dialore.server.store import User
from dialore.server.store import ServerStore
from dialore.sources.statements import Statement

async def main(place, mark):
    store = ServerStore(place)
    await store.open()
    user = User("key-1", "ann")
    await store.set_consent(user, consents=True)
    async def one(n):
        said = datetime.now(UTC)
        await store.remember(user, [Statement(text=f"I met {mark}{'x' * n}.", said=said)])
        await store.keep_conversation(user, f"{mark}{n}", [{"role": "user", "content": "x"}])
    for n in range(0, 20, 4):
        await asyncio.gather(*(one(n + more) for more in range(4)))
    await store.remember(user, [Statement(text=f"I live in {mark}.", said=datetime.now(UTC))])
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_workers_that_write_one_users_memory_at_once_lose_nothing(place):
    """Each opens the store, too: the database is made by one of them while the other waits."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, place, mark], env=environment, stderr=subprocess.PIPE, text=True
        )
        for mark in ("Ada", "Bob")
    ]
    for worker in workers:
        _, errors = await asyncio.to_thread(worker.communicate, timeout=60)
        assert worker.returncode == 0, errors
    store = ServerStore(place)
    await store.open()
    kept = await texts(store, ANN)
    expected = {f"I met {mark}{'x' * n}." for mark in ("Ada", "Bob") for n in range(20)}
    assert expected == {each for each in kept if each.startswith("I met")}
    assert len([each for each in kept if each.startswith("I live")]) == 1
    assert len(await store.conversations(ANN)) == 40
    await store.close()


# --- the database


async def test_the_migrations_make_what_the_program_expects(store):
    with store._engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), TABLES) == []


async def test_a_store_of_the_former_version_is_taken_along(place):
    """Its statements had the ids of their texts."""
    engine = open_engine(read_url(place))
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(store_module.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, "2")
        former = sa.text("INSERT INTO statements VALUES (:owner, :name, :id, :made, :text, :turn, :expires)")
        former = former.bindparams(sa.bindparam("made", type_=Moment), sa.bindparam("expires", type_=Moment))
        for user in (ANN, BEN):
            connection.execute(PEOPLE.insert().values(**user._asdict(), consents=True))
            for number, text in enumerate(["I live in Leeds.", "我养了一只猫。"], 1):
                row = {"id": f"passage:{number}", "made": NOW - timedelta(days=number, microseconds=7), "text": text}
                connection.execute(
                    former, {**user._asdict(), **row, "turn": "Well.", "expires": NOW + timedelta(days=9)}
                )
    engine.dispose()
    store = ServerStore(place, clock=lambda: NOW)
    await store.open()
    for user in (ANN, BEN):
        [home, cat] = await store.statements(user)
        assert (home.text, home.turn, home.speaker) == ("I live in Leeds.", "Well.", "user")
        assert (home.said, home.expires) == (NOW - timedelta(days=1, microseconds=7), NOW + timedelta(days=9))
    assert await store.forget(ANN, cat.id) == 1
    assert await store.remember(ANN, [said("I moved to York.")])
    assert [each.text for each in await store.statements(ANN, history=True)] == ["I moved to York.", "I live in Leeds."]
    assert len(await store.statements(BEN)) == 2
    await store.close()


async def test_opening_again_keeps_what_there_is(store, place):
    await store.keep_trace(ANN, "trace-1", {"a": 1})
    again = ServerStore(place, clock=lambda: NOW)
    await again.open()
    assert await again.trace("key-1", "trace-1") == {"a": 1}
    await again.close()


async def test_a_newer_database_is_left_alone(store, place):
    with store._engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'newer'"))
    again = ServerStore(place)
    with pytest.raises(InputError, match="newer") as caught:
        await again.open()
    assert "\n" not in str(caught.value)
    await again.close()


@pytest.mark.parametrize("place", ["mysql://h/d", "://"])
def test_another_database_is_refused(place):
    with pytest.raises(InputError, match="name a file"):
        ServerStore(place)


async def test_a_database_that_is_not_there_is_one_line_without_the_password():
    pytest.importorskip("psycopg", reason="PostgreSQL's driver is not here: pip install 'dialore[postgres]'")
    store = ServerStore("postgresql://ann:geheim@127.0.0.1:1/nothing?connect_timeout=2")
    with pytest.raises(InputError, match="cannot be asked") as caught:
        await store.open()
    assert "geheim" not in str(caught.value)
    assert "\n" not in str(caught.value)
    await store.close()


async def test_a_file_that_is_no_database_is_one_line(tmp_path):
    (tmp_path / "notes.txt").write_text("These are my notes. " * 100, "utf-8")
    store = ServerStore(tmp_path / "notes.txt")
    with pytest.raises(InputError, match=r"notes\.txt is not a store"):
        await store.open()
    await store.close()


async def test_nobody_else_on_the_machine_reads_the_file(tmp_path):
    store = ServerStore(tmp_path / "store.sqlite")
    await store.open()
    assert (tmp_path / "store.sqlite").stat().st_mode & 0o077 == 0
    await store.close()


async def test_a_new_folder_of_the_store_is_private(tmp_path):
    store = ServerStore(tmp_path / "known" / "store.sqlite")
    await store.open()
    assert (tmp_path / "known").stat().st_mode & 0o077 == 0
    await store.close()


async def test_what_is_deleted_is_not_in_the_file(tmp_path):
    store = ServerStore(tmp_path / "store.sqlite")
    await store.open()
    await store.set_consent(ANN, consents=True)
    await store.remember(ANN, [said("I have a marmot called Zdenko.")])
    await store.forget(ANN)
    await store.close()
    assert b"Zdenko" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
