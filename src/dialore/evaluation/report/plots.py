"""Plots of a report, each with its numbers as a table. matplotlib (the `report` extra) draws them."""

from __future__ import annotations

import html
import importlib.util
import io
import re
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dialore.errors import MissingExtraError
from dialore.evaluation.report.data import display_factor, size_of, three, unit

if TYPE_CHECKING:
    from dialore.evaluation.base import MetricInfo
    from dialore.evaluation.report.tables import Row

    ByResponse = Mapping[tuple[str, int], float]

COLOURS = ("#0d6a66", "#c2571a", "#4a63b5", "#9a3f7f", "#857509", "#2f7fb0", "#6b5b4b", "#b0303c")
"""One per system, those of the page's light theme."""
INK, SOFT, LINE = "#22201c", "#635d53", "#e2ddd2"
_STYLE = resources.files("dialore") / "data" / "report" / "plots.mplstyle"
_CHINESE_FONTS = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "PingFang SC", "Microsoft YaHei")
_STROKES = ("o-", "s--", "^:", "D-.")
"""Markers and strokes of lines. The next one is used when the colours repeat."""
_WIDTH_INCHES = 5.0
_LABEL_CHARS = 58
_STEPS = 6
Form = Literal["svg", "pdf", "png"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot.

    Attributes:
        name: Its kind, for file names.
        caption: Its kind in words.
        title: What it shows, for readers who do not see it.
        head: Heads of the table of its numbers.
        rows: The table of its numbers.
        height: Height in inches.
        draw: Draws it on the axes of matplotlib.
    """

    name: str
    caption: str
    title: str
    head: list[str]
    rows: list[list[str]]
    height: float
    draw: Callable[[Any], None]

    def render(self, form: Form) -> bytes:
        """Return the plot as a file, the same each time."""
        if not can_draw():
            raise MissingExtraError("plots", "report")
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
        from matplotlib.font_manager import fontManager

        installed = {font.name for font in fontManager.ttflist}
        fonts = ["DejaVu Sans", *(name for name in _CHINESE_FONTS if name in installed), "sans-serif"]
        buffer = io.BytesIO()
        with warnings.catch_warnings(), resources.as_file(_STYLE) as style, mpl.rc_context(fname=style):
            # Names in a script that no installed font has are drawn as boxes, in PDF and PNG only.
            warnings.simplefilter("ignore")
            mpl.rcParams.update({"font.family": fonts, "svg.hashsalt": self.title})
            canvas = Canvas(figsize=(_WIDTH_INCHES, self.height), layout="constrained")
            self.draw(canvas.add_subplot())
            dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
            canvas.savefig(buffer, format=form, dpi=200, metadata=dates[form])
        return buffer.getvalue()

    def inline(self) -> str:
        """Return the plot as SVG for a page, in the page's font and colours, light or dark, with its title."""
        svg = self.render("svg").decode()
        svg = svg[svg.index("<svg") :]
        svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
        # Ids of groups are the same in every plot; those that something refers to are salted with the title.
        svg = re.sub(r' id="[\w.]+_\d+"|(?<=<svg) width="[^"]*" height="[^"]*"', "", svg)
        svg = re.sub(r'font: ([\d.]+)px [^;"]*', r"font: calc(\1px * var(--grow, 1)) var(--sans)", svg)
        svg = re.sub(r"<[^<>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), svg)
        svg = svg.replace("fill: #ffffff", "fill: none")
        tokens = {INK: "ink", SOFT: "soft", LINE: "line"}
        tokens |= {colour: f"c{index}" for index, colour in enumerate(COLOURS)}
        for colour, token in tokens.items():
            svg = svg.replace(colour, f"var(--{token})")
        title = f"<title>{html.escape(self.title)}</title>"
        return re.sub(r"<svg([^<>]*)>", lambda tag: f'<svg class="plot" role="img"{tag[1]}>{title}', svg, count=1)


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


class _Point(NamedTuple):
    """A figure as displayed, with its interval and number of responses; `x` is where it stands across."""

    y: float
    low: float
    high: float
    n: int
    x: float = 0.0

    @property
    def interval(self) -> str:
        return "–" if np.isnan(self.low) else f"{three(self.low)} to {three(self.high)}"


class _Line(NamedTuple):
    """The points of a system or method."""

    label: str
    position: int
    points: list[_Point]


def _point(info: MetricInfo, row: Row) -> _Point | None:
    """Return a system's figure as displayed, or None if it is not available."""
    score, factor = row.system.scores.get(info.name), display_factor(info)
    if score is None or score.value is None:
        return None
    low, high = (np.nan if end is None else end * factor for end in (score.low, score.high))
    return _Point(score.value * factor, low, high, score.n)


def _axis(info: MetricInfo) -> str:
    """Return the metric's name with its unit."""
    return f"{info.name} ({unit(info)})" if unit(info) else info.name


def bars(info: MetricInfo, rows: Sequence[Row], title: str) -> Figure | None:
    """Return a bar per system with its 95% interval."""
    known: list[tuple[str, str, _Point]] = []
    for index, row in enumerate(rows):
        point = _point(info, row)
        if point is not None:
            known.append((row.label, _colour(index), point))
    if not known:
        return None

    def draw(axes: Any) -> None:  # noqa: ANN401 - matplotlib's
        for y, (label, colour, point) in enumerate(known):
            end = point.y
            axes.barh(y, point.y, 0.4, color=colour)
            if point.low <= point.y <= point.high:
                axes.plot([point.low, point.high], [y, y], "|-", color=INK, linewidth=1.2, markersize=6)
                end = point.high
            text = three(point.y)
            axes.annotate(text, (max(end, 0.0), y), (5, 0), textcoords="offset points", va="center", color=INK)
            _write_name(axes, label, y - 0.26)
        axes.set_ylim(len(known) - 0.6, -0.9)
        axes.margins(x=0.16)
        axes.set_xlabel(_axis(info))

    axis = _axis(info)
    return Figure(
        "bars",
        "Score with its 95% interval",
        f"{axis}, {title}: a bar a system with its 95% interval",
        ["system", axis, "95% interval", "n"],
        [[label, three(point.y), point.interval, str(point.n)] for label, _, point in known],
        0.7 + 0.55 * len(known),
        draw,
    )


def distribution(info: MetricInfo, rows: Sequence[Row], values: Sequence[ByResponse], title: str) -> Figure | None:
    """Return a histogram per system over one axis, with the mean."""
    known = []
    for index, (row, scores) in enumerate(zip(rows, values, strict=True)):
        if scores:
            known.append((row.label, _colour(index), np.array([*scores.values()]) * display_factor(info)))
    if not known:
        return None
    edges = np.histogram_bin_edges(np.concatenate([scores for *_, scores in known]), 20)

    def draw(axes: Any) -> None:  # noqa: ANN401 - matplotlib's
        for y, (label, colour, scores) in enumerate(known):
            counts = np.histogram(scores, edges)[0]
            axes.bar(edges[:-1], -0.56 * counts / counts.max(), 0.94 * np.diff(edges), y, align="edge", color=colour)
            axes.plot([scores.mean()] * 2, [y, y - 0.6], color=INK, linewidth=1.6)
            axes.axhline(y, color=SOFT, linewidth=0.8)
            _write_name(axes, label, y - 0.62)
        axes.set_ylim(len(known) - 1, -0.95)
        axes.set_xlabel(_axis(info))

    table = []
    for label, _, numbers in known:
        figures = [numbers.mean(), *np.quantile(numbers, [0, 0.25, 0.5, 0.75, 1])]
        table.append([label, str(len(numbers)), *map(three, figures)])
    return Figure(
        "distribution",
        "Distribution over responses",
        f"{_axis(info)}: values of single responses, {title}; a histogram a system, the line is the mean",
        ["system", "n", "mean", "least", "lower quartile", "median", "upper quartile", "most"],
        table,
        0.6 + 0.8 * len(known),
        draw,
    )


def knowledge_against(
    info: MetricInfo,
    rows: Sequence[Row],
    values: Sequence[ByResponse],
    given: Sequence[Mapping[tuple[str, int], int]],
    title: str,
) -> Figure | None:
    """Return the score against the amount of knowledge, in steps of about equal numbers of responses."""
    factor = display_factor(info)
    scores = [factor * score for by_response in values for score in by_response.values()]
    limits = (min(scores, default=0.0), max(scores, default=0.0))
    lines = []
    for index, (row, by_response, amounts) in enumerate(zip(rows, values, given, strict=True)):
        keys = [key for key in by_response if key in amounts]
        if any(amounts[key] for key in keys):
            x, y = np.array([(amounts[key], factor * by_response[key]) for key in keys], dtype=np.float64).T
            lines.append(_Line(row.label, index, _steps(x, y, limits)))
    if len(lines) < 2 and not any(len(line.points) > 1 for line in lines):
        return None
    caption = (
        f"{_axis(info)} against knowledge given, {title}: a line a system, the mean score of responses that were "
        "given about so many pieces, with 95% intervals"
    )
    return Figure(
        "knowledge",
        "Knowledge given against score",
        caption,
        ["system", "pieces given", _axis(info), "95% interval", "n"],
        [[label, three(it.x), three(it.y), it.interval, str(it.n)] for label, _, points in lines for it in points],
        _height(lines),
        lambda axes: _draw_lines(axes, lines, "pieces of knowledge given", _axis(info)),
    )


def sizes_against(info: MetricInfo, rows: Sequence[Row], sizes: Mapping[str, float], title: str) -> Figure | None:
    """Return the score against the model's size, a line per method; None if fewer than two sizes are known."""
    series: dict[str, list[_Point]] = {}
    for row in rows:
        size, point = sizes.get(row.system.model, size_of(row.system.model)), _point(info, row)
        if size and point is not None:
            series.setdefault(row.system.name, []).append(point._replace(x=size))
    known = sorted({point.x for points in series.values() for point in points})
    if len(known) < 2:
        return None
    lines = []
    for index, (name, points) in enumerate(series.items()):
        lines.append(_Line(name, index, sorted(points, key=lambda point: point.x)))

    def draw(axes: Any) -> None:  # noqa: ANN401 - matplotlib's
        _draw_lines(axes, lines, "billion parameters (log scale)", _axis(info))
        axes.set_xscale("log")
        axes.set_xticks(known, [f"{size:g}" for size in known])
        axes.set_xticks([], minor=True)

    return Figure(
        "sizes",
        "Model size against score",
        f"{_axis(info)} against model size, {title}: a line a method over models by size, with 95% intervals",
        ["method", "billion parameters", _axis(info), "95% interval"],
        [[label, f"{it.x:g}", three(it.y), it.interval] for label, _, points in lines for it in points],
        _height(lines),
        draw,
    )


def _draw_lines(axes: Any, lines: Sequence[_Line], across: str, up: str) -> None:  # noqa: ANN401 - matplotlib's
    """Draw lines with their error bars."""
    for label, position, points in lines:
        y, low, high, _, x = np.array(points).T
        errors = np.nan_to_num(np.clip(np.stack([y - low, high - y]), 0, None))
        stroke = _STROKES[position // len(COLOURS) % len(_STROKES)]
        axes.errorbar(x, y, errors, fmt=stroke, color=_colour(position), label=_wrap(label))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.get_figure().legend(loc="outside lower left")


def _height(lines: Sequence[_Line]) -> float:
    """Return the height of a plot with a legend of these lines."""
    return 3.1 + 0.2 * sum(_wrap(line.label).count("\n") + 1 for line in lines)


def _steps(x: NDArray[np.float64], y: NDArray[np.float64], limits: tuple[float, float]) -> list[_Point]:
    """Return the mean scores by quantiles of the amount, with normal intervals within what a score can be."""
    edges = np.unique(x)
    if len(edges) > _STEPS:
        edges = np.unique(np.quantile(x, np.linspace(0, 1, _STEPS + 1)))[:-1]
    steps = np.searchsorted(edges, x, side="right")
    points = []
    for step in np.unique(steps):
        scores = y[steps == step]
        mean, n = scores.mean(), len(scores)
        half = 1.96 * scores.std(ddof=1) / np.sqrt(n) if n > 1 else 0.0
        low, high = np.clip([mean - half, mean + half], min(0.0, limits[0]), max(0.0, limits[1]))
        points.append(_Point(mean, low, high, n, x[steps == step].mean()))
    return points


def _write_name(axes: Any, label: str, y: float) -> None:  # noqa: ANN401 - matplotlib's
    """Write a system's name above its bar, in place of the axis."""
    axes.annotate(_wrap(label), (0, y), xycoords=("axes fraction", "data"), va="bottom", color=INK)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _wrap(label: str) -> str:
    return "\n".join(textwrap.wrap(label, _LABEL_CHARS, max_lines=2, placeholder="…"))
