"""The report as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from typing import TYPE_CHECKING

from dialore.evaluation.report.judged import READING
from dialore.evaluation.report.numbers import arrow, p_value, signed, unit
from dialore.evaluation.report.tables import how_to_read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dialore.evaluation.base import About
    from dialore.evaluation.report.build import Report
    from dialore.evaluation.report.comparison import Comparison
    from dialore.evaluation.report.judged import Contest
    from dialore.evaluation.report.tables import Cell

_COLUMNS = (
    *("run", "dataset", "model", "system", "method", "options", "metric", "higher_is_better", "scale"),
    *("value", "low", "high", "n", "place"),
    *("baseline", "difference", "difference_low", "difference_high", "pairs", "p_bootstrap", "p_wilcoxon", "mark"),
    *("problems", "reason"),
)
_SPECIAL = re.compile(r"([\\`*_{}\[\]|#~])")


def render_markdown(report: Report) -> str:
    """The report's tables as Markdown, with HTML only where Markdown has no sign of its own (underline)."""
    table = report.table
    abouts = [facts["about"] for facts in report.facts.values() if isinstance(facts, dict) and facts.get("about")]
    parts = [f"# {escape(report.title)}", *(escape(str(text)) for text in abouts)]
    head = ["system", *(f"{escape(about.name)} {unit(about)}{arrow(about)}" for about in table.metrics)]
    rows: list[list[str]] = []
    for group in table.groups:
        if table.has_groups:
            rows.append([f"**{escape(group.title)}**", *[""] * len(table.metrics)])
        rows += [[escape(row.label), *map(_cell, row.cells)] for row in group.rows]
    parts += ["## Scores", _table(head, rows), "\n".join(f"- {escape(text)}" for text in how_to_read(table))]
    parts.append("\n".join(f"{place}. {escape(text)}" for place, text in enumerate(table.notes, start=1)))
    if table.absent:
        missing = "\n".join(f"- {escape(about.name)}: {escape(reason)}" for about, reason in table.absent)
        parts += ["Not available for any system:", missing]
    if table.comparisons:
        parts += ["## Significance", _comparisons(table.comparisons)]
    for each in report.ablations:
        made = _comparisons(list(each.comparisons.values()))
        parts += [f"## Ablation of {escape(each.full.name)}", "Differences from the full method.", made]
    if report.contests:
        parts += ["## Preferences", escape(READING), *map(_contest, report.contests)]
    for title, counts in (
        ("## Cost and latency, a response", [survey.costs for survey in report.surveys]),
        ("## Failures and parsing", [survey.outcomes for survey in report.surveys]),
    ):
        lines = [[escape(name), *line.values()] for name, line in zip(report.names, counts, strict=True)]
        parts += [title, _table(["system", *counts[0]], lines)] if counts else []
    described = (
        f"- **{escape(about.name)}**: {escape(about.definition)} ({escape(about.paper)})" for about in report.described
    )
    parts += ["## Metrics", "\n".join(described)]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    plain = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cell(cell: Cell) -> str:
    note = f"<sup>{cell.note}</sup>" if cell.note else ""
    if not cell.text:
        return f"n/a{note}"
    shown = f"**{cell.text}**" if cell.place == 1 else f"<ins>{cell.text}</ins>" if cell.place == 2 else cell.text
    wide = f" ±{cell.spread}" if cell.spread else ""
    return f"{shown}{escape(cell.mark)}{wide}{note}"


def _contest(contest: Contest) -> str:
    title = f"{contest.first} against {contest.second}: {contest.judged} judged by {contest.judge}, {contest.dataset}"
    lines = []
    for verdict in contest.verdicts:
        *words, p, lean = verdict.row
        lines.append([*map(escape, words), escape(p + verdict.mark), lean])
    lacking = [f"- {escape(each.criterion)}: {each.unjudged}" for each in contest.verdicts if each.unjudged]
    parts = [f"### {escape(title)}", _table(list(map(escape, contest.columns)), lines)]
    return "\n\n".join([*parts, *(["\n".join(["Not judged:", *lacking])] if lacking else [])])


def _comparisons(made: Sequence[Comparison]) -> str:
    head = ["metric", "system", "less", "difference", "95% interval", "pairs", "bootstrap p", "Wilcoxon p"]
    rows = (
        [
            each.metric,
            each.system.name,
            each.baseline.name,
            signed(each.difference) + each.mark,
            f"{signed(each.low)} to {signed(each.high)}",
            str(each.pairs),
            p_value(each.bootstrap),
            p_value(each.wilcoxon),
        ]
        for each in made
    )
    return _table(head, (map(escape, row) for row in rows))


def _table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def render_csv(report: Report) -> str:
    """A line for each system and metric, with full precision; what is not available is an empty field with a reason."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for group in report.table.groups:
        for each in group.rows:
            system = each.system
            known = {name: getattr(system, name) for name in ("run", "dataset", "model", "method")}
            known |= {"system": system.name, "options": json.dumps(system.options, ensure_ascii=False, sort_keys=True)}
            for about, cell in zip(report.table.metrics, each.cells, strict=True):
                writer.writerow(known | _measured(about, cell))
            for about, reason in report.table.absent:
                writer.writerow(known | {"metric": about.name, "n": 0, "reason": reason})
    return text.getvalue()


def _measured(about: About, cell: Cell) -> dict[str, object]:
    score, compared = cell.score, cell.comparison
    line: dict[str, object] = {
        "metric": about.name,
        "higher_is_better": str(about.higher_is_better).lower(),
        "scale": about.scale,
        "value": _number(score.value),
        "low": _number(score.low),
        "high": _number(score.high),
        "n": score.n,
        "place": cell.place or "",
        "mark": cell.mark,
        "problems": json.dumps(score.problems, sort_keys=True) if score.problems else "",
        "reason": score.reason,
    }
    if compared is not None:
        line |= {
            "baseline": compared.baseline.name,
            "difference": _number(compared.difference),
            "difference_low": _number(compared.low),
            "difference_high": _number(compared.high),
            "pairs": compared.pairs,
            "p_bootstrap": _number(compared.bootstrap),
            "p_wilcoxon": _number(compared.wilcoxon),
        }
    return line


def _number(value: float | None) -> str:
    """A number that reads back as the same; empty where there is none."""
    return "" if value is None or math.isnan(value) else repr(float(value))
