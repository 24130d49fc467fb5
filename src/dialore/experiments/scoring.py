"""Scoring and judging a run: measures of responses, kept beside them, their figures, and what judges prefer."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np

from dialore.dialogue import conversation_of
from dialore.errors import DialoreError, InputError, MissingExtraError, ModelError, is_fatal
from dialore.evaluation.base import Metric, Sample, SampleScore, Score
from dialore.evaluation.judges.comparing import JointJudge, Judged, Preference, compare, judged_text
from dialore.evaluation.registry import Context, load_metric, metric_names
from dialore.evaluation.report.data import Judged as Comparisons
from dialore.evaluation.statistics import as_table, bootstrap
from dialore.experiments.config import SystemConfig
from dialore.experiments.store import Job, RunStore
from dialore.parallel import bounded_map
from dialore.plugins import loadable, source_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.evaluation.judges.asking import JudgeClient
    from dialore.response import Response

NEEDS_MODEL = frozenset({"judge", "nli", "language-model"})
"""The needs that make a metric slow: such metrics are asked many responses at once."""
_CHUNK = 256  # responses that are measured without a model before their measures are written
Item = TypeVar("Item")
Found = TypeVar("Found")
Place: TypeAlias = tuple[int, int]
"""A dialogue's position and a repetition."""
_OnProgress: TypeAlias = Callable[[str, int, int], None]
"""Told what is at work, how much of it is done, and of how much."""


