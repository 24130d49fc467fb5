"""People's ratings of a run's responses, and the agreement of its metrics with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from dialore.datasets.files import json_entries, validate
from dialore.errors import InputError
from dialore.evaluation.human.agreement import mean_ratings
from dialore.evaluation.human.reading import read_answers
from dialore.evaluation.ratings import Agreement, Rated, agreements
from dialore.evaluation.report.tables import combiner

if TYPE_CHECKING:
    from pathlib import Path

    from dialore.evaluation.base import SampleScore
    from dialore.experiments.store import Job, RunStore

Ratings = Mapping[tuple[str, str], Mapping[str, float | bool]]
"""Ratings by criterion, of a dialogue's id and a system; the system is empty if it is not said."""
_FORM = 'ratings are lines of {"id": DIALOGUE, "system": NAME, "ratings": {"overall": 4}, "labels": {"true": false}}'


class _Line(BaseModel):
    """A line of a file of ratings."""

    model_config = ConfigDict(strict=True)

    id: str
    system: str = ""
    ratings: dict[str, float] = {}
    labels: dict[str, bool] = {}


def read_ratings(path: Path) -> Ratings:
    """Return the ratings of a JSONL file, or the means of annotators: a folder of sheets, or what they were read into.

    Raises:
        InputError: The file is missing, malformed, or has no rating.
    """
    if path.is_dir():
        return mean_ratings(read_answers(path).annotations)
    ratings_of: dict[tuple[str, str], dict[str, float | bool]] = {}
    for place, data in json_entries(path, _FORM):
        if isinstance(data, dict) and "annotator" in data:
            return mean_ratings(read_answers(path).annotations)
        line = validate(data, _Line, place)
        if line.ratings or line.labels:
            ratings_of[line.id, line.system] = {**line.ratings, **line.labels}
    if not ratings_of:
        raise InputError(f"{path}: no response is rated", hint=_FORM)
    return ratings_of


def measure_agreement(store: RunStore, metrics: Iterable[str], ratings: Ratings) -> list[Agreement]:
    """Return the agreement of measured metrics with ratings of the run's responses, of the first repetition."""
    rated = {}
    for system in store.systems():
        names = (system.title, f"{system.title} · {system.model}", "")
        for job in store.jobs(system.number):
            dialogue = store.dialogue(job.position)
            known = [ratings[dialogue.id, name] for name in names if (dialogue.id, name) in ratings]
            if known and job.repetition == 0:
                rated[job] = Rated(dialogue.history, system.title, known[0])
    if not rated:
        dialogue_id, name = next(iter(ratings))
        problem = f"no rating is of a response in {store.folder}, such as that of {dialogue_id!r} by {name!r}"
        raise InputError(problem, hint="ids and systems must be those of the run")
    results = []
    for name in metrics:
        measures: dict[Job, SampleScore] = {}
        for system in store.systems():
            measures.update(store.measures(name, system.number))
        jobs = [job for job in rated if job in measures]
        results += agreements(combiner(name), [rated[job] for job in jobs], [measures[job] for job in jobs])
    return results
