"""A service on a port of this machine, in a thread, and language models that answer as a test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time

import httpx
import pytest

from dialore.llm.model import Completion, Usage
from dialore.settings import Settings, check_settings
from tests.server.browsing import browser, page

__all__ = ["browser", "page"]  # fixtures

pytest.importorskip("fastapi", reason="the serve extra is not installed")

DRAFT = "Dogs are welcome on the terrace. Bring yours along!"


class Scripted:
    """Answers structured stages with needs for the documents, and texts word by word; it can be made to wait."""

    name = "scripted"

    def __init__(self, text=DRAFT, *, needs=(), pause=0.0):
        self.text, self.needs, self.pause = text, list(needs), pause
        self.requests, self.under_way, self.stopped = [], 0, 0

    async def complete(self, request, on_token=None):
        self.requests.append(request)
        self.under_way += 1
        try:
            text = json.dumps({"needs": self.needs}) if request.output_schema else self.text
            await asyncio.sleep(self.pause)
            for word in [] if request.output_schema else text.split(" "):
                await asyncio.sleep(self.pause)
                if on_token is not None:
                    on_token(word if text.startswith(word) else f" {word}")
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        finally:
            self.under_way -= 1
        return Completion(text=text, model=self.name, usage=Usage(calls=1, prompt_tokens=100, completion_tokens=10))

    async def close(self):
        pass

    def prompt(self, stage):
        """The prompt of the last call of a stage."""
        found = [each for each in self.requests if each.label.endswith(f"/{stage}")]
        return "\n".join(message.content for message in found[-1].messages)


def need(query):
    return {"what": query, "source": "library", "query": query, "asked": True}


class Running:
    """A service, where to reach it, and plain requests to it."""

    def __init__(self, server, app, model):
        self.server, self.app, self.model = server, app, model
        self.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        self.http = httpx.Client(base_url=self.url, timeout=30, trust_env=False, verify=False)

    @property
    def service(self):
        return self.app.state.service

    def say(self, text="May I bring my dog?", **further):
        body = {"model": "dialore", "messages": [{"role": "user", "content": text}], **further}
        return self.http.post("/v1/chat/completions", json=body)


@contextlib.contextmanager
def services(folder):
    """A function that starts services, which all end with the block; their knowledge is in the folder."""
    import uvicorn

    from dialore.server.app import create_app
    from dialore.server.connections import bounded_protocol

    with contextlib.ExitStack() as stack:

        def start(model=None, /, **given):
            model = model or Scripted()
            given["server"] = {"folder": str(folder / "known"), **given.get("server", {})}
            settings = check_settings(Settings, given, where="test")
            has_model = settings.model.model != "lexical"
            app = create_app(settings, connect=lambda _settings, _name: model if has_model else None)
            reads = bounded_protocol(settings.server)
            config = uvicorn.Config(
                app, "127.0.0.1", 0, http=reads, ws="none", log_config=None, access_log=False, log_level="error"
            )
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, daemon=True)
            thread.start()
            wait_until(lambda: server.started or not thread.is_alive())
            running = Running(server, app, model)

            def stop():
                running.http.close()
                server.should_exit = True
                thread.join(30)

            stack.callback(stop)
            return running

        yield start


@pytest.fixture
def serving(tmp_path):
    """Starts services; each ends with the test."""
    with services(tmp_path) as start:
        yield start


def wait_until(holds, seconds=20.0):
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.02)


def is_up(url):
    """Whether that address answers with 200; without certificates, which take longer to read than an answer."""
    try:
        return httpx.get(url, trust_env=False, verify=False).status_code == 200
    except httpx.TransportError:
        return False
