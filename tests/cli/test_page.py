"""The HTML page: escaped, whole, asking the network for nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from dialore.cli.page import Conversation, longest_chain, render_page, write_page
from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.knowledge import Fact, Knowledge
from dialore.llm.model import Usage
from dialore.response import Demands, Response, StageTrace

EVIL = "<script>alert('x')</script> & \"quotes\""
VOID = {"meta", "br", "link", "input", "img"}


class Reader(HTMLParser):
    """Checks that tags close in order, and keeps what a test wants to know."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, found))
        if "id" in found:
            self.ids.append(found["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def knowledge(head, tail, *, used=False, kind="foreseen"):
    fact = Knowledge.of_fact(Fact(head, "HasA", tail), f"{head} has {tail}", 0.5, kind)
    return fact.model_copy(update={"used": used})


def stage(name, started, seconds, **rest):
    return StageTrace(stage=name, by="m", started=started, seconds=seconds, usage=Usage(calls=1), **rest)


def page(**changes):
    dialogue = Dialogue.model_validate({"id": EVIL, "language": "en", "turns": ["Hi", "Hello", EVIL]})
    made = {
        "id": EVIL,
        "method": "dcrag",
        "by": EVIL,
        "text": f"The British Museum has mummies. {EVIL}",
        "demands": Demands(explicit=[EVIL], thoughts={"explicit": EVIL}),
        "knowledge": [knowledge("British Museum", EVIL, used=True), knowledge("rain", "drops", kind="unforeseen")],
        "seconds": 2.0,
        "trace": [
            stage(EVIL, 0.0, 1.0, messages=[{"role": "user", "content": EVIL}], completion=EVIL, notes=[EVIL]),
            stage("second", 0.5, 1.0, outcome="unparsed", differs=True, output={"text": EVIL}),
        ],
    }
    return render_page([Conversation(dialogue, [Response(**{**made, **changes})])], title=EVIL, made=EVIL)


def test_everything_is_escaped_and_every_tag_closed():
    text = page()
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert "alert(" not in re.sub(r"&lt;script&gt;alert\(", "", text)


def test_it_asks_the_network_for_nothing():
    reader = Reader()
    reader.feed(page())
    for tag, attributes in reader.tags:
        assert tag not in {"link", "img", "iframe"}, tag
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith("#"), (tag, attributes)
    assert "url(" not in page()
    assert "@import" not in page()


def test_what_the_response_took_is_marked():
    assert "<mark>British Museum</mark>" in page()
    assert "<mark>" not in page(text="The british museums are closed.")
    assert "<mark>" not in page(text="Hello!", knowledge=[knowledge("hello", "goodbye", used=True)])
    assert 'class="chip foreseen used"' in page()
    assert 'class="chip unforeseen"' in page()


def test_the_timeline_shows_what_ran_at_once():
    text = page()
    assert 'style="left:0.00%;width:50.00%"' in text
    assert 'style="left:25.00%;width:50.00%"' in text
    assert "2 calls in 1 steps" in text
    assert "unparsed" in text
    assert "differs from the recorded one" in text


def test_a_failed_response_shows_its_error():
    text = page(status="failed", text="", error="the endpoint <refused>", knowledge=[], demands=None)
    assert "the endpoint &lt;refused&gt;" in text


def test_the_longest_chain_of_stages():
    at_once = [stage("a", 0, 1), stage("b", 0, 1.1), stage("c", 1.1, 1), stage("d", 2.1, 1), stage("e", 2.1, 0.5)]
    assert longest_chain(at_once) == 3
    assert longest_chain([]) == 0


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        write_page(tmp_path / "none" / "page.html", [], title="x")
