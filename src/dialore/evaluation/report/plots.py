"""The figures of a report: bars with intervals, distributions, knowledge given against score, model size against score.

Each comes with a table of the same numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dialore.evaluation.report.numbers import size_of, three
from dialore.evaluation.report.svg import COLOURS, WIDTH, Drawing, tick_words, ticks, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from dialore.evaluation.base import About
    from dialore.evaluation.report.tables import Row

_BINS = 20
_STEPS = 6
_APART = 6.0
_LABEL = 30
"""What a label's one line takes, from the top of its row to where a second would stand."""
_TOGETHER = 3
"""As many systems share one pair of axes; more get one each, beside the others in grey."""
_PANEL, _GAP, _CLEAR = 88, 20, 12
_LEFT, _RIGHT = 50, 16
_INNER = WIDTH - _LEFT - _RIGHT


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing, what it is called, and its numbers as a table: a head, then rows."""

    name: str
    caption: str
    drawing: Drawing
    head: list[str]
    rows: list[list[str]] = field(default_factory=list)


def bars(about: About, rows: Sequence[Row], title: str) -> Figure | None:
    """A bar a system with its 95% interval."""
    known = [
        (place, row, score)
        for place, row in enumerate(rows)
        if (score := row.system.scores.get(about.name)) and score.value is not None
    ]
    if not known:
        return None
    ends = [end for _, _, score in known for end in (score.value, score.low, score.high) if end is not None]
    marks = ticks(min(0.0, *ends), max(0.0, *ends))
    across = _scale(marks, 6, WIDTH - 78)
    drawing = Drawing(
        f"{about.name}, {title}", f"{len(known)} bars with 95% intervals; the table below has the numbers.", 0
    )
    y = 4.0
    lines: list[list[str]] = []
    for place, row, score in known:
        value = score.value or 0.0
        said = _interval(score.low, score.high)
        y = drawing.lines(6, y + 13, wrapped(row.label, WIDTH - 12)) - _LABEL
        drawing.bar(across(min(0.0, value)), y + 18, abs(across(value) - across(0.0)), 16, _fill(place), row.label)
        right = across(max(0.0, value))
        if score.low is not None and score.high is not None and score.low <= value <= score.high:
            _whisker(drawing, across(score.low), across(score.high), y + 26)
            right = max(right, across(score.high))
        drawing.text(right + 8, y + 31, three(value), "label")
        lines.append([row.label, three(value), said, str(score.n)])
        y += 42
    _bottom(drawing, marks, across, y)
    drawing.height = y + 22
    return Figure("bars", "Score with its 95% interval", drawing, ["system", about.name, "95% interval", "n"], lines)


def distribution(
    about: About, rows: Sequence[Row], values: Sequence[Mapping[tuple[str, int], float]], title: str
) -> Figure | None:
    """A histogram a system over one axis, with the mean."""
    known = [
        (place, row, np.array(list(found.values())))
        for place, (row, found) in enumerate(zip(rows, values, strict=True))
        if found
    ]
    if not known:
        return None
    low, high = min(each.min() for _, _, each in known), max(each.max() for _, _, each in known)
    marks = ticks(float(low), float(high))
    across = _scale(marks, 6, WIDTH - 6)
    edges = np.linspace(marks[0], marks[-1], _BINS + 1)
    drawing = Drawing(
        f"{about.name}: values of single responses, {title}", "A histogram a system; the line is the mean.", 0
    )
    y, lines = 4.0, []
    for place, row, found in known:
        counts, _ = np.histogram(found, bins=edges)
        y = drawing.lines(6, y + 13, wrapped(row.label, WIDTH - 12)) - _LABEL
        for count, begin, end in zip(counts, edges[:-1], edges[1:], strict=True):
            if count:
                height = max(1.5, 40 * count / counts.max())
                hint = f"{count} responses from {begin:.3g} to {end:.3g}"
                drawing.bar(
                    across(begin) + 0.5, y + 60 - height, across(end) - across(begin) - 1, height, _fill(place), hint
                )
        drawing.line(6, y + 60, WIDTH - 6, y + 60, "grid")
        drawing.line(across(float(found.mean())), y + 17, across(float(found.mean())), y + 60, "mean")
        quartiles = np.quantile(found, [0, 0.25, 0.5, 0.75, 1])
        lines.append([row.label, str(len(found)), three(float(found.mean())), *(three(float(q)) for q in quartiles)])
        y += 68
    _bottom(drawing, marks, across, y)
    drawing.height = y + 22
    head = ["system", "n", "mean", "least", "lower quartile", "median", "upper quartile", "most"]
    return Figure("distribution", "Distribution over responses", drawing, head, lines)


def knowledge_against(
    about: About,
    rows: Sequence[Row],
    values: Sequence[Mapping[tuple[str, int], float]],
    given: Sequence[Mapping[tuple[str, int], int]],
    title: str,
) -> Figure | None:
    """Score against how much knowledge a response was given, in steps of about equal numbers of responses."""
    series = []
    for place, (row, found, amounts) in enumerate(zip(rows, values, given, strict=True)):
        keys = [key for key in found if key in amounts]
        if keys and any(amounts[key] for key in keys):
            x = np.array([amounts[key] for key in keys], dtype=np.float64)
            series.append((place, row, _steps(x, np.array([found[key] for key in keys]))))
    if not any(len(steps) > 1 for _, _, steps in series) and len(series) < 2:
        return None
    ends = [(x, y, wide) for _, _, steps in series for x, y, wide, _ in steps]
    # An interval by the normal curve may pass what a score can be.
    least = min(0.0, *(float(min(found.values())) for found in values if found))
    most = max(float(max(found.values())) for found in values if found)
    marks_x = [mark for mark in ticks(0.0, max(x for x, _, _ in ends)) if mark == int(mark)]
    marks_y = ticks(
        max(least, min(0.0, *(y - wide for _, y, wide in ends))), min(most, max(y + wide for _, y, wide in ends))
    )
    apart = len(series) > _TOGETHER
    drawing = Drawing(
        f"{about.name} against knowledge given, {title}",
        f"{'A panel' if apart else 'A line'} a system: the mean score of responses that were given about so many "
        "pieces of knowledge, with 95% intervals.",
        0 if apart else 300,
    )
    if apart:
        places = _panels(drawing, marks_x, marks_y, "pieces of knowledge given", [row.label for _, row, _ in series])
        # Each panel shows every system's line, its own in front.
        for across, down in places:
            for _, _, steps in series:
                drawing.path([(across(amount), down(mean)) for amount, mean, _, _ in steps], "other")
    else:
        places = [_axes(drawing, marks_x, marks_y, "pieces of knowledge given")] * len(series)
    lines = []
    for number, ((place, row, steps), (across, down)) in enumerate(zip(series, places, strict=True)):
        # Systems given as much do not hide each other.
        beside = 0.0 if apart else _APART * (number - (len(series) - 1) / 2)
        drawing.path([(across(amount) + beside, down(mean)) for amount, mean, _, _ in steps], _line(place))
        for amount, mean, wide, count in steps:
            along = across(amount) + beside
            drawing.line(along, down(max(mean - wide, least)), along, down(min(mean + wide, most)), _line(place))
            hint = f"{row.label}: {three(mean)} ± {three(wide)} at {three(amount)}, {count} responses"
            drawing.dot(along, down(mean), _fill(place), hint, radius=3 if apart else 4)
            lines.append([row.label, three(amount), three(mean), f"±{three(wide)}", str(count)])
    if not apart:
        _legend(drawing, [(place, row.label) for place, row, _ in series])
    head = ["system", "pieces given", about.name, "95% interval", "n"]
    return Figure("knowledge", "Knowledge given against score", drawing, head, lines)


def sizes_against(about: About, rows: Sequence[Row], sizes: Mapping[str, float], title: str) -> Figure | None:
    """Score against the model's size, a line a method; None where fewer than two sizes are known."""
    series: dict[str, list[tuple[float, float, float, float]]] = {}
    for row in rows:
        size = sizes.get(row.system.model, size_of(row.system.model))
        score = row.system.scores.get(about.name)
        if size and score is not None and score.value is not None:
            low = score.low if score.low is not None else score.value
            high = score.high if score.high is not None else score.value
            series.setdefault(row.system.name, []).append((size, score.value, low, high))
    known = {size for points in series.values() for size, *_ in points}
    if len(known) < 2:
        return None
    marks_y = ticks(
        min(0.0, *(low for points in series.values() for _, _, low, _ in points)),
        max(high for points in series.values() for *_, high in points),
    )
    drawing = Drawing(
        f"{about.name} against model size, {title}", "A line a method over models by size, with 95% intervals.", 300
    )
    logs = {size: math.log10(size) for size in sorted(known)}
    wide = max(logs.values()) - min(logs.values())
    ends = [min(logs.values()) - wide * 0.08, max(logs.values()) + wide * 0.08]
    across, down = _axes(
        drawing, ends, marks_y, "billion parameters (log scale)", [(log, f"{size:g}") for size, log in logs.items()]
    )
    lines = []
    for place, (name, points) in enumerate(series.items()):
        points.sort()
        drawing.path([(across(logs[size]), down(value)) for size, value, _, _ in points], _line(place))
        for size, value, low, high in points:
            drawing.line(across(logs[size]), down(low), across(logs[size]), down(high), _line(place))
            drawing.dot(across(logs[size]), down(value), _fill(place), f"{name}, {size:g}B: {three(value)}")
            lines.append([name, f"{size:g}", three(value), _interval(low, high)])
    _legend(drawing, list(enumerate(series)))
    head = ["method", "billion parameters", about.name, "95% interval"]
    return Figure("sizes", "Model size against score", drawing, head, lines)


