"""What `dialore judge` does."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from dialore.cli.measuring import required_judge
from dialore.cli.output import console, note, print_json, progress, table
from dialore.errors import InputError, UnknownNameError
from dialore.evaluation.base import Mean
from dialore.evaluation.judges.asking import Asker
from dialore.evaluation.judges.comparing import check_criteria, position_bias
from dialore.evaluation.statistics import bootstrap, win_rate
from dialore.experiments.comparisons import ComparisonStore
from dialore.experiments.judging import compare_systems, score_systems_together, system_names
from dialore.experiments.scoring import table_of
from dialore.experiments.store import RunStore
from dialore.prompts.library import PromptLibrary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dialore.evaluation.base import Measure, Metric
    from dialore.evaluation.judges.comparing import Judged, Preference
    from dialore.settings import ModelSettings

# What the papers compare by: DCRAG's Table 2, SCG-QP's Table 2.
_DEFAULTS: dict[Judged, tuple[str, ...]] = {
    "responses": ("naturalness", "coherence", "engagingness", "informativeness"),
    "queries": ("relevance", "specificity", "overall"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    judge: ModelSettings
    pair: tuple[str, str] | None
    together: bool
    systems: tuple[str, ...]
    criteria: tuple[str, ...]
    judged: Judged
    limit: int | None
    seed: int
    prompts: Path | None


def work(folder: Path, settings: Settings, *, json: bool) -> None:
    """Judge what is missing, and show the outcome.

    Raises:
        InputError: no run, an unknown system or criterion, nothing asked for, a judge without a model.
        ModelError: the judge's endpoint refuses.
        BudgetError: the budget is spent.
    """
    if (settings.pair is None) == (not settings.together):
        raise InputError("judge what?", mend="name --pairwise A B or --together, one of them")
    if settings.systems and not settings.together:
        raise InputError("--system goes with --together", mend="--pairwise names its two systems itself")
    with RunStore.open(folder) as store, store.writing(), ComparisonStore(folder) as kept:
        if settings.pair is not None:
            pair = (_number(store, settings.pair[0]), _number(store, settings.pair[1]))
            if pair[0] == pair[1]:
                raise InputError(f"{settings.pair[0]} is compared with itself", mend="name two systems")
            check_criteria(settings.criteria, settings.judged)
            rows = _compared(asyncio.run(_compare(store, kept, settings, pair)))
        else:
            numbers = [_number(store, name) for name in settings.systems] or list(system_names(store))
            rows = _scored(asyncio.run(_score(store, kept, settings, numbers)))
    if json:
        print_json(rows)
    elif settings.pair is not None:
        _show_compared(rows, settings.pair)
    else:
        _show_scored(rows)


def _number(store: RunStore, name: str) -> int:
    """The system of that name: its title, or its title and model."""
    names = system_names(store)
    found = [number for number, known in names.items() if known == name]
    found = found or [system.number for system in store.systems() if system.title == name]
    if len(found) > 1:
        raise InputError(f"several systems are called {name!r}", mend=f"one of {', '.join(names.values())}")
    if not found:
        raise UnknownNameError("system", name, names.values())
    return found[0]


def _asker(settings: Settings) -> Asker:
    return Asker(required_judge(settings.judge), PromptLibrary(settings.prompts))


async def _compare(
    store: RunStore, kept: ComparisonStore, settings: Settings, pair: tuple[int, int]
) -> dict[str, list[Preference]]:
    judge = _asker(settings)
    try:
        with progress("comparing") as step:
            return await compare_systems(
                store,
                kept,
                judge,
                pair,
                criteria=settings.criteria or _DEFAULTS[settings.judged],
                judged=settings.judged,
                at_once=settings.judge.concurrency,
                limit=settings.limit,
                on_progress=step,
            )
    finally:
        await judge.model.close()


async def _score(
    store: RunStore, kept: ComparisonStore, settings: Settings, systems: Sequence[int]
) -> dict[str, dict[str, list[Measure]]]:
    judge = _asker(settings)
    try:
        with progress("scoring") as step:
            return {
                criterion: await score_systems_together(
                    store,
                    kept,
                    judge,
                    systems,
                    criterion=criterion,
                    judged=settings.judged,
                    seed=settings.seed,
                    at_once=settings.judge.concurrency,
                    limit=settings.limit,
                    on_progress=step,
                )
                for criterion in settings.criteria or ("overall",)
            }
    finally:
        await judge.model.close()


def _compared(found: dict[str, list[Preference]]) -> list[dict[str, Any]]:
    rows = []
    for criterion, preferences in found.items():
        rate = win_rate([one.outcome for one in preferences if one.problem is None])
        bias = position_bias(preferences)
        problems = Counter(one.problem for one in preferences if one.problem is not None)
        rows.append(
            {
                "criterion": criterion,
                **dataclasses.asdict(rate),
                "low": _or_none(rate.low),
                "high": _or_none(rate.high),
                "share": _or_none(rate.share),
                "position_bias": {**dataclasses.asdict(bias), "lean": _or_none(bias.lean)},
                "problems": {str(problem): count for problem, count in problems.items()},
            }
        )
    return rows


class _Plain(Mean):
    """Means of scores, for intervals."""


def _scored(found: dict[str, dict[str, list[Measure]]]) -> list[dict[str, Any]]:
    rows = []
    metric: Metric = _Plain()  # type: ignore[assignment]
    for criterion, by_system in found.items():
        for system, measures in by_system.items():
            values = table_of(measures)
            problems = Counter(measure.problem for measure in measures if measure.problem is not None)
            figure = bootstrap(metric, values) if len(values) else None
            rows.append(
                {
                    "criterion": criterion,
                    "system": system,
                    "score": figure.value if figure else None,
                    "low": _or_none(figure.low) if figure else None,
                    "high": _or_none(figure.high) if figure else None,
                    "n": len(values),
                    "problems": {str(problem): count for problem, count in problems.items()},
                }
            )
    return rows


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _show_compared(rows: list[dict[str, Any]], pair: tuple[str, str]) -> None:
    first, second = pair
    shown = table("!criterion", f">{first} wins", ">ties", f">{second} wins", f">{first}, ties half", ">p", ">position")
    for row in rows:
        share = "-" if row["share"] is None else f"{row['share']:.1%}"
        lean = row["position_bias"]["lean"]
        place = "-" if lean is None else f"{lean:+.1%}"
        shown.add_row(
            row["criterion"], str(row["wins"]), str(row["ties"]), str(row["losses"]), share, f"{row['p']:.4f}", place
        )
    console().print(shown)
    note("p: sign test of wins against losses; position: answers that went by the first place, less by the second")
    _show_problems(rows, "criterion")


def _show_scored(rows: list[dict[str, Any]]) -> None:
    shown = table("!criterion", "!system", ">score (1-10)", ">dialogues")
    for row in rows:
        score = "-" if row["score"] is None else f"{row['score']:.2f}"
        if row["low"] is not None:
            score += f" [dim]±{(row['high'] - row['low']) / 2:.2f}[/]"
        shown.add_row(row["criterion"], escape(row["system"]), score, str(row["n"]))
    console().print(shown)
    _show_problems(rows, "system")


def _show_problems(rows: list[dict[str, Any]], key: str) -> None:
    for row in rows:
        if row["problems"]:
            counts = ", ".join(f"{count} {problem}" for problem, count in row["problems"].items())
            note(f"{row[key]}: not judged: {counts}")
