"""`dialore respond` and `dialore ground`."""

from __future__ import annotations

import io
import json
import sys

import pytest
from rich.console import Console

from dialore.cli.render import show_used
from dialore.response import Response, StageTrace
from tests.cli.conftest import LONDON, THROAT
from tests.llm.server import html, say, status


def jsonl(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_without_an_endpoint_what_was_found_is_shown_and_it_says_so(call, talks):
    done = call("respond", talks)
    assert done.code == 0
    assert done.err.count("\n") == 1
    assert "no model" in done.err
    for word in ("throat", "london", "soup", "From what was found: ", "no model call", "linked", "facts found"):
        assert word in done.out


def test_json_is_one_response_a_line_in_the_files_order(call, talks, url):
    done = call("respond", talks, "-M", "vanilla", "-M", "dcrag", "-u", url, "--set", "model.no_cache=true", "--json")
    assert done.code == 0
    order = [(line["id"], line["method"]) for line in done.lines]
    assert order == [(name, method) for name in ("throat", "london", "soup") for method in ("vanilla", "dcrag")]
    dcrag = done.lines[1]
    assert dcrag["status"] == "ok"
    assert dcrag["text"]
    assert dcrag["usage"]["calls"] >= 5
    assert "trace" not in dcrag
    assert set(dcrag["knowledge"][0]) >= {"id", "kind", "text", "source", "score", "used"}


def test_out_and_trace_files(call, talks, url, tmp_path):
    out, trace = tmp_path / "out.jsonl", tmp_path / "trace.jsonl"
    done = call(
        "respond", talks, "-M", "dcrag", "-u", url, "--set", "model.no_cache=true", "--out", out, "--trace", trace
    )
    assert done.code == 0
    assert done.out == ""
    assert [line["id"] for line in jsonl(out)] == ["throat", "london", "soup"]
    stages = {stage["stage"]: stage for stage in jsonl(trace)[0]["trace"]}
    assert "sore throat" in stages["query-production"]["messages"][-1]["content"]
    assert stages["fact-retrieval"]["output"]["graph"] == "starter"


def test_standard_input(call, url):
    done = call("respond", "-", "-u", url, "-M", "vanilla", "--json", stdin=json.dumps(THROAT))
    assert [line["id"] for line in done.lines] == ["throat"]


def test_a_malformed_entry_is_named_and_recorded_and_the_others_are_answered(call, tmp_path):
    path = tmp_path / "batch.jsonl"
    bad = {"id": "bad", "turns": [{"speaker": "user", "txt": "hello"}]}
    path.write_text("\n".join([json.dumps(THROAT), json.dumps(bad), "{broken", json.dumps(LONDON)]), "utf-8")
    done = call("respond", path, "--json")
    assert done.code == 1
    assert [line["status"] for line in done.lines] == ["ok", "failed", "failed", "ok"]
    assert "batch.jsonl, line 2: field turns[0].text" in done.lines[1]["error"]
    assert "batch.jsonl, line 2: field turns[0].text" in done.err
    assert "line 3: not valid JSON" in done.err


def test_nothing_but_malformed_entries(call, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text('{"turns": []}', "utf-8")
    assert "bad.json: field turns" in call("respond", path).complaint
    path.write_text("", "utf-8")
    assert "the file is empty" in call("respond", path, "--json").complaint
    assert "no such file: nowhere.json" in call("ground", "nowhere.json").complaint


def test_unknown_names_get_a_suggestion(call, talks, url, tmp_path):
    out = tmp_path / "out.jsonl"
    assert "did you mean dcrag" in call("respond", talks, "-M", "dcrga", "-u", url, "--out", out).complaint
    assert "did you mean limit" in call("respond", talks, "-o", "limt=3", "-u", url, "--out", out).complaint
    assert "NAME=VALUE" in call("respond", talks, "-o", "limit", "-u", url).complaint
    assert "is not a whole number" in call("respond", talks, "-o", "limit=many", "-u", url).complaint
    assert "no such graph: x.graph" in call("respond", talks, "-g", "x.graph", "-u", url, "--out", out).complaint
    assert "no such prompt folder" in call("respond", talks, "--set", "sources.prompts=nowhere", "-u", url).complaint
    assert not out.exists()


def test_an_ablation_changes_the_calls(call, tmp_path, url):
    path = tmp_path / "one.json"
    path.write_text(json.dumps(THROAT), "utf-8")
    asked = ("respond", path, "-M", "dcrag", "-u", url, "--set", "model.no_cache=true", "--json")
    whole = call(*asked).lines[0]["usage"]["calls"]
    without = call(*asked, "-o", "cross_revision=false")
    assert without.lines[0]["usage"]["calls"] == whole - 1


def test_an_option_goes_to_the_methods_that_have_it(call, talks, url):
    done = call(
        "respond",
        talks,
        "-u",
        url,
        "-M",
        "vanilla",
        "-M",
        "t-rag",
        "-o",
        "top=3",
        "--json",
        "--set",
        "model.no_cache=true",
    )
    assert [len(line["knowledge"]) for line in done.lines[:2]] == [0, 3]


def test_the_cache_is_used_unless_refused(call, tmp_path, url):
    path, cache = tmp_path / "one.json", tmp_path / "cache.sqlite"
    path.write_text(json.dumps(THROAT), "utf-8")
    settings = ("respond", path, "-u", url, "-M", "vanilla", "--json", "--set", f"model.cache={cache}")
    assert [call(*settings).lines[0]["usage"]["cached"] for _ in range(2)] == [0, 1]
    assert call(*settings[:-2], "--set", "model.no_cache=true").lines[0]["usage"]["cached"] == 0
    assert "exclude each other" in call(*settings, "--set", "model.no_cache=true").complaint


def test_a_recording_replays_without_an_endpoint(call, talks, url, tmp_path):
    calls = tmp_path / "calls.jsonl"
    live = call("respond", talks, "-u", url, "--set", "model.no_cache=true", "--set", f"model.record={calls}", "--json")
    again = call("respond", talks, "--set", f"model.replay={calls}", "--json")
    assert again.code == 0
    assert [line["text"] for line in again.lines] == [line["text"] for line in live.lines]
    assert again.lines[0]["knowledge"] == live.lines[0]["knowledge"]
    assert "model.record needs a language model" in call("respond", talks, "--set", f"model.record={calls}").complaint
    assert (
        "exclude each other"
        in call("respond", talks, "--set", f"model.record={calls}", "--set", f"model.replay={calls}").complaint
    )


def test_a_method_that_needs_a_model_shows_what_was_found_without_one(call, talks):
    done = call("respond", talks, "-M", "qp-rag", "--json")
    assert done.code == 0
    assert {(line["method"], line["model"]) for line in done.lines} == {("lexical", "no model")}


def test_an_endpoint_that_refuses_is_one_line(call, talks, faulty_server, tmp_path):
    out = tmp_path / "out.jsonl"
    faulty_server.always = status(401, "bad key")
    settings = (
        "respond",
        talks,
        "-u",
        faulty_server.url,
        "--set",
        "model.no_cache=true",
        "--set",
        "model.retries=0",
        "--out",
        out,
    )
    complaint = call(*settings, "--set", "model.api_key=sk-secret-key").complaint
    assert "401" in complaint or "key" in complaint
    assert "sk-secret-key" not in complaint
    faulty_server.always = html()
    assert call(*settings).code == 2
    assert "cannot be a URL" in (bad := call("respond", talks, "-u", "nonsense://x").complaint) or "URL" in bad


def test_a_refused_connection_is_one_line_and_a_recorded_failure(call, tmp_path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps(THROAT), "utf-8")
    done = call(
        "respond",
        path,
        "-u",
        "http://127.0.0.1:9/v1",
        "-m",
        "x",
        "--set",
        "model.retries=0",
        "--set",
        "model.no_cache=true",
        "--json",
    )
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "127.0.0.1:9" in done.err
    assert [line["status"] for line in done.lines] in ([], ["failed"])


def test_a_call_that_fails_costs_only_its_dialogue(call, talks, faulty_server):
    def reply(asked):
        return status(500, "boom") if "London" in json.dumps(asked.body["messages"]) else say("Get well soon.")

    faulty_server.by_request = reply
    done = call(
        "respond",
        talks,
        "-M",
        "vanilla",
        "-u",
        faulty_server.url,
        "--set",
        "model.no_cache=true",
        "--set",
        "model.retries=0",
        "--json",
    )
    assert done.code == 1
    assert [(line["id"], line["status"]) for line in done.lines] == [
        ("throat", "ok"),
        ("london", "failed"),
        ("soup", "ok"),
    ]
    assert done.lines[0]["text"] == "Get well soon."
    assert "london, vanilla: failed" in done.err


def test_parse_failures_are_counted(call, tmp_path, faulty_server):
    path = tmp_path / "one.json"
    path.write_text(json.dumps(THROAT), "utf-8")
    faulty_server.always = say("I would rather not.")
    done = call("respond", path, "-u", faulty_server.url, "--set", "model.no_cache=true")
    assert done.code == 0
    assert "1 parse failure" in done.out


def test_files_that_cannot_be_written_are_found_before_anything_is_asked(call, talks, faulty_server, tmp_path):
    settings = ("respond", talks, "-u", faulty_server.url)
    assert "make its folder first" in call(*settings, "--out", tmp_path / "none" / "out.jsonl").complaint
    assert "it is a folder" in call(*settings, "--html", tmp_path).complaint
    before = talks.read_text("utf-8")
    assert "is named twice" in call(*settings, "--out", talks).complaint
    assert "is named twice" in call(*settings, "--out", tmp_path / "a", "--trace", tmp_path / "a").complaint
    assert talks.read_text("utf-8") == before
    assert faulty_server.requests == []


def test_the_page_of_a_run(call, talks, url, tmp_path):
    page = tmp_path / "page.html"
    done = call("respond", talks, "-u", url, "--html", page, "-M", "t-rag")
    assert done.code == 0
    assert "A weekend, and it will rain." in page.read_text("utf-8")
    assert f"page: {page}" in done.err


def test_ground_stops_before_the_response(call, tmp_path, url):
    turns = ["I am off to London.", "How nice, for how long?", "A weekend. What should I pack for the rain?"]
    talks = tmp_path / "talks.jsonl"
    talks.write_text(json.dumps({"id": "london", "turns": turns}), "utf-8")
    done = call("ground", talks, "-u", url, "--set", "model.no_cache=true", "--json")
    assert done.code == 0
    assert "text" not in done.lines[0]
    assert done.lines[0]["demands"]["explicit"]
    scores = [item["score"] for item in done.lines[0]["knowledge"]]
    assert scores
    words = call("ground", talks, "-u", url, "--set", "model.no_cache=true").out
    for word in ("queries said", "topics to bring up", "score", "starter" if "starter" in words else ".tsv"):
        assert word in words


def test_ground_without_an_endpoint(call, talks):
    done = call("ground", talks, "--json")
    assert done.code == 0
    assert all(line["model"] == "no model" for line in done.lines)
    assert all(line["knowledge"] for line in done.lines)


def test_a_file_of_something_else_is_not_written_over(call, talks, url, tmp_path):
    kept = tmp_path / "keep.yaml"
    kept.write_text("precious: true\n", "utf-8")
    for option in (["--trace", kept], ["--out", kept], ["--html", kept], ["--set", f"model.record={kept}"]):
        assert "holds something else" in call("respond", talks, "-u", url, *option).complaint
    assert kept.read_text("utf-8") == "precious: true\n"
    out = tmp_path / "out.jsonl"
    settings = ("respond", talks, "-u", url, "-M", "vanilla", "--set", "model.no_cache=true", "--out", out)
    assert [call(*settings).code for _ in range(2)] == [0, 0]


def test_a_disk_that_is_full_is_one_line(call, talks, url):
    done = call("respond", talks, "-u", url, "-M", "vanilla", "--set", "model.no_cache=true", "--out", "/dev/full")
    assert done.code == 2
    assert "cannot write /dev/full" in done.complaint


def test_a_folder_without_prompts_is_said(call, talks, url, tmp_path):
    assert (
        "no prompt in the folder" in call("respond", talks, "-u", url, "--set", f"sources.prompts={tmp_path}").complaint
    )


def test_what_a_method_does_not_read_is_said(call, talks, url):
    settings = (
        "respond",
        talks,
        "-u",
        url,
        "-m",
        "m",
        "-M",
        "dcrag",
        "--documents",
        "no-such.idx",
        "--set",
        "cite=true",
    )
    complaint = call(*settings).complaint
    assert "dcrag: no use for the source documents" in complaint
    assert "weave" in complaint


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        ([StageTrace(stage="look-up", output={"found": ["passage:1"]})], "nothing that was found was kept"),
        ([], "no knowledge was looked up"),
    ],
)
def test_what_was_found_and_not_kept_is_not_said_to_be_unsought(trace, said):
    out = Console(file=io.StringIO())
    show_used(out, Response(trace=trace))
    assert out.file.getvalue().strip() == said


def test_a_source_that_cannot_be_asked_is_named_on_standard_error(call, tmp_path):
    pytest.importorskip("mcp.client.client", reason="the MCP SDK is not here: pip install 'dialore[mcp]'")
    (tmp_path / "birds.yaml").write_text(f"command: {sys.executable} -c 'raise SystemExit(1)'\ntool: find\n", "utf-8")
    (tmp_path / "tea.txt").write_text("Green tea is not fermented.", "utf-8")
    broken = f"mcp:{tmp_path / 'birds.yaml'}"
    done = call("ask", "What do swans eat?", "--documents", broken)
    assert done.code == 0
    assert "birds" in done.err
    assert "birds" in done.out
    done = call("ask", "Is green tea fermented?", "-d", tmp_path / "tea.txt", "-d", broken, "--json")
    assert done.lines[0]["knowledge"][0]["text"] == "Green tea is not fermented."
    assert "birds" in done.err
