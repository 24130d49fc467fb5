"""What `dialore meta` does."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.cli import meta_table
from dialore.cli.measuring import default_metrics, measuring, needs_of
from dialore.cli.output import check_targets, note, print_json, progress, write_whole
from dialore.errors import InputError
from dialore.evaluation.judgements import SETS, judgement_set
from dialore.evaluation.meta import agreements
from dialore.evaluation.registry import load_metrics
from dialore.experiments.meta_measures import MeasureFile, measure_judgements

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dialore.cli.options import MeasureSettings
    from dialore.evaluation.base import Measure
    from dialore.evaluation.judgements import Judgement, JudgementSet
    from dialore.evaluation.meta import Agreement
    from dialore.evaluation.registry import Context
    from dialore.settings import ModelSettings


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    judge: ModelSettings
    sets: tuple[str, ...]
    data: Path | None
    metrics: tuple[str, ...]
    measuring: MeasureSettings
    embedder: str | None
    limit: int | None
    seed: int
    measures: Path | None
    markdown: Path | None


@dataclass(slots=True)
class Found:
    """What was found on one set.

    Attributes:
        of: the set.
        responses: how many were looked at.
        agreements: with figures, and without.
        problems: by metric, how many responses have no measure, by reason.
    """

    of: JudgementSet
    responses: int
    agreements: list[Agreement] = field(default_factory=list)
    problems: dict[str, dict[str, int]] = field(default_factory=dict)


def work(settings: Settings, *, json: bool) -> None:
    """Measure what is missing, and show how far it agrees with people.

    Raises:
        InputError: no files, an unknown set or metric, a judge without a model.
        ModelError: the judge's endpoint refuses.
        BudgetError: the budget is spent.
    """
    folder = _folder(settings)
    sets = [judgement_set(name) for name in settings.sets] or [one for one in SETS.values() if one.find(folder)]
    if not sets:
        files = ", ".join(dict.fromkeys(one.file for one in SETS.values()))
        raise InputError(f"no human judgements in {folder}", mend=f"name the folder with --data; files: {files}")
    if settings.markdown is not None:
        check_targets(settings.markdown)
    names = settings.metrics or default_metrics(settings.measuring, without=("plan",))  # nobody judged plans
    needs = {need for name in names for need in needs_of(name)}
    found = asyncio.run(_measure(sets, folder, names, needs, settings))
    if settings.markdown is not None:
        write_whole(settings.markdown, meta_table.markdown(found))
    if json:
        print_json([meta_table.data(one) for one in found])
    else:
        meta_table.show(found)
    for one in found:
        for line in meta_table.without(one):
            note(f"{one.of.name}: {line}")


def _folder(settings: Settings) -> Path:
    if settings.data is not None:
        if not settings.data.is_dir():
            raise InputError(f"no such folder: {settings.data}", mend="check --data")
        return settings.data
    named = os.environ.get("DIALORE_DATA")
    if not named:
        raise InputError("where are the human judgements?", mend="name their folder with --data, or set DIALORE_DATA")
    return Path(named)


def drawn(judgements: Sequence[Judgement], limit: int | None, seed: int) -> list[Judgement]:
    """So many judgements, drawn at random and left in their order; all without a limit."""
    if limit is None or limit >= len(judgements):
        return list(judgements)
    picked = random.Random(seed).sample(range(len(judgements)), limit)  # noqa: S311 - no secret
    return [judgements[place] for place in sorted(picked)]


async def _measure(
    sets: Sequence[JudgementSet], folder: Path, names: Sequence[str], needs: set[str], settings: Settings
) -> list[Found]:
    file = MeasureFile(settings.measures or _default_file())
    async with measuring(settings.measuring, settings.judge, needs, must_judge=True) as opened:
        context = dataclasses.replace(opened, embedder=settings.embedder)
        with progress("measuring") as step:
            return [await _on_set(of, of.read(folder), names, context, file, settings, step) for of in sets]


def _default_file() -> Path:
    from dialore.sources.graph.starter import cache_folder

    return cache_folder() / "meta.jsonl"


async def _on_set(
    of: JudgementSet,
    judgements: Sequence[Judgement],
    names: Sequence[str],
    context: Context,
    file: MeasureFile,
    settings: Settings,
    step: Callable[[str, int, int | None], None],
) -> Found:
    some = drawn(judgements, settings.limit, settings.seed)
    # The IDF is of the set's histories, each once, whatever is drawn.
    corpus = list({one.context: one.dialogue for one in judgements}.values())
    metrics = load_metrics(names, dataclasses.replace(context, idf_corpus=lambda: corpus, idf_corpus_name=of.name))
    found = Found(of, len(some))

    def told(what: str, done: int, total: int) -> None:
        step(f"{of.name}: {what}", done, total)

    for metric in metrics:
        measures = await measure_judgements(metric, some, file, at_once=settings.judge.concurrency, on_progress=told)
        found.problems[metric.about.name] = _problems(measures)
        found.agreements += agreements(metric, some, measures, seed=settings.seed)
    return found


def _problems(measures: Mapping[str, Measure]) -> dict[str, int]:
    said = (one for one in measures.values() if one.problem is not None)
    reasons = Counter(one.reason if one.problem == "unavailable" else f"{one.problem}: {one.reason}" for one in said)
    return dict(reasons.most_common(5))
