"""The report as Markdown: the tables, with HTML only where Markdown has no sign of its own (underline)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dialore.evaluation.report.judged import READING, columns, row
from dialore.evaluation.report.numbers import p_value, signed
from dialore.evaluation.report.words import COST_HEAD, OUTCOME_HEAD, arrow, cost_row, how_to_read, outcome_row, unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dialore.evaluation.report.build import Report
    from dialore.evaluation.report.comparison import Comparison
    from dialore.evaluation.report.judged import Contest
    from dialore.evaluation.report.tables import Cell

_SPECIAL = re.compile(r"([\\`*_{}\[\]|#~])")


def render_markdown(report: Report) -> str:
    """The report's tables as Markdown."""
    table = report.table
    parts = [f"# {escape(report.title)}", *(escape(text) for text in _about(report))]
    head = ["system", *(f"{escape(about.name)} {unit(about)}{arrow(about)}" for about in table.metrics)]
    rows: list[list[str]] = []
    for group in table.groups:
        if table.has_groups:
            rows.append([f"**{escape(group.title)}**", *[""] * len(table.metrics)])
        rows += [[escape(row.label), *map(_cell, row.cells)] for row in group.rows]
    parts += ["## Scores", _table(head, rows), "\n".join(f"- {escape(text)}" for text in how_to_read(table))]
    if table.notes:
        parts.append("\n".join(f"{place}. {escape(text)}" for place, text in enumerate(table.notes, start=1)))
    if table.absent:
        missing = "\n".join(f"- {escape(about.name)}: {escape(reason)}" for about, reason in table.absent)
        parts += ["Not available for any system:", missing]
    if table.comparisons:
        parts += ["## Significance", _comparisons(table.comparisons)]
    for each in report.ablations:
        parts += [
            f"## Ablation of {escape(each.full.name)}",
            "Differences from the full method.",
            _comparisons(list(each.comparisons.values())),
        ]
    if report.contests:
        parts += ["## Preferences", escape(READING)]
    for contest in report.contests:
        parts += [
            f"### {escape(_named(contest))}",
            _table([escape(name) for name in columns(contest)], _judged(contest)),
        ]
        lacking = [f"- {escape(each.criterion)}: {each.unjudged}" for each in contest.verdicts if each.unjudged]
        parts.append("\n".join(["Not judged:", *lacking]) if lacking else "")
    named = list(zip(report.names, report.surveys, strict=True))
    parts += ["## Cost and latency, a response", _table(COST_HEAD, ([escape(n), *cost_row(s)] for n, s in named))]
    parts += ["## Failures and parsing", _table(OUTCOME_HEAD, ([escape(n), *outcome_row(s)] for n, s in named))]
    described = (
        f"- **{escape(about.name)}**: {escape(about.definition)} ({escape(about.paper)})" for about in report.described
    )
    parts += ["## Metrics", "\n".join(described)]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    plain = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _about(report: Report) -> list[str]:
    return [str(facts["about"]) for facts in report.facts.values() if isinstance(facts, dict) and facts.get("about")]


def _cell(cell: Cell) -> str:
    note = f"<sup>{cell.note}</sup>" if cell.note else ""
    if not cell.text:
        return f"n/a{note}"
    shown = f"**{cell.text}**" if cell.place == 1 else f"<ins>{cell.text}</ins>" if cell.place == 2 else cell.text
    wide = f" ±{cell.spread}" if cell.spread else ""
    return f"{shown}{cell.mark.replace('*', chr(92) + '*')}{wide}{note}"


def _named(contest: Contest) -> str:
    return f"{contest.first} against {contest.second}: {contest.judged} judged by {contest.judge}, {contest.dataset}"


def _judged(contest: Contest) -> Iterable[list[str]]:
    for verdict in contest.verdicts:
        first, *rest, p, lean = row(verdict)
        yield [escape(first), *(escape(word) for word in rest), escape(p + verdict.mark), lean]


def _comparisons(made: Sequence[Comparison]) -> str:
    head = ["metric", "system", "less", "difference", "95% interval", "pairs", "bootstrap p", "Wilcoxon p"]
    rows = (
        [
            escape(each.metric),
            escape(each.system.name),
            escape(each.baseline.name),
            signed(each.difference) + each.mark.replace("*", "\\*"),
            f"{signed(each.low)} to {signed(each.high)}",
            str(each.pairs),
            p_value(each.bootstrap).replace("<", "&lt;"),
            p_value(each.wilcoxon).replace("<", "&lt;"),
        ]
        for each in made
    )
    return _table(head, rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
