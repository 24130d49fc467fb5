"""`dialore report` and `check`: scored runs as HTML, Markdown, LaTeX and CSV, and held to limits."""

import dataclasses
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, get_args

import typer
from typer import Argument, Option

from dialore.cli.annotate import PLACE
from dialore.cli.options import Json, Metrics, one_of
from dialore.cli.output import Table, console, note, print_json, say, styled
from dialore.cli.score import note_unfinished
from dialore.errors import InputError, install
from dialore.evaluation.human.reading import read_answers
from dialore.evaluation.human.sheets import key_of
from dialore.evaluation.report.build import Report, make_report
from dialore.evaluation.report.forms import render_csv, render_html, render_latex, render_markdown, render_people
from dialore.evaluation.report.people import people_of
from dialore.evaluation.report.plots import Form, can_draw
from dialore.experiments.results import Limit, RunResults, check_against, check_limits
from dialore.experiments.store import RunStore
from dialore.files import write_whole

_SHOWN = 6
_FORMS = "Forms; without any, all of them"


def report(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="The folders of runs.")],
    out: Annotated[Path | None, Option(metavar="FOLDER", help="Where it goes. (default: RUN/report)")] = None,
    html: Annotated[bool, Option("--html", rich_help_panel=_FORMS, help="One self-contained page.")] = False,
    markdown: Annotated[bool, Option("--markdown", rich_help_panel=_FORMS, help="The tables.")] = False,
    latex: Annotated[bool, Option("--latex", rich_help_panel=_FORMS, help="The main table.")] = False,
    csv: Annotated[bool, Option("--csv", rich_help_panel=_FORMS, help="Every figure, in full precision.")] = False,
    baseline: Annotated[str | None, Option(metavar="SYSTEM", help="To compare with. (default: vanilla)")] = None,
    metric: Metrics = None,
    title: Annotated[str, Option(metavar="TEXT", help="(default: the runs' names)")] = "",
    dialogues: Annotated[int, Option(metavar="N", min=0, help="How many of each data set can be browsed.")] = 200,
    sizes: Annotated[
        list[str] | None, Option(metavar="MODEL=B", help="A model's size in billions, where its name does not say it.")
    ] = None,
    sheets: Annotated[list[Path] | None, Option(metavar="PLACE", help=f"{PLACE} (default: those of RUN)")] = None,
    plots: Annotated[bool, Option("--plots", help="Write each plot as PDF, SVG and PNG, too.")] = False,
    json: Json = False,
) -> None:
    """Report scored runs: tables with significance, ablations, people, cost, failures, plots, every dialogue.

    [bold]Examples[/bold]
    dialore report runs/try
    dialore report runs/daily runs/kbp --out report --baseline t-rag
    dialore report runs/try --latex -x cdp -x cdf -x distinct-2
    dialore report runs/try --sizes my-model=7 --plots
    dialore report runs/try --sheets sheets --sheets errors.jsonl
    """
    chosen = {"html": html, "md": markdown, "tex": latex, "csv": csv}
    forms = [form for form, is_wanted in chosen.items() if is_wanted] or list(chosen)
    given = dict(map(_size, sizes or []))
    places = sheets or [folder for run in runs for folder in sorted(run.glob("*/")) if key_of(folder).exists()]
    people = [people_of(read_answers(folder)) for folder in dict.fromkeys(places)]
    with ExitStack() as stack:
        stores = [stack.enter_context(RunStore.open(run)) for run in dict.fromkeys(runs)]
        known = list(dict.fromkeys(name for store in stores for name in store.metrics()))
        if not known and not people:
            raise InputError(f"nothing is scored in {runs[0]}", hint=f"first run `dialore score {runs[0]}`")
        for store in stores:
            note_unfinished(store)
        metrics = [one_of("metric among those scored", name, known) for name in metric or []]
        made = make_report(
            RunResults(stores, metrics),
            baseline=baseline,
            dialogues=dialogues if "html" in forms else 0,  # only the page shows dialogues
            sizes=given,
            keep_absent=bool(metrics),
            title=title,
            people=people,
        )
        models = list({survey.system.model for survey in made.surveys})
        for name in given:
            one_of("model", name, models)
        written = _write(made, out or runs[0] / "report", forms, plots=plots)
        for path in written[: 0 if json else _SHOWN]:
            say(str(path))
    if "html" in forms and not can_draw():
        note(f"the report has no plots, only their numbers ({install('report')} draws them)")
    if json:
        print_json({"files": [str(path) for path in written]})
    elif len(written) > _SHOWN:
        note(f"and {len(written) - _SHOWN} more in {written[-1].parent}")


