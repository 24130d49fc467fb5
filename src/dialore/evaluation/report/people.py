"""People's judgements of systems as tables: sections of a report, and `dialore annotate agreement`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from dialore.evaluation.human.agreement import AnnotationResults, Contest, analyse
from dialore.evaluation.human.sheets import CriteriaSet, criteria_set
from dialore.evaluation.report.data import p_value, share, three
from dialore.evaluation.report.tables import mark_of

if TYPE_CHECKING:
    from dialore.evaluation.human.reading import Answers

READING = (
    "Means have their 95% bootstrap interval over dialogues. Wins are the first system's, of all judgements. Tests are "
    "over items, each by the mean of its annotators (Wilcoxon's signed-rank, t) or by their majority (sign, which for "
    "pairs is McNemar's exact test; McNemar for yes or no), Holm-corrected over all contests of the set; * p < 0.05, "
    "** p < 0.01. Agreement is on what two annotators or more answered. A dash: there is nothing to compute it from."
)
_TESTS = {"p": "Wilcoxon p", "sign": "sign p", "mcnemar": "McNemar p", "t": "t-test p"}


class Table(NamedTuple):
    """A table of texts: the first `words` columns are words, the others figures."""

    name: str
    words: int
    columns: list[str]
    rows: list[list[str]]


@dataclasses.dataclass(frozen=True, slots=True)
class People:
    """One export's judgements. `counted` says how much annotators answered, or why there is nothing."""

    name: str
    chosen: CriteriaSet
    counted: str
    findings: AnnotationResults

    @property
    def unanswered(self) -> list[str]:
        """The questions without an answer."""
        answered = {row.criterion for row in self.findings.agreement}
        return [name for name in self.chosen.criteria if name not in answered]

    @property
    def tables(self) -> list[Table]:
        """Scores, contests and agreement, as far as the form of the sheets has them."""
        findings, tables = self.findings, []
        if findings.form != "pairwise":
            mean = "mean rank, reversed" if findings.form == "ranking" else "mean"
            rows = []
            for row in findings.standings:
                figure = self._figure(row.criterion, row.mean)
                low, high = (self._figure(row.criterion, end) for end in (row.low, row.high))
                interval = low if low == "–" else f"{low} to {high}"
                rows.append([row.criterion, row.system, figure, interval, str(row.items)])
            tables.append(self._table("Scores", 2, ["system", mean, "95%", "items"], rows))
        if findings.form == "pairwise" or findings.contests:
            tests = [test for test in _TESTS if any(getattr(it, test) is not None for it in findings.contests)]
            columns = ["systems", "wins", "ties", "losses", "items", *(_TESTS[test] for test in tests)]
            tables.append(self._table("Contests", 2, columns, (_contest(it, tests) for it in findings.contests)))
        rows = []
        for it in findings.agreement:
            coefficients = [three(value) for value in (it.cohen, it.fleiss, it.alpha)]
            rows.append([it.criterion, str(it.annotators), str(it.items), share(it.same, 1), *coefficients])
        columns = ["annotators", "items", "same", "Cohen", "Fleiss", "alpha"]
        return [*tables, self._table("Agreement", 1, columns, rows)]

    def _table(self, name: str, words: int, columns: list[str], rows: Iterable[list[str]]) -> Table:
        """Return a table of rows that start with their criterion, with a row of dashes for each unanswered question."""
        table = Table(name, words, ["criterion", *columns], [*rows])
        table.rows.extend([criterion, *["–"] * len(columns)] for criterion in self.unanswered)
        for row in table.rows:
            criterion = self.chosen.criteria.get(row[0])
            if criterion is not None and criterion.module:
                row[0] = f"{criterion.module}: {row[0]}"
        return table

    def _figure(self, name: str, mean: float) -> str:
        """Return a mean score, as a share if the question is answered by yes or no."""
        criteria = self.chosen.criteria
        asked = [criteria[name]] if name in criteria else list(criteria.values())
        if self.findings.form == "likert" and all(criterion.scale == (0, 1) for criterion in asked):
            return share(mean, 1)
        return three(mean)


def _contest(contest: Contest, tests: Iterable[str]) -> list[str]:
    rate = contest.rate
    shares = [share(count, rate.n) for count in (rate.wins, rate.ties, rate.losses)]
    row = [contest.criterion, f"{contest.first} / {contest.second}", *shares, str(contest.items)]
    for test in tests:
        p: float | None = getattr(contest, test)
        row.append(p_value(p) + mark_of(1 if p is None else p))
    return row


def people_of(answers: Answers) -> People:
    """Return what annotators say; raise MissingExtraError without the `evaluation` extra."""
    asked = [annotation for annotation in answers.annotations if annotation.asked]
    counts = {
        "annotators": len({annotation.annotator for annotation in asked}),
        "items": len({annotation.item for annotation in asked}),
        "fields left empty": answers.empty,
        "batches left out, as their control case was judged wrongly": answers.dropped,
    }
    counted = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    if not counted:
        counted = "no pair of different texts to ask about"
        if not answers.annotations:
            counted = f"no sheet in {answers.place} is filled in"
    findings = analyse(answers.annotations)
    findings.form = answers.form
    return People(answers.criteria, criteria_set(answers.criteria), counted, findings)
