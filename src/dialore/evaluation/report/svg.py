"""Small figures as inline SVG of our own: no library, no script, with a title, a description and text that is text."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from dialore.evaluation.report.numbers import fixed

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 480
COLOURS = 8
_GLYPH = 9.6
"""Width of a character with some to spare, as large as text gets on narrow screens; a Chinese one takes two."""


@dataclass(slots=True)
class Drawing:
    """An SVG that grows shape by shape; lengths are pixels of a figure WIDTH wide, colours are classes of the page.

    Attributes:
        title: what the figure shows, in a few words.
        description: what one sees in it, for who does not.
        height: its height.
    """

    title: str
    description: str
    height: float
    _shapes: list[str] = field(default_factory=list)
    _under: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "axis") -> None:
        """A straight line; a grid's lie below everything else."""
        shapes = self._under if kind == "grid" else self._shapes
        shapes.append(f'<line class="{kind}" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"/>')

    def bar(self, x: float, y: float, width: float, height: float, kind: str, hint: str = "") -> None:
        """A rectangle, with a hint on hovering."""
        shape = f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(max(width, 0))}" height="{_n(height)}"'
        self._shapes.append(f"{shape}><title>{escape(hint)}</title></rect>" if hint else f"{shape}/>")

    def dot(self, x: float, y: float, kind: str, hint: str = "", *, radius: float = 4) -> None:
        """A dot, with a hint on hovering."""
        shape = f'<circle class="{kind}" cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"'
        self._shapes.append(f"{shape}><title>{escape(hint)}</title></circle>" if hint else f"{shape}/>")

    def path(self, points: list[tuple[float, float]], kind: str) -> None:
        """A line through points."""
        self._shapes.append(f'<polyline class="{kind}" points="{" ".join(f"{_n(x)},{_n(y)}" for x, y in points)}"/>')

    def lines(self, x: float, y: float, texts: Sequence[str], step: float = 17) -> float:
        """Lines of text, one below the other; where the next would stand."""
        for text in texts:
            self.text(x, y, text)
            y += step
        return y

    def text(self, x: float, y: float, words: str, kind: str = "label", anchor: str = "start") -> None:
        """A line of text."""
        self._shapes.append(
            f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def render(self, style: str = "") -> str:
        """The SVG; with a style sheet of its own it stands alone as a file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" viewBox="0 0 {WIDTH} {_n(self.height)}"'
        )
        sheet = f"<style>{style}</style>" if style else ""
        size = f' width="{WIDTH}" height="{_n(self.height)}"' if style else ""
        said = f"<title>{escape(self.title)}</title><desc>{escape(self.description)}</desc>"
        return f"{head}{size}>{said}{sheet}{''.join(self._under + self._shapes)}</svg>"


STANDALONE = (
    "svg{font:12px system-ui,sans-serif;background:#fff}text{fill:#22201c}.soft{fill:#655f55}"
    ".axis{stroke:#655f55}.grid{stroke:#e0dbd0}.whisker{stroke:#22201c;stroke-width:1.4}.mean{stroke:#22201c;stroke-width:2}"
    ".halo{stroke:#fff;stroke-opacity:.75;stroke-width:4}.other{fill:none;stroke:#b9b4aa;stroke-width:1.2}"
    + "".join(
        f".s{place}{{fill:{colour}}}.l{place}{{fill:none;stroke:{colour};stroke-width:2}}"
        for place, colour in enumerate(
            ("#0d6a66", "#c2571a", "#4a63b5", "#9a3f7f", "#857509", "#2f7fb0", "#6b5b4b", "#b0303c")
        )
    )
)
"""Style of figures that are files of their own: light, as papers are."""


def fitted(words: str, width: float) -> str:
    """Text cut to about a width, with an ellipsis where it was cut."""
    taken = 0.0
    for place, character in enumerate(words):
        taken += _wide(character)
        if taken > width:
            return words[: max(place - 1, 1)] + "…"
    return words


def wrapped(words: str, width: float, lines: int = 2) -> list[str]:
    """Text in at most so many lines of about a width, broken where there is a blank, else anywhere; the last is cut."""
    found: list[str] = []
    rest = words.strip()
    while len(found) < lines - 1 and sum(map(_wide, rest)) > width:
        taken, end = 0.0, 0
        while end < len(rest) and taken + _wide(rest[end]) <= width:
            taken += _wide(rest[end])
            end += 1
        blank = rest.rfind(" ", 0, end + 1)
        end = max(blank if blank > end // 2 else end, 1)
        found.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return [*found, fitted(rest, width)]


def _wide(character: str) -> float:
    return _GLYPH * (2 if ord(character) > 0x2E80 else 1)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from at most `low` to at least `high`, about so many."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / max(count - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    found = [first * step]
    while found[-1] < high - step * 1e-6:
        found.append((first + len(found)) * step)
    return found


def tick_words(marks: list[float]) -> list[str]:
    """Ticks with as few decimals as tell them apart."""
    for places in range(8):
        words = [fixed(mark, places) for mark in marks]
        if all(math.isclose(round(mark, places), mark, abs_tol=1e-9) for mark in marks):
            return words
    return [f"{mark:.3g}" for mark in marks]


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
