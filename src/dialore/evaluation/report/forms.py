"""The forms of a report: one HTML page that asks the network for nothing, Markdown, LaTeX, CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml
from markupsafe import Markup, escape

from dialore import pages
from dialore.evaluation.report import plots
from dialore.evaluation.report.data import MINUS, arrow, display_factor, format_signed, p_value, three, unit
from dialore.evaluation.report.people import READING as PEOPLE
from dialore.evaluation.report.people import People
from dialore.evaluation.report.tables import READING, Cell, how_to_read, significant

if TYPE_CHECKING:
    import jinja2

    from dialore.evaluation.base import MetricInfo
    from dialore.evaluation.report.build import Report


def render_html(report: Report) -> str:
    """Return the report as one page."""
    browser = report.browser if report.browser is not None and report.browser.size else None
    # Of each column, whether a figure in it has a mark, and how many characters its widest ± has.
    columns = zip(*(row.cells for group in report.table.groups for row in group.rows), strict=True)
    slots = [
        (any(cell.mark for cell in cells), max((len(cell.spread) + 1 for cell in cells if cell.spread), default=0))
        for cells in columns
    ]
    return pages.render(
        "report/page.html.j2",
        title=report.title,
        styles=("page/dialogue.css", "report/page.css"),
        scripts=("report/page.js", "report/browser.js") if browser else ("report/page.js",),
        data={"settings": {"tints": len(plots.COLOURS)}} if browser else None,
        packed=browser.packed() if browser else None,
        templates=_templates(),
        report=report,
        table=report.table,
        slots=slots,
        browser=browser,
        can_draw=plots.can_draw(),
    )


def _templates() -> jinja2.Environment:
    """Return the package's templates with what those of reports call."""
    made = pages.environment()
    made.filters |= {"breakable": breakable, "folded": folded}
    called = (arrow, display_factor, how_to_read, p_value, format_signed, significant, three, unit)
    made.globals |= {function.__name__: function for function in called}
    made.globals |= {"reading_judged": READING, "reading_people": PEOPLE}
    return made


def breakable(name: str) -> Markup:
    """Return a system's name that may be broken where one would, on narrow screens."""
    return Markup(re.sub(r"([_=,(/·]|-(?=\w))", r"\1<wbr>", str(escape(name))).replace("(<wbr>", "<wbr>("))  # noqa: S704


def folded(value: object) -> str:
    """Return what a run keeps of itself as text that folds, without what is empty."""
    plain = _without_empty(json.loads(json.dumps(value, default=str)))
    words: str = yaml.safe_dump(plain, allow_unicode=True, sort_keys=False, width=100)
    return words.rstrip()


def _without_empty(value: Any) -> Any:  # noqa: ANN401 - plain data
    if isinstance(value, dict):
        kept = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, "", [], {})}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


_WIDEST = 7  # columns beside each other: more, each with its interval, would be set too small to read
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


def render_latex(report: Report) -> str:
    """Return the main table and people's for a paper, with the packages they want in comments, notes at the end."""
    table = report.table
    rows = [row.label for group in table.groups for row in group.rows]
    heads = [about.name for about in table.metrics] + [group.title for group in table.groups] * table.has_groups
    shown = f"{report.title}{table.notes}{rows}{heads}{[item.findings for item in report.people]}"
    # Marks that LaTeX has not; the template escapes texts.
    templates = _templates().overlay(
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
        report=report,
        table=table,
        label=re.sub(r"[^a-z0-9]+", "-", report.title.lower()).strip("-") or "main",
        parts=table.parts(_WIDEST),
        escape=escape_latex,
        chinese=any(unicodedata.east_asian_width(character) in "WF" for character in shown),
        foreign=any(ord(item) > 0x17F and unicodedata.category(item)[0] == "L" for item in shown),
    )


