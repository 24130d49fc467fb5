"""`dialore methods`, `dialore prompts` and `dialore data`."""

from __future__ import annotations

import json

import pytest

from dialore.dialogue import read_dialogues


def test_methods_say_their_paper_calls_and_options(call):
    methods = {method["name"]: method for method in call("methods", "--json").lines[0]}
    assert set(methods) >= {"dcrag", "qp-rag", "t-rag", "vanilla"}
    assert "EMNLP 2024" in methods["dcrag"]["paper"]
    options = {option["name"]: option for option in methods["dcrag"]["options"]}
    assert options["limit"]["default"] == 20
    assert "20" in options["limit"]["help"]
    assert "graph" not in options


def test_the_list_is_a_line_and_a_sentence_each(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = call("methods").out.splitlines()
    place = lines.index("dcrag           6 calls  graph")
    assert lines[place + 1].startswith("  queries and topics guide a search of the graph")
    assert len(lines) <= 3 * len([line for line in lines if " calls" in line])
    assert max(map(len, lines)) <= 80


def test_one_method(call):
    out = call("methods", "dcrag").out
    for words in ("cross_revision", "w/o CR", "true"):
        assert words in out
    assert "did you mean" in call("methods", "dcrg").complaint


@pytest.mark.parametrize("method", ["dcrag", "qp-rag", "t-rag", "vanilla"])
def test_the_calls_are_as_said(call, url, tmp_path, method):
    said = call("methods", method, "--json").lines[0]["calls"].split()[0]
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"turns": ["I drink coffee in the morning, and tea with honey."]}), "utf-8")
    made = call("respond", path, "-u", url, "-M", method, "--set", "model.no_cache=true", "--json").lines[0]["usage"][
        "calls"
    ]
    assert made == int(said)


def test_prompts(call, tmp_path):
    names = [(prompt["name"], prompt["language"]) for prompt in call("prompts", "--json").lines[0]]
    assert ("dcrag/query-production", "zh") in names
    assert all(language == "zh" for _, language in _names(call("prompts", "-l", "zh", "--json")))
    shown = call("prompts", "dcrag/query-production")
    assert shown.out.startswith("---\nversion:")
    described = call("prompts", "dcrag/query-production", "-l", "zh", "--json").lines[0]
    assert described["text"].startswith("---")
    assert "did you mean dcrag/query-production" in call("prompts", "dcrag/query-prodution").complaint
    assert "unknown language" in call("prompts", "dcrag/query-production", "-l", "fr").complaint


def _names(done):
    return [(prompt["name"], prompt["language"]) for prompt in done.lines[0]]


def test_exported_prompts_are_used(call, url, tmp_path):
    folder = tmp_path / "prompts"
    assert call("prompts", "--export", folder).code == 0
    prompt = folder / "vanilla" / "response-generation.en.md"
    prompt.write_text(prompt.read_text("utf-8").replace("<!-- system -->\n", "<!-- system -->\nSHOUT. "), "utf-8")
    assert "--force overwrites" in call("prompts", "--export", folder).complaint
    assert "SHOUT" in call("prompts", "vanilla/response-generation", "--prompts", folder).out
    path = tmp_path / "one.json"
    path.write_text('{"turns": ["Hello there."]}', "utf-8")
    trace = tmp_path / "trace.jsonl"
    call("respond", path, "-u", url, "-M", "vanilla", "--set", f"sources.prompts={folder}", "--trace", trace)
    assert "SHOUT" in trace.read_text("utf-8")
    assert len(call("prompts", "--export", folder, "--force", "--json").lines[0]["prompts"]) == len(
        list(folder.rglob("*.md"))
    )
    assert "SHOUT" not in prompt.read_text("utf-8")


PUBLISHED = [
    {"meta": [], "dialogue": [["Is it cold ?", "It 's freezing ."], ["Take a coat .", "I will ."]]},
    {"meta": [], "dialogue": [["Hello .", "Hi ."]]},
]


@pytest.fixture
def published(tmp_path):
    path = tmp_path / "valid.json"
    path.write_text(json.dumps(PUBLISHED), "utf-8")
    return path


def test_convert(call, published, tmp_path):
    out = tmp_path / "out.jsonl"
    done = call("data", "convert", "dailydialog", published, "--out", out, "--json")
    assert done.lines[0]["dialogues"] == 2
    first = read_dialogues(out)[0]
    assert first.texts == ("Is it cold?", "It's freezing.", "Take a coat.")
    assert first.reference == "I will."


def test_convert_to_standard_output_feeds_respond(call, published):
    lines = call("data", "convert", "dailydialog", published, "--cut", "all").out
    assert len(lines.splitlines()) == 4
    assert call("respond", "-", "--json", stdin=lines).code == 0
    assert len(call("data", "convert", "dailydialog", published, "--cut", "all", "--limit", 2).lines) == 2


def test_data_mistakes(call, published, tmp_path):
    assert {each["name"] for each in call("data", "show", "--json").lines[0]} >= {"dailydialog", "xdailydialog-zh"}
    assert "did you mean dailydialog" in call("data", "convert", "dailydialgo", published).complaint
    assert "did you mean random" in call("data", "convert", "dailydialog", published, "--cut", "ramdon").complaint
    assert "no such file" in call("data", "convert", "dailydialog", tmp_path / "none.json").complaint
    published.write_text('[{"dialogue": 3}]', "utf-8")
    out = tmp_path / "out.jsonl"
    assert "entry 1" in call("data", "convert", "dailydialog", published, "--out", out).complaint
    assert not out.exists()
