"""The HTML page: escaped, whole, asking the network for nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from dialore.dialogue import Dialogue
from dialore.evaluation.report.display import Conversation, render_page
from dialore.knowledge import Fact, Knowledge
from dialore.llm.model import Usage
from dialore.response import Demands, Response, StageTrace
from dialore.response_text import longest_chain

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
    return StageTrace(stage=name, model="m", started=started, seconds=seconds, usage=Usage(calls=1), **rest)


def page(**changes):
    dialogue = Dialogue.model_validate({"id": EVIL, "language": "en", "turns": ["Hi", "Hello", EVIL]})
    made = {
        "id": EVIL,
        "method": "dcrag",
        "model": EVIL,
        "text": f"The British Museum has mummies. {EVIL}",
        "demands": Demands(explicit=[EVIL], thoughts={"explicit": EVIL}),
        "knowledge": [knowledge("British Museum", EVIL, used=True), knowledge("rain", "drops", kind="unforeseen")],
        "seconds": 2.0,
        "trace": [
            stage(EVIL, 0.0, 1.0, messages=[{"role": "user", "content": EVIL}], completion=EVIL, notes=[EVIL]),
            stage("second", 0.5, 1.0, outcome="unparsed", prompt_changed=True, output={"text": EVIL}),
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
    policy = next(a["content"] for _, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert policy.count("'sha256-") == 1
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


def test_numbered_stages_do_not_wait_for_those_of_another_number():
    """EDIT's questions are answered at once, each at its own pace; what needs no model is no step."""
    found = [stage(f"retrieval-{n}", 1, 0.5 * n).model_copy(update={"usage": Usage()}) for n in (1, 2)]
    answered = [stage("answer-1", 1.5, 0.1), stage("choice-1", 1.6, 0.3), stage("answer-2", 2, 0.5)]
    rest = [stage("choice-2", 2.5, 0.5), stage("response", 3, 1)]
    assert longest_chain([stage("questions", 0, 1), *found, *answered, *rest]) == 4


# --- how a response came about


def did(name, summary="", **output):
    return StageTrace(stage=name, output=output, summary=summary)


def piece(text, source, **fields):
    kind = "persona" if source == "persona" else "passage"
    return Knowledge(id=text, kind=kind, text=text, source=source, **fields)


def test_a_plan_is_shown_with_where_each_piece_is_from():
    given = [piece("I keep bees.", "persona"), piece("Bees shiver.", "documents", persona="I keep bees.")]
    text = page(plan=["persona", "documents"], knowledge=given)
    assert "<li>PERSONA</li><li>DOCUMENTS</li>" in text
    assert "PERSONA → DOCUMENTS" in text
    assert "documents · I keep bees." in text
    assert "NULL: no source is needed" in page(plan=[])
    assert "<h4>Plan" not in page()


def test_a_directed_search_is_shown():
    trace = [
        did("search-decision", "Turn: passive", kind="passive", query=""),
        did("topic-tracking", "Topic: the night sky", text="the night sky"),
        did("commonsense-directive", f"Directive: {EVIL}", text=EVIL),
        did("web-search", "Searched: Perseids peak", source="a shelf", query="Perseids peak", found=[]),
    ]
    text = page(trace=trace)
    for name, words in (("Turn", "passive"), ("Topic", "the night sky"), ("Searched", "Perseids peak")):
        assert f'<dt>{name}</dt><dd lang="en">{words}</dd>' in text
    assert "<dt>Directive</dt>" in text
    assert "alert(" not in re.sub(r"&lt;script&gt;alert\(", "", text)


def test_open_questions_are_shown_with_the_answers_that_were_chosen():
    both = {"model": "They sleep.", "documents": "They shiver."}
    rows = [
        {"question": "What do bees do in winter?", "by": "documents", "from": both},
        {"question": "What helps?", "by": "model", "from": {"model": "Ivy."}},
        {"question": "Who knows?", "by": "model", "from": {}},
    ]
    trace = [did("answer-integration", answers=rows)]
    text = page(trace=trace)
    assert text.count('<p class="question">') == 3
    assert '<p class="answer"><span class="origin" lang="en">the model&#39;s</span>They sleep.</p>' in text
    assert '<p class="answer chosen"><span class="origin" lang="en">✓ the base&#39;s</span>They shiver.</p>' in text
    assert text.count('<p class="answer chosen">') == 2
    assert text.count("nobody had an answer</p>") == 1
    assert "3 open questions; answers taken: 1 the base&#39;s, 1 the model&#39;s" in text


def test_a_part_of_the_page_begins_with_its_heading():
    dialogue = Dialogue(id="1", turns=["Hi"], persona=["I keep bees.", EVIL], documents={"I keep bees.": ["a", "b"]})
    parts = [Conversation(dialogue, []), Conversation(dialogue, [], ("Further <systems>", EVIL))]
    text = render_page(parts, title="x")
    assert text.count('<header class="part"') == 1
    assert text.index('id="d1"') < text.index('id="d2-part"') < text.index('id="d2"')
    assert text.count("Further &lt;systems&gt;") == 2
    assert 'I keep bees. <small lang="en">2 documents</small>' in text
    assert "alert(" not in re.sub(r"&lt;script&gt;alert\(", "", text)
