"""Judges' preferences between two systems: wins, ties and losses, the sign test, and how far place alone decided."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dialore.evaluation.judges.comparing import position_bias
from dialore.evaluation.report.comparison import mark_of
from dialore.evaluation.report.numbers import MINUS, p_value, share
from dialore.evaluation.statistics import Rate, holm, win_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.evaluation.report.data import Judged

READING = (
    "A system wins a dialogue where the judge picks it whichever is shown first; else it is a tie. The interval is "
    "Wilson's, 95%, of the share of wins among all; p is the sign test of wins against losses, then Holm-corrected "
    "over the criteria; * p < 0.05, ** p < 0.01 by the corrected one. Position: how often whoever was shown first was "
    "picked in both orders, less how often whoever was shown second."
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One criterion's outcome for the first system.

    Attributes:
        rate: wins, losses and ties with the sign test and the interval of the share of wins.
        p: the sign test's p, Holm-corrected over the criteria of the contest.
        lean: preferences that went by the first place less those that went by the second, as a share of all.
        unjudged: why there are fewer preferences than dialogues; empty where there are not.
    """

    criterion: str
    rate: Rate
    p: float
    lean: float
    unjudged: str

    @property
    def mark(self) -> str:
        """The mark of the corrected p-value."""
        return mark_of(self.p)

    @property
    def parts(self) -> list[float]:
        """Wins, ties and losses in per cent of all."""
        rate = self.rate
        return [100 * count / (rate.n or 1) for count in (rate.wins, rate.ties, rate.losses)]

    @property
    def row(self) -> list[str]:
        """The verdict below the columns of its contest, without its mark."""
        rate = self.rate
        judged = rate.n > 0
        wide = f" ({100 * rate.low:.1f} to {100 * rate.high:.1f})" if judged else ""
        sign = "+" if self.lean > 0 else MINUS if self.lean < 0 else ""
        return [
            self.criterion,
            *(f"{count:,}" for count in (rate.wins, rate.ties, rate.losses)),
            share(rate.wins, rate.n) + wide,
            share(rate.wins + rate.ties / 2, rate.n),
            p_value(rate.p if judged else None),
            p_value(self.p if judged else None),
            f"{sign}{100 * abs(self.lean):.1f}%" if judged else "–",
        ]


@dataclass(frozen=True, slots=True)
class Contest:
    """Two systems before one judge.

    Attributes:
        first: the system that wins are of.
        prompts: its prompts, with their hashes.
    """

    first: str
    second: str
    judge: str
    prompts: str
    judged: str
    dataset: str
    verdicts: list[Verdict]

    @property
    def columns(self) -> list[str]:
        """The head of the table of verdicts."""
        wins = [f"{self.first} wins", "ties", f"{self.second} wins"]
        return ["criterion", *wins, "share of wins", "ties half", "p", "corrected p", "position"]


def contests(found: Sequence[Judged]) -> list[Contest]:
    """Contests of what was judged, criteria in the order in which they come.

    Raises:
        MissingExtraError: the `evaluation` extra, with the tests, is not installed.
    """
    groups: dict[tuple[str, str, str, str, str, str], list[Judged]] = {}
    for one in found:
        key = (one.run, one.dataset, one.judge, one.judged, one.first, one.second)
        groups.setdefault(key, []).append(one)
    return [_contest(some) for some in groups.values()]


def _contest(some: Sequence[Judged]) -> Contest:
    rates = [win_rate([each.outcome for each in one.preferences if each.problem is None]) for one in some]
    corrected = holm([rate.p if rate.n else math.nan for rate in rates])
    verdicts = [_verdict(*each) for each in zip(some, rates, corrected, strict=True)]
    one = some[0]
    judge, _, prompts = one.judge.partition(", ")
    return Contest(one.first, one.second, judge, prompts, one.judged, one.dataset, verdicts)


def _verdict(one: Judged, rate: Rate, p: float) -> Verdict:
    problems = Counter(each.problem for each in one.preferences if each.problem is not None)
    lacking = ", ".join(f"{count} {problem}" for problem, count in problems.items())
    return Verdict(one.criterion, rate, p, position_bias(one.preferences), lacking)
