"""`dialore meta`: how far metrics and judges agree with people."""

# No deferred annotations here: typer reads them.
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dialore.cli.options import Json, JudgeModel, MeasureSettings, takes_settings
from dialore.cli.output import console, note, print_json, progress, table
from dialore.errors import InputError

if TYPE_CHECKING:
    from dialore.evaluation.base import Measure, Metric
    from dialore.evaluation.meta import Agreement, Judgement
    from dialore.evaluation.registry import Context
    from dialore.evaluation.statistics import Interval

    Step = Callable[[str, int, int | None], None]

_COLUMNS = {"spearman": "Spearman", "kendall": "Kendall", "pearson": "Pearson", "auc": "AUC"}


@takes_settings
def meta(
    judge: JudgeModel,
    measures: MeasureSettings,
    sets: Annotated[
        list[Path], typer.Argument(metavar="SET...", help="Files of judged responses, or folders of them.")
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-x", metavar="NAME", help="A metric; several times. Default: all without a model."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=3, metavar="N", help="Only a sample of N responses of each set.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the sample, the bootstrap and the folds.")] = 0,
    json: Json = False,
) -> None:
    """Correlate metrics and judges with human scores; judges are asked by --model and --base-url.

    A set is a dialogue file (JSONL, .gz too) whose lines also have "response",
    "ratings" ({"overall": 4}, higher is better) or "labels"
    ({"attributable": true}), and perhaps "system", "reference", "knowledge".
    Intervals are 95% bootstrap intervals over contexts; for labels, AUC and
    accuracy stand in place of correlations.

    [bold]Examples[/bold]
    dialore meta judged.jsonl
    dialore meta judged/ -x meep -x overall --limit 60 -m gpt-4o
    """
    import asyncio

    from dialore.cli.score import abouts, default_metrics, measuring
    from dialore.evaluation.meta import read_judgements
    from dialore.evaluation.registry import load_metrics

    names = metric or default_metrics(measures, without=("plan",))  # nobody judged plans
    needs = {need for about in abouts(names) for need in about.needs}
    read = {path.name.split(".")[0]: read_judgements(path) for path in _files(sets)}

    async def measure_all() -> list[_Set]:
        async with measuring(measures, judge, needs, must_judge=True) as opened:
            found = []
            with progress("measuring") as step:
                for name, judgements in read.items():
                    some = sampled(judgements, limit, seed)
                    metrics = load_metrics(names, _with_corpus(opened, name, judgements))
                    one = _Set(name, some[0].dialogue.language, len(some))
                    for each in metrics:
                        await _measure(one, each, some, judge.concurrency, seed, step)
                    found.append(one)
            return found

    found = asyncio.run(measure_all())
    if json:
        print_json([one.data() for one in found])
    else:
        _show(found)
    for one in found:
        for line in one.lacking():
            note(f"{one.name}: {line}")


def _show(found: "Sequence[_Set]") -> None:
    for one in found:
        for title, columns, rows in one.tables():
            shown = table(*(f"{'!' if place < 2 else '>'}{name}" for place, name in enumerate(columns)), title=title)
            for row in rows:
                shown.add_row(*(cell if isinstance(cell, str) else _narrow(cell) for cell in row))
            console().print(shown)


def _files(given: Sequence[Path]) -> list[Path]:
    """The files that are named, and those of folders."""
    files: list[Path] = []
    for path in given:
        inside = [each for end in ("*.jsonl", "*.jsonl.gz") for each in path.glob(end)] if path.is_dir() else [path]
        if not inside:
            raise InputError(f"no .jsonl in {path}", mend="name files of judged responses; see `dialore meta --help`")
        files += sorted(inside)
    return files


def sampled(judgements: "Sequence[Judgement]", limit: int | None, seed: int) -> "list[Judgement]":
    """A random sample of so many judgements, in their order; all without a limit."""
    import random

    if limit is None or limit >= len(judgements):
        return list(judgements)
    picked = random.Random(seed).sample(range(len(judgements)), limit)  # noqa: S311 - no secret
    return [judgements[place] for place in sorted(picked)]


def _with_corpus(context: "Context", name: str, judgements: "Sequence[Judgement]") -> "Context":
    """The context with the whole set's histories, each once, for the IDF."""
    import dataclasses

    corpus = list({one.dialogue.history: one.dialogue for one in judgements}.values())
    return dataclasses.replace(context, idf_corpus=lambda: corpus, idf_corpus_name=name)


async def _measure(
    one: "_Set", metric: "Metric", judgements: "Sequence[Judgement]", limit: int, seed: int, step: "Step"
) -> None:
    """Measure a set's responses by a metric, and add how far it agrees with people."""
    from collections import Counter

    from dialore.evaluation.base import JointMetric
    from dialore.evaluation.meta import agreements
    from dialore.experiments.scoring import measure
    from dialore.parallel import bounded_map

    found: dict[str, Measure] = {}

    async def work(some: "list[Judgement]") -> None:
        if isinstance(metric, JointMetric):
            found.update(await metric.measure_together(some[0].dialogue, {each.id: each.response for each in some}))
        else:
            found[some[0].id] = await measure(metric, some[0].dialogue, some[0].response)
        step(f"{one.name}: {metric.about.name}", len(found), len(judgements))

    groups: dict[str, list[Judgement]] = {}
    for each in judgements:
        groups.setdefault(each.dialogue.history if isinstance(metric, JointMetric) else each.id, []).append(each)
    await bounded_map(list(groups.values()), work, limit=limit)
    problems = [each for each in found.values() if each.problem is not None]
    reasons = (each.reason if each.problem == "unavailable" else f"{each.problem}: {each.reason}" for each in problems)
    one.problems[metric.about.name] = dict(Counter(reasons).most_common(5))
    one.agreements += agreements(metric, judgements, found, seed=seed)


@dataclass(slots=True)
class _Set:
    """A set and what was found on it: agreements, and by metric the reasons why responses have no measure."""

    name: str
    language: str
    responses: int
    agreements: "list[Agreement]" = field(default_factory=list)
    problems: dict[str, dict[str, int]] = field(default_factory=dict)

    def tables(self) -> "Iterator[tuple[str, list[str], list[list[str | Interval]]]]":
        """Titles, columns and rows of the tables that have rows."""
        parts: dict[tuple[str, tuple[str, ...]], list[Agreement]] = {}
        for one in self.agreements:
            if one.figures:
                parts.setdefault((one.level, tuple(one.figures)), []).append(one)
        for level, kinds in sorted(parts, key=lambda part: (part[0], "auc" in part[1])):
            labels = kinds == ("auc",)
            title = f"{self.name}: {level}s{', yes or no' if labels else ''}"
            columns = ["metric", "people", "n" if level == "response" else "systems", *(_COLUMNS[k] for k in kinds)]
            rows: list[list[str | Interval]] = []
            for one in parts[level, kinds]:
                shares = [f"{share:.3f}" if share is not None else "-" for share in (one.accuracy, one.majority)]
                figures = list(one.figures.values())
                rows.append([one.metric, one.criterion, str(one.n), *figures, *(shares if labels else [])])
            yield title, columns + (["accuracy", "commoner label"] if labels else []), rows

    def lacking(self) -> list[str]:
        """What has no figure, and how many responses have no measure, in words; metrics of one reason in one line."""
        lines: dict[str, list[str]] = {}
        figures = {one.metric for one in self.agreements if one.figures}
        for metric, problems in self.problems.items():
            why = "; ".join(f"{reason} ({count})" for reason, count in problems.items())
            if metric not in figures:
                reasons = [one.reason for one in self.agreements if one.metric == metric and one.reason and one.n]
                why = "; ".join(dict.fromkeys(each for each in (why, *reasons) if each))
                why = f"not available: {{}}: {why or 'a figure of systems, and the set names none'}"
            elif why:
                why = f"without a measure: {{}}: {why}"
            if why:
                lines.setdefault(why, []).append(metric)
        return [why.replace("{}", ", ".join(metrics), 1) for why, metrics in sorted(lines.items())]

    def data(self) -> dict[str, Any]:
        """All of it for JSON."""
        data = {"set": self.name, "language": self.language, "responses": self.responses}
        return {**data, "agreements": [_data(one) for one in self.agreements], "problems": self.problems}


def _data(one: "Agreement") -> dict[str, Any]:
    data: dict[str, Any] = {"metric": one.metric, "criterion": one.criterion, "level": one.level, "n": one.n}
    for kind, figure in one.figures.items():
        data[kind] = {"value": figure.value, "low": figure.low, "high": figure.high, "p": one.p[kind]}
    extra = {"accuracy": one.accuracy, "majority": one.majority, "reason": one.reason}
    return data | {name: value for name, value in extra.items() if value not in {None, ""}}


def _narrow(figure: "Interval") -> str:
    """A figure with its interval's half width, so that a row fits a terminal."""
    interval = "" if isnan(figure.low) else f" [dim]±{(figure.high - figure.low) / 2:.2f}[/]"
    return _rounded(figure.value, 3) + interval


def _rounded(value: float, digits: int) -> str:
    # Adding 0 turns a rounded -0.00 into 0.00.
    return "-" if isnan(value) else f"{round(value, digits) + 0.0:.{digits}f}"
