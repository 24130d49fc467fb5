"""`dialore mcp` as the SDK's own client sees it: the real process, over stdio and over HTTP."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

import httpx
import pytest

pytest.importorskip("mcp.server.mcpserver", reason="the MCP SDK is not here: pip install 'dialore[mcp]'")
import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult

from dialore.dialogue import Dialogue
from dialore.parallel import wait_for
from dialore.server.store import ServerStore, User
from dialore.sources.mcp import open_mcp
from tests.clients.conftest import ANSWER, HANDBOOK, QUESTION
from tests.server.hostile import SITES

WORDS = ("mcp", "--settings", "dialore.toml")
OURS = ("DIALORE_CACHE", "PYTHONPATH")


@pytest.fixture(scope="module")
def address(world):
    with world.running(*WORDS, "--http") as url:
        yield f"{url}/mcp"


def stdio(world):
    words = ["-m", "dialore", *WORDS]
    return stdio_client(
        StdioServerParameters(command=sys.executable, args=words, env=world.environment, cwd=world.folder)
    )


def test_only_health_is_answered_beside_the_tools(world, address):
    base = address.removesuffix("/mcp")
    paths = ("/healthz", "/readyz", "/", "/app.js", "/v1/annotate/sheet")
    with httpx.Client(base_url=base, trust_env=False) as http:
        assert [http.get(path).status_code for path in paths] == [200, 200, 404, 404, 404]
    assert "Traceback" not in (world.folder / "mcp.log").read_text()


async def test_tools_have_typed_inputs_and_outputs(address):
    async with Client(address) as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        own = {"remember", "list_memory", "edit_memory", "forget"}
        assert {"ground", "respond", "search_documents", "search_graph", *own} == tools.keys()
        changing = [name for name, tool in tools.items() if not tool.annotations.read_only_hint]
        assert sorted(changing) == ["edit_memory", "forget", "remember"]
        for tool in tools.values():
            assert tool.description
            assert tool.output_schema["type"] == "object"
        assert tools["respond"].input_schema["required"] == ["message"]
        assert {"history", "model"} <= tools["respond"].input_schema["properties"].keys()


@pytest.mark.parametrize("how", ["stdio", "http", "http, as before 2026"])
async def test_a_reply_has_citations_with_their_places(world, request, how):
    server = stdio(world) if how == "stdio" else request.getfixturevalue("address")
    async with Client(server, mode="legacy" if "before" in how else "auto") as session:
        history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi, what can I do?"}]
        made = await session.call_tool("respond", {"message": QUESTION, "history": history})
        assert not made.is_error
        reply = made.structured_content
        assert reply["text"] == ANSWER
        [cited] = reply["citations"]
        assert (cited["text"], cited["title"], cited["file"]) == (HANDBOOK, "Dogs", "handbook.md")
        assert ANSWER[cited["start"] : cited["end"]] == "Dogs are welcome on the terrace"
        assert [piece["id"] for piece in reply["used"]] == [cited["id"]]


async def test_what_a_reply_needs_is_found(address):
    async with Client(address) as session:
        found = (await session.call_tool("ground", {"message": QUESTION})).structured_content
        assert found["demands"]["explicit"] == ["dogs on the terrace"]
        assert (found["method"], found["knowledge"][0]["text"]) == ("weave", HANDBOOK)
        assert 0 < found["knowledge"][0]["probability"] <= 1


async def test_sources_are_searched(address):
    async with Client(address) as session:
        [passage] = (await session.call_tool("search_documents", {"query": "dogs"})).structured_content["knowledge"]
        assert (passage["text"], passage["source"]) == (HANDBOOK, "documents")
        facts = (await session.call_tool("search_graph", {"query": "umbrella", "top": 3})).structured_content
        assert len(facts["knowledge"]) == 3
        assert all("umbrella" in fact["text"] and fact["kind"] == "fact" for fact in facts["knowledge"])


async def test_mistakes_are_told(address):
    async with Client(address) as session:
        wrong = {
            "did you mean dialore/weave or": {"message": "Hi", "model": "dialore/weaver"},
            "message": {"message": ""},
            "200001 characters": {"message": "a" * 200_001},
        }
        for said, arguments in wrong.items():
            made = await session.call_tool("respond", arguments)
            assert made.is_error
            assert said in made.content[0].text
            assert "Traceback" not in made.content[0].text
        assert (await session.call_tool("search_graph", {"query": "tea", "top": 0})).is_error
        assert (await session.call_tool("remember", {"statement": "  "})).is_error


def test_standard_output_is_the_protocol_s_alone(world):
    process = world.process(*WORDS, "--graph", "nowhere.graph", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(b"", timeout=60)
    assert process.returncode == 2
    assert out == b""
    assert b"nowhere.graph" in err


@pytest.mark.parametrize("headers", SITES)
def test_other_hosts_and_sites_are_refused(address, headers):
    made = httpx.post(address, json={}, headers=headers, trust_env=False)
    assert made.status_code == 403


def test_an_address_that_others_reach_needs_keys(world):
    process = world.process(*WORDS, "--http", "--host", "0.0.0.0", stderr=subprocess.PIPE)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert b"needs keys" in err


async def test_its_store_is_closed_when_it_is_asked_to_end(world):
    settings = (world.folder / "dialore.toml").read_text("utf-8").replace('"known"', '"closing"')
    (world.folder / "closing.toml").write_text(settings, "utf-8")
    with world.running("mcp", "--settings", "closing.toml", "--http") as url:
        async with Client(f"{url}/mcp") as session:
            await session.call_tool("list_memory", {})
        assert (world.folder / "closing" / "store.sqlite-wal").exists()
    assert not (world.folder / "closing" / "store.sqlite-wal").exists()


async def test_a_key_is_wanted_where_there_are_keys(world, keyed):
    with world.running("mcp", "--settings", "keyed.toml", "--http") as url:
        made = httpx.post(f"{url}/mcp", json={}, headers={"Authorization": "Bearer dlr-wrong"}, trust_env=False)
        assert (made.status_code, made.json()["error"]["code"]) == (401, "invalid_api_key")
        headers = {"Authorization": f"Bearer {keyed[0]}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http)) as session,
        ):
            made = await session.call_tool("search_documents", {"query": "dogs"})
            assert made.structured_content["knowledge"][0]["text"] == HANDBOOK


DOCUMENTS = {"tool": "search_documents", "arguments": {"top": 3}, "result": {"passages": "knowledge", "text": "text"}}


@pytest.mark.parametrize("how", ["stdio", "http", "http with a key"])
async def test_it_is_a_source_of_another_agent(world, request, keyed, tmp_path, monkeypatch, how):
    """`mcp:FILE`: see tests/sources/test_mcp.py."""
    call = {"command": [sys.executable, "-m", "dialore", "mcp", "--settings", str(world.folder / "dialore.toml")]}
    with contextlib.ExitStack() as running:
        if how == "http":
            call = {"url": request.getfixturevalue("address")}
        elif how == "http with a key":
            monkeypatch.setenv("KEY", keyed[0])
            url = running.enter_context(world.running("mcp", "--settings", "keyed.toml", "--http"))
            call = {"url": f"{url}/mcp", "headers": {"Authorization": "Bearer $KEY"}}
        else:
            call["env"] = {name: value for name, value in world.environment.items() if name in OURS}
        (tmp_path / "inn.yaml").write_text(json.dumps(call | DOCUMENTS), "utf-8")
        source = open_mcp(tmp_path / "inn.yaml")
        running.callback(source.close)
        (piece,) = await source.search("dogs", Dialogue.model_validate({"id": "1", "turns": ["May I bring my dog?"]}))
        assert (piece.text, piece.index) == (HANDBOOK, "inn")


STATEMENT = {"statement": "I live in Leeds."}


def asked_for_consent(seen, *, says):
    async def answer(_context, params):
        seen.append(params.message)
        return ElicitResult(action="accept" if says else "decline", content={"remember": True} if says else None)

    return answer


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_statement_is_kept_where_the_user_agrees_when_his_client_asks_him(world, mode):
    seen = []
    with world.running(*WORDS, "--http", "--user", mode) as url:
        refusing = Client(f"{url}/mcp", mode=mode, elicitation_callback=asked_for_consent(seen, says=False))
        async with refusing as session:
            made = await session.call_tool("remember", STATEMENT)
            assert (made.is_error, len(seen)) == (True, 1)
            assert "nothing was kept" in made.content[0].text
        async with Client(f"{url}/mcp", mode=mode) as session:
            made = await session.call_tool("remember", STATEMENT)
            assert made.is_error
            assert "this client cannot ask the user" in made.content[0].text
        agreeing = Client(f"{url}/mcp", mode=mode, elicitation_callback=asked_for_consent(seen, says=True))
        async with agreeing as session:
            assert (await session.call_tool("remember", STATEMENT)).structured_content["text"] == "I live in Leeds."
            moved = (await session.call_tool("remember", {"statement": "I live in York now."})).structured_content
            assert (moved["text"], len(seen)) == ("I live in York now.", 2)
            made = await session.call_tool("remember", {"statement": "My password is 1234567."})
            assert made.is_error
            assert "not kept" in made.content[0].text
    assert kept_of(world, mode) == ["I live in York now."]
    assert kept_of(world, "somebody") == []


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_what_is_kept_is_shown_and_forgotten(world, mode):
    user = f"ann {mode}"
    with world.running(*WORDS, "--http", "--user", user) as url:
        async with Client(f"{url}/mcp", mode=mode) as session:  # no consent is needed to see that there is none
            made = await session.call_tool("list_memory", {})
            assert made.structured_content == {"consents": False, "statements": []}
        agreeing = Client(f"{url}/mcp", mode=mode, elicitation_callback=asked_for_consent([], says=True))
        async with agreeing as session:
            texts = ("I live in Leeds.", "My sister keeps bees.")
            made = [await session.call_tool("remember", {"statement": text}) for text in texts]
            ids = [each.structured_content["id"] for each in made]
            kept = (await session.call_tool("list_memory", {})).structured_content
            assert kept["consents"]
            assert [each["id"] for each in kept["statements"]] == ids[::-1]
            left = (await session.call_tool("forget", {"identifier": ids[0]})).structured_content
            assert [each["text"] for each in left["statements"]] == ["My sister keeps bees."]
            again = await session.call_tool("forget", {"identifier": ids[0]})
            assert again.is_error
            assert "list_memory gives the ids" in again.content[0].text
    with world.running(*WORDS, "--http", "--user", "another") as url:
        async with Client(f"{url}/mcp", mode=mode) as session:
            assert (await session.call_tool("forget", {"identifier": ids[1]})).is_error
    assert kept_of(world, user) == ["My sister keeps bees."]


def kept_of(world, user):
    """What another process finds in the same folder."""

    async def ask():
        store = ServerStore(world.folder / "known" / "store.sqlite")
        try:
            return [each.text for each in await store.statements(User("local", user))]
        finally:
            await store.close()

    return wait_for(ask())