def _steps(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[tuple[float, float, float, int]]:
    """Mean amount, mean score, half its 95% interval, and how many, by quantiles of the amount."""
    edges = np.unique(np.quantile(x, np.linspace(0, 1, _STEPS + 1)))
    places = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, max(len(edges) - 2, 0))
    if len(np.unique(x)) <= _STEPS:
        places = np.searchsorted(np.unique(x), x)
    found = []
    for place in np.unique(places):
        some = y[places == place]
        wide = 1.96 * float(some.std(ddof=1)) / math.sqrt(len(some)) if len(some) > 1 else 0.0
        found.append((float(x[places == place].mean()), float(some.mean()), wide, len(some)))
    return found


_Axes = tuple["Callable[[float], float]", "Callable[[float], float]"]


def _axes(
    drawing: Drawing,
    marks_x: Sequence[float],
    marks_y: Sequence[float],
    name_x: str,
    named: Sequence[tuple[float, str]] = (),
) -> _Axes:
    """One pair of axes over the whole drawing; where a value stands on each."""
    bottom = drawing.height - 44
    axes = _plane(drawing, (_LEFT, WIDTH - _RIGHT, 10, bottom), marks_x, marks_y)
    _words_below(drawing, axes[0], bottom, named or list(zip(marks_x, tick_words(list(marks_x)), strict=True)))
    drawing.text(_LEFT + _INNER / 2, bottom + 38, name_x, "soft", "middle")
    return axes


