"""The main table in LaTeX: booktabs, in parts that a page is wide enough for, notes below, everything escaped."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from dialore.evaluation.report.numbers import MINUS
from dialore.evaluation.report.words import how_to_read

if TYPE_CHECKING:
    from dialore.evaluation.base import About
    from dialore.evaluation.report.build import Report
    from dialore.evaluation.report.tables import Cell, Group, MainTable

WIDEST = 7
"""The most columns beside each other: more of them, each with its interval, would be set too small to read."""
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
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
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "→": r"$\to$",
    "←": r"$\leftarrow$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "≠": r"$\neq$",
    "–": "--",
    MINUS: "$-$",
}
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega"
_SPECIAL |= {letter: f"$\\{name}$" for letter, name in zip("αβγδεζηθικλμνξπρστφχψω", _GREEK.split(), strict=True)}
_PATTERN = re.compile("|".join(map(re.escape, sorted(_SPECIAL, key=len, reverse=True))))
_SUBCOLUMNS = 3  # of a metric: figure, mark, interval
_PAGE_LINES = 48
_PART_LINES = 5  # heads, rules and the space between parts
_NOTE_LINE = 150  # characters
_CHINESE = {
    "\\centering": ("\\centering", "\\ifcsname CJK*\\endcsname\\begin{CJK*}{UTF8}{gbsn}\\fi"),
    "\\end{table*}": ("\\ifcsname CJK*\\endcsname\\end{CJK*}\\fi", "\\end{table*}"),
}
_Part = list[tuple[str, list[int]]]


def render_latex(report: Report) -> str:
    """The main table, to be put into a paper; it says in comments which packages it wants.

    What no page holds is set as several tables, the notes below the last.
    """
    table = report.table
    notes = [escape(text) for text in how_to_read(table)]
    notes += [f"{_note(number)}\\,{escape(text)}" for number, text in enumerate(table.notes, start=1)]
    floats = _floats(table, notes)
    lines: list[str] = []
    for number, parts in enumerate(floats, start=1):
        which = f" ({number} of {len(floats)})" if len(floats) > 1 else ""
        lines += ["\\begin{table*}[t]", "\\centering", f"\\caption{{{escape(report.title + which)}}}"]
        lines += [f"\\label{{tab:{_slug(report.title)}}}"] if number == 1 else []
        for part in parts:
            lines += ["\\par\\medskip", *_part(table, part)]
        if number == len(floats):
            lines += ["\\par\\medskip", "\\begin{minipage}{\\linewidth}\\footnotesize\\raggedright"]
            lines += [*(f"{text}\\par" for text in notes), "\\end{minipage}"]
        lines.append("\\end{table*}")
    return _whole(report.title, lines)


def _floats(table: MainTable, notes: list[str]) -> list[list[_Part]]:
    """The parts of the table that stand together on a page, filled from the last, which has the notes below it."""
    taken = sum(1 + len(text) // _NOTE_LINE for text in notes)
    rows = sum(len(group.rows) + table.has_groups for group in table.groups)
    floats: list[list[_Part]] = [[]]
    for part in reversed(table.parts(WIDEST)):
        if floats[0] and taken + rows + _PART_LINES > _PAGE_LINES:
            floats.insert(0, [])
            taken = 0
        floats[0].insert(0, part)
        taken += rows + _PART_LINES
    return floats


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


def _whole(title: str, lines: list[str]) -> str:
    """The lines, after comments that say what they want."""
    said = [f"{' '.join(title.split())}: made by dialore.", "Needs \\usepackage{booktabs,graphicx}."]
    body = "".join(lines)
    if any(unicodedata.east_asian_width(character) in "WF" for character in body):
        said.append("It has Chinese characters: \\usepackage{CJKutf8} for pdfLaTeX, \\usepackage{xeCJK} for XeLaTeX.")
        lines = [each for line in lines for each in _CHINESE.get(line, (line,))]
    elif any(ord(character) > 0x17F and unicodedata.category(character)[0] == "L" for character in body):
        said.append("It has letters that are not Latin: XeLaTeX or LuaLaTeX sets them, in a font that has them.")
    return "".join(f"{line}\n" for line in [*(f"% {line}" for line in said), *lines])


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "main"


def _part(table: MainTable, part: _Part) -> list[str]:
    """One tabular: some of the columns, and all rows; made narrower where the page asks for it."""
    places = [place for _, some in part for place in some]
    width = 1 + _SUBCOLUMNS * len(places)
    heads = [f"\\multicolumn{{{_SUBCOLUMNS}}}{{c}}{{{_head(table.metrics[place])}}}" for place in places]
    lines = [
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
        f"\\begin{{tabular}}{{l{'r@{}l@{}l' * len(places)}}}",
        "\\toprule",
    ]
    if len(table.families) > 1:
        spans = [f"\\multicolumn{{{_SUBCOLUMNS * len(some)}}}{{c}}{{{escape(title)}}}" for title, some in part]
        lines += [f" & {' & '.join(spans)} \\\\", _rules([len(some) for _, some in part])]
    lines += [f"System & {' & '.join(heads)} \\\\"]
    for group in table.groups:
        lines += ["\\midrule", *_group(group, places, width, titled=table.has_groups)]
    return [*lines, "\\bottomrule", "\\end{tabular}%", "}"]


def _head(about: About) -> str:
    way = "\\uparrow" if about.higher_is_better else "\\downarrow"
    return f"{escape(about.name)}{' (' + escape('%') + ')' if about.scale == 100 else ''} ${way}$"


def _rules(widths: list[int]) -> str:
    begin, rules = 2, []
    for width in widths:
        end = begin + _SUBCOLUMNS * width - 1
        rules.append(f"\\cmidrule(lr){{{begin}-{end}}}")
        begin = end + 1
    return "".join(rules)


def _group(group: Group, places: list[int], width: int, *, titled: bool) -> list[str]:
    lines = [f"\\multicolumn{{{width}}}{{l}}{{\\textit{{{escape(group.title)}}}}} \\\\"] if titled else []
    return lines + [
        f"{escape(row.label)} & {' & '.join(_cell(row.cells[place]) for place in places)} \\\\" for row in group.rows
    ]


def _cell(cell: Cell) -> str:
    """A figure, its mark, and its interval with the number of its note."""
    note = _note(cell.note) if cell.note else ""
    if not cell.text:
        return f"\\multicolumn{{{_SUBCOLUMNS}}}{{c}}{{n/a{note}}}"
    text = escape(cell.text)
    shown = f"\\textbf{{{text}}}" if cell.place == 1 else f"\\underline{{{text}}}" if cell.place == 2 else text
    mark = f"$^{{{cell.mark}}}$" if cell.mark else ""
    wide = f"\\,{{\\scriptsize$\\pm${escape(cell.spread)}}}" if cell.spread else ""
    return f"{shown} & {mark} & {wide}{note}"


def _note(number: int) -> str:
    return f"\\textsuperscript{{{number}}}"
