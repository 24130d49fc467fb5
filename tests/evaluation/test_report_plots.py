"""The report's figures: everything in its frame, long names whole, many systems apart."""

from __future__ import annotations

import random
import re
from xml.etree import ElementTree as ET

import pytest

from dialore.evaluation.base import Score
from dialore.evaluation.report.comparison import combiner
from dialore.evaluation.report.data import SystemScores
from dialore.evaluation.report.plots import bars, distribution, knowledge_against
from dialore.evaluation.report.svg import WIDTH, fitted, wrapped
from dialore.evaluation.report.tables import Row

ABOUT = combiner("f1").about
LONG = "dcrag over twice as many facts as it has by itself"
SVG = "{http://www.w3.org/2000/svg}"


def rows_of(names, value=0.5):
    scores = {"f1": Score("f1", value, value - 0.1, value + 0.1, 40)}
    return [Row(SystemScores(name, name, {}, "m", "d", "r", scores), name, [], is_baseline=False) for name in names]


def drawn(names):
    """Of every system forty values of F1, some at its very ends, and how much knowledge each had."""
    draw = random.Random(1)
    values = [{(f"d{n}", 0): round(draw.random()) * 1.0 for n in range(40)} for _ in names]
    given = [{(f"d{n}", 0): n % 7 for n in range(40)} for _ in names]
    return values, given


def figure_of(count):
    names = [LONG, *(f"system {number}" for number in range(1, count))]
    return knowledge_against(ABOUT, rows_of(names), *drawn(names), "d")


def parts(figure, tag):
    return ET.fromstring(figure.drawing.render()).iter(SVG + tag)


def test_a_long_name_takes_a_second_line_and_only_then_is_cut():
    assert wrapped("dcrag", 200) == ["dcrag"]
    first, second = wrapped(LONG, 300)
    assert f"{first} {second}" == LONG
    lines = wrapped(LONG * 3, 300)
    assert len(lines) == 2
    assert lines[1].endswith("…")
    assert all(line == fitted(line, 300) for line in lines)


def test_a_chinese_name_breaks_anywhere_and_takes_twice_the_room():
    assert wrapped("没有事实选择的方法", 100) == ["没有事实选", "择的方法"]
    assert wrapped("x" * 20, 100) == ["x" * 10, "x" * 10]


@pytest.mark.parametrize("make", [bars, lambda *given: distribution(given[0], given[1], drawn(given[1])[0], given[2])])
def test_bars_and_histograms_give_a_long_name_its_room(make):
    one, two = make(ABOUT, rows_of(["dcrag"]), "d"), make(ABOUT, rows_of([LONG]), "d")
    assert two.drawing.height - one.drawing.height == 17
    assert LONG in " ".join(each.text or "" for each in parts(two, "text"))


def test_a_bar_below_nothing_keeps_its_figure_clear_of_it():
    figure = bars(ABOUT, rows_of(["dcrag"], value=-0.5), "d")
    bar = next(parts(figure, "rect"))
    number = next(each for each in parts(figure, "text") if each.text == "−0.500")
    assert float(number.get("x")) >= float(bar.get("x")) + float(bar.get("width"))


@pytest.mark.parametrize("count", [2, 3, 4, 7, 12])
def test_every_mark_stands_within_its_figure(count):
    figure = figure_of(count)
    for circle in parts(figure, "circle"):
        assert 50 < float(circle.get("cx")) < WIDTH
        assert 0 < float(circle.get("cy")) < figure.drawing.height
    for line in parts(figure, "line"):
        # A normal interval is cut where the score itself ends, so it never leaves the plane.
        assert 0 <= float(line.get("y1")) <= figure.drawing.height
        assert 0 <= float(line.get("y2")) <= figure.drawing.height
    assert all(float(each.get("y")) <= figure.drawing.height for each in parts(figure, "text"))


@pytest.mark.parametrize(("count", "others"), [(3, 0), (4, 16), (7, 49)])
def test_many_systems_get_a_panel_each_beside_the_others(count, others):
    """Up to three share their axes, so that one sees them together."""
    figure = figure_of(count)
    kinds = [each.get("class") for each in parts(figure, "polyline")]
    assert kinds.count("other") == others
    assert len(kinds) - others == count
    words = [each.text for each in parts(figure, "text")]
    assert all(f"system {number}" in words for number in range(1, count))
    assert words.count("pieces of knowledge given") == 1
    assert re.search(r"A (line|panel) a system", figure.drawing.description)[1] == ("panel" if others else "line")
    assert len(figure.rows) == sum(1 for _ in parts(figure, "circle"))
