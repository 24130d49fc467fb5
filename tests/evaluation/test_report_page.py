"""The report's page: its structure, nothing from outside, hostile texts inert, the browser's data whole."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from dialore.evaluation.report import plots
from dialore.evaluation.report.build import make_report
from dialore.evaluation.report.forms import render_html
from tests.evaluation.made_up import COUNT, EVIL, made_up, unpack

pytest.importorskip("scipy", reason="the evaluation extra is not installed")
VOID = {"meta", "br", "link", "input", "img", "wbr"}


class Page(HTMLParser):
    """Checks that tags close in order, and keeps what tests want to know."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.text = [], [], [], []
        self.rows, self.data, self._row, self._holder = [], {}, None, None
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, found))
        if "id" in found:
            self.ids.append(found["id"])
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr" and "system" in (found.get("class") or ""):
            self._row = []
            self.rows.append(self._row)
        if tag == "script":
            self._holder = found.get("id") if found.get("type") else ""
        if self._row is not None and tag in {"b", "u", "th", "td"}:
            self._row.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "tr":
            self._row = None
        if tag == "script":
            self._holder = None

    def handle_data(self, data):
        if self._holder:
            self.data[self._holder] = data
        elif self._holder is None and "style" not in self.open:
            self.text.append(data)
            if self._row is not None:
                self._row.append(data.strip())


@pytest.fixture(scope="module")
def text():
    results = made_up(text=EVIL)
    results.title = EVIL
    return render_html(make_report(results))


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_a_row_a_system_and_bold_on_the_best(page):
    assert "vanilla" in page.rows[0]
    assert len(page.rows) == 3
    assert [row.count("b") + row.count("u") for row in page.rows] == [0, 0, 0]  # one of vanilla's responses failed
    whole = Page(render_html(make_report(made_up(fails=False))))
    assert [row.count("b") for row in whole.rows] == [0, 1, 0]
    assert [row.count("u") for row in whole.rows] == [0, 0, 1]
    assert whole.rows[1][whole.rows[1].index("b") + 1] == "55.1"
    assert ["**" in row for row in page.rows] == [False, True, True]
    assert all(row.count("td") == 3 for row in page.rows)
    assert ["39" in row for row in page.rows] == [True, False, False]


def test_nothing_comes_from_outside(text, page):
    for tag, attributes in page.tags:
        assert tag not in {"link", "img", "iframe", "object", "base"}, tag
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes), attributes
    own = re.sub(r'<script type="application/octet-stream".*?</script>', "", text, flags=re.DOTALL)
    assert "url(" not in own.replace("url(#", "")
    assert "@import" not in own
    assert not re.findall(r"https?://(?!www\.w3\.org/(?:2000/svg|1999/xlink))", own)
    policy = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_hostile_texts_are_inert(text, page):
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    policy = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv"))
    assert [each for each in scripts if "type" not in each] == [{}] * 3  # the base's, the page's and the reader's
    assert policy.count("'sha256-") == 3
    assert "<img" not in text
    assert "<script>alert" not in text
    assert EVIL in "".join(page.text)  # shown, as text


def test_the_script_writes_text_and_never_markup(text):
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "XMLHttpRequest"):
        assert word not in text


def test_no_nan_is_shown(page):
    shown = "".join(page.text).replace(EVIL, "")
    assert not re.search(r"\b(NaN|nan|None|inf)\b", shown)


def test_every_id_stands_once_and_every_link_leads_somewhere(page):
    assert len(page.ids) == len(set(page.ids))
    for tag, attributes in page.tags:
        if tag == "a":
            assert attributes["href"][1:] in page.ids, attributes


def test_drawings_say_what_they_show_and_follow_the_theme(text):
    pytest.importorskip("matplotlib", reason="the report extra is not installed")
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 6  # bars, distribution and knowledge of two metrics
    for drawing in drawings:
        assert re.match(r'<svg class="plot" role="img"[^>]*><title>[^<]+</title>', drawing)
        assert not re.search(r"#[0-9a-f]{6}", drawing)
        assert "var(--ink)" in drawing
        assert "nan" not in drawing.lower().replace("dominant", "")


def test_the_browser_holds_every_dialogue_and_finds_its_details(page):
    index = unpack(page.data["index"])
    assert len(index["dialogues"]) == COUNT
    assert index["systems"] == ["vanilla", "dcrag", "dcrag (top=5)"]
    entry = index["dialogues"][3]
    answer = entry["answers"]["1"][0]
    detail = unpack(page.data["details"])[answer["place"]]
    assert answer["text"] == f"{EVIL} dcrag 3"
    assert detail["stages"][0]["messages"][0]["content"] == EVIL * 2
    assert [item[4] for item in detail["knowledge"]] == [True, False, False]
    assert [part[1] for part in detail["parts"]] == [[1], []]
    assert ["kf1", None, "unavailable: the dialogue has no gold knowledge", ""] in detail["measures"]
    assert index["dialogues"][2]["answers"]["0"][0]["status"] == "failed"
    assert index["dialogues"][1]["answers"]["0"][0]["unparsed"]
    assert entry["apart"] > 0


def test_without_matplotlib_the_numbers_are_there_and_how_to_get_plots(monkeypatch):
    monkeypatch.setattr(plots, "can_draw", lambda: False)
    text = render_html(make_report(made_up(), dialogues=0))
    assert "<svg" not in text
    assert "with the extra <code>report</code> installed" in text
    assert text.count("<details open><summary>As a table") == 6


def test_so_many_dialogues_and_none():
    few = Page(render_html(make_report(made_up(), dialogues=4)))
    assert [each["id"] for each in unpack(few.data["index"])["dialogues"]] == ["d0", "d1", "d2", "d3"]
    none = Page(render_html(make_report(made_up(), dialogues=0)))
    assert "dialogues" not in none.ids
    assert none.data == {}


def test_groups_have_headings():
    report = make_report(made_up(datasets=("one", "two")), dialogues=1)
    assert report.names[:4] == ["vanilla · one", "dcrag · one", "dcrag (top=5) · one", "vanilla · two"]
    page = Page(render_html(report))
    assert len(page.rows) == 6
    shown = "".join(page.text)
    assert "one" in shown
    assert "two" in shown
