"""`dialore judge`: a judge compares a run's systems, or scores several at once."""

import asyncio
import dataclasses
from collections import Counter
from math import isnan
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option

from dialore.cli.options import BaseUrl, Json, JudgeSet, JudgeSettings, Model, options_as
from dialore.cli.output import Table, console, note, print_json, progress, styled
from dialore.cli.score import require_judge
from dialore.errors import InputError, UnknownNameError
from dialore.evaluation.judges.asking import JudgeClient
from dialore.evaluation.judges.comparing import (
    CRITERIA,
    JOINT_CRITERIA,
    JointJudge,
    Judged,
    Preference,
    check_criteria,
    position_bias,
    rate_of,
)
from dialore.experiments.scoring import compare_systems, measure_jointly, score_of, system_names
from dialore.experiments.store import RunStore
from dialore.prompts.library import PromptLibrary

# What the papers compare by: DCRAG's Table 2, SCG-QP's Table 2.
_DEFAULTS: dict[Judged, tuple[str, ...]] = {
    "responses": ("naturalness", "coherence", "engagingness", "informativeness"),
    "queries": ("relevance", "specificity", "overall"),
}


def judge(
    context: Context,
    run: Annotated[Path, Argument(metavar="RUN", help="The folder of a run.")],
    pairwise: Annotated[
        tuple[str, str] | None, Option(metavar="A B", help="Compare two systems, dialogue by dialogue, in both orders.")
    ] = None,
    together: Annotated[
        bool, Option("--together", help="Score all systems, or those of --system, in one prompt a dialogue.")
    ] = False,
    system: Annotated[
        list[str] | None, Option("--system", metavar="NAME", help="With --together: this system; several times.")
    ] = None,
    criteria: Annotated[
        str | None, Option("--criteria", "-c", metavar="NAME,...", help="By what. Default: what the papers compare by.")
    ] = None,
    queries: Annotated[bool, Option("--queries", help="Judge the queries that were asked, not the responses.")] = False,
    limit: Annotated[int | None, Option("--limit", "-n", min=1, metavar="N", help="The first N dialogues.")] = None,
    seed: Annotated[int, Option(help="With --together: of the order that systems are shown in.")] = 0,
    model: Model = None,
    base_url: BaseUrl = None,
    changes: JudgeSet = None,
    json: Json = False,
) -> None:
    """Have a judge compare systems of a run; it is asked by --model and --base-url.

    A system wins a dialogue only where the judge prefers it in both
    orders; all else is a tie. What is judged is kept in the run: asked
    again, only what is missing is judged.

    [bold]Examples[/bold]
    dialore judge runs/try --pairwise dcrag vanilla --model gpt-4o
    dialore judge runs/try --pairwise dcrag t-rag -c engagingness
    dialore judge runs/try --together --queries
    """
    if (pairwise is None) == (not together):
        raise InputError("judge what?", hint="name --pairwise A B or --together, one of them")
    if system and not together:
        raise InputError("--system goes with --together", hint="--pairwise names its two systems itself")
    settings = options_as(JudgeSettings, context)
    named = tuple(name.strip() for name in (criteria or "").split(",") if name.strip())
    judged: Judged = "queries" if queries else "responses"

    async def work() -> list[dict[str, Any]]:
        asker = JudgeClient(require_judge(settings.model), PromptLibrary(settings.prompts))
        try:
            with progress("judging") as step:
                shared: dict[str, Any] = {"at_once": settings.model.concurrency, "limit": limit, "on_progress": step}
                if pairwise is not None:
                    shared |= {"criteria": named or _DEFAULTS[judged], "judged": judged}
                    return _compared(await compare_systems(store, asker, (systems[0], systems[1]), **shared))
                metrics = [JointJudge(asker, criterion, judged, seed) for criterion in named or ("overall",)]
                for metric in metrics:
                    await measure_jointly(store, metric, systems, **shared)
                return [row for metric in metrics for row in _scored(store, metric, systems)]
        finally:
            await asker.model.close()

    with RunStore.open(run) as store, store.writing():
        systems = [_number(store, name) for name in pairwise or system or []] or list(system_names(store))
        if len(set(systems)) < 2:
            raise InputError("systems are judged against each other", hint="name two or more")
        check_criteria(named, judged, CRITERIA if pairwise else JOINT_CRITERIA)
        rows = asyncio.run(work())
    if json:
        print_json(rows)
    else:
        _show(rows, pairwise)


def _number(store: RunStore, name: str) -> int:
    """Return the system of that name: its title, or its title and model."""
    names = system_names(store)
    numbers = [number for number, known in names.items() if known == name]
    numbers = numbers or [system.number for system in store.systems() if system.title == name]
    if len(numbers) > 1:
        raise InputError(f"several systems are called {name!r}", hint=f"one of {', '.join(names.values())}")
    if not numbers:
        raise UnknownNameError("system", name, names.values())
    return numbers[0]


def _compared(found: dict[str, list[Preference]]) -> list[dict[str, Any]]:
    rows = []
    for criterion, preferences in found.items():
        rate = rate_of(preferences)
        row = {"criterion": criterion, **dataclasses.asdict(rate), "share": rate.share}
        problems = dict(Counter(str(measure.problem) for measure in preferences if measure.problem is not None))
        rows.append({**row, "position_bias": position_bias(preferences), "problems": problems})
    return rows


def _scored(store: RunStore, metric: JointJudge, systems: list[int]) -> list[dict[str, Any]]:
    rows = []
    for number in systems:
        score = score_of(metric, [measure for _, measure in store.measures(metric.about.name, number)])
        row = {"criterion": metric.criterion, "system": system_names(store)[number], "score": score.value}
        rows.append({**row, "low": score.low, "high": score.high, "n": score.n, "problems": score.problems})
    return rows


def _show(rows: list[dict[str, Any]], pairwise: tuple[str, str] | None) -> None:
    if pairwise is not None:
        _show_compared(rows, *pairwise)
    else:
        shown = Table("!criterion", "!system", ">score (1-10)", ">dialogues")
        for row in rows:
            score = styled("-" if row["score"] is None else f"{row['score']:.2f}")
            if row["low"] is not None:
                score.append(f" ±{(row['high'] - row['low']) / 2:.2f}", style="dim")
            shown.add_row(row["criterion"], row["system"], score, str(row["n"]))
        console().print(shown)
    for row in rows:
        if row["problems"]:
            counts = ", ".join(f"{count} {problem}" for problem, count in row["problems"].items())
            note(f"{row['criterion' if pairwise else 'system']}: not judged: {counts}")


def _show_compared(rows: list[dict[str, Any]], first: str, second: str) -> None:
    shown = Table("!criterion", f">{first} wins", ">ties", f">{second} wins", f">{first}, ties half", ">p", ">position")
    for row in rows:
        share = "-" if isnan(row["share"]) else f"{row['share']:.1%}"
        lean = "-" if isnan(row["position_bias"]) else f"{row['position_bias']:+.1%}"
        counts = (str(row[name]) for name in ("wins", "ties", "losses"))
        shown.add_row(row["criterion"], *counts, share, f"{row['p']:.4f}", lean)
    console().print(shown)
    note(
        "p: sign test of wins against losses, turns of one conversation counted as one; position: answers that went by "
        "the first place, less by the second"
    )
