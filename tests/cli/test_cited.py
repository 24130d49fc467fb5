"""Citations on the command line: small numbers in words and on the page, spans in JSON, nothing where it is off."""

from __future__ import annotations

import json

import pytest

from dialore.response import Citation, Response
from dialore.response_text import superscript
from tests.llm.server import say


@pytest.fixture
def talk(tmp_path, faulty_server):
    faulty_server.always = say("Honey soothes it [2], I hear. Rest well [1][2]. [laughs]")
    path = tmp_path / "talk.json"
    path.write_text(json.dumps({"turns": ["I have a sore throat and want some honey."]}), "utf-8")
    return path


def test_responses_cite_in_words_and_on_the_page(call, talk, faulty_server, tmp_path):
    page = tmp_path / "page.html"
    done = call(
        "respond",
        talk,
        "-M",
        "t-rag",
        "-u",
        faulty_server.url,
        "--set",
        "model.no_cache=true",
        "--set",
        "cite=true",
        "--html",
        page,
    )
    assert done.code == 0
    assert "Honey soothes it¹, I hear. Rest well¹˒². [laughs]" in done.out
    assert "\n  ¹ " in done.out
    assert "Honey soothes it<sup>1</sup>, I hear. Rest well<sup>1, 2</sup>. [laughs]" in _unmarked(page)
    asked = faulty_server.calls[0].body["messages"]
    assert "square brackets" in asked[0]["content"]
    assert "\n[2] (" in asked[1]["content"]


def test_json_has_the_spans(call, talk, faulty_server):
    done = call(
        "respond",
        talk,
        "-M",
        "t-rag",
        "-u",
        faulty_server.url,
        "--set",
        "model.no_cache=true",
        "--set",
        "cite=true",
        "--json",
    )
    [line] = done.lines
    assert line["text"] == "Honey soothes it, I hear. Rest well. [laughs]"
    said = [line["text"][each["start"] : each["end"]] for each in line["citations"]]
    assert said == ["Honey soothes it", "Rest well", "Rest well"]
    assert {each["knowledge"] for each in line["citations"]} <= {
        each["id"] for each in line["knowledge"] if each["used"]
    }


def test_without_the_switch_nothing_changes(call, talk, faulty_server):
    done = call("respond", talk, "-M", "t-rag", "-u", faulty_server.url, "--set", "model.no_cache=true", "--json")
    assert done.lines[0]["text"] == "Honey soothes it [2], I hear. Rest well [1][2]. [laughs]"
    assert "citations" not in done.lines[0]
    assert "square brackets" not in faulty_server.calls[0].body["messages"][0]["content"]


def test_a_chat_has_the_marks_in_the_text_and_then_says_what_the_numbers_are(call, talk, faulty_server):
    done = call(
        "chat", "-M", "t-rag", "-u", faulty_server.url, "--set", "cite=true", stdin="I have a sore throat.\n/why\n"
    )
    assert done.out.startswith("Honey soothes it¹, I hear. Rest well¹˒². [laughs]\n¹ Honey soothes it … Rest well: ")
    assert "[2]" not in done.out


HANDBOOK = "# Shop handbook\n\n## Returns\n\nA cup may come back within thirty days.\n"


def test_title_section_and_file_stand_with_what_is_cited_everywhere(call, faulty_server, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "shop.md").write_text(HANDBOOK, "utf-8")
    assert call("documents", "build", "shop.idx", "shop.md").code == 0
    faulty_server.always = say("Yes, within thirty days [1].")
    options = ("-M", "safari", "-o", "planning=all", "--documents", "shop.idx", "--set", "cite=true")
    options = (*options, "-u", faulty_server.url, "--set", "model.no_cache=true")
    where = "documents · Shop handbook § Returns · shop.md"

    shown = call("ask", "May I return a cup?", *options, "--html", "page.html")
    assert shown.code == 0, shown.err
    assert "Yes, within thirty days¹." in shown.out
    assert f"A cup may come back within thirty days. ({where})" in " ".join(shown.out.split())
    page = _unmarked(tmp_path / "page.html")
    assert "Yes, within thirty days<sup>1</sup>." in page
    assert f"<b>1</b> {where}</span>" in page

    said = call("chat", *options, stdin="May I return a cup?\n").out
    assert said.startswith("Yes, within thirty days¹.\n¹ Yes, within thirty days: ")
    assert f"({where})" in " ".join(said.split())

    [line] = call("ask", "May I return a cup?", *options, "--json").lines
    assert line["marked"] == "Yes, within thirty days [1]."
    [cited] = line["citations"]
    assert {name: cited[name] for name in ("number", "source", "title", "section", "file")} == {
        "number": 1,
        "source": "documents",
        "title": "Shop handbook",
        "section": "Returns",
        "file": str(tmp_path / "shop.md"),
    }


def test_parts_and_numbers_follow_the_text():
    spans = [Citation(start=4, end=7, knowledge="b"), Citation(start=0, end=3, knowledge="a")]
    response = Response(id="x", method="m", text="one two", citations=[*spans, Citation(start=4, end=7, knowledge="a")])
    assert response.numbers == {"a": 1, "b": 2}
    assert response.parts == [("one", [1]), (" two", [1, 2])]
    assert response.model_copy(update={"citations": []}).parts == [("one two", [])]
    assert superscript([1, 12]) == "¹˒¹²"


def _unmarked(page):
    return page.read_text("utf-8").replace("<mark>", "").replace("</mark>", "")
