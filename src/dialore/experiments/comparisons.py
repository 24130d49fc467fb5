"""Where judges' comparisons of a run's systems are kept: tables of their own in the run's file."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from dialore.evaluation.base import Measure
from dialore.evaluation.judges.comparing import Preference
from dialore.experiments.store_file import FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

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

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()
