from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from dialore.errors import InputError, ModelError
from dialore.llm.fake import FakeModel
from dialore.llm.model import Message, OutputSchema, Request, Sampling
from tests.llm.models import Scripted, ask, with_cache

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "cache.sqlite"


async def test_a_hit_costs_nothing_and_survives_reopening(path):
    first = with_cache(Scripted("said once"), path)
    fresh = await first.complete(ask(label="a"))
    await first.close()
    model = Scripted("other")
    second = with_cache(model, path)
    pieces: list[str] = []
    hit = await second.complete(ask(label="another label"), pieces.append)
    assert model.asked == []
    assert hit.text == fresh.text == "said once"
    assert pieces == ["said once"]
    assert (fresh.usage.cached, hit.usage.cached, hit.usage.calls) == (0, 1, 1)
    assert (hit.usage.prompt_tokens, hit.usage.completion_tokens, hit.seconds) == (10, 5, 0)
    await second.close()
    assert model.closed
    assert path.stat().st_mode & 0o077 == 0


async def test_all_that_changes_the_answer_is_in_the_key(path):
    model = Scripted()
    cached = with_cache(model, path)
    schema = OutputSchema(name="S", definition={"a": 1})
    different = [
        ask(),
        ask("Ho"),
        ask(sampling=Sampling(temperature=0)),
        ask(sampling=Sampling(seed=1)),
        ask(sample=1),
        ask(output_schema=schema),
        ask(output_schema=schema.model_copy(update={"definition": {"a": 2}})),
    ]
    for request in different * 2:
        await cached.complete(request)
    assert len(model.asked) == len(different)
    # The model's name and where it is, too: two servers may give one name to different models.
    for name, address in [
        ("other model", ""),
        ("scripted", "http://a/v1 chat"),
        ("scripted", "http://a/v1 completions"),
    ]:
        other = Scripted(name=name)
        shared = with_cache(other, path, address=address)
        for _ in range(2):
            await shared.complete(ask())
        assert len(other.asked) == 1
        await shared.close()
    await cached.close()


async def test_equal_requests_under_way_share_one_call(path):
    model = Scripted()
    model.gate = asyncio.Event()
    cached = with_cache(model, path)
    tasks = [asyncio.create_task(cached.complete(ask())) for _ in range(5)]
    while not model.asked:
        await asyncio.sleep(0.001)
    model.gate.set()
    completions = await asyncio.gather(*tasks)
    assert len(model.asked) == 1
    assert sorted(completion.usage.cached for completion in completions) == [0, 1, 1, 1, 1]
    await cached.close()


async def test_a_shared_call_outlives_who_asked_first(path):
    model = Scripted()
    model.gate = asyncio.Event()
    cached = with_cache(model, path)
    tasks = [asyncio.create_task(cached.complete(ask())) for _ in range(3)]
    while not model.asked:
        await asyncio.sleep(0.001)
    tasks[0].cancel()
    model.gate.set()
    assert [(await task).text for task in tasks[1:]] == ["ok", "ok"]
    assert len(model.asked) == 2
    await cached.close()


async def test_a_failure_is_shared_but_not_kept(path):
    model = Scripted(ModelError("down"), "up")
    cached = with_cache(model, path)
    both = await asyncio.gather(*[cached.complete(ask()) for _ in range(2)], return_exceptions=True)
    assert [type(outcome) for outcome in both] == [ModelError, ModelError]
    assert (await cached.complete(ask())).text == "up"
    await cached.close()


@pytest.mark.parametrize("damage", ["text", "sqlite", "newer", "folder", "torn"])
async def test_a_foreign_or_damaged_file_is_one_clear_error(tmp_path, damage):
    path = tmp_path / "file"
    if damage == "text":
        path.write_text("dear diary, " * 200)
    elif damage == "folder":
        path.mkdir()
    elif damage == "sqlite":
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE people (name)")
        database.close()
    else:
        cached = with_cache(Scripted("x" * 50_000), path)
        await cached.complete(ask())
        await cached.close()
        if damage == "torn":
            content = path.read_bytes()
            path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
        else:
            with sqlite3.connect(path) as database:
                database.execute("PRAGMA user_version = 99")
            database.close()
    before = path.read_bytes() if path.is_file() else None
    cached = with_cache(Scripted(), path)
    with pytest.raises(InputError, match=str(path)):
        await cached.complete(ask())
    await cached.close()
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize("trouble", ["PRAGMA max_page_count = 1", "PRAGMA query_only = 1"])
async def test_a_completion_that_cannot_be_stored_is_not_lost(path, caplog, trouble):
    model = Scripted("x" * 100_000)
    cached = with_cache(model, path)
    cached.cache.open()
    cached.cache._database.execute(trouble)
    with caplog.at_level(logging.WARNING):
        texts = [(await cached.complete(ask(str(number)))).text for number in range(3)]
    assert texts == ["x" * 100_000] * 3
    assert len(caplog.records) == 1
    assert "going on without" in caplog.text
    await cached.close()


async def test_a_damaged_row_is_asked_anew(path):
    cached = with_cache(Scripted("one", "two"), path)
    await cached.complete(ask())
    cached.cache._database.execute("UPDATE completions SET completion = '{\"text\": 3'")
    assert (await cached.complete(ask())).text == "two"
    assert (await cached.complete(ask())).text == "two"
    await cached.close()


CHILD = """
import asyncio, sys
from tests.llm.models import Scripted, ask, with_cache

async def main(path, first, count, endless):
    cached = with_cache(Scripted("kept"), path)
    for number in range(first, first + count):
        await cached.complete(ask(str(number)))
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()
    if endless:
        await asyncio.sleep(60)

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "endless"))
"""


def child(path, first, count, end) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(first), str(count), end],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


async def test_it_survives_kill_9_and_several_processes(path):
    with contextlib.ExitStack() as stack:  # their pipes are closed whatever happens
        doomed = stack.enter_context(child(path, 0, 10_000, "endless"))
        others = [stack.enter_context(child(path, 20_000 + 100 * number, 100, "end")) for number in range(2)]
        for _ in range(50):
            last = int(doomed.stdout.readline())
        doomed.send_signal(signal.SIGKILL)
        doomed.communicate()
        for other in others:
            other.communicate()
            assert other.returncode == 0
    model = Scripted("anew")
    cached = with_cache(model, path)
    for number in [*range(last + 1), *range(20_000, 20_200)]:
        assert (await cached.complete(ask(str(number)))).text == "kept"
    await cached.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_cache_works_in_a_process_that_was_forked(tmp_path):
    cached = with_cache(FakeModel(), tmp_path / "cache.sqlite")
    request = Request(messages=(Message(role="user", content="Hello"),))
    first = asyncio.run(cached.complete(request))
    _FORKED.update(cached=cached, request=request)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        asked = [pool.apply_async(_ask_cached) for _ in range(3)]
        answers = [answer.get(timeout=20) for answer in asked]
    assert answers == [(first.text, 1)] * 3
    assert asyncio.run(cached.complete(request)).usage.cached == 1


_FORKED = {}


def _ask_cached():
    completion = asyncio.run(_FORKED["cached"].complete(_FORKED["request"]))
    return completion.text, completion.usage.cached
