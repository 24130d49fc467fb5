"""The main table in LaTeX: booktabs, a float for each part that a page is wide enough for, everything escaped."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

from dialore import pages
from dialore.evaluation.report.numbers import MINUS, arrow, unit
from dialore.evaluation.report.tables import how_to_read

if TYPE_CHECKING:
    from dialore.evaluation.base import About
    from dialore.evaluation.report.build import Report
    from dialore.evaluation.report.tables import Cell, MainTable, Part

WIDEST = 7
"""The most columns beside each other: more of them, each with its interval, would be set too small to read."""
_SPECIAL = {
    "\\": r"\textbackslash{}",
    # At the start of a row or a note these would be an option of what stands before.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "--": "-{}-",
    "–": "--",
    MINUS: "$-$",
}
_SPECIAL |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
_SIGNS = {"±": "pm", "·": "cdot", "×": "times", "→": "to", "←": "leftarrow", "↑": "uparrow", "↓": "downarrow"}
_SIGNS |= {"≤": "leq", "≥": "geq", "≈": "approx", "≠": "neq"}
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega"
_SIGNS |= dict(zip("αβγδεζηθικλμνξπρστφχψω", _GREEK.split(), strict=True))
_SPECIAL |= {sign: f"$\\{name}$" for sign, name in _SIGNS.items()}
_PATTERN = re.compile("|".join(map(re.escape, sorted(_SPECIAL, key=len, reverse=True))))
_SUBCOLUMNS = 3  # of a metric: figure, mark, interval


def render_latex(report: Report) -> str:
    """The main table, to be put into a paper; it says in comments which packages it wants, and has notes at its end."""
    table = report.table
    notes = [escape(text) for text in how_to_read(table)]
    notes += [f"{_note(number)}\\,{escape(text)}" for number, text in enumerate(table.notes, start=1)]
    parts = [_part(table, part) for part in table.parts(WIDEST)]
    shown = f"{report.title}{notes}{parts}"
    # Marks that LaTeX has not; texts are escaped here.
    templates = pages.environment().overlay(
        variable_start_string="(((",
        variable_end_string=")))",
        block_start_string="((%",
        block_end_string="%))",
        comment_start_string="((#",
        comment_end_string="#))",
        line_statement_prefix="%%",
        autoescape=False,
        keep_trailing_newline=True,
    )
    return templates.get_template("report/table.tex.j2").render(
        title=" ".join(report.title.split()),
        caption=escape(report.title),
        label=re.sub(r"[^a-z0-9]+", "-", report.title.lower()).strip("-") or "main",
        parts=parts,
        notes=notes,
        chinese=any(unicodedata.east_asian_width(character) in "WF" for character in shown),
        foreign=any(ord(each) > 0x17F and unicodedata.category(each)[0] == "L" for each in shown),
    )


def escape(text: str) -> str:
    """Text that LaTeX sets as it is; a question mark stands for symbols that its fonts have not, such as emoji."""
    plain = "".join(map(_known, " ".join(text.split())))
    return _PATTERN.sub(lambda found: _SPECIAL[found[0]], plain)


def _known(character: str) -> str:
    kind = unicodedata.category(character)
    if kind in {"Cc", "Cf"}:
        return ""
    is_symbol = kind[0] in "SC" and ord(character) > 0xFF and character not in _SPECIAL
    return "?" if is_symbol and character not in "€™" else character


def _part(table: MainTable, part: Part) -> dict[str, Any]:
    """What the template shows of one tabular: some of the columns, and all rows."""
    places = [place for _, some in part for place in some]
    has_families = len(table.families) > 1
    ends = [_SUBCOLUMNS * sum(len(some) for _, some in part[: number + 1]) + 1 for number in range(len(part))]
    rules = (f"\\cmidrule(lr){{{begin + 1}-{end}}}" for begin, end in zip([1, *ends], ends, strict=False))
    return {
        "width": len(places),
        "families": [_spanning(len(some), escape(title)) for title, some in part] if has_families else [],
        "rules": "".join(rules),
        "heads": [_spanning(1, _head(table.metrics[place])) for place in places],
        "groups": [
            (
                escape(group.title) if table.has_groups else "",
                [[escape(row.label), *(_cell(row.cells[place]) for place in places)] for row in group.rows],
            )
            for group in table.groups
        ],
    }


def _spanning(metrics: int, text: str) -> str:
    return f"\\multicolumn{{{_SUBCOLUMNS * metrics}}}{{c}}{{{text}}}"


def _head(about: About) -> str:
    return escape(f"{about.name}{f' ({unit(about)})' if unit(about) else ''} {arrow(about)}")


def _cell(cell: Cell) -> str:
    """A figure, its mark, and its interval with the number of its note."""
    note = _note(cell.note) if cell.note else ""
    if not cell.text:
        return _spanning(1, f"n/a{note}")
    text = escape(cell.text)
    shown = f"\\textbf{{{text}}}" if cell.place == 1 else f"\\underline{{{text}}}" if cell.place == 2 else text
    mark = f"$^{{{cell.mark}}}$" if cell.mark else ""
    wide = f"\\,{{\\scriptsize$\\pm${escape(cell.spread)}}}" if cell.spread else ""
    return f"{shown} & {mark} & {wide}{note}"


def _note(number: int) -> str:
    return f"\\textsuperscript{{{number}}}"
