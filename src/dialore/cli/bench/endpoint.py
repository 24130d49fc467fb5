"""A chat endpoint of known latency: `python -m dialore.cli.bench.endpoint` serves one and prints its address.

It answers each stage plausibly from the wanted JSON schema alone, so that every part of a method has work to do. The
model's name sets the latency: `wait-50` answers after 50 milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from typing import Any

from aiohttp import web

_LATIN = re.compile(r"[a-zA-Z]{4,}")
_CHINESE = re.compile(r"[一-鿿]{2}")
_NUMBERED = re.compile(r"^\s*\[?(\d+)[\].)]", re.MULTILINE)
_ASIDE = {"en": ["friend", "music", "tea", "walk"], "zh": ["朋友", "休息", "喝茶", "散步"]}
_MOST = 10


def answer(body: dict[str, Any]) -> str:
    """A plausible answer to a chat request: JSON that fits the schema, else a sentence."""
    asked = body["messages"][-1]["content"]
    properties = _properties(body)
    if not properties:
        said = " and ".join(_words(asked)[:2]) or "that"
        return f"That makes me think of {said}. What would you like to do about it?"
    return json.dumps({name: _value(name, kind, asked) for name, kind in properties.items()}, ensure_ascii=False)


def _properties(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    wanted = (body.get("response_format") or {}).get("json_schema") or {}
    properties: dict[str, dict[str, Any]] = wanted.get("schema", {}).get("properties", {})
    return properties


def _value(name: str, kind: dict[str, Any], asked: str) -> object:
    if kind.get("type") != "array":
        return f"The history leads to {', '.join(_words(asked)[:3])}, and from there further."
    if kind.get("items", {}).get("type") == "integer":
        return [int(number) for number in _NUMBERED.findall(asked)[:_MOST]]
    if name in {"implicit", "extended"}:
        return _ASIDE["zh" if _CHINESE.search(asked) else "en"]
    return _words(asked)[:6]


def _words(asked: str) -> list[str]:
    """The words that the prompt's history says most, its last turn first."""
    turns = [line for line in asked.splitlines() if re.match(r"\w+[:：]", line)] or [asked]
    pattern = _CHINESE if _CHINESE.search(asked) else _LATIN
    said = Counter(word.lower() for turn in reversed(turns) for word in pattern.findall(turn.split(":", 1)[-1]))
    return [word for word, _ in said.most_common(12)]


async def _complete(request: web.Request) -> web.StreamResponse:
    body = json.loads(await request.read())
    wait = re.search(r"(\d+)$", str(body.get("model", "")))
    if wait:
        await asyncio.sleep(int(wait[1]) / 1000)
    text = answer(body)
    usage = {
        "prompt_tokens": sum(len(m["content"]) for m in body["messages"]) // 4,
        "completion_tokens": len(text) // 4,
    }
    if body.get("stream"):
        return await _stream(request, text, usage)
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return web.json_response({"object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage})


async def _stream(request: web.Request, text: str, usage: dict[str, int]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in re.findall(r"\S+\s*|\s+", text):
        await _event(response, {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
    await _event(response, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage})
    await response.write(b"data: [DONE]\n\n")
    return response


async def _event(response: web.StreamResponse, data: dict[str, Any]) -> None:
    chunk = {"object": "chat.completion.chunk", "model": "bench", **data}
    await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


async def _models(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "wait-0"}]})


async def serve() -> None:
    """Serve on a free port of this machine until standard input is closed; the first line written is the base URL."""
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/chat/completions", _complete)
    app.router.add_get("/v1/models", _models)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    port = runner.addresses[0][1]
    sys.stdout.write(f"http://127.0.0.1:{port}/v1\n")
    sys.stdout.flush()
    # The parent holds our standard input: when it ends, however it ends, so do we.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve())
