"""`dialore report`: scored runs as HTML, Markdown, LaTeX and CSV."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli.options import Json

_FORMS = "Forms; without any, all of them"


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The folders of runs.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Where it goes. [default: RUN/report]")
    ] = None,
    html: Annotated[bool, typer.Option("--html", rich_help_panel=_FORMS, help="One self-contained page.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", rich_help_panel=_FORMS, help="The tables.")] = False,
    latex: Annotated[bool, typer.Option("--latex", rich_help_panel=_FORMS, help="The main table.")] = False,
    csv: Annotated[
        bool, typer.Option("--csv", rich_help_panel=_FORMS, help="Every figure, in full precision.")
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="SYSTEM", help="What others are compared with. [default: vanilla]"),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-x", metavar="NAME", help="Only this metric; may be given several times."),
    ] = None,
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="[default: the runs' names]")] = "",
    dialogues: Annotated[
        int, typer.Option("--dialogues", metavar="N", min=0, help="How many of each data set can be browsed.")
    ] = 200,
    sizes: Annotated[
        list[str] | None,
        typer.Option("--sizes", metavar="MODEL=B", help="A model's size in billions, where its name does not say it."),
    ] = None,
    plots: Annotated[bool, typer.Option("--plots", help="Write each plot as PDF, SVG and PNG, too.")] = False,
    json: Json = False,
) -> None:
    """Report scored runs: tables with significance, ablations, cost, failures, plots, and every dialogue.

    [bold]Examples[/bold]
    dialore report runs/try
    dialore report runs/daily runs/kbp --out report --baseline t-rag
    dialore report runs/try --latex -x cdp -x cdf -x distinct-2
    dialore report runs/try --sizes my-model=7 --plots
    """
    from dialore.cli import report_work

    asked = {"html": html, "md": markdown, "tex": latex, "csv": csv}
    wanted = report_work.Wanted(
        runs=tuple(runs),
        out=out,
        forms=tuple(form for form, is_wanted in asked.items() if is_wanted) or tuple(asked),
        baseline=baseline,
        metrics=tuple(metric or ()),
        title=title,
        dialogues=dialogues,
        sizes=tuple(sizes or ()),
        plots=plots,
    )
    report_work.work(wanted, json=json)
