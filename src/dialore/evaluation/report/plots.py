"""Figures of a report: bars, distributions, score against knowledge given, score against model size.

A figure holds its numbers as a table; matplotlib (the `report` extra) draws it as SVG, PDF or PNG, and as SVG whose
colours follow the theme of a page.
"""

from __future__ import annotations

import functools
import html
import importlib.util
import io
import math
import re
import textwrap
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dialore.errors import MissingExtraError
from dialore.evaluation.report.numbers import size_of, three

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from dialore.evaluation.base import About
    from dialore.evaluation.report.tables import Row

    ByResponse = Mapping[tuple[str, int], float]
    _Series = list[tuple[int, str, NDArray[np.float64]]]

COLOURS = ("#0d6a66", "#c2571a", "#4a63b5", "#9a3f7f", "#857509", "#2f7fb0", "#6b5b4b", "#b0303c")
"""One a system, those of the page's light theme."""
INK, SOFT, LINE = "#22201c", "#635d53", "#e2ddd2"
_TOKENS = {INK: "ink", SOFT: "soft", LINE: "line"} | {colour: f"c{place}" for place, colour in enumerate(COLOURS)}
_CHINESE_FONTS = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "PingFang SC", "Microsoft YaHei")
_WIDTH = 5.0  # inches
_LABEL = 58  # characters of a label's line
_BINS = 20
_STEPS = 6
_SHARED_AXES = 3
"""As many systems share one pair of axes; more get a panel each, in front of the others in grey."""
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
    """A figure: what it is called, its numbers as a table, and how it is drawn.

    Attributes:
        name: its kind, for files: `bars`, `distribution`, `knowledge`, `sizes`.
        caption: its kind in words.
        title: what it shows, for those who do not see it.
        draw: draws it on an empty matplotlib figure.
    """

    name: str
    caption: str
    title: str
    head: list[str]
    rows: list[list[str]]
    height: float
    draw: Callable[[Any], None]

    def render(self, form: Form) -> bytes:
        """The figure as a file.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
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
            canvas = Canvas(figsize=(_WIDTH, self.height))
            self.draw(canvas)
            dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[form]
            canvas.savefig(written, format=form, dpi=200, metadata=dated)
        return written.getvalue()

    def inline(self) -> str:
        """The figure as SVG for a page: in the page's font and colours, light or dark, and read out by its title."""
        drawn = self.render("svg").decode()
        drawn = drawn[drawn.index("<svg") :]
        drawn = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", drawn, flags=re.DOTALL)
        # Ids of groups are the same in every figure; those that something refers to are salted with the title.
        drawn = re.sub(r' id="[\w.]+_\d+"|(?<=<svg) width="[^"]*" height="[^"]*"', "", drawn)
        drawn = re.sub(r'font: ([\d.]+)px [^;"]*', r"font: calc(\1px * var(--grow, 1)) var(--sans)", drawn)
        drawn = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), drawn)
        drawn = drawn.replace("fill: #ffffff", "fill: none")
        for colour, token in _TOKENS.items():
            drawn = drawn.replace(colour, f"var(--{token})")
        head = '<svg class="plot" role="img"'
        return re.sub(r"<svg([^>]*)>", rf"{head}\1><title>{_literal(self.title)}</title>", drawn, count=1)


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def _literal(text: str) -> str:
    """Text for the right side of `re.sub`."""
    return html.escape(text).replace("\\", r"\\")


def bars(about: About, rows: Sequence[Row], title: str) -> Figure | None:
    """A bar a system with its 95% interval."""
    known = [
        (place, row.label, score)
        for place, row in enumerate(rows)
        if (score := row.system.scores.get(about.name)) and score.value is not None
    ]
    if not known:
        return None

    def draw(canvas: Any) -> None:  # noqa: ANN401 - matplotlib's
        axes = _axes(canvas)
        for y, (place, label, score) in enumerate(known):
            end = value = score.value or 0.0
            axes.barh(y, value, 0.4, color=_colour(place))
            if score.low is not None and score.high is not None and score.low <= value <= score.high:
                axes.plot([score.low, score.high], [y, y], "|-", color=INK, linewidth=1.2, markersize=6)
                end = max(score.high, value)
            axes.annotate(three(value), (max(end, 0.0), y), (5, 0), textcoords="offset points", va="center", color=INK)
            _name(axes, label, y - 0.26)
        axes.set_ylim(len(known) - 0.6, -0.9)
        axes.margins(x=0.16)
        _without_y(axes)

    head = ["system", about.name, "95% interval", "n"]
    lines = [[label, three(s.value or 0.0), _interval(s.low, s.high), str(s.n)] for _, label, s in known]
    said = f"{about.name}, {title}: a bar a system with its 95% interval"
    return Figure("bars", "Score with its 95% interval", said, head, lines, 0.5 + 0.55 * len(known), draw)


