"""The report's figures: their numbers, long names whole, many systems apart, and every form of file."""

from __future__ import annotations

import random
from xml.etree import ElementTree as ET

import pytest

from dialore.errors import MissingExtraError
from dialore.evaluation.base import Score
from dialore.evaluation.report import plots
from dialore.evaluation.report.data import SystemScores
from dialore.evaluation.report.plots import bars, distribution, knowledge_against, sizes_against
from dialore.evaluation.report.tables import Row, combiner

pytest.importorskip("matplotlib", reason="the report extra is not installed")
ABOUT = combiner("f1").about
LONG = "dcrag over twice as many facts as it has by itself"
SVG = "{http://www.w3.org/2000/svg}"


def rows_of(names, value=0.5, model="m"):
    scores = {"f1": Score("f1", value, value - 0.1, value + 0.1, 40)}
    return [Row(SystemScores(name, name, {}, model, "d", "r", scores), name, [], is_baseline=False) for name in names]


def drawn(names):
    """Of every system forty values of F1, some at its very ends, and how much knowledge each had."""
    draw = random.Random(1)
    values = [{(f"d{n}", 0): round(draw.random()) * 1.0 for n in range(40)} for _ in names]
    given = [{(f"d{n}", 0): n % 7 for n in range(40)} for _ in names]
    return values, given


def figure_of(count, title="d"):
    names = [LONG, *(f"system {number}" for number in range(1, count))]
    return knowledge_against(ABOUT, rows_of(names), *drawn(names), title)


def words_of(figure):
    return [each.text for each in ET.fromstring(figure.render("svg")).iter(SVG + "text")]


def test_a_bar_has_its_name_and_its_figure_also_below_nothing():
    assert {LONG, "50.0"} <= set(words_of(bars(ABOUT, rows_of([LONG]), "d")))
    assert "−50.0" in words_of(bars(ABOUT, rows_of(["dcrag"], value=-0.5), "d"))


def test_a_name_is_no_formula():
    name = r"costs $5, not $\frac{1}$"
    assert name in words_of(bars(ABOUT, rows_of([name]), "d"))


def test_a_name_that_two_lines_do_not_hold_is_cut_and_whole_in_the_table():
    figure = bars(ABOUT, rows_of([LONG * 4]), "d")
    assert any(word.endswith("…") for word in words_of(figure))
    assert figure.rows[0][0] == LONG * 4


def test_a_distribution_has_a_histogram_a_system():
    names = ["dcrag", "没有事实选择的方法", "same"]
    values = [*drawn(names[:2])[0], {("d0", 0): 0.5}]
    figure = distribution(ABOUT, rows_of(names), values, "d")
    assert set(names) <= set(words_of(figure))
    assert [row[1] for row in figure.rows] == ["40", "40", "1"]
    assert figure.rows[2][2:] == ["50.0"] * 6


@pytest.mark.parametrize("count", [2, 7])
def test_every_system_has_its_line(count):
    figure = figure_of(count)
    words = words_of(figure)
    assert all(f"system {number}" in words for number in range(1, count))
    assert words.count("pieces of knowledge given") == 1
    assert len(figure.rows) == 6 * count


def test_every_figure_names_the_metric_on_its_axis():
    names = ["dcrag", "vanilla"]
    values, given = drawn(names)
    rows = rows_of(names)
    found = [bars(ABOUT, rows, "d"), distribution(ABOUT, rows, values, "d")]
    found += [knowledge_against(ABOUT, rows, values, given, "d")]
    assert all("f1 (%)" in words_of(figure) for figure in found)


def test_lines_of_one_colour_differ_in_their_stroke():
    assert "stroke-dasharray" not in figure_of(8).render("svg").decode()
    assert "stroke-dasharray" in figure_of(9).render("svg").decode()


def test_steps_hold_every_response_once():
    figure = figure_of(2)
    assert [sum(int(row[4]) for row in figure.rows if row[0] == name) for name in (LONG, "system 1")] == [40, 40]


def test_sizes_are_a_line_a_method():
    rows = [row for size in (70, 7) for row in rows_of(["dcrag"], 0.4 + size / 1000, model=f"llama-{size}b")]
    figure = sizes_against(ABOUT, rows, {}, "d")
    assert [row[1:3] for row in figure.rows] == [["7", "40.7"], ["70", "47.0"]]
    assert {"7", "70", "dcrag"} <= set(words_of(figure))
    assert sizes_against(ABOUT, rows[:1], {}, "d") is None


def test_every_form_of_file_is_what_it_is_called_and_the_same_each_time():
    figure = figure_of(2)
    for form, start in {"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml"}.items():
        once = figure.render(form)
        assert once.startswith(start)
        assert once == figure.render(form)


def test_figures_on_a_page_share_no_ids():
    found = [figure_of(2).inline(), figure_of(4, "e").inline(), bars(ABOUT, rows_of([LONG]), "d").inline()]
    ids = [each.get("id") for text in found for each in ET.fromstring(text).iter() if each.get("id")]
    assert ids
    assert len(ids) == len(set(ids))


def test_a_title_is_text_on_a_page():
    text = bars(ABOUT, rows_of(["a"]), "<b>&\\1").inline()
    assert "<title>f1 (%), &lt;b&gt;&amp;\\1: a bar" in text


def test_without_the_extra_it_says_which(monkeypatch):
    monkeypatch.setattr(plots, "can_draw", lambda: False)
    with pytest.raises(MissingExtraError, match="report"):
        bars(ABOUT, rows_of(["a"]), "d").render("svg")
