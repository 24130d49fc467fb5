"""What every page stands on: its policy, its data, its colours, and that pages share and do not copy."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib import resources

import jinja2
import pytest

from dialore import pages

DATA = resources.files("dialore") / "data"
BASE = "page/base.css"
SHEETS = (BASE, "page/dialogue.css", "report/page.css", "demo/page.css")
SCRIPTS = ("page/base.js", "report/page.js", "report/browser.js")
EVIL = "</script><!--<script>alert(1)</script>&\u2028\u2029]]>"


def read(name):
    return DATA.joinpath(name).read_text(encoding="utf-8")


class Scripts(HTMLParser):
    """The page's scripts: what runs, and data by id."""

    def __init__(self, text):
        super().__init__()
        self.run, self.data, self.policy, self.language, self._id = [], {}, "", "", None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "script":
            self._id = found.get("id", "")
        elif tag == "html":
            self.language = found["lang"]
        elif found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"]

    def handle_endtag(self, tag):
        if tag == "script":
            self._id = None

    def handle_data(self, data):
        if self._id:
            self.data[self._id] = data
        elif self._id is not None:
            self.run.append(data)


def render(**given):
    templates = pages.environment()
    own = jinja2.DictLoader(
        {"mine": '{% extends "page/base.html.j2" %}{% block body %}<main>{{ said }}</main>{% endblock %}'}
    )
    templates.loader = jinja2.ChoiceLoader([own, templates.loader])
    return pages.render("mine", templates=templates, **{"title": EVIL, "said": EVIL, **given})


def test_a_page_runs_its_own_scripts_and_no_other():
    page = Scripts(render(scripts=("report/page.js",), data={"told": EVIL}, packed={"more": "aGk="}))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in page.run]
    assert len(page.run) == 2
    assert re.search("script-src ([^;]+)", page.policy)[1].split() == [f"'sha256-{each}'" for each in hashes]
    assert page.policy.startswith("default-src 'none'")
    assert "connect-src" not in page.policy
    assert "unsafe" not in page.policy.replace("style-src 'unsafe-inline'", "")
    assert page.data["more"] == "aGk="


def test_data_come_out_as_they_went_in_and_end_no_script():
    text = render(data={"told": {EVIL: [EVIL, 1.5, None, "中文"]}})
    assert EVIL not in text
    assert "\u2028" not in re.sub("<title>.*?</title>|<main>.*?</main>", "", text)
    assert json.loads(Scripts(text).data["told"]) == {EVIL: [EVIL, 1.5, None, "中文"]}


def test_what_json_cannot_say_is_an_error():
    with pytest.raises(ValueError, match="JSON"):
        pages.as_json({"score": float("nan")})


def test_texts_are_escaped_and_a_missing_one_is_an_error():
    assert "<main>&lt;/script&gt;" in render()
    with pytest.raises(jinja2.UndefinedError, match="is undefined"):
        pages.render("demo/page.html.j2", title="x")


def test_a_page_says_its_language():
    assert Scripts(render(language="zh")).language == "zh"


# --- colours


def tokens(scheme):
    """The colours of a scheme, 0 light and 1 dark."""
    return {m[1]: m[2 + scheme] for m in re.finditer(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", read(BASE))}


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    """WCAG 2.2's contrast ratio."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


GROUNDS = ("paper", "sheet", "sunk")
TEXTS = {
    "ink": (*GROUNDS, "accent-wash", "good-wash", "warn-wash", "mark"),
    "soft": (*GROUNDS, "accent-wash"),
    "accent": (*GROUNDS, "accent-wash", "good-wash", "warn-wash"),
    "good": (*GROUNDS, "good-wash"),
    "warn": (*GROUNDS, "warn-wash"),
    "bad": (*GROUNDS, "accent-wash"),
    "mine-ink": ("mine",),
}


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_from_whatever_it_stands_on(scheme):
    colours = tokens(scheme)
    found = {
        (text, ground): contrast(colours[text], colours[ground])
        for text, grounds in TEXTS.items()
        for ground in grounds
    }
    assert min(found.values()) >= 4.5, sorted(found.items(), key=lambda each: each[1])[:3]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_shapes_stand_out(scheme):
    """Borders of controls, and the colours of figures: 3 to 1."""
    colours = tokens(scheme)
    for name in ("edge", "accent", *(f"c{place}" for place in range(8))):
        assert min(contrast(colours[name], colours[ground]) for ground in ("paper", "sheet")) >= 3, name


def test_drawings_that_are_files_have_the_colours_of_the_page():
    from dialore.evaluation.report.plots import COLOURS, INK, LINE, SOFT

    colours = tokens(0)
    assert list(COLOURS) == [colours[f"c{place}"] for place in range(8)]
    assert (colours["ink"], colours["soft"], colours["line"]) == (INK, SOFT, LINE)


# --- one home


def test_every_token_that_is_used_is_there():
    every = "".join(read(name) for name in SHEETS)
    set_by_script = {"tint"}
    used = set(re.findall(r"var\(--([\w-]+)", every))
    assert used <= set(re.findall(r"--([\w-]+):", every)) | set_by_script


@pytest.mark.parametrize("name", SHEETS[1:])
def test_only_the_base_says_colours_for_light_and_dark(name):
    """A page's own are for its own figures, or for paper."""
    screen = read(name).partition("@media print")[0]
    loose = [line for line in screen.splitlines() if re.search(r"#[0-9a-f]{6}", line) and "light-dark(" not in line]
    assert loose == []


def test_nothing_is_written_twice():
    """A rule that one of the shared sheets has is not said again by a page."""
    shared = set(re.findall(r"^[^@\s].*\{.*\}$", read(BASE) + read("page/dialogue.css"), re.MULTILINE))
    for name in SHEETS[2:]:
        assert shared & set(read(name).splitlines()) == set(), name


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_write_text_never_markup_and_ask_nobody(name):
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "XMLHttpRequest"):
        assert word not in read(name)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_well_formed(name, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node to check scripts with")
    path = tmp_path / "script.js"
    path.write_text(read(name), "utf-8")
    done = subprocess.run([node, "--check", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


STAGE = """
const told = {}, fold = { hidden: true, dataset: {}, addEventListener() {} };
globalThis.location = { search: "", hash: process.argv[2] };
globalThis.localStorage = { getItem: () => null };
globalThis.addEventListener = () => {};
globalThis.document = {
  documentElement: { dataset: {} },
  addEventListener: (name, act) => { told[name] = act; },
  getElementById: (id) => (id === "fold" ? fold : null),
  querySelector: () => null,
};
process.on("exit", () => { told.DOMContentLoaded(); console.log(fold.hidden); });
"""


@pytest.mark.parametrize("hash_", ["", "#", "#part", "#100%", "#%E4"])
def test_whatever_the_address_points_to_the_page_is_wired(hash_, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node to run scripts with")
    path = tmp_path / "script.js"
    path.write_text(STAGE + read("page/base.js"), "utf-8")
    done = subprocess.run([node, path, hash_], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("false", "")
