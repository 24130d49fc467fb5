"""`dialore check`: a gate for a scored run, for machines that build and test."""

import dataclasses
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from dialore.cli.options import Json
from dialore.cli.output import Table, console, print_json
from dialore.errors import InputError
from dialore.experiments.gate import Limit, check_against, check_limits
from dialore.experiments.store import RunStore


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
            holds = "[green]yes[/]" if verdict.holds else "[red]no[/]"
            rows.add_row(verdict.system, verdict.figure, value, verdict.wanted, holds)
        console().print(rows)
    if failed:
        raise typer.Exit(1)
