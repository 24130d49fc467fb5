"""People's judgements of systems as tables: sections of a report, and `dialore annotate agreement`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dialore.evaluation.human.agreement import Agreement, AnnotationResults, Contest, Standing, analyse
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
    """A table: its first `words` columns are words, the others figures."""

    name: str
    words: int
    columns: list[str]
    rows: list[list[str]]


@dataclasses.dataclass(frozen=True, slots=True)
class People:
    """One export's judgements by a set of criteria; `counted` says how much annotators answered, or why nothing."""

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
        """Scores, contests and agreement, as the form has them."""
        findings, tables = self.findings, []
        if findings.form != "pairwise":
            columns = ["system", "mean rank, reversed" if findings.form == "ranking" else "mean", "95%", "items"]
            tables.append(self._table("Scores", 2, columns, findings.standings, self._standing))
        if findings.form == "pairwise" or findings.contests:
            contests = findings.contests
            tests = [test for test in _TESTS if any(getattr(contest, test) is not None for contest in contests)]
            columns = ["systems", "wins", "ties", "losses", "items", *(_TESTS[test] for test in tests)]

            def row(contest: Contest) -> list[str]:
                rate = contest.rate
                shares = (share(count, rate.n) for count in (rate.wins, rate.ties, rate.losses))
                p_values = (getattr(contest, test) for test in tests)
                marked = (p_value(p) + ("" if p is None else mark_of(p)) for p in p_values)
                return [f"{contest.first} / {contest.second}", *shares, str(contest.items), *marked]

            tables.append(self._table("Contests", 2, columns, findings.contests, row))
        columns = ["annotators", "items", "same", "Cohen", "Fleiss", "alpha"]
        return [*tables, self._table("Agreement", 1, columns, findings.agreement, _agreement)]

    def _table(
        self, name: str, words: int, columns: list[str], found: Sequence[Any], row: Callable[[Any], list[str]]
    ) -> Table:
        """Return a row for each finding, after its criterion, and one of dashes for each unanswered question."""
        named = [(entry.criterion, row(entry)) for entry in found]
        named += [(criterion, ["–"] * len(columns)) for criterion in self.unanswered]
        modules = {criterion: f"{entry.module}: " for criterion, entry in self.chosen.criteria.items() if entry.module}
        rows = [[modules.get(criterion, "") + criterion, *cells] for criterion, cells in named]
        return Table(name, words, ["criterion", *columns], rows)

    def _standing(self, found: Standing) -> list[str]:
        """Of yes or no the share of yes."""
        criteria = self.chosen.criteria
        asked = [criteria[found.criterion]] if found.criterion in criteria else criteria.values()
        is_share = self.findings.form == "likert" and all(annotation.scale == (0, 1) for annotation in asked)
        mean, low, high = (share(x, 1) if is_share else three(x) for x in (found.mean, found.low, found.high))
        return [found.system, mean, low if low == "–" else f"{low} to {high}", str(found.items)]


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
    same = "no pair of different texts to ask about"
    nothing = same if answers.annotations else f"no sheet in {answers.place} is filled in"
    findings = analyse(answers.annotations)
    findings.form = answers.form
    return People(answers.criteria, criteria_set(answers.criteria), counted or nothing, findings)


def _agreement(found: Agreement) -> list[str]:
    kappas = map(three, (found.cohen, found.fleiss, found.alpha))
    return [str(found.annotators), str(found.items), share(found.same, 1), *kappas]
