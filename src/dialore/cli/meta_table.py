"""How far metrics agree with people, as tables on the terminal, in Markdown and as JSON."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from dialore.cli.output import console, table
from dialore.evaluation.meta_resampling import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dialore.cli.meta_work import Found
    from dialore.evaluation.meta import Agreement
    from dialore.evaluation.statistics import Interval

_INTERVAL = re.compile(r"\[(-?[\d.]+), (-?[\d.]+)\]")
_OVER_RESPONSES = ("metric", "people", "n", "Spearman", "Kendall", "Pearson")
_LABELS = ("metric", "people", "n", "AUC", "accuracy", "commoner label")
_OVER_SYSTEMS = ("metric", "people", "systems", "Spearman", "Kendall", "Pearson")


def _parts(found: Found) -> Iterator[tuple[str, tuple[str, ...], list[list[str]]]]:
    """A set's tables: title, columns, rows; those that have rows."""
    some = [one for one in found.agreements if one.correlations or one.auc is not None]
    responses = [one for one in some if one.level == "response"]
    parts = (
        ("responses", _OVER_RESPONSES, [_row(one) for one in responses if one.auc is None]),
        ("responses, yes or no", _LABELS, [_label_row(one) for one in responses if one.auc is not None]),
        ("systems", _OVER_SYSTEMS, [_row(one) for one in some if one.level == "system"]),
    )
    for title, columns, rows in parts:
        if rows:
            yield f"{found.of.name}: {title}", columns, rows


def _row(one: Agreement) -> list[str]:
    return [one.metric, one.criterion, str(one.n), *(_cell(one.correlations[kind]) for kind in KINDS)]


def _label_row(one: Agreement) -> list[str]:
    shares = ["-" if value is None else f"{value:.3f}" for value in (one.accuracy, one.majority)]
    return [one.metric, one.criterion, str(one.n), _cell(one.auc), *shares]


def _cell(figure: Interval | None) -> str:
    if figure is None or math.isnan(figure.value):
        return "-"
    # Adding 0 turns a rounded -0.00 into 0.00.
    value = round(figure.value, 3) + 0.0
    if math.isnan(figure.low):
        return f"{value:.3f}"
    low, high = (round(bound, 2) + 0.0 for bound in (figure.low, figure.high))
    return f"{value:.3f} [{low:.2f}, {high:.2f}]"


def _narrow(found: re.Match[str]) -> str:
    """An interval as its half width, so that a row fits a terminal."""
    return f"[dim]±{(float(found[2]) - float(found[1])) / 2:.2f}[/]"


def show(found: Sequence[Found]) -> None:
    """The tables on the terminal."""
    for one in found:
        for title, columns, rows in _parts(one):
            shown = table(*(f"{'!' if place < 2 else '>'}{name}" for place, name in enumerate(columns)), title=title)
            for row in rows:
                shown.add_row(*(_INTERVAL.sub(_narrow, cell) for cell in row))
            console().print(shown)


def markdown(found: Sequence[Found]) -> str:
    """The tables in Markdown, with where each set comes from."""
    lines = ["# Metrics and people", ""]
    lines += ["Coefficients and areas with 95% bootstrap intervals over contexts; positive is agreement.", ""]
    for one in found:
        lines += [f"## {one.of.name}", "", f"{one.of.paper}; {one.responses} responses.", ""]
        for title, columns, rows in _parts(one):
            lines += [f"**{title.partition(': ')[2].capitalize()}**", ""]
            lines.append(f"| {' | '.join(columns)} |")
            lines.append(f"| {' | '.join('---' if place < 2 else '---:' for place in range(len(columns)))} |")
            lines += [f"| {' | '.join(row)} |" for row in rows]
            lines.append("")
        lines += [f"- {line}" for line in without(one)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def without(found: Found) -> list[str]:
    """What has no figure, and how many responses have no measure, in words; metrics of one reason in one line."""
    absent: dict[str, list[str]] = {}
    partly: dict[str, list[str]] = {}
    figures = {one.metric for one in found.agreements if one.correlations or one.auc is not None}
    for metric, problems in found.problems.items():
        said = "; ".join(f"{reason} ({count})" for reason, count in problems.items())
        if metric in figures:
            if said:
                partly.setdefault(said, []).append(metric)
            continue
        reasons = dict.fromkeys(one.reason for one in found.agreements if one.metric == metric and one.reason and one.n)
        why = "; ".join(text for text in (said, *reasons) if text) or "a figure of systems, and the set names none"
        absent.setdefault(why, []).append(metric)
    lines = [f"not available: {', '.join(metrics)}: {why}" for why, metrics in absent.items()]
    return [*lines, *(f"without a measure: {', '.join(metrics)}: {why}" for why, metrics in partly.items())]


def data(found: Found) -> dict[str, Any]:
    """The same as JSON has it."""
    return {
        "set": found.of.name,
        "paper": found.of.paper,
        "language": found.of.language,
        "responses": found.responses,
        "agreements": [_agreement(one) for one in found.agreements],
        "problems": found.problems,
    }


def _agreement(one: Agreement) -> dict[str, Any]:
    said: dict[str, Any] = {"metric": one.metric, "criterion": one.criterion, "level": one.level, "n": one.n}
    said |= {
        kind: {**_figure(figure), "p": _or_none(one.p.get(kind, math.nan))} for kind, figure in one.correlations.items()
    }
    if one.auc is not None:
        said["auc"] = {**_figure(one.auc), "p": _or_none(one.p["auc"])}
        said |= {"accuracy": one.accuracy, "majority": one.majority}
    if one.reason:
        said["reason"] = one.reason
    return said


def _figure(figure: Interval) -> dict[str, float | None]:
    return {name: _or_none(getattr(figure, name)) for name in ("value", "low", "high")}


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
