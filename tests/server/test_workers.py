"""Two workers of one service, as `dialore serve --workers 2` starts them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter

import httpx
import pytest

from tests.server.conftest import is_up, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith(("DIALORE_", "OPENAI_"))}


class Workers:
    """A service of two workers, and what it logged."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (folder / "dialore.toml").write_text(f'[server]\nfolder = "{folder}/known"\n', "utf-8")
        words = [
            "serve",
            "--settings",
            str(folder / "dialore.toml"),
            "--set",
            "server.workers=2",
            "--port",
            str(self.port),
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dialore", *words], stderr=subprocess.PIPE, text=True, env=environment()
        )
        self.url = f"http://127.0.0.1:{self.port}"
        self.lines = []
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self._reader.start()
        wait_until(lambda: self.logged("ready to answer") == 2 or self.process.poll() is not None, 120)
        assert is_up(f"{self.url}/readyz")

    def logged(self, text):
        return sum(text in line for line in list(self.lines))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0
        self._reader.join(10)


@pytest.fixture
def workers(tmp_path):
    made = []

    def start():
        made.append(Workers(tmp_path))
        return made[-1]

    yield start
    for each in made:
        each.process.terminate()
        each.process.wait(60)
        each.process.stderr.close()


NAMES = [
    f"{first}{second}"
    for first in ("Al", "Be", "Ca", "Do", "Em", "Fi")
    for second in ("dric", "nno", "rlo", "tta", "vy")
]


def test_two_workers_that_write_one_users_memory_lose_nothing(workers):
    first = workers()
    httpx.put(f"{first.url}/v1/memory/consent", json={"user": "ann", "consents": True}, trust_env=False)

    async def tell(name):
        # A connection each: whichever worker is free takes it.
        async with httpx.AsyncClient(base_url=first.url, timeout=60, trust_env=False) as http:
            said = [{"role": "user", "content": f"My friend is called {name}. I have a cat called {name}."}]
            body = {"messages": said, "user": "ann", "metadata": {"conversation": name}}
            answer = await http.post("/v1/chat/completions", json=body)
            trace = answer.json()["choices"][0]["message"]["grounding"]["trace"]
            return (await http.get(f"/v1/traces/{trace}")).status_code

    async def all_of_them():
        return await asyncio.gather(*map(tell, NAMES))

    assert asyncio.run(all_of_them()) == [200] * len(NAMES)
    figures = [httpx.get(f"{first.url}/metrics", trust_env=False, verify=False).text for _ in range(8)]
    answered = 'dialore_requests_total{route="/v1/chat/completions",status="200"} 30.0'
    assert all(answered in each for each in figures), "whichever worker tells, it tells of all"
    first.end()  # at once: what was answered is remembered all the same
    requests = [json.loads(line) for line in first.lines if '"event": "request"' in line]
    assert Counter(each["status"] for each in requests)[200] > 2 * len(NAMES)
    assert len({each["process"] for each in requests}) <= 2  # the system says which of them takes a connection
    second = workers()
    with httpx.Client(base_url=second.url, params={"user": "ann"}, trust_env=False) as http:
        kept = {each["text"] for each in http.get("/v1/memory").json()["data"]}
        conversations = {each["id"] for each in http.get("/v1/conversations").json()["data"]}
    assert {f"I have a cat called {name}." for name in NAMES} <= kept
    assert conversations == set(NAMES)


def test_a_worker_that_dies_ends_the_service(workers):
    service = workers()
    pid = next(json.loads(line)["process"] for line in service.lines if "ready to answer" in line)
    os.kill(pid, signal.SIGKILL)
    assert service.process.wait(60) != 0
    assert service.logged("a worker has ended unasked")


@pytest.mark.parametrize("count", [1, 2])
def test_a_source_that_cannot_be_opened_is_told_in_one_line(tmp_path, count):
    settings = f'[sources]\ndocuments = "{tmp_path}/nowhere.idx"\n[server]\nfolder = "{tmp_path}/known"\nport = 0\n'
    (tmp_path / "dialore.toml").write_text(settings, "utf-8")
    words = ["serve", "--settings", str(tmp_path / "dialore.toml"), "--set", f"server.workers={count}"]
    command = [sys.executable, "-m", "dialore", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(), check=False)
    assert "nowhere.idx (build one with `dialore documents build`)" in ended.stderr
    assert "Traceback" not in ended.stderr
    lines = ended.stderr.splitlines()
    if count == 1:
        assert (ended.returncode, len(lines)) == (2, 2)
    else:  # the other worker may be ended before it has tried
        assert (ended.returncode, len(lines) in {3, 4}) == (2, True)
        assert "a worker has ended unasked" in lines[-1]


@pytest.mark.parametrize("count", [1, 2])
def test_an_address_that_is_taken_is_told_before_anything_is_opened(tmp_path, count):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "dialore", "serve", "--port", str(port), "--set", f"server.workers={count}"]
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=environment(), cwd=tmp_path, check=False
        )
    assert ended.returncode == 2
    assert f"cannot serve at 127.0.0.1:{port}: Address already in use" in ended.stderr
    assert len(ended.stderr.splitlines()) == 2
