"""Numbers and heads as tables show them: three significant figures, intervals as ±, times in a unit that suits them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dialore.evaluation.base import About

MINUS = "−"


def decimals(value: float, figures: int = 3) -> int:
    """How many decimals show so many significant figures; negative where some stand before the point."""
    if value == 0 or not math.isfinite(value):
        return figures - 1
    return figures - 1 - math.floor(math.log10(abs(float(f"{value:.{figures - 1}e}"))))


def three(value: float) -> str:
    """Three significant figures, with trailing zeros: `0.0120`, `68.7`, `1,230`."""
    return fixed(value, decimals(value))


def fixed(value: float, places: int) -> str:
    """So many decimals; with a negative number, rounded before the point. Never a negative zero."""
    text = f"{round(value, places):,.{max(places, 0)}f}"
    return (
        MINUS + text[1:] if text.startswith("-") and any(digit in text for digit in "123456789") else text.lstrip("-")
    )


def signed(value: float) -> str:
    """A difference, with its sign; no sign where it is nothing."""
    text = three(value)
    return f"+{text}" if value > 0 else text


def spread(low: float | None, high: float | None, places: int) -> str:
    """Half the width of an interval, with the decimals of its figure; empty without an interval."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    half = (high - low) / 2
    # An interval that its figure's decimals would round to nothing keeps one figure of its own.
    return fixed(half, places if half == 0 or round(half, places) else decimals(half, 1))


def p_value(p: float | None) -> str:
    """A p-value in words: `0.012`, `< 0.001`; a dash where there is none."""
    if p is None or math.isnan(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def duration(seconds: float) -> str:
    """A time in milliseconds, seconds or minutes."""
    if seconds >= 100:
        return f"{seconds / 60:,.1f} min"
    return f"{three(seconds)} s" if seconds >= 1 else f"{three(seconds * 1000)} ms" if seconds > 0 else "0 ms"


def share(part: float, whole: float) -> str:
    """A share in per cent; a dash of nothing."""
    return f"{100 * part / whole:.1f}%" if whole else "–"


_SIZE = re.compile(r"(?<![\w.])(?:(\d+)x)?(\d+(?:\.\d+)?)\s?([bm])(?![a-z0-9])", re.IGNORECASE)


def size_of(model: str) -> float | None:
    """A model's size in billions of parameters where its name says it: `7B`, `0.5b`, `8x7B`, `770M`."""
    found = _SIZE.search(model.replace("_", "-"))
    if found is None:
        return None
    times, number, unit = found.groups()
    return int(times or 1) * float(number) / (1 if unit in "bB" else 1000)


def arrow(about: About) -> str:
    """Which way is better."""
    return "↑" if about.higher_is_better else "↓"


def unit(about: About) -> str:
    """The unit that its figures are in, as a table's head shows it."""
    return "%" if about.scale == 100 else ""
