"""Runs of a folder, while they run and after: `/v1/runs`, from their stores, by the sections of `dialore report`."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi import Response as Reply

from dialore.evaluation.report.build import Report, make_report
from dialore.evaluation.report.data import arrow, unit
from dialore.evaluation.report.forms import render_html
from dialore.evaluation.report.people import Table
from dialore.evaluation.report.plots import can_draw
from dialore.evaluation.report.tables import how_to_read
from dialore.experiments.results import RunResults
from dialore.experiments.store import FILE, RunStore
from dialore.server.common import EXPLAINED, JsonRoute
from dialore.server.errors import ServiceError, reply
from dialore.server.knowledge import may_change

router = APIRouter(prefix="/v1/runs", route_class=JsonRoute, dependencies=[Depends(may_change), EXPLAINED])


def _runs(request: Request) -> dict[str, Path]:
    folder: Path | None = request.app.state.service.settings.server.runs
    if folder is None:
        raise ServiceError(404, "no runs are shown ([server] runs = FOLDER)", code="not_configured")
    files = sorted(folder.glob(f"*/{FILE}"), key=_modified, reverse=True)
    return {file.parent.name: file.parent for file in files}


def _modified(file: Path) -> float:
    beside = (file, file.with_name(f"{FILE}-wal"))
    return max(path.stat().st_mtime for path in beside if path.exists())


def _brief(folder: Path) -> dict[str, Any]:
    with RunStore.open(folder) as store:
        config = store.facts().get("config", {})
        total = store.size * config.get("repetitions", 1)
        systems = []
        for system in store.systems():
            counts, totals = store.counts(system.number)
            tokens = totals["prompt_tokens"] + totals["completion_tokens"]
            done = {"ok": counts.get("ok", 0), "failed": counts.get("failed", 0), "total": total}
            systems.append({"name": system.title, "model": system.model, **done, "tokens": int(tokens)})
        brief = {"name": folder.name, "dialogues": store.size, "systems": systems, "metrics": list(store.metrics())}
    return {**brief, "changed": datetime.fromtimestamp(_modified(folder / FILE), UTC).isoformat()}


def _sections(report: Report) -> dict[str, Any]:
    """Return the report's tables and plots, and its dialogues as its own page has them."""
    table = report.table
    heads = ["system", *(f"{about.name} {unit(about)}{arrow(about)}".strip() for about in table.metrics)]
    scores = []
    for group in table.groups if table.metrics else ():
        rows = [[row.label, *map(_figure, row.cells)] for row in group.rows]
        scores.append(Table(f"Scores · {group.title}".removesuffix(" · "), 1, heads, rows))
    costs, outcomes = [survey.costs for survey in report.surveys], [survey.outcomes for survey in report.surveys]
    counted = []
    for title, counts in (("Cost and latency, a response", costs), ("Failures and parsing", outcomes)):
        lines = [[name, *count.values()] for name, count in zip(report.names, counts, strict=True)]
        counted.append(Table(title, 1, ["system", *counts[0]], lines))
    drawn = [figure for _, figure in report.files()] if can_draw() else []
    figures = [{"title": entry.title, "svg": base64.b64encode(entry.render("svg")).decode()} for entry in drawn]
    return {
        "title": report.title,
        "tables": [entry._asdict() for entry in (*scores, *counted)],
        "reading": [*how_to_read(table), *table.notes] if table.metrics else [],
        "figures": figures,
        "browser": report.browser.packed() if report.browser else None,
    }


def _figure(cell: Any) -> str:  # noqa: ANN401 - a cell of the main table
    return f"{cell.text or 'n/a'}{cell.mark}" + (f" ±{cell.spread}" if cell.spread else "")


def _report_of(request: Request, name: str) -> Report:
    folder = _runs(request).get(name)
    if folder is None:
        raise ServiceError(404, "there is no such run", code="run_not_found")
    with RunStore.open(folder) as store:
        return make_report(RunResults([store]))


@router.get("")
def list_runs(request: Request) -> Reply:
    """Return the runs, the latest first, and how far each is."""
    return reply({"data": [_brief(folder) for folder in _runs(request).values()]})


@router.get("/{name}")
def show_run(request: Request, name: str) -> Reply:
    """Return a run's scores, cost, failures, plots and dialogues, the last gzipped in base64, as in reports."""
    return reply(_sections(_report_of(request, name)))


@router.get("/{name}/report")
def show_report(request: Request, name: str) -> Reply:
    """Return the run's report as one page, to be saved: in JSON, so that it never is a page of this service."""
    return reply({"html": render_html(_report_of(request, name))})
