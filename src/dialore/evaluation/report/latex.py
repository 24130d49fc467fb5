"""The main table in LaTeX: booktabs, threeparttable for the notes, everything escaped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dialore.evaluation.report.numbers import MINUS
from dialore.evaluation.report.words import how_to_read

if TYPE_CHECKING:
    from dialore.evaluation.report.build import Report
    from dialore.evaluation.report.tables import Cell, Group

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "–": "--",
    MINUS: "$-$",
}
_PATTERN = re.compile("|".join(map(re.escape, _SPECIAL)))


def render_latex(report: Report) -> str:
    """The main table, to be put into a paper that uses `booktabs` and `threeparttable`."""
    table = report.table
    columns = len(table.metrics)
    heads = " & ".join(["System", *(_head(about.name, about.scale, about.higher_is_better) for about in table.metrics)])
    lines = [
        f"% {_comment(report.title)}: made by dialore.",
        "% Needs \\usepackage{booktabs,threeparttable,graphicx}; names that are not Latin want XeLaTeX or LuaLaTeX.",
        "\\begin{table*}[t]",
        "\\centering",
        "\\begin{threeparttable}",
        f"\\caption{{{escape(report.title)}}}",
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
        f"\\begin{{tabular}}{{l{'r' * columns}}}",
        "\\toprule",
    ]
    if len(table.families) > 1:
        spans = " & ".join(f"\\multicolumn{{{width}}}{{c}}{{{escape(title)}}}" for title, width in table.families)
        lines += [f" & {spans} \\\\", _rules(table.families)]
    lines += [f"{heads} \\\\"]
    for group in table.groups:
        lines += ["\\midrule", *_group(group, columns, titled=table.has_groups)]
    lines += ["\\bottomrule", "\\end{tabular}%", "}", "\\begin{tablenotes}\\footnotesize"]
    lines += [f"\\item {escape(text)}" for text in how_to_read(table)]
    lines += [f"\\item[{place}] {escape(text)}" for place, text in enumerate(table.notes, start=1)]
    lines += ["\\end{tablenotes}", "\\end{threeparttable}", "\\end{table*}"]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text that LaTeX sets as it is."""
    return _PATTERN.sub(lambda found: _SPECIAL[found[0]], " ".join(text.split()))


def _comment(text: str) -> str:
    return " ".join(text.split())


def _head(name: str, scale: float, higher: bool) -> str:
    way = "\\uparrow" if higher else "\\downarrow"
    return f"{escape(name)}{' (' + escape('%') + ')' if scale == 100 else ''} ${way}$"


def _rules(families: list[tuple[str, int]]) -> str:
    begin, rules = 2, []
    for _, width in families:
        rules.append(f"\\cmidrule(lr){{{begin}-{begin + width - 1}}}")
        begin += width
    return "".join(rules)


def _group(group: Group, columns: int, *, titled: bool) -> list[str]:
    lines = [f"\\multicolumn{{{columns + 1}}}{{l}}{{\\textit{{{escape(group.title)}}}}} \\\\"] if titled else []
    return lines + [f"{escape(row.label)} & {' & '.join(map(_cell, row.cells))} \\\\" for row in group.rows]


def _cell(cell: Cell) -> str:
    note = f"\\tnote{{{cell.note}}}" if cell.note else ""
    if not cell.text:
        return f"n/a{note}"
    text = escape(cell.text)
    shown = f"\\textbf{{{text}}}" if cell.place == 1 else f"\\underline{{{text}}}" if cell.place == 2 else text
    mark = f"$^{{{cell.mark}}}$" if cell.mark else ""
    wide = f"\\,{{\\scriptsize$\\pm${escape(cell.spread)}}}" if cell.spread else ""
    return f"{shown}{mark}{wide}{note}"
