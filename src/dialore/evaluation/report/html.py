"""The report as one HTML file with everything in it: it asks the network for nothing and works from a disk."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import yaml
from markupsafe import Markup, escape

from dialore import pages
from dialore.evaluation.report import plots
from dialore.evaluation.report.judged import READING
from dialore.evaluation.report.numbers import arrow, p_value, signed, three, unit
from dialore.evaluation.report.tables import how_to_read, significant

if TYPE_CHECKING:
    from dialore.evaluation.report.build import Report
    from dialore.evaluation.report.tables import MainTable


def render_html(report: Report) -> str:
    """The report as one page."""
    browser = report.browser if report.browser is not None and report.browser.size else None
    environment = pages.environment()
    environment.filters["breakable"] = breakable
    return pages.render(
        "report/page.html.j2",
        title=report.title,
        styles=("page/dialogue.css", "report/page.css"),
        scripts=("report/page.js", "report/browser.js") if browser else ("report/page.js",),
        data={"settings": {"tints": len(plots.COLOURS)}} if browser else None,
        packed=browser.packed() if browser else None,
        templates=environment,
        report=report,
        table=report.table,
        slots=_slots(report.table),
        browser=browser,
        reading=how_to_read(report.table),
        can_draw=plots.can_draw(),
        significant=significant,
        arrow=arrow,
        unit=unit,
        three=three,
        signed=signed,
        p_value=p_value,
        reading_judged=READING,
        ran=[_ran(name, facts) for name, facts in report.facts.items()],
    )


def breakable(name: str) -> Markup:
    """A system's name that may be broken where one would, on narrow screens."""
    return Markup(re.sub(r"([_=,(/·]|-(?=\w))", r"\1<wbr>", str(escape(name))).replace("(<wbr>", "<wbr>("))  # noqa: S704


def _slots(table: MainTable) -> list[tuple[bool, int]]:
    """Of each column, whether a figure in it has a mark, and how many characters its widest ± has."""
    columns = zip(*(row.cells for group in table.groups for row in group.rows), strict=True)
    return [
        (any(cell.mark for cell in cells), max((len(cell.spread) + 1 for cell in cells if cell.spread), default=0))
        for cells in columns
    ]


def _ran(name: str, facts: Any) -> dict[str, Any]:  # noqa: ANN401 - what a run keeps of itself
    """A run's facts, each as text that folds."""
    facts = facts if isinstance(facts, dict) else {}
    config = facts.get("config") or {}
    parts = [("Configuration", _yaml(config)) if config else None]
    for key, title in (("versions", "Versions"), ("prompts", "Prompt hashes"), ("fingerprints", "Fingerprints")):
        parts.append((title, _yaml(facts[key])) if facts.get(key) else None)
    known = {"name", "about", "config", "versions", "prompts", "fingerprints"}
    others = {key: value for key, value in facts.items() if key not in known}
    parts.append(("Besides", _yaml(others)) if others else None)
    return {
        "folder": name,
        "name": str(facts.get("name") or name),
        "about": str(facts.get("about") or ""),
        "seed": (config.get("dataset") or {}).get("seed") if isinstance(config, dict) else None,
        "parts": [part for part in parts if part is not None],
    }


def _yaml(value: Any) -> str:  # noqa: ANN401 - plain data
    plain = json.loads(json.dumps(value, default=str))
    return yaml.safe_dump(_without_empty(plain), allow_unicode=True, sort_keys=False, width=100).rstrip()


def _without_empty(value: Any) -> Any:  # noqa: ANN401 - plain data
    if isinstance(value, dict):
        kept = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, "", [], {})}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value