def escape_latex(text: str) -> str:
    """Text that LaTeX sets as it is; a question mark stands for symbols that its fonts have not, such as emoji."""
    plain = ""
    for character in " ".join(text.split()):
        kind = unicodedata.category(character)
        is_symbol = kind[0] in "SC" and ord(character) > 0xFF and character not in {*_SPECIAL, "€", "™"}
        if kind not in {"Cc", "Cf"}:
            plain += "?" if is_symbol else character
    return _PATTERN.sub(lambda match: _SPECIAL[match[0]], plain)


_COLUMNS = (
    *("run", "dataset", "model", "system", "method", "options", "metric", "higher_is_better", "scale"),
    *("value", "low", "high", "n", "place"),
    *("baseline", "difference", "difference_low", "difference_high", "pairs", "p_randomisation", "p_wilcoxon"),
    *("p_wilcoxon_uncorrected", "mark"),
    *("problems", "reason"),
)


def render_markdown(report: Report) -> str:
    """Return the report's tables as Markdown, with HTML only where Markdown has no sign of its own (underline)."""
    templates = _templates().overlay(autoescape=False, finalize=lambda value: escape_markdown(str(value)))
    text = templates.get_template("report/report.md.j2").render(report=report, table=report.table)
    return re.sub(r"\n{3,}", "\n\n", text) + "\n"


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    plain = re.sub(r"([\\`*_{}\[\]|#~])", r"\\\1", " ".join(text.split()))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def render_csv(report: Report) -> str:
    """Return a line for each system and metric in full precision; what is not available is empty, with a reason."""
    lines = []
    for system, cells in ((row.system, row.cells) for group in report.table.groups for row in group.rows):
        known = {name: getattr(system, name) for name in ("run", "dataset", "model", "method")}
        known |= {"system": system.name, "options": json.dumps(system.options, ensure_ascii=False, sort_keys=True)}
        measured = zip(report.table.metrics, cells, strict=True)
        lines += [known | _measured(about, cell) for about, cell in measured]
        lines += [known | {"metric": about.name, "n": 0, "reason": reason} for about, reason in report.table.absent]
    return _csv(_COLUMNS, lines)


def render_people(people: Sequence[People]) -> str:
    """Return a line for each finding of annotators in full precision, and for each question without an answer."""
    lines = []
    for annotated in people:
        known = {"criteria": annotated.name, "form": annotated.findings.form}
        findings = dataclasses.asdict(annotated.findings)
        every = [*findings["standings"], *findings["contests"], *findings["agreement"]]
        lines += [known | figures.pop("rate", {}) | figures for figures in every]
        lines += [known | {"criterion": name, "reason": annotated.counted} for name in annotated.unanswered]
    return _csv(list(dict.fromkeys(name for line in lines for name in line)), lines)


def _csv(columns: Sequence[str], lines: Sequence[Mapping[str, object]]) -> str:
    """Return lines as CSV; a figure that is no number is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: "" if isinstance(value, float) and math.isnan(value) else value for name, value in line.items()}
        for line in lines
    )
    return text.getvalue()


def _measured(about: MetricInfo, cell: Cell) -> dict[str, object]:
    score, compared = cell.score, cell.comparison
    line: dict[str, object] = {"metric": about.name, "scale": about.scale, "n": score.n, "reason": score.reason}
    line |= {"higher_is_better": str(about.higher_is_better).lower(), "place": cell.place or "", "mark": cell.mark}
    line |= {"value": score.value, "low": score.low, "high": score.high}
    line["problems"] = json.dumps(score.problems, sort_keys=True) if score.problems else ""
    if compared is not None:
        line |= {"baseline": compared.baseline.name, "pairs": compared.pairs, "difference": compared.difference}
        line |= {
            "difference_low": compared.low,
            "difference_high": compared.high,
            "p_randomisation": compared.randomisation,
        }
        line |= {"p_wilcoxon": compared.wilcoxon, "p_wilcoxon_uncorrected": compared.uncorrected}
    return line
