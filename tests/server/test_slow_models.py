"""A model that is slow is asked once per response, through every entry point."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from types import SimpleNamespace

import httpx
import pytest

from dialore.cli import main
from dialore.dialogue import Dialogue
from dialore.session import connect, create_agent
from dialore.settings import Settings, check_settings
from dialore.sources.in_memory import InMemoryPassages
from tests.llm.server import say
from tests.llm.test_gguf import gguf

FIRST, SECOND = "May I bring my dog?", "And is there parking?"
PASSAGE = "Dogs are welcome on the terrace."


@pytest.fixture
def model(faulty_server):
    """An endpoint that answers both stages."""

    def scripted(asked):
        return say(json.dumps({"needs": []}) if asked.body.get("response_format") else PASSAGE)

    faulty_server.by_request = scripted
    return faulty_server


@pytest.fixture
def folder(tmp_path, monkeypatch, new_cache):
    monkeypatch.setenv("DIALORE_CACHE", new_cache())
    monkeypatch.setattr("dialore.llm.connection.ollama_models", list)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.md").write_text(PASSAGE, "utf-8")
    return tmp_path


def calls_for(model, question):
    """Return how often the model was asked about a question; later ones have it in their history."""
    bodies = [json.dumps(call.body["messages"]) for call in model.calls]
    later = {FIRST: SECOND}.get(question, "no later question")
    return sum(question in body and later not in body for body in bodies)


def ask_python(settings, _folder):
    agent = create_agent("weave", model=connect(**settings), sources={"documents": InMemoryPassages([PASSAGE])})
    with agent:
        for question in (FIRST, SECOND):
            agent.respond_sync(question)


def ask_chat(settings, folder):
    lines = io.TextIOWrapper(io.BytesIO(f"{FIRST}\n{SECOND}\n/quit\n".encode()), encoding="utf-8")
    run_command(["chat", *options_of(settings, folder)], lines)


def ask_respond(settings, folder):
    dialogues = [Dialogue([question]).model_dump(mode="json", exclude_unset=True) for question in (FIRST, SECOND)]
    (folder / "talks.jsonl").write_text("".join(json.dumps(each) + "\n" for each in dialogues), "utf-8")
    run_command(["respond", "talks.jsonl", *options_of(settings, folder), "--set", "model.concurrency=1"])


def options_of(settings, folder):
    options = ["-M", "weave", "--documents", str(folder / "notes.md"), "--set", "model.no_cache=true"]
    for name, value in settings.items():
        options += [f"--{name.replace('_', '-')}", value]
    return options


def run_command(arguments, stdin=None):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", stdin or io.StringIO())
        with pytest.raises(SystemExit) as left:
            main(arguments)
    assert not left.value.code


def service_settings(settings, folder):
    sources = {"documents": [str(folder / "notes.md")]}
    server = {"folder": str(folder / "known")}
    return {"method": ["weave"], "model": {**settings, "no_cache": True}, "sources": sources, "server": server}


def ask_serve(settings, folder):
    from dialore.server.app import create_app

    async def ask():
        app = create_app(check_settings(Settings, service_settings(settings, folder), where="test"))
        transport = httpx.ASGITransport(app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
            for question in (FIRST, SECOND):
                body = {"model": "dialore", "messages": [{"role": "user", "content": question}]}
                answer = await client.post("http://127.0.0.1/v1/chat/completions", json=body)
                assert answer.status_code == 200, answer.text

    asyncio.run(ask())


def ask_mcp(settings, folder):
    pytest.importorskip("mcp.server.mcpserver", reason="the MCP SDK is not here: pip install 'dialore[mcp]'")
    from mcp import Client

    from dialore.server.mcp import create_server
    from dialore.server.service import Service
    from dialore.server.telemetry import Telemetry

    async def ask():
        service = Service(check_settings(Settings, service_settings(settings, folder), where="test"), Telemetry())
        async with service.running(), Client(create_server(service, "me")) as client:
            for question in (FIRST, SECOND):
                answer = await client.call_tool("respond", {"message": question})
                assert not answer.is_error, answer.content

    asyncio.run(ask())


ENTRY_POINTS = [ask_python, ask_chat, ask_respond, ask_serve, ask_mcp]


@pytest.mark.parametrize("ask", ENTRY_POINTS)
@pytest.mark.parametrize(("tokens_a_second", "calls"), [(1e9, 1), (0, 2)])
def test_an_endpoint_that_was_slow_is_asked_once(model, folder, monkeypatch, ask, tokens_a_second, calls):
    monkeypatch.setattr("dialore.methods.stage_runner.SLOW_TOKENS_PER_S", tokens_a_second)
    ask({"base_url": model.url, "model": "served-model"}, folder)
    assert calls_for(model, FIRST) == 2
    assert calls_for(model, SECOND) == calls


@pytest.mark.parametrize("ask", ENTRY_POINTS)
def test_a_model_in_the_process_is_asked_once_from_the_start(model, folder, monkeypatch, ask):
    monkeypatch.setattr("dialore.methods.stage_runner.SLOW_TOKENS_PER_S", 1e9)
    monkeypatch.setitem(sys.modules, "xllamacpp", stand_in_for_llama(model.url))
    (folder / "small.gguf").write_bytes(gguf(tokenizer__chat_template="{{ messages }}"))
    ask({"model": f"gguf:{folder / 'small.gguf'}"}, folder)
    assert (calls_for(model, FIRST), calls_for(model, SECOND)) == (1, 1)


def stand_in_for_llama(url):
    """A module in place of llama.cpp's, whose server is the endpoint of the test."""

    def make_parameters():
        parts = {name: SimpleNamespace() for name in ("model", "cpuparams", "cpuparams_batch")}
        return SimpleNamespace(**parts)

    address = url.removesuffix("/v1")
    return SimpleNamespace(CommonParams=make_parameters, Server=lambda _: SimpleNamespace(listening_address=address))


async def test_the_service_stays_adapted_when_its_sources_change(model, folder, monkeypatch):
    from dialore.server.app import create_app

    monkeypatch.setattr("dialore.methods.stage_runner.SLOW_TOKENS_PER_S", 1e9)
    settings = service_settings({"base_url": model.url, "model": "served-model"}, folder)
    app = create_app(check_settings(Settings, settings, where="test"))
    transport = httpx.ASGITransport(app)
    address = "http://127.0.0.1/v1"
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
        body = {"model": "dialore", "messages": [{"role": "user", "content": FIRST}]}
        assert (await client.post(f"{address}/chat/completions", json=body)).status_code == 200
        files = {"file": ("parking.md", b"There is parking behind the house.")}
        assert (await client.post(f"{address}/knowledge/files", files=files)).status_code < 300
        body["messages"][0]["content"] = SECOND
        assert (await client.post(f"{address}/chat/completions", json=body)).status_code == 200
    assert calls_for(model, SECOND) == 1