def _write(report: Report, folder: Path, forms: list[str], *, plots: bool) -> list[Path]:
    """Write the report in the forms that are wanted; the files, in order."""
    render = {"html": render_html, "md": render_markdown, "tex": render_latex, "csv": render_csv}
    files: dict[str, str | bytes] = {f"report.{form}": render[form](report) for form in forms}
    if report.people and "csv" in forms:
        files["people.csv"] = render_people(report.people)
    if plots:
        for name, figure in report.files():
            files |= {f"plots/{name}.{form}": figure.render(form) for form in get_args(Form)}
    for name, content in files.items():
        write_whole(folder / name, content)
    return [folder / name for name in files]


def _size(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        size = float(number.rstrip("bB"))
    except ValueError:
        size = math.nan
    if not name or not size > 0 or math.isinf(size):
        raise InputError(f"--sizes {text}: no model and size", hint="say it like --sizes my-model=7")
    return name, size


def check(
    run: Annotated[Path, Argument(metavar="RUN", help="The folder of a scored run.")],
    least: Annotated[list[str] | None, Option("--min", metavar="[SYSTEM:]FIGURE=VALUE", help="The least.")] = None,
    most: Annotated[list[str] | None, Option("--max", metavar="[SYSTEM:]FIGURE=VALUE", help="The most.")] = None,
    against: Annotated[Path | None, Option(metavar="RUN", help="A run: no score may be significantly worse.")] = None,
    json: Json = False,
) -> None:
    """Check a scored run against limits or another run; exits 1 where a figure does not hold.

    A figure is a metric of the run, failed (the share of responses that
    failed), or seconds, calls, prompt_tokens or completion_tokens, each
    with .mean, .p50 or .p95. A figure that the run lacks does not hold.

    [bold]Examples[/bold]
    dialore check runs/try --min handbook-right=0.9 --max seconds.p95=3
    dialore check runs/try --max failed=0 --against runs/before
    dialore check runs/try --min weave:handbook-right=0.9 --json
    """
    limits = [Limit.parse(text, is_least=True) for text in least or ()]
    limits += [Limit.parse(text, is_least=False) for text in most or ()]
    if not limits and against is None:
        raise InputError("nothing to check", hint="name --min, --max or --against")
    with ExitStack() as stores:
        store = stores.enter_context(RunStore.open(run))
        note_unfinished(store)
        verdicts = check_limits(store, limits)
        if against is not None:
            verdicts += check_against(store, stores.enter_context(RunStore.open(against)))
    failed = [verdict for verdict in verdicts if not verdict.holds]
    if json:
        print_json([dataclasses.asdict(verdict) for verdict in verdicts])
    else:
        rows = Table("!system", "!figure", ">found", "wanted", "holds")
        for verdict in sorted(verdicts, key=lambda verdict: verdict.holds):
            value = "-" if verdict.value is None else f"{verdict.value:.4g}"
            holds = styled("[green]yes[/]" if verdict.holds else "[red]no[/]")
            rows.add_row(verdict.system, verdict.figure, value, verdict.wanted, holds)
        console().print(rows)
    if failed:
        raise typer.Exit(1)
