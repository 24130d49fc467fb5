"""A chat endpoint of known latency: `python -m benchmarks.endpoint` serves one and prints its address.

It answers each stage plausibly from the wanted JSON schema alone, so that every part of a method has work to do. The
model's name sets the latency: `wait-50` answers after 50 milliseconds, `lognormal-200-0.6-7` after times whose median
is 200 milliseconds and whose logarithms spread by 0.6, sampled with the seed 7; `pace-50` streams a word each 50
milliseconds. `GET /v1/waited` reports by model how many calls there were, how many seconds they were made to wait in
all, and the CPU seconds spent since the first. It has a batch API, too (`benchmarks.batches`).
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

from benchmarks.batches import BatchServer
from benchmarks.measure import ROOT
from dialore.errors import InputError
from dialore.llm.connection import connect
from dialore.llm.fake import plausible_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dialore.llm.model import LanguageModel


@contextmanager
def endpoint() -> Iterator[str]:
    """Start an endpoint in a process of its own; yield its base URL. It ends with this process, however that ends."""
    command = [sys.executable, "-m", "benchmarks.endpoint"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:  # noqa: S603
        try:
            url = process.stdout.readline().strip() if process.stdout else ""
            if not url:
                raise InputError("the benchmark's endpoint did not start", hint="is a local port free?")
            yield url
        finally:
            if process.stdin:
                process.stdin.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()


def connected(name: str, url: str, concurrency: int = 64) -> LanguageModel:
    """Connect to the endpoint's model of that name; raises InputError where it cannot be reached."""
    model = connect(name, url, concurrency=concurrency)
    if model is None:
        raise InputError("the benchmark's endpoint cannot be reached", hint="is a proxy in the way?")
    return model


def waited(url: str, model: str) -> tuple[int, float, float]:
    """Return a model's calls, the seconds that they were made to wait, and the endpoint's CPU seconds."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/waited") as answer:
        figures = json.load(answer)[model]
    return int(figures["calls"]), float(figures["seconds"]), float(figures["cpu"])


def answer(body: dict[str, Any]) -> str:
    """Return a plausible answer to a chat request: JSON that fits the schema, else a sentence."""
    wanted = (body.get("response_format") or {}).get("json_schema") or {}
    *instructions, asked = [message["content"] for message in body["messages"]]
    return plausible_answer(asked, wanted.get("schema"), "\n".join(instructions))


def completion(body: dict[str, Any]) -> dict[str, Any]:
    """Return the chat completion of a body."""
    text = answer(body)
    usage = {
        "prompt_tokens": sum(len(m["content"]) for m in body["messages"]) // 4,
        "completion_tokens": len(text) // 4,
    }
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return {"object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}


class Waits:
    """Latencies by model: sampled in the order of the calls, the same for the same name, and added up."""

    def __init__(self) -> None:
        self._draws: dict[str, random.Random] = {}
        self.waited: dict[str, list[float]] = {}
        self._cpu: dict[str, float] = {}

    def next(self, model: str) -> float:
        """Seconds that the next call of a model waits."""
        self._cpu.setdefault(model, time.process_time())
        seconds = 0.0
        if drawn := _LOGNORMAL.search(model):
            draw = self._draws.setdefault(model, random.Random(int(drawn[3] or 0)))  # noqa: S311 - no secret
            seconds = draw.lognormvariate(math.log(int(drawn[1]) / 1000), float(drawn[2]))
        elif fixed := _FIXED.search(model):
            seconds = int(fixed[1]) / 1000
        sums = self.waited.setdefault(model, [0, 0.0])
        sums[0] += 1
        sums[1] += seconds
        return seconds

    def report(self) -> dict[str, dict[str, float]]:
        """By model: its calls, the seconds that they waited, and our CPU seconds since the first of them."""
        now = time.process_time()
        return {
            model: {"calls": calls, "seconds": seconds, "cpu": now - self._cpu[model]}
            for model, (calls, seconds) in self.waited.items()
        }


_LOGNORMAL = re.compile(r"^lognormal-(\d+)-(\d+(?:\.\d+)?)(?:-(\d+))?$")
_PACE = re.compile(r"^pace-(\d+)$")
_FIXED = re.compile(r"(\d+)$")
_waits = Waits()


async def _complete(request: web.Request) -> web.StreamResponse:
    body = json.loads(await request.read())
    if seconds := _waits.next(str(body.get("model", ""))):
        await asyncio.sleep(seconds)
    made = completion(body)
    if body.get("stream"):
        text = made["choices"][0]["message"]["content"]
        return await _stream(request, str(body.get("model", "")), text, made["usage"])
    return web.json_response(made)


async def _stream(request: web.Request, model: str, text: str, usage: dict[str, int]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    pace = _PACE.match(model)
    for piece in re.findall(r"\S+\s*|\s+", text):
        await asyncio.sleep(int(pace[1]) / 1000 if pace else 0)
        await _event(response, {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
    await _event(response, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage})
    await response.write(b"data: [DONE]\n\n")
    return response


async def _event(response: web.StreamResponse, data: dict[str, Any]) -> None:
    chunk = {"object": "chat.completion.chunk", "model": "bench", **data}
    await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


async def _models(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "wait-0"}]})


async def _waited(_: web.Request) -> web.Response:
    return web.json_response(_waits.report())


async def begin(port: int = 0) -> web.AppRunner:
    """Serve on a port of this machine, else on a free one, until the runner is cleaned up."""
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/chat/completions", _complete)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/v1/waited", _waited)
    BatchServer(completion).add_routes(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
    return runner


async def serve() -> None:
    """Serve on a free port of this machine until standard input is closed; the first line written is the base URL."""
    runner = await begin()
    port = runner.addresses[0][1]
    sys.stdout.write(f"http://127.0.0.1:{port}/v1\n")
    sys.stdout.flush()
    # The parent holds our standard input: when it ends, however it ends, so do we.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve())
