"""Preferences of judges in the report: counted, tested, corrected; none where none are."""

from __future__ import annotations

import re

import pytest

from dialore.dialogue import Dialogue
from dialore.evaluation.judges.asking import JudgeClient
from dialore.evaluation.judges.comparing import Preference
from dialore.evaluation.report.build import make_report
from dialore.evaluation.report.data import Judged
from dialore.evaluation.report.forms import render_html, render_markdown
from dialore.evaluation.report.tables import contests
from dialore.experiments.results import RunResults
from dialore.experiments.scoring import compare_systems
from dialore.experiments.store import Job, RunStore, System
from dialore.response import Response
from tests.evaluation.made_up import EVIL, made_up
from tests.evaluation.test_judges_comparing import Opinionated

stats = pytest.importorskip("scipy.stats", reason="the evaluation extra is not installed")
pytest.importorskip("statsmodels", reason="the evaluation extra is not installed")
BOTH = {"win": ("a", "a"), "loss": ("b", "b"), "tie": ("", ""), "first": ("a", "b"), "second": ("b", "a")}


def preferences(criterion, **counts):
    made = [Preference(criterion, "a", "b", BOTH[kind]) for kind, n in counts.items() if kind in BOTH for _ in range(n)]
    return made + [Preference(criterion, "a", "b", problem="refused")] * counts.get("refused", 0)


def judged(criterion, judge="m, pairwise-responses.en@1", **counts):
    return Judged("r", "d", judge, "responses", "a", "b", criterion, preferences(criterion, **counts))


def test_counts_tests_and_position():
    found = [
        judged("overall", win=14, loss=2, tie=3, first=3, second=1, refused=2),
        judged("coherence", tie=4),
    ]
    (contest,) = contests(found)
    assert (contest.judge, contest.prompts) == ("m", "pairwise-responses.en@1")
    overall, coherence = contest.verdicts
    assert (overall.rate.wins, overall.rate.losses, overall.rate.ties) == (14, 2, 7)
    raw = stats.binomtest(14, 16).pvalue
    assert overall.rate.p == pytest.approx(raw)
    assert overall.p == pytest.approx(2 * raw)  # Holm, over two criteria
    assert (overall.mark, coherence.mark) == ("**", "")
    assert overall.row[4].startswith("60.9% (")
    assert (overall.row[5], overall.row[8]) == ("76.1%", "+8.7%")
    assert overall.unjudged == "2 refused"
    assert sum(overall.parts) == pytest.approx(100)
    assert contest.columns[1] == "a wins"
    assert coherence.row[1:5] == ["0", "4", "0", "0.0% (0.0 to 49.0)"]


def test_where_nothing_was_judged_nothing_is_claimed():
    (contest,) = contests([judged("overall", refused=3)])
    assert contest.verdicts[0].row == ["overall", "0", "0", "0", "–", "–", "–", "–", "–"]
    assert contest.verdicts[0].mark == ""


def test_another_judge_is_another_contest():
    found = contests([judged("overall", win=1), judged("overall", judge="n", win=1)])
    assert [each.judge for each in found] == ["m", "n"]


def test_the_page_and_markdown_have_the_section_only_where_judges_were_asked():
    results = made_up()
    assert 'id="preferences"' not in render_html(make_report(results, dialogues=0))
    results.preferred = [judged("overall", judge=EVIL.split(",", maxsplit=1)[0], win=9, loss=1, tie=2)]
    report = make_report(results, dialogues=0)
    page = render_html(report)
    section = page.split('<section id="preferences"')[1].split("</section>")[0]
    assert 'aria-label="9 wins, 2 ties, 1 losses"' in section
    assert [float(part) for part in re.findall(r'<i style="width:([\d.]+)%">', section)] == [75.0, 16.67, 8.33]
    assert "<img" not in section
    assert 'href="#preferences"' in page
    text = render_markdown(report)
    assert "## Preferences" in text
    assert re.search(r"\| 9 \| 2 \| 1 \| 75\.0% \(.*\) \| 83\.3% \| 0\.021 \| 0\.021\\\* \| 0\.0% \|", text)


@pytest.fixture
def folder(tmp_path):
    """Two systems on three dialogues."""
    with RunStore.create(tmp_path / "run") as store:
        systems = [System(number, name, "vanilla", {}, "m") for number, name in enumerate(("a", "b"))]
        facts = {"name": "try", "config": {"dataset": {"name": "daily", "split": "dev", "limit": 3}}}
        store.set_up(facts, systems, [Dialogue(id=f"d{n}", turns=["Hi"]) for n in range(3)])
        for n in range(3):
            for system in range(2):
                store.add(Job(n, system), Response(id=f"d{n}", method="m", text=f"Text {system}."))
    return tmp_path / "run"


async def test_a_runs_comparisons_are_read_and_those_of_changed_responses_are_not(folder):
    with RunStore.open(folder) as store, store.writing():
        await compare_systems(store, JudgeClient(Opinionated(lambda a, b: "A")), (0, 1), criteria=["overall"])
        store.prefer("m", "responses", "another hash", [Preference("overall", "a", "gone", ("a", "a"))])
        store.add(Job(2, 1), Response(id="d2", method="m", text="Changed since."))
        (found,) = RunResults([store]).judged()
    assert (found.run, found.dataset, found.first, found.second) == ("try", "daily dev, 3", "a", "b")
    assert [one.outcome for one in found.preferences] == ["tie", "tie"]
