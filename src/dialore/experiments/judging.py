"""Comparing a run's systems by a judge: resumable, apart from generation and from scores."""

from __future__ import annotations

import functools
import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from dialore.errors import ModelError, is_fatal
from dialore.evaluation.judges.comparing import Judged, Preference, compare, shown
from dialore.evaluation.report.data import Judged as Comparisons
from dialore.experiments.scoring import answered_by, responses_of, system_names
from dialore.experiments.store import FILE, RunStore
from dialore.parallel import bounded_map

if TYPE_CHECKING:
    from dialore.evaluation.judges.asking import Asker

_SCHEMA = """
create table if not exists preferences (judge text not null, judged text not null, first text not null,
    second text not null, criterion text not null, texts text not null, forward text not null, backward text not null,
    problem text, reason text not null,
    primary key (judge, judged, first, second, criterion, texts)) without rowid
"""


class ComparisonStore:
    """What judges said of a run's systems against each other, in the run's own file.

    A preference is known by the hash of dialogue and texts that were compared, so that one of a response that changed
    since is not found.

    Args:
        folder: the run.
        reading: nothing is to be kept; a run without such a table stays without.
    """

    def __init__(self, folder: Path, *, reading: bool = False) -> None:
        self._database = sqlite3.connect(folder / FILE, timeout=30.0)
        if not reading:
            self._database.execute(_SCHEMA)

    def compared(self) -> list[tuple[str, str, str, str, str]]:
        """What `preferences` has something of: judge, what was judged, first system, second, criterion."""
        there = "select 1 from sqlite_master where type = 'table' and name = 'preferences'"
        if self._database.execute(there).fetchone() is None:
            return []
        return list(self._database.execute("select distinct judge, judged, first, second, criterion from preferences"))

    def preferences(self, judge: str, judged: str, first: str, second: str, criterion: str) -> dict[str, Preference]:
        """Preferences by the hash of what was compared."""
        sql = (
            "select texts, forward, backward, problem, reason from preferences where judge = ? "
            "and judged = ? and first = ? and second = ? and criterion = ?"
        )
        rows = self._database.execute(sql, (judge, judged, first, second, criterion))
        return {
            texts: Preference(criterion, first, second, (forward, backward), problem, reason)
            for texts, forward, backward, problem, reason in rows
        }

    def keep(self, judge: str, judged: str, texts: str, found: Iterable[Preference]) -> None:
        """Keep preferences of one pair of texts; they are on disk when this returns."""
        rows = [
            (judge, judged, one.first, one.second, one.criterion, texts, *one.picks, one.problem, one.reason)
            for one in found
        ]
        with self._database as database:
            database.executemany("insert or replace into preferences values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

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
    """Compare two systems on every dialogue that both answered; what has been compared is not asked again.

    Wins and losses are the first one's of the pair. The store must be held for writing.

    Returns:
        Preferences by criterion, in the data set's order, those with a problem too.

    Raises:
        ModelError: the judge's endpoint refuses for every dialogue.
        BudgetError: the budget is spent; what is judged is kept.
    """
    ordered = sorted(pair)  # the same whichever way it is asked
    names = system_names(store)
    first, second = (names[number] for number in ordered)
    identity = judge.identity(f"pairwise-{judged}")
    hashes = _hashes(store, ordered, judged, limit)
    before = {name: kept.preferences(identity, judged, first, second, name) for name in criteria}

    def missing(texts: str) -> list[str]:
        return [name for name in criteria if texts not in before[name] or before[name][texts].problem == "failed"]

    work = [(place, texts) for place, texts in hashes.items() if missing(texts)]
    done = 0

    async def one(item: tuple[tuple[int, int], str]) -> None:
        nonlocal done
        (position, repetition), texts = item
        responses = responses_of(store, position, repetition, ordered)
        try:
            found = await compare(judge, store.dialogue(position), responses, criteria=missing(texts), judged=judged)
        except ModelError as error:
            if is_fatal(error):
                raise
            found = [Preference(name, first, second, problem="failed", reason=str(error)) for name in missing(texts)]
        kept.keep(identity, judged, texts, found)
        done += 1
        if on_progress is not None:
            on_progress("comparing", done, len(work))

    await bounded_map(work, one, limit=at_once)
    results: dict[str, list[Preference]] = {}
    for name in criteria:
        known = kept.preferences(identity, judged, first, second, name)
        results[name] = [_as_asked(known[texts], names[pair[0]]) for texts in hashes.values() if texts in known]
    return results


def kept_preferences(store: RunStore, kept: ComparisonStore, run: str, dataset: str) -> Iterator[Comparisons]:
    """Everything that is kept of comparisons of the run's responses as they are now."""
    numbers = {name: number for number, name in system_names(store).items()}

    @functools.cache
    def hashes(first: str, second: str, judged: Judged) -> list[str]:
        return list(_hashes(store, [numbers[first], numbers[second]], judged).values())

    for judge, judged, first, second, criterion in kept.compared():
        if first in numbers and second in numbers:
            known = kept.preferences(judge, judged, first, second, criterion)
            found = [known[texts] for texts in hashes(first, second, cast("Judged", judged)) if texts in known]
            yield Comparisons(run, dataset, judge, judged, first, second, criterion, found)


def _hashes(
    store: RunStore, systems: Sequence[int], judged: Judged, limit: int | None = None
) -> dict[tuple[int, int], str]:
    """The hash of what is compared of each dialogue that all systems answered, by position and repetition."""
    found = {}
    for position, repetition in answered_by(store, systems)[:limit]:
        texts = [shown(response, judged) for response in responses_of(store, position, repetition, systems).values()]
        content = "\n".join([f"{position} {repetition}", *texts])
        found[position, repetition] = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
    return found


def _as_asked(one: Preference, first: str) -> Preference:
    """The preference with the system that was named first as its first."""
    if one.first == first:
        return one
    return Preference(one.criterion, one.second, one.first, (one.picks[1], one.picks[0]), one.problem, one.reason)