def default_metrics(given: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the metrics that need no model but those given, and nothing that few data sets have."""
    lacking = (NEEDS_MODEL - {*given}) | {"answerability", "handbook", "conversation", "injection"}
    metrics = loadable(metric_names(), lambda name: load_metric(name, Context()))
    return tuple(metric.about.name for metric in metrics if not lacking & set(metric.about.needs))


def context_of(store: RunStore, context: Context) -> Context:
    """Return the context of a run's metrics: with its dialogues as the corpus, and its embedder where none is given."""
    return dataclasses.replace(
        context,
        idf_corpus=lambda: (store.dialogue(position) for position in range(store.size)),
        idf_corpus_name="the run's own dialogues",
        embedder=context.embedder or store.facts().get("config", {}).get("sources", {}).get("embedder"),
    )


async def measure_run(
    store: RunStore,
    metrics: Sequence[Metric],
    *,
    at_once: int = 64,
    again: bool = False,
    optional: bool = False,
    on_progress: _OnProgress = lambda *_: None,
) -> None:
    """Measure every response that has no measure yet, or with `again` every one; the store must be held for writing.

    Metrics that need no model measure a response one after another, so that it is read once; the others follow, metric
    by metric, `at_once` responses at a time. Measures that failed are made again, too: a judge's endpoint was down, or,
    with `optional`, a metric's library is not installed, which else raises MissingExtraError. ModelError where a
    judge's endpoint refuses every response, and BudgetError, are raised; what is measured is kept.
    """
    joint = [metric for metric in metrics if isinstance(metric, JointJudge)]
    single = [metric for metric in metrics if not isinstance(metric, JointJudge)]
    for metric in single:
        # What else its measures depend on, e.g. judge and prompts: where that changes, they no longer hold.
        identity = getattr(metric, "identity", None) or code_mark(metric)
        also = {} if identity is None else {"identity": identity}
        store.set_metric(metric.about.name, dataclasses.asdict(metric.about) | also)
    plain = [metric for metric in single if not NEEDS_MODEL & set(metric.about.needs)]
    how: dict[str, Any] = {"at_once": at_once, "again": again, "on_progress": on_progress}
    await _measure(store, plain, _CHUNK, optional=optional, **how)
    for metric in single:
        if metric not in plain:
            await _measure(store, [metric], 1, optional=optional, **how)
    configured = store.facts().get("config", {}).get("systems", []) if joint else ()
    for metric in joint:
        unscored = [system for system in configured if metric.about.name in system.get("unscored", ())]
        left_out = {SystemConfig.model_validate(system).title for system in unscored}
        systems = [system.number for system in store.systems() if system.title not in left_out]
        await measure_jointly(store, metric, systems, **how)


async def _measure(
    store: RunStore,
    metrics: Sequence[Metric],
    chunk: int,
    *,
    at_once: int,
    again: bool,
    optional: bool,
    on_progress: _OnProgress,
) -> None:
    """Measure the responses that lack one of the metrics, and write the measures of so many at a time."""
    wanted: dict[Job, list[Metric]] = defaultdict(list)
    for metric in metrics:
        for job in store.jobs(without_metric=None if again else metric.about.name):
            wanted[job].append(metric)
    jobs, done = sorted(wanted), 0
    what = metrics[0].about.name if len(metrics) == 1 else f"{len(metrics)} metrics"

    async def measure_some(start: int) -> None:
        nonlocal done
        measures: dict[str, dict[Job, SampleScore]] = defaultdict(dict)
        some = jobs[start : start + chunk]
        for job in some:
            dialogue, response = store.dialogue(job.position), store.response(job)
            for metric in wanted[job]:
                measures[metric.about.name][job] = await measure(metric, dialogue, response, optional=optional)
        store.measure(measures)
        done += len(some)
        on_progress(what, done, len(jobs))
        # Where nothing above waits, others of this loop, and an interrupt, get their turn here.
        await asyncio.sleep(0)

    await bounded_map(range(0, len(jobs), chunk), measure_some, limit=at_once)


async def _each(
    work: Sequence[Item], one: Callable[[Item], Awaitable[None]], at_once: int, what: str, on_progress: _OnProgress
) -> None:
    """Do the work, so many pieces at once, and say how much is done after each."""
    done = 0

    async def counted(item: Item) -> None:
        nonlocal done
        await one(item)
        done += 1
        on_progress(what, done, len(work))

    await bounded_map(work, counted, limit=at_once)


async def measure_jointly(
    store: RunStore,
    metric: JointJudge,
    systems: Sequence[int],
    *,
    at_once: int = 64,
    again: bool = False,
    limit: int | None = None,
    on_progress: _OnProgress = lambda *_: None,
) -> None:
    """Measure several systems' responses to a dialogue by one call, for every dialogue that all of them answered.

    Where one of the responses has no measure yet all are measured anew; so they are where other systems are asked
    about. The store must be held for writing; raises as `measure_run`.
    """
    name = metric.about.name
    names = {number: name for number, name in system_names(store).items() if number in systems}
    titles = ", ".join(names.values())
    store.set_metric(name, dataclasses.asdict(metric.about) | {"identity": f"{metric.identity}; {titles}"})
    lacking = {job for number in names for job in store.jobs(number, without_metric=None if again else name)}

    async def one(place: Place) -> None:
        responses = _responses_of(store, place, names)
        measured = metric.measure_together(store.dialogue(place[0]), responses)
        measures = await _or_failed(
            measured, lambda reason: dict.fromkeys(responses, SampleScore(problem="failed", reason=reason))
        )
        jobs = (Job(place[0], number, place[1]) for number in names)
        store.measure({name: {job: measures[title] for job, title in zip(jobs, responses, strict=True)}})

    places = _answered_by_all(store, [*names])[:limit]
    work = [place for place in places if any(Job(place[0], number, place[1]) in lacking for number in names)]
    await _each(work, one, at_once, name, on_progress)


def code_mark(metric: Metric) -> str | None:
    """Return the hash of the file that defines a metric of somebody else's; None for ours."""
    file = source_of(type(metric))
    return None if file is None else hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()


async def _or_failed(work: Awaitable[Found], failed: Callable[[str], Found]) -> Found:
    """Return what is awaited, else what stands for its failure; raise what would befall every response."""
    try:
        return await work
    except ModelError as error:
        if is_fatal(error):
            raise
        return failed(str(error))


def system_names(store: RunStore) -> dict[int, str]:
    """Systems' names by number: their titles, with the model where the run has several."""
    systems = store.systems()
    several = len({system.model for system in systems}) > 1
    return {system.number: f"{system.title} ({system.model})" if several else system.title for system in systems}


def _answered_by_all(store: RunStore, systems: Sequence[int]) -> list[Place]:
    """Return the dialogues that all of the systems answered without failing: position and repetition, in order."""
    done = store.done()
    return sorted(set.intersection(*({(j.position, j.repetition) for j in done if j.system == n} for n in systems)))


def _responses_of(store: RunStore, place: Place, names: Mapping[int, str]) -> dict[str, Response]:
    """Return what systems, by number, responded to a dialogue, by their names."""
    return {name: store.response(Job(place[0], number, place[1])) for number, name in names.items()}


async def _best_measure(metric: Metric, dialogue: Dialogue, response: Response) -> SampleScore:
    """Measure one response; against several references, by the one that it is nearest to.

    This holds for metrics of single responses that need a reference. Others see the first reference alone.
    """
    about = metric.about
    if len(dialogue.references) < 2 or about.level != "response" or "reference" not in about.needs:
        return await metric.measure(Sample(dialogue, response))
    scores = []
    for reference in dialogue.references:
        single = dialogue.model_copy(update={"reference": reference, "references": ()})
        scores.append(await metric.measure(Sample(single, response)))
    measured = [score for score in scores if score.problem is None]
    if not measured:
        return scores[0]
    choose = max if about.higher_is_better else min
    return choose(measured, key=lambda score: score.values[0])


async def measure(metric: Metric, dialogue: Dialogue, response: Response, *, optional: bool = False) -> SampleScore:
    """Measure one response; raise as `measure_run`. One that failed is measured where the metric `counts_failed`."""
    if response.status == "failed" and not metric.about.counts_failed:
        return SampleScore(problem="unavailable", reason="the response failed")
    try:
        measured = _best_measure(metric, dialogue, response)
        score = await _or_failed(measured, lambda reason: SampleScore(problem="failed", reason=reason))
    except MissingExtraError as error:
        if not optional:
            raise
        return SampleScore(problem="failed", reason=str(error))
    except DialoreError:
        raise
    except Exception as error:
        if (file := source_of(type(metric))) is None:  # a fault of ours is shown whole
            raise
        message = f"metric {metric.about.name} failed on dialogue {dialogue.id}: {type(error).__name__}: {error}"
        raise InputError(message, hint=f"mend {file}") from error
    if not isinstance(score, SampleScore):
        raise InputError(f"metric {metric.about.name}: `measure` returns {type(score).__name__}, not a SampleScore")
    return score


def table_of(measures: Iterable[SampleScore]) -> NDArray[np.float64]:
    """Return the values of measures that have some, a row each, short rows filled with NaN."""
    return as_table([measure.values for measure in measures if measure.problem is None])


def score_of(metric: Metric, measures: Sequence[SampleScore], *, dialogues: Sequence[object] | None = None) -> Score:
    """Return the figure that measures combine into, with its error bar; without any, "not available" with the reason.

    `dialogues` says which dialogue each response answers, so that repetitions count as one; each another where None.
    """
    problems = Counter(measure.problem for measure in measures if measure.problem is not None)
    reasons = Counter(measure.reason for measure in measures if measure.problem is not None)
    reason = "; ".join(f"{text} ({count})" for text, count in reasons.most_common(3))
    values = table_of(measures)
    name, counts = metric.about.name, {str(problem): count for problem, count in problems.items()}
    if not len(values):
        return Score(name, None, n=0, problems=counts, reason=reason or "no response has been measured")
    if dialogues is not None:
        dialogues = [dialogue for dialogue, scored in zip(dialogues, measures, strict=True) if scored.problem is None]
    figure = bootstrap(metric, values, dialogues=dialogues)
    if np.isnan(figure.value):
        return Score(name, None, n=len(values), problems=counts, reason="the measures combine into no figure")
    bounds = [None if np.isnan(bound) else bound for bound in (figure.low, figure.high)]
    return Score(name, figure.value, bounds[0], bounds[1], len(values), counts, reason)


# --- two systems against each other


async def compare_systems(
    store: RunStore,
    judge: JudgeClient,
    pair: tuple[int, int],
    *,
    criteria: Sequence[str],
    judged: Judged = "responses",
    at_once: int = 32,
    limit: int | None = None,
    on_progress: _OnProgress = lambda *_: None,
) -> dict[str, list[Preference]]:
    """Compare two systems on every dialogue that both answered; what has been compared is not asked again.

    Gives preferences by criterion, in the data set's order, those with a problem too; wins are the first one's of the
    pair. The store must be held for writing; raises as `measure_run`.
    """
    # In the same order whichever way it is asked.
    names = {number: name for number, name in system_names(store).items() if number in pair}
    first, second = names.values()
    identity = judge.identity(f"pairwise-{judged}")
    hashes = _hashes(store, names, judged, limit)
    before = store.preferences()

    def known(criterion: str) -> dict[str, Preference]:
        return before.get((identity, judged, first, second, criterion), {})

    def missing(texts: str) -> list[str]:
        return [name for name in criteria if texts not in known(name) or known(name)[texts].problem == "failed"]

    async def one(item: tuple[Place, str]) -> None:
        place, texts = item
        asked = missing(texts)
        responses = _responses_of(store, place, names)
        compared = compare(judge, store.dialogue(place[0]), responses, criteria=asked, judged=judged)
        preferences = await _or_failed(
            compared, lambda why: [Preference(name, first, second, problem="failed", reason=why) for name in asked]
        )
        store.prefer(identity, judged, texts, preferences)

    work = [(place, texts) for place, texts in hashes.items() if missing(texts)]
    await _each(work, one, at_once, "comparing", on_progress)
    before = store.preferences()
    results = {name: _load_texts(store, hashes, known(name)) for name in criteria}
    if pair[0] != min(pair):
        for preferences in results.values():
            preferences[:] = [
                dataclasses.replace(vote, first=second, second=first, picks=vote.picks[::-1]) for vote in preferences
            ]
    return results


def load_preferences(store: RunStore, run: str, dataset: str) -> Iterator[Comparisons]:
    """Everything that is kept of comparisons of the run's responses as they are now."""
    numbers = {name: number for number, name in system_names(store).items()}

    @functools.cache
    def hashes(first: str, second: str, judged: Judged) -> dict[Place, str]:
        return _hashes(store, {numbers[title]: title for title in (first, second)}, judged)

    for (judge, judged, first, second, criterion), known in store.preferences().items():
        if first in numbers and second in numbers:
            preferences = _load_texts(store, hashes(first, second, cast("Judged", judged)), known)
            yield Comparisons(run, dataset, judge, judged, first, second, criterion, preferences)


def _load_texts(store: RunStore, hashes: Mapping[Place, str], known: Mapping[str, Preference]) -> list[Preference]:
    """Return what is known of the texts at places, each with its conversation."""
    talks = [conversation_of(name) for name in store.dialogue_ids()]
    return [
        dataclasses.replace(known[texts], conversation=talks[position])
        for (position, _), texts in hashes.items()
        if texts in known
    ]


def _hashes(store: RunStore, names: Mapping[int, str], judged: Judged, limit: int | None = None) -> dict[Place, str]:
    """Return the hash of what is compared of each dialogue that all systems answered, by position and repetition."""
    hashes = {}
    for place in _answered_by_all(store, [*names])[:limit]:
        texts = [judged_text(response, judged) for response in _responses_of(store, place, names).values()]
        content = "\n".join([f"{place[0]} {place[1]}", *texts])
        hashes[place] = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
    return hashes