def distribution(about: About, rows: Sequence[Row], values: Sequence[ByResponse], title: str) -> Figure | None:
    """A histogram a system over one axis, with the mean."""
    known = [
        (place, row.label, np.array(list(found.values())))
        for place, (row, found) in enumerate(zip(rows, values, strict=True))
        if found
    ]
    if not known:
        return None
    low, high = min(each.min() for *_, each in known), max(each.max() for *_, each in known)
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)

    def draw(canvas: Any) -> None:  # noqa: ANN401 - matplotlib's
        axes = _axes(canvas)
        for y, (place, label, found) in enumerate(known):
            counts = np.histogram(found, edges)[0]
            axes.bar(
                edges[:-1], -0.56 * counts / counts.max(), 0.94 * np.diff(edges), y, align="edge", color=_colour(place)
            )
            axes.plot([found.mean()] * 2, [y, y - 0.6], color=INK, linewidth=1.6)
            axes.axhline(y, color=SOFT, linewidth=0.8)
            _name(axes, label, y - 0.62)
        axes.set_ylim(len(known) - 1, -0.95)
        _without_y(axes)

    head = ["system", "n", "mean", "least", "lower quartile", "median", "upper quartile", "most"]
    lines = [
        [label, str(len(each)), *map(three, (each.mean(), *np.quantile(each, [0, 0.25, 0.5, 0.75, 1])))]
        for _, label, each in known
    ]
    said = f"{about.name}: values of single responses, {title}; a histogram a system, the line is the mean"
    return Figure("distribution", "Distribution over responses", said, head, lines, 0.4 + 0.8 * len(known), draw)


def knowledge_against(
    about: About,
    rows: Sequence[Row],
    values: Sequence[ByResponse],
    given: Sequence[Mapping[tuple[str, int], int]],
    title: str,
) -> Figure | None:
    """Score against how much knowledge a response was given, in steps of about equal numbers of responses."""
    series: _Series = []
    for place, (row, found, amounts) in enumerate(zip(rows, values, given, strict=True)):
        keys = [key for key in found if key in amounts]
        if any(amounts[key] for key in keys):
            x = np.array([amounts[key] for key in keys], dtype=np.float64)
            series.append((place, row.label, _steps(x, np.array([found[key] for key in keys]))))
    if not any(len(steps) > 1 for *_, steps in series) and len(series) < 2:
        return None
    panels = len(series) > _SHARED_AXES
    # An interval by the normal curve may pass what a score can be.
    scores = [score for found in values for score in found.values()]
    bounds = (min(0.0, *scores), max(scores))
    head = ["system", "pieces given", about.name, "95% interval", "n"]
    lines = [
        [label, three(amount), three(mean), f"±{three(half)}", f"{count:.0f}"]
        for _, label, steps in series
        for amount, mean, half, count in steps
    ]
    said = (
        f"{about.name} against knowledge given, {title}: {'a panel' if panels else 'a line'} a system, the mean score "
        "of responses that were given about so many pieces, with 95% intervals"
    )
    height = 0.5 + 1.5 * math.ceil(len(series) / 2) if panels else 3.0 + _legend_height([s[1] for s in series])
    draw = functools.partial(_draw_knowledge, series=series, bounds=bounds)
    return Figure("knowledge", "Knowledge given against score", said, head, lines, height, draw)


