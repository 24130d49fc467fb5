"""What a service's store holds after its process was killed in the middle of a change."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="the serve extra is not installed")
pytest.importorskip("alembic", reason="the serve extra is not installed")

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from dialore.server import store as store_module
from dialore.server.store import PEOPLE, Moment, ServerStore, User, open_engine, read_url

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
ANN = User("key-1", "ann")
TEXTS = [f"I have {number} cats." for number in range(20)]
RESULT = {"messages": [{"role": "user", "content": "Hi"}], "text": "Hello."}
ROOT = Path(__file__).parents[2]
KILLED = """
import asyncio, os, signal, sys
from datetime import UTC, datetime

import sqlalchemy as sa

from dialore.server.store import ServerStore, User

place, marker, after, work = sys.argv[1:]
left = int(after)


@sa.event.listens_for(sa.Engine, "after_cursor_execute")
def kill(connection, cursor, statement, *rest):
    global left
    if statement.upper().startswith(marker):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


async def main():
    store = ServerStore(place, clock=lambda: datetime(2026, 11, 22, 12, tzinfo=UTC))
    await store.open()
    if work == "feedback":
        await store.give_feedback(User("key-1", "ann"), "t1", good=False, reason="wrong", better="Hello, Ann.")


asyncio.run(main())
"""


def run_until_killed(place, marker, after, work="open"):
    """Run a change in a process that kills itself after so many statements that begin with the marker."""
    arguments = [sys.executable, "-c", KILLED, str(place), marker, str(after), work]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def make_former_store(place):
    """Make a store of the former version with statements of a user."""
    engine = open_engine(read_url(place))
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(store_module.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, "2")
        connection.execute(PEOPLE.insert().values(**ANN._asdict(), consents=True))
        insert = sa.text("INSERT INTO statements VALUES (:owner, :name, :id, :made, :text, :turn, :expires)")
        insert = insert.bindparams(sa.bindparam("made", type_=Moment), sa.bindparam("expires", type_=Moment))
        for number, text in enumerate(TEXTS):
            row = {"id": f"passage:{number}", "made": NOW - timedelta(days=number + 1), "text": text, "turn": text}
            connection.execute(insert, {**ANN._asdict(), **row, "expires": NOW + timedelta(days=9)})
    engine.dispose()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize(("marker", "after"), [("ALTER TABLE", 5), ("UPDATE STATEMENTS", 9)])
async def test_a_migration_that_was_killed_is_done_by_the_next_start(tmp_path, marker, after):
    place = tmp_path / "store.sqlite"
    make_former_store(place)
    await asyncio.to_thread(run_until_killed, place, marker, after)
    store = ServerStore(place, clock=lambda: NOW)
    await store.open()
    statements = await store.statements(ANN, history=True)
    await store.close()
    assert sorted(statement.text for statement in statements) == sorted(TEXTS)
    assert len({statement.id for statement in statements}) == len(TEXTS)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize("marker", ["DELETE FROM FEEDBACK", "INSERT INTO FEEDBACK"])
async def test_feedback_that_was_killed_leaves_the_former_one(tmp_path, marker):
    place = tmp_path / "store.sqlite"
    store = ServerStore(place, clock=lambda: NOW)
    await store.open()
    await store.keep_trace(ANN, "t1", RESULT)
    assert await store.give_feedback(ANN, "t1", good=True, reason="", better="")
    await store.close()
    await asyncio.to_thread(run_until_killed, place, marker, 1, "feedback")
    store = ServerStore(place, clock=lambda: NOW)
    await store.open()
    [entry] = await store.feedback()
    assert (entry["trace"], entry["good"], entry["result"]) == ("t1", True, RESULT)
    assert await store.give_feedback(ANN, "t1", good=False, reason="wrong", better="")
    [entry] = await store.feedback()
    await store.close()
    assert (entry["good"], entry["reason"]) == (False, "wrong")
