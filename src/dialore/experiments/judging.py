"""Judging a run's systems against each other: resumable, apart from generation and from single scores."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from dialore.errors import ModelError, is_fatal
from dialore.evaluation.base import Measure
from dialore.evaluation.judges.comparing import Preference, compare, score_jointly, shown
from dialore.experiments.comparisons import Place
from dialore.experiments.store import Job

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from dialore.evaluation.judges.asking import Asker
    from dialore.evaluation.judges.comparing import Judged
    from dialore.experiments.comparisons import ComparisonStore
    from dialore.experiments.store import RunStore
    from dialore.response import Response

Item = TypeVar("Item")
Found = TypeVar("Found")
_CHUNK = 64
"""Dialogues that are judged before their judgements are written."""


@dataclass(frozen=True, slots=True)
class KeptPreferences:
    """What one judge prefers of two systems by one criterion, as far as it is kept in a run.

    Attributes:
        judge: the judge's identity: its model and its prompts.
        judged: `responses` or `queries`.
        first: a system.
        second: the other.
        criterion: what was compared.
        preferences: one a dialogue and repetition.
        stale: how many are of responses that changed since; they are not among the preferences.
    """

    judge: str
    judged: str
    first: str
    second: str
    criterion: str
    preferences: list[Preference]
    stale: int


async def compare_systems(
    store: RunStore,
    kept: ComparisonStore,
    judge: Asker,
    pair: tuple[int, int],
    *,
    criteria: Sequence[str],
    judged: Judged = "responses",
    at_once: int = 32,
    limit: int | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, list[Preference]]:
    """Compare two systems on every dialogue that both answered; what is kept already is not asked again.

    Args:
        store: the run; it must be held for writing.
        kept: where preferences are kept.
        judge: who is asked.
        pair: two systems' numbers.
        criteria: what is compared.
        judged: the responses' texts, or the queries that were asked for them.
        at_once: the most dialogues compared at a time.
        limit: only the first so many dialogues.
        on_progress: told of what, dialogues done, and dialogues in all.

    Returns:
        Every preference, by criterion.

    Raises:
        ModelError: the judge's endpoint refuses for every dialogue.
        BudgetError: the budget is spent; what is found is kept.
    """
    names = system_names(store)
    # Stored in the run's order, whichever was named first.
    ordered = sorted(pair)
    first, second = (names[number] for number in ordered)
    identity = judge.identity(f"pairwise-{judged}")
    before = {name: kept.preferences(identity, judged, first, second, name) for name in criteria}
    places = _places(store, ordered)[:limit]
    work: list[tuple[Place, str, list[str], dict[str, Response]]] = []
    for place in places:
        responses = _responses(store, place, ordered, names)
        texts = _hash(responses, judged)
        missing = [name for name in criteria if not _is_done(before[name].get(place), texts)]
        if missing:
            work.append((place, texts, missing, responses))

    async def one(item: tuple[Place, str, list[str], dict[str, Response]]) -> list[tuple[Place, str, Preference]]:
        place, texts, missing, responses = item
        try:
            found = await compare(judge, store.dialogue(place.position), responses, criteria=missing, judged=judged)
        except ModelError as error:
            if is_fatal(error):
                raise
            found = [Preference(name, first, second, problem="failed", reason=str(error)) for name in missing]
        return [(place, texts, preference) for preference in found]

    def keep(some: list[list[tuple[Place, str, Preference]]]) -> None:
        kept.keep(identity, judged, (entry for entries in some for entry in entries))

    await _in_chunks(work, one, keep, at_once, "comparing", on_progress)
    wanted = set(places)
    results: dict[str, list[Preference]] = {}
    for name in criteria:
        found = kept.preferences(identity, judged, first, second, name)
        results[name] = [_as_asked(one, names[pair[0]]) for place, (_, one) in found.items() if place in wanted]
    return results


def kept_preferences(store: RunStore, kept: ComparisonStore) -> Iterator[KeptPreferences]:
    """Everything that is kept of comparisons; of responses that changed since, it is left out and counted."""
    numbers = {name: number for number, name in system_names(store).items()}
    hashes: dict[tuple[str, str, str, Place], str] = {}
    for judge, judged, first, second, criterion in kept.compared():
        if first not in numbers or second not in numbers:
            continue
        names = {numbers[name]: name for name in (first, second)}
        places = set(_places(store, list(names)))
        found: list[Preference] = []
        stale = 0
        for place, (texts, one) in kept.preferences(judge, judged, first, second, criterion).items():
            key = (judged, first, second, place)
            if place in places and key not in hashes:
                hashes[key] = _hash(_responses(store, place, list(names), names), cast("Judged", judged))
            if hashes.get(key) == texts:
                found.append(one)
            else:
                stale += 1
        yield KeptPreferences(judge, judged, first, second, criterion, found, stale)


async def score_systems_together(
    store: RunStore,
    kept: ComparisonStore,
    judge: Asker,
    systems: Sequence[int],
    *,
    criterion: str = "overall",
    judged: Judged = "responses",
    seed: int = 0,
    at_once: int = 32,
    limit: int | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, list[Measure]]:
    """Score several systems in one prompt, on every dialogue that all of them answered; as `compare_systems`.

    Returns:
        Measures by system, in the order of `systems`, each list in the data set's order.
    """
    names = system_names(store)
    ordered = sorted(systems)
    title = "\n".join(names[number] for number in ordered)
    identity = judge.identity(f"together-{judged}")
    before = kept.scores(identity, judged, criterion, title, seed)
    places = _places(store, ordered)[:limit]
    work: list[tuple[Place, str, dict[str, Response]]] = []
    for place in places:
        responses = _responses(store, place, ordered, names)
        texts = _hash(responses, judged)
        known = before.get(place)
        if known is None or known[0] != texts or any(m.problem == "failed" for m in known[1].values()):
            work.append((place, texts, responses))

    async def one(item: tuple[Place, str, dict[str, Response]]) -> tuple[Place, str, dict[str, Measure]]:
        place, texts, responses = item
        try:
            found = await score_jointly(
                judge, store.dialogue(place.position), responses, criterion=criterion, judged=judged, seed=seed
            )
        except ModelError as error:
            if is_fatal(error):
                raise
            found = dict.fromkeys(responses, Measure(problem="failed", reason=str(error)))
        return place, texts, found

    def keep(some: list[tuple[Place, str, dict[str, Measure]]]) -> None:
        kept.keep_scores(identity, judged, criterion, title, seed, some)

    await _in_chunks(work, one, keep, at_once, "scoring", on_progress)
    found = kept.scores(identity, judged, criterion, title, seed)
    return {names[number]: [found[place][1][names[number]] for place in places if place in found] for number in systems}


def system_names(store: RunStore) -> dict[int, str]:
    """Systems' names by number: their titles, with the model where the run has several."""
    systems = store.systems()
    several = len({system.model for system in systems}) > 1
    return {system.number: f"{system.title} ({system.model})" if several else system.title for system in systems}


