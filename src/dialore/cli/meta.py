"""`dialore meta`: how far metrics and judges agree with people."""

import asyncio
import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import isnan
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text
from typer import Argument, Context, Option

from dialore.cli.options import BaseUrl, Json, JudgeSet, JudgeSettings, Metrics, Model, options_as
from dialore.cli.output import Table, console, note, print_json, progress, styled
from dialore.cli.score import abouts, default_metrics, measuring
from dialore.errors import InputError
from dialore.evaluation.base import Metric, SampleScore
from dialore.evaluation.judges.comparing import JointJudge
from dialore.evaluation.meta import Agreement, Judgement, agreements, read_judgements
from dialore.evaluation.registry import load_metrics
from dialore.experiments.scoring import measure
from dialore.parallel import bounded_map

# A set: its name, language and size, agreements, and by metric why responses have no measure.
Found = dict[str, Any]
Step = Callable[[str, int, int | None], None]


_COLUMNS = {"spearman": "Spearman", "kendall": "Kendall", "pearson": "Pearson", "auc": "AUC"}


def meta(
    context: Context,
    sets: Annotated[list[Path], Argument(metavar="SET...", help="Files of judged responses, or folders of them.")],
    metric: Metrics = None,
    limit: Annotated[
        int | None, Option("--limit", "-n", min=3, metavar="N", help="Only a sample of N responses of each set.")
    ] = None,
    seed: Annotated[int, Option(help="Of the sample, the bootstrap and the folds.")] = 0,
    model: Model = None,
    base_url: BaseUrl = None,
    changes: JudgeSet = None,
    json: Json = False,
) -> None:
    """Correlate metrics and judges with human scores; judges are asked by --model and --base-url.

    A set is a dialogue file (JSONL, .gz too) whose lines also have "response",
    "ratings" ({"overall": 4}, higher is better) or "labels"
    ({"attributable": true}), and perhaps "system", "reference", "knowledge".
    Without --metric: all that need no model.
    Intervals are 95% bootstrap intervals over contexts; for labels, AUC and
    accuracy stand in place of correlations.

    [bold]Examples[/bold]
    dialore meta judged.jsonl
    dialore meta judged/ -x meep -x overall --limit 60 -m gpt-4o
    """
    settings = options_as(JudgeSettings, context)
    names = metric or default_metrics(settings, without=("plan",))  # there are no judgements of plans
    needs = {need for about in abouts(names) for need in about.needs}
    read = {path.name.split(".")[0]: read_judgements(path) for path in _files(sets)}

    async def measure_all() -> list[Found]:
        async with measuring(settings, needs, must_judge=True) as opened:
            results: list[Found] = []
            with progress("measuring") as step:
                for name, judgements in read.items():
                    some = sample_judgements(judgements, limit, seed)
                    result: Found = {"set": name, "language": some[0].dialogue.language, "responses": len(some)}
                    result |= {"agreements": [], "problems": {}}
                    # For the IDF, the whole set's histories, each once.
                    corpus = list({judged.dialogue.history: judged.dialogue for judged in judgements}.values())
                    own: dict[str, Any] = {"idf_corpus": partial(list, corpus), "idf_corpus_name": name}
                    for loaded in load_metrics(names, dataclasses.replace(opened, **own)):
                        await _measure(result, loaded, some, settings.model.concurrency, seed, step)
                    results.append(result)
            return results

    results = asyncio.run(measure_all())
    if json:
        print_json(results)
    for result in results:
        if not json:
            _show(result)
        for line in _lacking(result):
            note(f"{result['set']}: {line}")


def _show(one: Found) -> None:
    """Show a table of responses' ratings, one of their labels, one of systems; those that have rows."""
    for level, kinds in (("response", list(_COLUMNS)[:3]), ("response", ["auc"]), ("system", list(_COLUMNS)[:3])):
        rows = [row for row in one["agreements"] if row["level"] == level and kinds[0] in row]
        if not rows:
            continue
        labels = ["accuracy", "commoner label"] if kinds == ["auc"] else []
        columns = ["!metric", "!people", ">n" if level == "response" else ">systems"]
        columns += [f">{name}" for name in [*(_COLUMNS[kind] for kind in kinds), *labels]]
        shown = Table(*columns, title=f"{one['set']}: {level}s{', yes or no' if labels else ''}")
        for row in rows:
            cells = [_narrow(row[kind]) for kind in kinds]
            cells += [Text(f"{row[name]:.3f}" if name in row else "-") for name in ("accuracy", "majority") if labels]
            shown.add_row(row["metric"], row["criterion"], str(row["n"]), *cells)
        console().print(shown)


