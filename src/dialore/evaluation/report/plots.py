"""Figures of a report, each with its numbers as a table; matplotlib (the `report` extra) draws them."""

from __future__ import annotations

import html
import importlib.util
import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dialore.errors import MissingExtraError
from dialore.evaluation.report.data import display_factor, size_of, three, unit

if TYPE_CHECKING:
    from dialore.evaluation.base import MetricInfo, Score
    from dialore.evaluation.report.tables import Row

    ByResponse = Mapping[tuple[str, int], float]
    _Point = tuple[float, float, float, float, int]  # across, up, the ends of its interval, and of how many it is, or 0
    _Line = tuple[str, int, list[_Point]]  # its label, its place among the systems

COLOURS = ("#0d6a66", "#c2571a", "#4a63b5", "#9a3f7f", "#857509", "#2f7fb0", "#6b5b4b", "#b0303c")
"""One a system, those of the page's light theme."""
INK, SOFT, LINE = "#22201c", "#635d53", "#e2ddd2"
_TOKENS = {INK: "ink", SOFT: "soft", LINE: "line"} | {colour: f"c{place}" for place, colour in enumerate(COLOURS)}
_CHINESE_FONTS = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "PingFang SC", "Microsoft YaHei")
_STROKES = ("o-", "s--", "^:", "D-.")
"""Markers and strokes of lines; the next one where the colours begin again."""
_WIDTH = 5.0  # inches
_LABEL = 58  # characters of a label's line
_STEPS = 6
_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": SOFT,
    "axes.grid": True,
    "axes.labelcolor": SOFT,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "font.size": 10,
    "grid.color": LINE,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
}
Form = Literal["svg", "pdf", "png"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: its kind by name and in words, what it shows for those who do not see it, its numbers and drawing."""

    name: str
    caption: str
    title: str
    head: list[str]
    rows: list[list[str]]
    height: float
    draw: Callable[[Any], None]

    def render(self, form: Form) -> bytes:
        """Return the figure as a file."""
        if not can_draw():
            raise MissingExtraError("plots", "report")
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
        from matplotlib.font_manager import fontManager

        there = {font.name for font in fontManager.ttflist}
        fonts = ["DejaVu Sans", *(name for name in _CHINESE_FONTS if name in there), "sans-serif"]
        written = io.BytesIO()
        style = _STYLE | {"font.family": fonts, "svg.hashsalt": self.title}
        # Names in a script that no font here has are shown as boxes, in PDF and PNG alone.
        with mpl.rc_context(style), warnings.catch_warnings():  # type: ignore[arg-type] # names are strings to mypy
            warnings.simplefilter("ignore")
            canvas = Canvas(figsize=(_WIDTH, self.height), layout="constrained")
            self.draw(canvas.add_subplot())
            dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[form]
            canvas.savefig(written, format=form, dpi=200, metadata=dated)
        return written.getvalue()

    def inline(self) -> str:
        """Return the figure as SVG for a page, in the page's font and colours, light or dark, with its title."""
        drawn = self.render("svg").decode()
        drawn = drawn[drawn.index("<svg") :]
        drawn = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", drawn, flags=re.DOTALL)
        # Ids of groups are the same in every figure; those that something refers to are salted with the title.
        drawn = re.sub(r' id="[\w.]+_\d+"|(?<=<svg) width="[^"]*" height="[^"]*"', "", drawn)
        drawn = re.sub(r'font: ([\d.]+)px [^;"]*', r"font: calc(\1px * var(--grow, 1)) var(--sans)", drawn)
        drawn = re.sub(r"<[^<>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), drawn)
        drawn = drawn.replace("fill: #ffffff", "fill: none")
        for colour, token in _TOKENS.items():
            drawn = drawn.replace(colour, f"var(--{token})")
        title = f"<title>{html.escape(self.title)}</title>"
        return re.sub(r"<svg([^<>]*)>", lambda tag: f'<svg class="plot" role="img"{tag[1]}>{title}', drawn, count=1)


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


@dataclass(frozen=True, slots=True)
class _Bar:
    """A figure as displayed, with its interval and number of responses."""

    value: float
    low: float | None
    high: float | None
    n: int


def _bar(about: MetricInfo, score: Score, value: float) -> _Bar:
    factor = display_factor(about)
    low = None if score.low is None else score.low * factor
    high = None if score.high is None else score.high * factor
    return _Bar(value * factor, low, high, score.n)


def _axis(about: MetricInfo) -> str:
    """Return the metric's name with its unit."""
    return f"{about.name} ({unit(about)})" if unit(about) else about.name


def bars(about: MetricInfo, rows: Sequence[Row], title: str) -> Figure | None:
    """Return a bar a system with its 95% interval."""
    known: list[tuple[int, str, _Bar]] = []
    for position, row in enumerate(rows):
        score = row.system.scores.get(about.name)
        if score is not None and score.value is not None:
            known.append((position, row.label, _bar(about, score, score.value)))
    if not known:
        return None

    def draw(axes: Any) -> None:  # noqa: ANN401 - matplotlib's
        for y, (position, label, bar) in enumerate(known):
            end = value = bar.value
            axes.barh(y, value, 0.4, color=_colour(position))
            if bar.low is not None and bar.high is not None and bar.low <= value <= bar.high:
                axes.plot([bar.low, bar.high], [y, y], "|-", color=INK, linewidth=1.2, markersize=6)
                end = max(bar.high, value)
            axes.annotate(three(value), (max(end, 0.0), y), (5, 0), textcoords="offset points", va="center", color=INK)
            _name(axes, label, y - 0.26)
        axes.set_ylim(len(known) - 0.6, -0.9)
        axes.margins(x=0.16)
        axes.set_xlabel(_axis(about))

    head = ["system", _axis(about), "95% interval", "n"]
    lines = [[label, three(bar.value), _interval(bar.low, bar.high), str(bar.n)] for _, label, bar in known]
    caption = f"{_axis(about)}, {title}: a bar a system with its 95% interval"
    return Figure("bars", "Score with its 95% interval", caption, head, lines, 0.7 + 0.55 * len(known), draw)


def distribution(about: MetricInfo, rows: Sequence[Row], values: Sequence[ByResponse], title: str) -> Figure | None:
    """Return a histogram a system over one axis, with the mean."""
    named = enumerate(zip(rows, values, strict=True))
    known = [
        (position, row.label, np.array([*scores.values()]) * display_factor(about))
        for position, (row, scores) in named
        if scores
    ]
    if not known:
        return None
    edges = np.histogram_bin_edges(np.concatenate([numbers for *_, numbers in known]), 20)

    def draw(axes: Any) -> None:  # noqa: ANN401 - matplotlib's
        for y, (position, label, scores) in enumerate(known):
            counts = np.histogram(scores, edges)[0]
            heights = -0.56 * counts / counts.max()
            axes.bar(edges[:-1], heights, 0.94 * np.diff(edges), y, align="edge", color=_colour(position))
            axes.plot([scores.mean()] * 2, [y, y - 0.6], color=INK, linewidth=1.6)
            axes.axhline(y, color=SOFT, linewidth=0.8)
            _name(axes, label, y - 0.62)
        axes.set_ylim(len(known) - 1, -0.95)
        axes.set_xlabel(_axis(about))

    head = ["system", "n", "mean", "least", "lower quartile", "median", "upper quartile", "most"]
    lines = [
        [label, str(len(numbers)), *map(three, (numbers.mean(), *np.quantile(numbers, [0, 0.25, 0.5, 0.75, 1])))]
        for _, label, numbers in known
    ]
    caption = f"{_axis(about)}: values of single responses, {title}; a histogram a system, the line is the mean"
    return Figure("distribution", "Distribution over responses", caption, head, lines, 0.6 + 0.8 * len(known), draw)


def knowledge_against(
    about: MetricInfo,
    rows: Sequence[Row],
    values: Sequence[ByResponse],
    given: Sequence[Mapping[tuple[str, int], int]],
    title: str,
) -> Figure | None:
    """Score against how much knowledge a response was given, in steps of about equal numbers of responses."""
    lines: list[_Line] = []
    # An interval by the normal curve may pass what a score can be.
    factor = display_factor(about)
    scores = [factor * score for by_dialogue in values for score in by_dialogue.values()]
    low, high = min(0.0, *scores, 0.0), max(scores, default=0.0)
    for position, (row, by_dialogue, amounts) in enumerate(zip(rows, values, given, strict=True)):
        keys = [key for key in by_dialogue if key in amounts]
        if any(amounts[key] for key in keys):
            figures = factor * np.array([by_dialogue[key] for key in keys])
            steps = _steps(np.array([amounts[key] for key in keys]), figures)
            points = [(x, y, max(low, y - half), min(high, y + half), count) for x, y, half, count in steps]
            lines.append((row.label, position, points))
    if not any(len(points) > 1 for *_, points in lines) and len(lines) < 2:
        return None
    caption = (
        f"{_axis(about)} against knowledge given, {title}: a line a system, the mean score of responses that were "
        "given about so many pieces, with 95% intervals"
    )
    head = ["system", "pieces given", _axis(about), "95% interval", "n"]
    heading = ("knowledge", "Knowledge given against score", caption, head)
    return _lined(heading, lines, "pieces of knowledge given", _axis(about))


def sizes_against(about: MetricInfo, rows: Sequence[Row], sizes: Mapping[str, float], title: str) -> Figure | None:
    """Score against the model's size, a line a method; None where fewer than two sizes are known."""
    series: dict[str, list[_Point]] = {}
    for row in rows:
        size = sizes.get(row.system.model, size_of(row.system.model))
        score = row.system.scores.get(about.name)
        if not size or score is None or score.value is None:
            continue
        bar = _bar(about, score, score.value)
        low, high = (bar.value if end is None else end for end in (bar.low, bar.high))
        series.setdefault(row.system.name, []).append((size, bar.value, low, high, 0))
    if len({size for points in series.values() for size, *_ in points}) < 2:
        return None
    caption = f"{_axis(about)} against model size, {title}: a line a method over models by size, with 95% intervals"
    lines = [(name, position, sorted(points)) for position, (name, points) in enumerate(series.items())]
    head = ["method", "billion parameters", _axis(about), "95% interval"]
    heading = ("sizes", "Model size against score", caption, head)
    return _lined(heading, lines, "billion parameters (log scale)", _axis(about), is_log=True)


def _lined(
    heading: tuple[str, str, str, list[str]], lines: Sequence[_Line], across: str, up: str, *, is_log: bool = False
) -> Figure:
    """Return a figure of lines with their error bars."""

    def draw(axes: Any) -> None:  # noqa: ANN401 - matplotlib's
        for label, position, points in lines:
            x, y, low, high, _ = np.array(points).T
            errors = np.clip(np.stack([y - low, high - y]), 0, None)
            stroke = _STROKES[position // len(COLOURS) % len(_STROKES)]
            axes.errorbar(x, y, errors, fmt=stroke, color=_colour(position), label=_wrap(label))
        if is_log:
            known = sorted({point[0] for *_, points in lines for point in points})
            axes.set_xscale("log")
            axes.set_xticks(known, [f"{size:g}" for size in known])
            axes.set_xticks([], minor=True)
        else:
            axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.get_figure().legend(loc="outside lower left")

    table = [
        [label, f"{x:g}" if is_log else three(x), three(y), _interval(low, high), *([str(n)] if n else [])]
        for label, _, points in lines
        for x, y, low, high, n in points
    ]
    height = 3.1 + 0.2 * sum(_wrap(label).count("\n") + 1 for label, *_ in lines)
    return Figure(*heading, table, height, draw)


def _steps(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[tuple[float, float, float, int]]:
    """Mean amount, mean score, half its 95% interval, and how many, by quantiles of the amount."""
    amounts = np.unique(x)
    edges = amounts if len(amounts) <= _STEPS else np.unique(np.quantile(x, np.linspace(0, 1, _STEPS + 1)))[:-1]
    places = np.searchsorted(edges, x, side="right")
    points = []
    for step in np.unique(places):
        some = y[places == step]
        half = 1.96 * float(some.std(ddof=1)) / math.sqrt(len(some)) if len(some) > 1 else 0.0
        points.append((float(x[places == step].mean()), float(some.mean()), half, len(some)))
    return points


def _name(axes: Any, label: str, y: float) -> None:  # noqa: ANN401 - matplotlib's
    """Write a system's name above its bar, in place of the axis."""
    axes.annotate(_wrap(label), (0, y), xycoords=("axes fraction", "data"), va="bottom", color=INK)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _wrap(label: str) -> str:
    return "\n".join(textwrap.wrap(label, _LABEL, max_lines=2, placeholder="…"))


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{three(low)} to {three(high)}"
