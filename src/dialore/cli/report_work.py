"""What `dialore report` does."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from dialore.cli.output import note, print_json, write_whole
from dialore.errors import InputError, UnknownNameError
from dialore.evaluation.report.build import make_report
from dialore.evaluation.report.html import render_html
from dialore.evaluation.report.latex import render_latex
from dialore.evaluation.report.plots import Form, can_draw
from dialore.evaluation.report.texts import render_csv, render_markdown
from dialore.experiments.results import RunResults
from dialore.experiments.store import RunStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dialore.evaluation.report.build import Report

_FORMS: dict[str, Callable[[Report], str]] = {
    "html": render_html,
    "md": render_markdown,
    "tex": render_latex,
    "csv": render_csv,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says."""

    runs: tuple[Path, ...]
    out: Path | None
    forms: tuple[str, ...]
    baseline: str | None
    metrics: tuple[str, ...]
    title: str
    dialogues: int
    sizes: tuple[str, ...]
    plots: bool


def work(wanted: Wanted, *, json: bool) -> None:
    """Write the report and say where it is.

    Raises:
        InputError: no run, one that has not been scored, an unknown metric or system, a size that is no number.
    """
    sizes = dict(map(_size, wanted.sizes))
    with ExitStack() as stack:
        stores = [stack.enter_context(RunStore.open(run)) for run in dict.fromkeys(wanted.runs)]
        known = list(dict.fromkeys(name for store in stores for name in store.metrics()))
        if not known:
            raise InputError(
                f"nothing is scored in {wanted.runs[0]}", mend=f"first run `dialore score {wanted.runs[0]}`"
            )
        for name in wanted.metrics:
            if name not in known:
                raise UnknownNameError("metric among those scored", name, known)
        report = make_report(
            RunResults(stores, wanted.metrics),
            baseline=wanted.baseline,
            # Only the page shows dialogues.
            dialogues=wanted.dialogues if "html" in wanted.forms else 0,
            sizes=sizes,
            keep_absent=bool(wanted.metrics),
            title=wanted.title,
        )
        unknown = [name for name in sizes if name not in {survey.system.model for survey in report.surveys}]
        if unknown:
            raise UnknownNameError("model", unknown[0], {survey.system.model for survey in report.surveys})
        written = _write(report, wanted)
    if json:
        print_json({"files": [str(path) for path in written]})
        return
    for path in written[:_SAID]:
        typer.echo(path)
    if len(written) > _SAID:
        note(f"and {len(written) - _SAID} more in {written[-1].parent}")


_SAID = 6
_DRAWN: tuple[Form, ...] = ("pdf", "svg", "png")


def _write(report: Report, wanted: Wanted) -> list[Path]:
    folder = wanted.out or wanted.runs[0] / "report"
    files: dict[str, str | bytes] = {f"report.{form}": _FORMS[form](report) for form in wanted.forms}
    if wanted.plots:
        files |= {f"plots/{name}.{form}": figure.render(form) for name, figure in report.files() for form in _DRAWN}
    try:
        (folder / "plots" if wanted.plots else folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}", mend="name another by --out") from error
    for name, content in files.items():
        write_whole(folder / name, content)
    if "html" in wanted.forms and not can_draw():
        note('the report has no plots, only their numbers: pip install "dialore[report]" draws them')
    return [folder / name for name in files]


def _size(said: str) -> tuple[str, float]:
    name, _, number = said.rpartition("=")
    try:
        size = float(number.rstrip("bB"))
    except ValueError:
        size = math.nan
    if not name or not size > 0 or math.isinf(size):
        raise InputError(f"--sizes {said}: no model and size", mend="say it like --sizes my-model=7")
    return name, size