def _lacking(one: Found) -> list[str]:
    """Return what has no figure and how many responses have no measure, in words; one line for each reason."""
    lines: dict[str, list[str]] = {}
    for metric, problems in one["problems"].items():
        own = [row for row in one["agreements"] if row["metric"] == metric]
        why = "; ".join(f"{reason} ({count})" for reason, count in problems.items())
        if any(not _COLUMNS.keys().isdisjoint(row) for row in own):
            why = f"without a measure: {{}}: {why}" if why else ""
        else:
            reasons = [why, *(row["reason"] for row in own if row.get("reason") and row["n"])]
            why = "; ".join(dict.fromkeys(filter(None, reasons))) or "a figure of systems, and the set names none"
            why = f"not available: {{}}: {why}"
        if why:
            lines.setdefault(why, []).append(metric)
    return [why.replace("{}", ", ".join(metrics), 1) for why, metrics in sorted(lines.items())]


def _files(given: Sequence[Path]) -> list[Path]:
    """Return the files that are named, and those of folders."""
    files: list[Path] = []
    for path in given:
        inside = [file for end in ("*.jsonl", "*.jsonl.gz") for file in path.glob(end)] if path.is_dir() else [path]
        if not inside:
            raise InputError(f"no .jsonl in {path}", hint="name files of judged responses; see `dialore meta --help`")
        files += sorted(inside)
    return files


def sample_judgements(judgements: Sequence[Judgement], limit: int | None, seed: int) -> list[Judgement]:
    """Return a random sample of so many judgements, in their order; all without a limit."""
    if limit is None or limit >= len(judgements):
        return list(judgements)
    picked = random.Random(seed).sample(range(len(judgements)), limit)  # noqa: S311 - no secret
    return [judgements[position] for position in sorted(picked)]


async def _measure(
    one: Found, metric: Metric, judgements: Sequence[Judgement], limit: int, seed: int, step: Step
) -> None:
    """Measure a set's responses by a metric, and add how far it agrees with people."""
    measures: dict[str, SampleScore] = {}

    async def work(some: list[Judgement]) -> None:
        if isinstance(metric, JointJudge):
            responses = {judgement.id: judgement.response for judgement in some}
            measures.update(await metric.measure_together(some[0].dialogue, responses))
        else:
            measures[some[0].id] = await measure(metric, some[0].dialogue, some[0].response)
        step(f"{one['set']}: {metric.about.name}", len(measures), len(judgements))

    groups: dict[str, list[Judgement]] = {}
    for judgement in judgements:
        group = judgement.dialogue.history if isinstance(metric, JointJudge) else judgement.id
        groups.setdefault(group, []).append(judgement)
    await bounded_map(list(groups.values()), work, limit=limit)
    problems = [score for score in measures.values() if score.problem is not None]
    reasons = (s.reason if s.problem == "unavailable" else f"{s.problem}: {s.reason}" for s in problems)
    one["problems"][metric.about.name] = dict(Counter(reasons).most_common(5))
    one["agreements"] += map(_data, agreements(metric, judgements, measures, seed=seed))


def _data(one: Agreement) -> dict[str, Any]:
    data: dict[str, Any] = {"metric": one.metric, "criterion": one.criterion, "level": one.level, "n": one.n}
    for kind, figure in one.figures.items():
        data[kind] = {"value": figure.value, "low": figure.low, "high": figure.high, "p": one.p[kind]}
    extra = {"accuracy": one.accuracy, "majority": one.majority, "reason": one.reason}
    return data | {name: value for name, value in extra.items() if value not in {None, ""}}


def _narrow(figure: dict[str, float]) -> Text:
    """Return a figure with its interval's half width, so that a row fits a terminal."""
    if isnan(figure["value"]):
        return Text("-")
    # Adding 0 turns a rounded -0.00 into 0.00.
    text = f"{round(figure['value'], 3) + 0.0:.3f}"
    if isnan(figure["low"]):
        return Text(text)
    return styled(f"{text} [dim]±{(figure['high'] - figure['low']) / 2:.2f}[/]")