async def _in_chunks(
    items: Sequence[Item],
    judge: Callable[[Item], Awaitable[Found]],
    keep: Callable[[list[Found]], None],
    at_once: int,
    what: str,
    on_progress: Callable[[str, int, int], None] | None,
) -> None:
    free = asyncio.Semaphore(at_once)

    async def limited(item: Item) -> Found:
        async with free:
            return await judge(item)

    for begin in range(0, len(items), _CHUNK):
        some = items[begin : begin + _CHUNK]
        found = await asyncio.gather(*(limited(item) for item in some), return_exceptions=True)
        keep([one for one in found if not isinstance(one, BaseException)])
        for one in found:
            if isinstance(one, BaseException):
                raise one
        if on_progress is not None:
            on_progress(what, begin + len(some), len(items))


def _places(store: RunStore, systems: Sequence[int]) -> list[Place]:
    """The dialogues that every one of the systems answered without failing, in order."""
    done = store.done()
    places = {Place(job.position, job.repetition) for job in done if job.system == systems[0]}
    return sorted(
        (p for p in places if all(Job(p.position, system, p.repetition) in done for system in systems)),
        key=lambda place: (place.position, place.repetition),
    )


def _responses(store: RunStore, place: Place, systems: Sequence[int], names: Mapping[int, str]) -> dict[str, Response]:
    return {names[system]: store.response(Job(place.position, system, place.repetition)) for system in systems}


def _hash(responses: Mapping[str, Response], judged: Judged) -> str:
    texts = "\n".join(shown(response, judged) for response in responses.values())
    return hashlib.blake2b(texts.encode(), digest_size=8).hexdigest()


def _is_done(known: tuple[str, Preference] | None, texts: str) -> bool:
    return known is not None and known[0] == texts and known[1].problem != "failed"


def _as_asked(one: Preference, first: str) -> Preference:
    """The preference with the system that was named first as its first."""
    if one.first == first:
        return one
    return Preference(one.criterion, one.second, one.first, (one.picks[1], one.picks[0]), one.problem, one.reason)
