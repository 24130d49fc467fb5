"""`dialore serve` and `dialore mcp` as processes of their own, on an endpoint of this machine whose answers are set."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass

import httpx
import pytest

from dialore.retrieval.documents.indexing import build_documents
from tests.llm.server import FaultyServer, say
from tests.server.conftest import need, wait_until

HANDBOOK = "Dogs are welcome on the terrace, and there is always a bowl of water."
ANSWER = "Dogs are welcome on the terrace. Bring yours!"
QUESTION = "May I bring my dog?"


def scripted(asked):
    if asked.body.get("response_format"):
        return say(json.dumps({"needs": [need("dogs on the terrace")]}))
    # As slow as a model: text that waits for its reader comes as one piece.
    slowly = {"pause": 0.03} if asked.body.get("stream") else {}
    return say("Dogs are welcome on the terrace [1]. Bring yours!", **slowly)


@dataclass
class World:
    """A folder with `dialore.toml`, and the environment of processes in it."""

    folder: object
    environment: dict

    @contextlib.contextmanager
    def running(self, *words):
        """A command that serves, until it answers; gives its address."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = self.folder / f"{words[0]}.log"
        with log.open("w") as err, self.process(*words, "--port", str(port), stderr=err) as process:
            try:
                address = ("127.0.0.1", port)
                wait_until(lambda: process.poll() is not None or listens(address), 60)
                assert process.poll() is None, log.read_text()
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()
                assert process.wait(20) in {0, -15}, log.read_text()

    def process(self, *words, **settings):
        command = [sys.executable, "-m", "dialore", *words]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, **settings)


def listens(address):
    with contextlib.suppress(OSError), socket.create_connection(address, 1):
        return True
    return False


@pytest.fixture(scope="package")
def world(tmp_path_factory, new_cache):
    folder = tmp_path_factory.mktemp("world")
    endpoint = FaultyServer()
    endpoint.by_request = scripted
    (folder / "handbook.md").write_text(f"# Dogs\n\n{HANDBOOK}\n", "utf-8")
    build_documents(folder / "handbook.idx", [folder / "handbook.md"])
    model = f'[model]\nbase_url = "{endpoint.url}"\nmodel = "served-model"\nno_cache = true\n'
    sources = '[sources]\ndocuments = "handbook.idx"\ngraph = "starter"\n'
    (folder / "dialore.toml").write_text(
        f'method = "weave"\n{model}{sources}[options]\nplan = "needs"\n[server]\nfolder = "known"\n', "utf-8"
    )
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("DIALORE_", "OPENAI_"))}
    yield World(folder, {**outside, "DIALORE_CACHE": new_cache(), "NO_PROXY": "127.0.0.1"})
    endpoint.close()


@dataclass
class Keyed:
    """A running service: its address, a key, one whose tokens of the day are spent, and one that it does not know."""

    url: str
    key: str
    spent: str
    wrong: str = "dlr-wrong"


@pytest.fixture(scope="package")
def keyed(world):
    """`keyed.toml`, a file with keys; gives one, and one of few tokens a day."""
    from dialore.server.middleware import new_key

    (key, mark), (few, other) = new_key(), new_key()
    keys = f'[[server.keys]]\nname = "app"\nsha256 = "{mark}"\nrequests_per_minute = 0\n'
    keys += f'[[server.keys]]\nname = "few"\nsha256 = "{other}"\ntokens_per_day = 1\n'
    settings = (world.folder / "dialore.toml").read_text("utf-8")
    (world.folder / "keyed.toml").write_text(settings + keys, "utf-8")
    return key, few


@pytest.fixture(scope="package")
def service(world, keyed):
    """`dialore serve` with keys."""
    with world.running("serve", "--settings", "keyed.toml") as url:
        body = {"messages": [{"role": "user", "content": QUESTION}]}
        headers = {"Authorization": f"Bearer {keyed[1]}"}
        made = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60, trust_env=False)
        assert made.status_code == 200, made.text
        yield Keyed(f"{url}/v1", *keyed)
