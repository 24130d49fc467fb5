"""The forms of a report: one self-contained HTML page, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import yaml
from markupsafe import Markup, escape

from dialore import pages
from dialore.evaluation.report import plots
from dialore.evaluation.report.data import arrow, display_factor, format_signed, p_value, three, unit
from dialore.evaluation.report.people import READING as PEOPLE
from dialore.evaluation.report.people import People
from dialore.evaluation.report.tables import READING, Cell, Row, how_to_read, significant

if TYPE_CHECKING:
    import jinja2

    from dialore.evaluation.report.build import Report

LATEX_COLUMNS = 7
"""Maximum number of metrics beside each other: more, each with its interval, would be too small to read."""
_LATEX = yaml.safe_load((resources.files("dialore") / "data" / "report" / "latex.yaml").read_text("utf-8"))
_LATEX_PATTERN = re.compile("|".join(map(re.escape, sorted(_LATEX, key=len, reverse=True))))

_COMPARISON = {"difference": "difference", "difference_low": "low", "difference_high": "high", "pairs": "pairs"}
_COMPARISON |= {"p_randomisation": "randomisation", "p_wilcoxon": "wilcoxon", "p_wilcoxon_uncorrected": "uncorrected"}


def render_html(report: Report) -> str:
    """Return the report as one page."""
    browser = report.browser if report.browser is not None and report.browser.size else None
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
        browser=browser,
        can_draw=plots.can_draw(),
    )


def _templates(**options: Any) -> jinja2.Environment:  # noqa: ANN401 - Jinja's own
    """Return the package's templates with the functions and filters of reports."""
    templates = pages.environment().overlay(**options)
    templates.filters |= {"breakable": breakable, "folded": folded}
    functions = (arrow, display_factor, how_to_read, p_value, format_signed, significant, three, unit)
    templates.globals |= {function.__name__: function for function in functions}
    templates.globals |= {"reading_judged": READING, "reading_people": PEOPLE}
    return templates


def breakable(name: str) -> Markup:
    """Return a system's name with optional line breaks for narrow screens."""
    return Markup(re.sub(r"([_=,(/·]|-(?=\w))", r"\1<wbr>", str(escape(name))).replace("(<wbr>", "<wbr>("))  # noqa: S704


def folded(value: object) -> str:
    """Return what a run records of itself as YAML, without empty values."""
    plain = _without_empty(json.loads(json.dumps(value, default=str)))
    text: str = yaml.safe_dump(plain, allow_unicode=True, sort_keys=False, width=100)
    return text.rstrip()


def _without_empty(value: Any) -> Any:  # noqa: ANN401 - plain data
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    items = {key: _without_empty(item) for key, item in value.items()}
    return {key: item for key, item in items.items() if item not in (None, "", [], {})}


def render_latex(report: Report) -> str:
    """Return the main table and the tables of human judgements, with the required packages in comments."""
    template = _templates(
        variable_start_string="(((",
        variable_end_string=")))",
        block_start_string="((%",
        block_end_string="%))",
        comment_start_string="((#",
        comment_end_string="#))",
        line_statement_prefix="%%",
        autoescape=False,
        keep_trailing_newline=True,
    ).get_template("report/table.tex.j2")
    variables = {
        "report": report,
        "table": report.table,
        "label": re.sub(r"[^a-z0-9]+", "-", report.title.lower()).strip("-") or "main",
        "parts": report.table.parts(LATEX_COLUMNS),
        "escape": escape_latex,
    }
    text = template.render(variables, chinese=False, foreign=False)
    chinese = any(unicodedata.east_asian_width(character) in "WF" for character in text)
    foreign = any(ord(character) > 0x17F and unicodedata.category(character)[0] == "L" for character in text)
    return template.render(variables, chinese=chinese, foreign=foreign)


def escape_latex(text: str) -> str:
    """Return text as LaTeX source. Symbols that its fonts lack, such as emoji, become question marks."""
    plain = ""
    for character in " ".join(text.split()):
        category = unicodedata.category(character)
        if category in {"Cc", "Cf"}:
            continue
        is_symbol = category[0] in "SC" and ord(character) > 0xFF and character not in {*_LATEX, "€", "™"}
        plain += "?" if is_symbol else character
    return _LATEX_PATTERN.sub(lambda match: _LATEX[match[0]], plain)


def render_markdown(report: Report) -> str:
    """Return the report's tables as Markdown, with HTML only for underlining, which Markdown lacks."""
    templates = _templates(autoescape=False, finalize=lambda value: escape_markdown(str(value)))
    text = templates.get_template("report/report.md.j2").render(report=report, table=report.table)
    return re.sub(r"\n{3,}", "\n\n", text) + "\n"


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    plain = re.sub(r"([\\`*_{}\[\]|#~])", r"\\\1", " ".join(text.split()))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def render_csv(report: Report) -> str:
    """Return one line per system and metric in full precision. Missing figures are empty, with a reason."""
    lines = []
    for row in report.table.rows:
        lines += [_csv_line(row, cell) for cell in row.cells]
        for info, reason in report.table.absent:
            lines.append(_system_fields(row) | {"metric": info.name, "n": 0, "reason": reason})
    return _write_csv(lines)


def _system_fields(row: Row) -> dict[str, object]:
    system = row.system
    fields = {name: getattr(system, name) for name in ("run", "dataset", "model")}
    options = json.dumps(system.options, ensure_ascii=False, sort_keys=True)
    return fields | {"system": system.name, "method": system.method, "options": options}


def _csv_line(row: Row, cell: Cell) -> dict[str, object]:
    info, score, compared = cell.metric, cell.score, cell.comparison
    return _system_fields(row) | {
        "metric": info.name,
        "higher_is_better": str(info.higher_is_better).lower(),
        "scale": info.scale,
        "value": score.value,
        "low": score.low,
        "high": score.high,
        "n": score.n,
        "place": cell.place or "",
        "baseline": compared.baseline.name if compared else "",
        **{column: getattr(compared, name, "") for column, name in _COMPARISON.items()},
        "mark": cell.mark,
        "problems": json.dumps(score.problems, sort_keys=True) if score.problems else "",
        "reason": score.reason,
    }


def render_people(people: Sequence[People]) -> str:
    """Return one line per finding of annotators in full precision, and per question without an answer."""
    lines: list[dict[str, object]] = []
    for export in people:
        known: dict[str, object] = {"criteria": export.name, "form": export.findings.form}
        rows = dataclasses.asdict(export.findings)
        rated = (*rows["standings"], *rows["contests"], *rows["agreement"])
        lines += [known | row.pop("rate", {}) | row for row in rated]
        lines += [known | {"criterion": name, "reason": export.counted} for name in export.unanswered]
    return _write_csv(lines)


def _write_csv(lines: Sequence[Mapping[str, object]]) -> str:
    """Return lines as CSV. NaN is written as nothing."""
    text = io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(name for line in lines for name in line), lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: "" if value != value else value for name, value in line.items()})  # noqa: PLR0124
    return text.getvalue()
