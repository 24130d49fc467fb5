"""Judging a run's systems against each other: resumable, apart from generation and from single scores."""

from __future__ import annotations

import functools
import hashlib
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast

from dialore.errors import ModelError, is_fatal
from dialore.evaluation.base import Measure
from dialore.evaluation.judges.comparing import Preference, compare, score_jointly, shown
from dialore.evaluation.report.data import Judged as Comparisons
from dialore.experiments.scoring import keep_in_chunks
from dialore.experiments.store import FILE, Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dialore.evaluation.judges.asking import Asker
    from dialore.evaluation.judges.comparing import Judged
    from dialore.experiments.store import RunStore
    from dialore.response import Response

_SCHEMA = """
create table if not exists comparisons (judge text not null, judged text not null, first text not null,
    second text not null, criterion text not null, position integer not null, repetition integer not null,
    texts text not null, forward text not null, backward text not null, problem text, reason text not null,
    primary key (judge, judged, first, second, criterion, position, repetition)) without rowid;
create table if not exists joint_scores (judge text not null, judged text not null, criterion text not null,
    systems text not null, seed integer not null, position integer not null, repetition integer not null,
    system text not null, texts text not null, score real, problem text, reason text not null, detail text not null,
    primary key (judge, judged, criterion, systems, seed, position, repetition, system)) without rowid;
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A dialogue that several systems answered: its position in the run, and the repetition."""

    position: int
    repetition: int = 0


class ComparisonStore:
    """What judges said of a run's systems against each other, in the run's own file.

    Args:
        folder: the run.
        reading: nothing is to be kept; a run without such tables stays without.
    """

    def __init__(self, folder: Path, *, reading: bool = False) -> None:
        self._database = sqlite3.connect(folder / FILE, timeout=30.0)
        if not reading:
            self._database.executescript(_SCHEMA)

    def compared(self) -> list[tuple[str, str, str, str, str]]:
        """What `preferences` has something of: judge, what was judged, first system, second, criterion."""
        there = "select 1 from sqlite_master where type = 'table' and name = 'comparisons'"
        if self._database.execute(there).fetchone() is None:
            return []
        sql = (
            "select judge, judged, first, second, criterion from comparisons group by judge, judged, first, second, "
            "criterion order by judge, judged, first, second, criterion"
        )
        return list(self._database.execute(sql))

    def preferences(
        self, judge: str, judged: str, first: str, second: str, criterion: str
    ) -> dict[Place, tuple[str, Preference]]:
        """Preferences by place, each with the hash of the texts that were compared."""
        sql = (
            "select position, repetition, texts, forward, backward, problem, reason from comparisons where judge = ? "
            "and judged = ? and first = ? and second = ? and criterion = ? order by position, repetition"
        )
        rows = self._database.execute(sql, (judge, judged, first, second, criterion))
        return {
            Place(position, repetition): (
                texts,
                Preference(criterion, first, second, (forward, backward), problem, reason),
            )
            for position, repetition, texts, forward, backward, problem, reason in rows
        }

    def keep(self, judge: str, judged: str, found: Iterable[tuple[Place, str, Preference]]) -> None:
        """Keep preferences; they are on disk when this returns."""
        rows = [
            (
                *(judge, judged, one.first, one.second, one.criterion, place.position, place.repetition),
                *(texts, *one.picks, one.problem, one.reason),
            )
            for place, texts, one in found
        ]
        with self._database as database:
            database.executemany("insert or replace into comparisons values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def scores(
        self, judge: str, judged: str, criterion: str, systems: str, seed: int
    ) -> dict[Place, tuple[str, dict[str, Measure]]]:
        """Scores given together by place and system, each place with the hash of the texts that were scored."""
        sql = (
            "select position, repetition, system, texts, score, problem, reason, detail from joint_scores "
            "where judge = ? and judged = ? and criterion = ? and systems = ? and seed = ? "
            "order by position, repetition"
        )
        found: dict[Place, tuple[str, dict[str, Measure]]] = {}
        for position, repetition, system, texts, score, problem, reason, detail in self._database.execute(
            sql, (judge, judged, criterion, systems, seed)
        ):
            values = () if score is None else (score,)
            found.setdefault(Place(position, repetition), (texts, {}))[1][system] = Measure(
                values, problem, reason, detail
            )
        return found

    def keep_scores(
        self,
        judge: str,
        judged: str,
        criterion: str,
        systems: str,
        seed: int,
        found: Iterable[tuple[Place, str, Mapping[str, Measure]]],
    ) -> None:
        """Keep scores given together; they are on disk when this returns."""
        rows = [
            (
                *(judge, judged, criterion, systems, seed, place.position, place.repetition, system, texts),
                *(measure.values[0] if measure.values else None, measure.problem, measure.reason, measure.detail),
            )
            for place, texts, measures in found
            for system, measure in measures.items()
        ]
        with self._database as database:
            database.executemany(
                "insert or replace into joint_scores values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
            )

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the file."""
        self._database.close()


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

    tell = functools.partial(on_progress, "comparing") if on_progress is not None else None
    await keep_in_chunks(work, one, keep, limit=at_once, tell=tell)
    wanted = set(places)
    results: dict[str, list[Preference]] = {}
    for name in criteria:
        found = kept.preferences(identity, judged, first, second, name)
        results[name] = [_as_asked(one, names[pair[0]]) for place, (_, one) in found.items() if place in wanted]
    return results


def kept_preferences(store: RunStore, kept: ComparisonStore, run: str, dataset: str) -> Iterator[Comparisons]:
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
        yield Comparisons(run, dataset, judge, judged, first, second, criterion, found, stale)


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

    tell = functools.partial(on_progress, "scoring") if on_progress is not None else None
    await keep_in_chunks(work, one, keep, limit=at_once, tell=tell)
    found = kept.scores(identity, judged, criterion, title, seed)
    return {names[number]: [found[place][1][names[number]] for place in places if place in found] for number in systems}


def system_names(store: RunStore) -> dict[int, str]:
    """Systems' names by number: their titles, with the model where the run has several."""
    systems = store.systems()
    several = len({system.model for system in systems}) > 1
    return {system.number: f"{system.title} ({system.model})" if several else system.title for system in systems}


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