def _draw_knowledge(canvas: Any, series: _Series, bounds: tuple[float, float]) -> None:  # noqa: ANN401 - matplotlib's
    if len(series) <= _SHARED_AXES:
        axes = _axes(canvas, left=0.55, bottom=0.6 + _legend_height([label for _, label, _ in series]))
        wide = max(steps[:, 0].max() for *_, steps in series)
        for number, (place, label, steps) in enumerate(series):
            # Systems given as much do not hide each other.
            beside = 0.012 * wide * (number - (len(series) - 1) / 2)
            _line(axes, steps + np.array([beside, 0, 0, 0]), bounds, color=_colour(place), label=_wrapped(label))
        axes.set_xlabel("pieces of knowledge given")
        canvas.legend(loc="lower left")
        return
    panels = canvas.subplots(math.ceil(len(series) / 2), 2, sharex=True, sharey=True, squeeze=False).ravel()
    high = canvas.get_size_inches()[1]
    canvas.subplots_adjust(0.11, 0.55 / high, 0.98, 1 - 0.4 / high, 0.08, 0.5)
    for axes, (place, label, own) in zip(panels, series, strict=False):
        for *_, steps in series:
            axes.plot(steps[:, 0], steps[:, 1], color=SOFT, alpha=0.35, linewidth=1)
        _line(axes, own, bounds, color=_colour(place))
        axes.set_title(textwrap.fill(label, _LABEL // 2))
    for axes in panels[len(series) :]:
        axes.set_visible(False)
    canvas.supxlabel("pieces of knowledge given", color=SOFT, fontsize=10)


def _line(axes: Any, steps: NDArray[np.float64], bounds: tuple[float, float], **look: str) -> None:  # noqa: ANN401
    amounts, means, halves, _ = steps.T
    errors = np.abs(np.clip(np.stack([means - halves, means + halves]), *bounds) - means)
    axes.errorbar(amounts, means, errors, fmt="o-", **look)
    axes.xaxis.get_major_locator().set_params(integer=True)


def sizes_against(about: About, rows: Sequence[Row], sizes: Mapping[str, float], title: str) -> Figure | None:
    """Score against the model's size, a line a method; None where fewer than two sizes are known."""
    series: dict[str, list[tuple[float, float, float, float]]] = {}
    for row in rows:
        size = sizes.get(row.system.model, size_of(row.system.model))
        score = row.system.scores.get(about.name)
        if size and score is not None and (value := score.value) is not None:
            low, high = (value if end is None else end for end in (score.low, score.high))
            series.setdefault(row.system.name, []).append((size, value, low, high))
    known = sorted({size for points in series.values() for size, *_ in points})
    if len(known) < 2:
        return None

    def draw(canvas: Any) -> None:  # noqa: ANN401 - matplotlib's
        axes = _axes(canvas, left=0.55, bottom=0.6 + _legend_height(series))
        for place, (name, points) in enumerate(series.items()):
            x, y, low, high = np.array(sorted(points)).T
            errors = np.clip(np.stack([y - low, high - y]), 0, None)
            axes.errorbar(x, y, errors, fmt="o-", color=_colour(place), label=_wrapped(name))
        axes.set_xscale("log")
        axes.set_xticks(known, [f"{size:g}" for size in known])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("billion parameters (log scale)")
        canvas.legend(loc="lower left")

    head = ["method", "billion parameters", about.name, "95% interval"]
    lines = [
        [name, f"{size:g}", three(value), _interval(low, high)]
        for name, points in series.items()
        for size, value, low, high in sorted(points)
    ]
    said = f"{about.name} against model size, {title}: a line a method over models by size, with 95% intervals"
    return Figure("sizes", "Model size against score", said, head, lines, 3.0 + _legend_height(series), draw)


def _steps(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean amount, mean score, half its 95% interval, and how many, by quantiles of the amount."""
    amounts = np.unique(x)
    edges = amounts if len(amounts) <= _STEPS else np.unique(np.quantile(x, np.linspace(0, 1, _STEPS + 1)))[:-1]
    places = np.searchsorted(edges, x, side="right")
    found = []
    for place in np.unique(places):
        some = y[places == place]
        half = 1.96 * float(some.std(ddof=1)) / math.sqrt(len(some)) if len(some) > 1 else 0.0
        found.append((float(x[places == place].mean()), float(some.mean()), half, len(some)))
    return np.array(found, dtype=np.float64).reshape(-1, 4)


def _axes(canvas: Any, *, left: float = 0.1, bottom: float = 0.3) -> Any:  # noqa: ANN401 - matplotlib's
    """Axes with so many inches beside and below them; matplotlib's own layouts draw everything twice."""
    wide, high = canvas.get_size_inches()
    return canvas.add_axes((left / wide, bottom / high, 1 - (left + 0.1) / wide, 1 - (bottom + 0.1) / high))


def _name(axes: Any, label: str, y: float) -> None:  # noqa: ANN401 - matplotlib's
    axes.annotate(_wrapped(label), (0, y), xycoords=("axes fraction", "data"), va="bottom", color=INK)


def _without_y(axes: Any) -> None:  # noqa: ANN401 - matplotlib's
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _legend_height(labels: Iterable[str]) -> float:
    return 0.1 + 0.2 * sum(_wrapped(label).count("\n") + 1 for label in labels)


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _wrapped(label: str) -> str:
    return "\n".join(textwrap.wrap(label, _LABEL, max_lines=2, placeholder="…"))


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{three(low)} to {three(high)}"
