"""What judges prefer of two systems: wins, ties and losses, the sign test, and how far place alone decided."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dialore.evaluation.judges.comparing import Bias, position_bias
from dialore.evaluation.report.comparison import mark_of
from dialore.evaluation.report.numbers import MINUS, p_value, share
from dialore.evaluation.statistics import Rate, correct, win_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.evaluation.report.data import Judged


@dataclass(frozen=True, slots=True)
class Verdict:
    """One criterion's outcome for the first system.

    Attributes:
        criterion: what was compared.
        rate: wins, losses and ties with the sign test and the interval of the share of wins.
        p: the sign test's p, Holm-corrected over the criteria of the contest.
        bias: how far place alone decided.
        problems: how many have no preference, by why.
        stale: how many more are of responses that changed since.
    """

    criterion: str
    rate: Rate
    p: float
    bias: Bias
    problems: Counter[str]
    stale: int

    @property
    def mark(self) -> str:
        """`*` for p < 0.05, `**` for p < 0.01, corrected; else nothing."""
        return mark_of(self.p)

    @property
    def parts(self) -> tuple[float, float, float]:
        """Wins, ties and losses in per cent of all."""
        rate = self.rate
        wins, ties, losses = (100 * count / (rate.n or 1) for count in (rate.wins, rate.ties, rate.losses))
        return wins, ties, losses

    @property
    def interval(self) -> str:
        """The share of wins among all, and its 95% interval."""
        if not self.rate.n or math.isnan(self.rate.low):
            return "–"
        return f"{share(self.rate.wins, self.rate.n)} ({100 * self.rate.low:.1f} to {100 * self.rate.high:.1f})"

    @property
    def half(self) -> str:
        """The share of wins, ties counted as half."""
        return share(self.rate.wins + self.rate.ties / 2, self.rate.n)

    @property
    def lean(self) -> str:
        """Preferences that went by the first place less those that went by the second, in per cent of all."""
        lean = self.bias.lean
        if not lean or math.isnan(lean):
            return "–" if lean else "0.0%"
        return f"{100 * lean:+.1f}%".replace("-", MINUS)

    @property
    def unjudged(self) -> str:
        """Why there are fewer preferences than dialogues; empty where there are not."""
        counts = [f"{count} {problem}" for problem, count in self.problems.items()]
        return ", ".join([*counts, *([f"{self.stale} of a response that changed since"] if self.stale else [])])


@dataclass(frozen=True, slots=True)
class Contest:
    """Two systems before one judge.

    Attributes:
        first: the system that wins are of.
        second: the other.
        judge: the judge's model.
        prompts: its prompts, with their hashes.
        judged: what it was shown.
        dataset: the data set.
        run: the run's name.
        verdicts: one a criterion.
    """

    first: str
    second: str
    judge: str
    prompts: str
    judged: str
    dataset: str
    run: str
    verdicts: list[Verdict]


HEAD = ("criterion", "first wins", "ties", "second wins", "share of wins", "ties half", "p", "corrected p", "position")
"""The columns; the first system's name and the second's stand for "first" and "second"."""
READING = (
    "A system wins a dialogue where the judge picks it whichever is shown first; else it is a tie. The interval is "
    "Wilson's, 95%, of the share of wins among all; p is the sign test of wins against losses, then Holm-corrected "
    "over the criteria; * p < 0.05, ** p < 0.01 by the corrected one. Position: how often whoever was shown first was "
    "picked in both orders, less how often whoever was shown second."
)


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


def columns(contest: Contest) -> list[str]:
    """The head of a contest's table."""
    names = {"first wins": f"{contest.first} wins", "second wins": f"{contest.second} wins"}
    return [names.get(name, name) for name in HEAD]


def row(verdict: Verdict) -> list[str]:
    """A verdict as a row below `columns`, without its mark."""
    rate = verdict.rate
    counts = [f"{rate.wins:,}", f"{rate.ties:,}", f"{rate.losses:,}"]
    tested = [p_value(rate.p if rate.n else None), p_value(verdict.p if rate.n else None)]
    return [verdict.criterion, *counts, verdict.interval, verdict.half, *tested, verdict.lean]


def _contest(some: Sequence[Judged]) -> Contest:
    made = [_verdict(one) for one in some]
    corrected = correct([each.rate.p if each.rate.n else math.nan for each in made])
    verdicts = [replace(each, p=p) for each, p in zip(made, corrected, strict=True)]
    one = some[0]
    judge, _, prompts = one.judge.partition(", ")
    return Contest(one.first, one.second, judge, prompts, one.judged, one.dataset, one.run, verdicts)


def _verdict(one: Judged) -> Verdict:
    rate = win_rate([each.outcome for each in one.preferences if each.problem is None])
    problems = Counter(str(each.problem) for each in one.preferences if each.problem is not None)
    return Verdict(one.criterion, rate, rate.p, position_bias(one.preferences), problems, one.stale)
