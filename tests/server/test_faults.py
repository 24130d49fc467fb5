"""What goes wrong in mid-stream: nothing is lost that could be finished, and nothing goes on for nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from dialore.llm.endpoint import Endpoint
from tests.server.conftest import Scripted, is_up, wait_until

BODY = {"messages": [{"role": "user", "content": "Hello"}]}


def open_files():
    return len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0


def tasks(running):
    return len(asyncio.all_tasks(running.server.servers[0].get_loop()))


def begun(running, body):
    """A raw connection on which a request has been sent."""
    host, port = running.url.removeprefix("http://").split(":")
    raw = socket.create_connection((host, int(port)), timeout=10)
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    raw.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return raw


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_frees_its_work(serving, stream):
    running = serving(Scripted("word " * 2000, pause=0.02))
    running.http.get("/healthz")
    before, tasks_before = open_files(), tasks(running)
    for _ in range(5):
        raw = begun(running, {**BODY, "stream": stream})
        wait_until(lambda: running.model.under_way == 1)
        if stream:
            raw.recv(100)
        raw.close()
        wait_until(lambda: running.model.under_way == 0)
    assert running.model.stopped >= 5
    wait_until(lambda: open_files() <= before)
    wait_until(lambda: tasks(running) <= tasks_before)
    wait_until(lambda: "dialore_requests_under_way 1.0" in running.http.get("/metrics").text)


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices": [{"delta": {"content": "Do"}}]}\n\n'


@pytest.mark.parametrize("fault", ["refused", "cut", "silent"])
def test_an_endpoint_that_is_down_leaves_nothing_behind(serving, fault):
    """It refuses connections, breaks off in mid-stream, or says nothing until the service's patience is over."""
    held = []

    def answer():
        while True:
            try:
                raw, _ = listening.accept()
            except OSError:
                return
            raw.recv(65536)
            if fault == "cut":
                raw.sendall(STREAM + b"%x\r\n%s\r\n" % (len(EVENT), EVENT))
                raw.close()
            held.append(raw)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        if fault == "refused":
            listening.close()
        else:
            threading.Thread(target=answer, daemon=True).start()
        model = Endpoint("down", f"http://127.0.0.1:{port}/v1", retries=0)
        running = serving(model, server={"max_seconds": 1})

        def ask(stream):
            answer = running.say(stream=stream)
            assert answer.status_code in {200, 502, 504}
            assert '"error"' in answer.text
            while held:
                held.pop().close()

        ask(stream=True)
        before, tasks_before = open_files(), tasks(running)
        for stream in (True, False) * 2:
            ask(stream)
        wait_until(lambda: tasks(running) <= tasks_before)
        wait_until(lambda: open_files() <= before)
        if fault != "refused":
            listening.shutdown(socket.SHUT_RDWR)


def test_a_response_that_takes_too_long_is_ended(serving):
    running = serving(Scripted("word " * 2000, pause=0.02), server={"max_seconds": 0.3})
    answer = running.say()
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
    assert running.model.under_way == 0
    lines = running.say(stream=True).text.strip().split("\n\n")
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "timeout"


def test_many_at_once_are_all_answered_and_leave_no_task(serving):
    running = serving(Scripted(pause=0.01))

    async def ask(http):
        answer = await http.post(f"{running.url}/v1/chat/completions", json={**BODY, "stream": True})
        return answer.text.count("[DONE]")

    async def all_of_them():
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(timeout=60, limits=limits, trust_env=False) as http:
            return await asyncio.gather(*(ask(http) for _ in range(100)))

    assert asyncio.run(all_of_them()) == [1] * 100
    assert running.model.under_way == 0


SERVER = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from dialore.server.app import serve
from dialore.settings import Settings, check_settings
from tests.server.conftest import Scripted
given = {{"server": {{"port": {port}, "folder": {folder!r}}}}}
settings = check_settings(Settings, given, where="test")
serve(settings, connect=lambda _settings, _name: Scripted("word " * 40, pause=0.05))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_stream_is_finished_after_sigterm(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = str(Path(__file__).parents[2])
    code = SERVER.format(root=root, port=port, folder=str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: is_up(f"{url}/readyz"), 60)
        text = []

        def read():
            with httpx.stream(
                "POST", f"{url}/v1/chat/completions", json={**BODY, "stream": True}, timeout=30, trust_env=False
            ) as answer:
                text.extend(answer.iter_lines())

        reader = threading.Thread(target=read)
        reader.start()
        time.sleep(0.7)
        process.send_signal(signal.SIGTERM)
        reader.join(30)
        assert "data: [DONE]" in text
        assert sum('"content": ' in line and "word" in line for line in text) == 40
        assert process.wait(30) == 0
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    assert {"request", f"Finished server process [{process.pid}]"} <= {line["event"] for line in lines}


def test_a_locked_store_delays_a_response_briefly_and_loses_nothing(serving, tmp_path):
    running = serving(Scripted("Certainly."))
    consent = {"user": "ann", "consents": True}
    assert running.http.put("/v1/memory/consent", json=consent).status_code == 200
    (file,) = (file for file in (tmp_path / "known").rglob("*.sqlite") if b"consents" in file.read_bytes())
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        for conversation in ("c1", "c2"):
            answer = running.say(user="ann", metadata={"conversation": conversation})
            assert answer.json()["choices"][0]["message"]["content"] == "Certainly."
        assert time.monotonic() - began < 4
        other.execute("ROLLBACK")

    def stored():
        listed = running.http.get("/v1/conversations", params={"user": "ann"}).json()["data"]
        return {conversation["id"] for conversation in listed}

    wait_until(lambda: stored() == {"c1", "c2"})
    trace = answer.json()["choices"][0]["message"]["grounding"]["trace"]
    wait_until(lambda: running.http.get(f"/v1/traces/{trace}").status_code == 200)


def test_an_endpoint_that_floods_is_stopped_in_time(serving):
    """Its tokens come faster than they are read, so that the event loop always has work."""

    def flood():
        chunk = (b"%x\r\n%s\r\n" % (len(EVENT), EVENT)) * 2000
        while True:
            try:
                raw, _ = listening.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), raw:
                raw.recv(65536)
                raw.sendall(STREAM)
                until = time.monotonic() + 15
                while time.monotonic() < until:
                    raw.sendall(chunk)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=flood, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        running = serving(Endpoint("flood", url, retries=0), server={"max_seconds": 1}, method="vanilla")
        for stream in (True, False):
            began = time.monotonic()
            answer = running.say(stream=stream)
            assert '"error"' in answer.text
            assert time.monotonic() - began < 4
        listening.shutdown(socket.SHUT_RDWR)