def _panels(
    drawing: Drawing, marks_x: Sequence[float], marks_y: Sequence[float], name_x: str, names: Sequence[str]
) -> list[_Axes]:
    """A small pair of axes a name, two beside each other, all to one scale; the drawing grows with them."""
    wide = (WIDTH - _LEFT - _RIGHT - _GAP) / 2
    # Every other mark, as these are small.
    marks_y = [*marks_y[: -1 : 2 if len(marks_y) > 4 else 1], marks_y[-1]] if len(marks_y) % 2 else marks_y
    words = list(zip(marks_x, tick_words(list(marks_x)), strict=True))
    found: list[_Axes] = []
    y = 0.0
    for first in range(0, len(names), 2):
        titles = [wrapped(name, wide) for name in names[first : first + 2]]
        top = y + 17 * max(map(len, titles)) + 8
        for place, title in enumerate(titles):
            left = _LEFT + place * (wide + _GAP)
            drawing.lines(left, top - 17 * len(title) + 9, title)
            axes = _plane(drawing, (left, left + wide, top, top + _PANEL), marks_x, marks_y, named=place == 0)
            if first + place + 2 >= len(names):
                _words_below(drawing, axes[0], top + _PANEL, words)
            found.append(axes)
        y = top + _PANEL + 8
    drawing.text(_LEFT + _INNER / 2, y + 32, name_x, "soft", "middle")
    drawing.height = y + 40
    return found


def _plane(
    drawing: Drawing,
    box: tuple[float, float, float, float],
    marks_x: Sequence[float],
    marks_y: Sequence[float],
    *,
    named: bool = True,
) -> _Axes:
    """Axes in a box of left, right, top and bottom; points at the ends stand clear of its edges."""
    left, right, top, bottom = box
    across, upward = _scale(marks_x, left + _CLEAR, right - _CLEAR), _scale(marks_y, bottom, top)
    for mark, word in zip(marks_y, tick_words(list(marks_y)), strict=True):
        drawing.line(left, upward(mark), right, upward(mark), "grid")
        if named:
            drawing.text(left - 6, upward(mark) + 5, word, "soft", "end")
    drawing.line(left, bottom, right, bottom)
    return across, upward


def _words_below(
    drawing: Drawing, across: Callable[[float], float], bottom: float, named: Sequence[tuple[float, str]]
) -> None:
    for mark, word in named:
        drawing.line(across(mark), bottom, across(mark), bottom + 4)
        drawing.text(across(mark), bottom + 19, word, "soft", "middle")


def _legend(drawing: Drawing, names: Sequence[tuple[int, str]]) -> None:
    y = drawing.height + 14
    for place, name in names:
        drawing.bar(_LEFT, y - 10, 12, 12, _fill(place))
        y = drawing.lines(_LEFT + 20, y + 1, wrapped(name, _INNER - 20)) + 2
    drawing.height = y - 8


def _bottom(drawing: Drawing, marks: Sequence[float], across: Callable[[float], float], y: float) -> None:
    for place, (mark, word) in enumerate(zip(marks, tick_words(list(marks)), strict=True)):
        anchor = "start" if place == 0 else "end" if place == len(marks) - 1 else "middle"
        drawing.line(across(mark), 4, across(mark), y, "grid")
        drawing.text(across(mark), y + 16, word, "soft", anchor)


def _whisker(drawing: Drawing, low: float, high: float, y: float) -> None:
    for kind in ("halo", "whisker"):
        drawing.line(low, y, high, y, kind)
        for x in (low, high):
            drawing.line(x, y - 4, x, y + 4, kind)


def _scale(marks: Sequence[float], start: float, end: float) -> Callable[[float], float]:
    span = marks[-1] - marks[0] or 1.0
    return lambda value: start + (end - start) * (value - marks[0]) / span


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{three(low)} to {three(high)}"


def _fill(place: int) -> str:
    return f"s{place % COLOURS}"


def _line(place: int) -> str:
    return f"l{place % COLOURS}"
