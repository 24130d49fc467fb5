"""What people say in the report: pairs, ratings, ranks and errors, counted and tested; dashes where nobody answered."""

from __future__ import annotations

import csv
import io
import re

import pytest

from dialore.errors import InputError
from dialore.evaluation.human.reading import read_answers, read_filled
from dialore.evaluation.human.sheets import CONTROL, criteria_set, gather, key_of, make_items, render_csv
from dialore.evaluation.report.build import make_report
from dialore.evaluation.report.forms import render_html, render_latex, render_markdown, render_people
from dialore.evaluation.report.people import people_of
from tests.evaluation.made_up import EVIL, made_up
from tests.evaluation.test_human import fill

stats = pytest.importorskip("scipy.stats", reason="the evaluation extra is not installed")


@pytest.fixture(scope="module")
def results():
    return made_up()


@pytest.fixture
def sheets(results, tmp_path):
    """Makes a folder of sheets and fills them in: `answer(systems of the item, annotator, criterion, number)`."""

    def make(name, answer, *, limit=12, annotators=3, against=None, systems=None):
        chosen = criteria_set(name)
        named = {
            each.name: results.responses(each) for each in results.systems() if each.name in (systems or (each.name,))
        }
        found = gather(named, chosen)
        items, key = make_items(found, name, chosen, chosen.form, language="en", limit=limit, against=against)
        folder = tmp_path / f"sheets-{name}"
        folder.mkdir()
        key_of(folder).write_text(key.model_dump_json(), "utf-8")
        numbers = {item.id: number for number, item in enumerate(sorted(items, key=lambda item: item.id))}
        for number in range(1, annotators + 1):

            def told(item, column, number=number):
                return answer(key.items[item].systems, number, column, numbers[item])

            fill(items, key, folder / f"annotator-{number}.csv", told)
        return folder

    return make


def better(systems, annotator, criterion, number):
    """DCRAG wins on coherence but for two items of twelve; the second annotator sees no difference on the rest."""
    if criterion == "coherence":
        return "AB"[systems.index("dcrag") ^ (number < 2)]
    return "tie" if annotator == 2 else "A"


def table(people, name):
    (found,) = [each for each in people.tables if each.name == name]
    return {
        tuple(row[: found.words]): dict(zip(found.columns[found.words :], row[found.words :], strict=True))
        for row in found.rows
    }


def test_pairs_have_wins_ties_losses_tests_over_items_and_agreement(sheets):
    people = people_of(read_answers(sheets("dcrag", better, systems=["dcrag", "vanilla"])))
    assert people.counted == "3 annotators, 12 items"
    contest = table(people, "Contests")["coherence", "dcrag / vanilla"]
    assert (contest["wins"], contest["ties"], contest["losses"], contest["items"]) == ("83.3%", "0.0%", "16.7%", "12")
    # The exact test of McNemar on 10 against 2 items, not on 30 against 6 judgements, over four criteria (Holm).
    assert contest["sign p"] == f"{4 * stats.binomtest(10, 12).pvalue:.3f}"
    agreement = table(people, "Agreement")
    assert agreement["coherence",] == {
        "annotators": "3", "items": "12", "same": "100.0%", "Cohen": "1.00", "Fleiss": "1.00", "alpha": "1.00"
    }  # fmt: skip
    assert agreement["naturalness",]["same"] == "33.3%"
    assert [each.name for each in people.tables] == ["Contests", "Agreement"]


def test_ratings_have_means_with_intervals_and_yes_or_no_its_share(sheets):
    def rated(systems, annotator, criterion, number):
        (system,) = systems
        return str(int(system == "dcrag" or number % 4 == 0))

    people = people_of(read_answers(sheets("edit", rated, systems=["dcrag", "vanilla"])))
    scores = table(people, "Scores")
    assert scores["reasonable", "dcrag"] == {"mean": "100.0%", "95%": "100.0% to 100.0%", "items": "12"}
    assert re.fullmatch(r"\d+\.\d% to \d+\.\d%", scores["reasonable", "vanilla"]["95%"])
    assert list(table(people, "Contests")["reasonable", "dcrag / vanilla"]) == [
        *("wins", "ties", "losses", "items", "Wilcoxon p", "sign p", "McNemar p")
    ]


def test_ranks_are_printed_reversed_as_scg_qps_table_1_has_them(sheets):
    """Its columns, five systems each, have 15 together: 2.71 + 2.85 + 3.01 + 3.13 + 3.29."""

    def ranked(systems, annotator, column, number):
        system = systems["ABC".index(column[-1])]
        return str(["dcrag", "dcrag (top=5)", "vanilla"].index(system) + 1)

    people = people_of(read_answers(sheets("scg-qp-response", ranked)))
    scores = table(people, "Scores")
    reversed_ranks = {system: float(scores["engagement", system]["mean rank, reversed"]) for _, system in scores}
    assert reversed_ranks["dcrag"] == 3.0
    assert reversed_ranks["vanilla"] == 1.0
    assert sum(reversed_ranks.values()) == 1 + 2 + 3
    assert table(people, "Contests")["engagement", "dcrag / vanilla"]["wins"] == "100.0%"


def test_errors_are_shares_by_module(sheets):
    def wrong(systems, annotator, criterion, number):
        return str(int(criterion == "foreseen-set" and number < 3))

    people = people_of(read_answers(sheets("dcrag-errors", wrong, annotators=1, systems=["dcrag"])))
    scores = table(people, "Scores")
    assert scores["Fact Retrieval: foreseen-set", "dcrag"]["mean"] == "25.0%"
    assert scores["Response Generation: final-response", "dcrag"]["mean"] == "0.0%"
    modules = list(dict.fromkeys(criterion.partition(":")[0] for criterion, _ in scores))
    assert modules == [
        *("Query Production", "Topic Planning", "Cross Revision", "Fact Retrieval", "Fact Selection"),
        "Response Generation",
    ]
    # One annotator cannot agree with anybody, one system cannot win.
    assert table(people, "Agreement")["Fact Retrieval: foreseen-set",]["Fleiss"] == "–"
    assert [each.name for each in people.tables] == ["Scores", "Agreement"]


def test_the_precision_of_five_questions_is_the_mean_over_them(sheets):
    """EDIT, Table 5."""

    def good(systems, annotator, criterion, number):
        return {"question-1": "1", "question-2": "1", "question-5": ""}.get(criterion, "0")

    people = people_of(read_answers(sheets("edit-questions", good, annotators=2, systems=["dcrag"])))
    assert table(people, "Scores")["precision", "dcrag"]["mean"] == "50.0%"  # of the four that there are
    assert table(people, "Scores")["question-5", "–"]["mean"] == "–"
    assert people.counted == "2 annotators, 12 items, 24 fields left empty"


def test_where_no_sheet_is_filled_in_there_are_dashes_and_the_reason(sheets, results):
    place = sheets("dcrag", lambda *_: "", against="dcrag")
    people = people_of(read_answers(place))
    assert people.counted == f"no sheet in {place} is filled in"
    assert [row[0] for row in people.tables[0].rows] == ["naturalness", "coherence", "engagingness", "informativeness"]
    assert {word for made in people.tables for row in made.rows for word in row[1:]} == {"–"}
    report = make_report(results, dialogues=0, people=[people])
    for text in (render_html(report), render_markdown(report), render_latex(report)):
        assert "is filled in" in text
    lines = list(csv.DictReader(io.StringIO(render_people([people]))))
    assert {(line["criterion"], line["reason"]) for line in lines} == {
        (name, people.counted) for name in people.chosen.criteria
    }


def test_batches_that_failed_their_control_are_counted(sheets):
    people = people_of(read_answers(sheets("msdp", lambda systems, *_: "AB"[CONTROL not in systems], annotators=1)))
    assert "batches left out" in people.counted


def test_every_form_of_the_report_has_the_section(sheets, results):
    people = people_of(read_answers(sheets("dcrag", better, systems=["dcrag", "vanilla"])))
    for contest in people.findings.contests:
        contest.first = EVIL
    assert 'id="people"' not in render_html(make_report(results, dialogues=0))
    report = make_report(results, dialogues=0, people=[people])
    page = render_html(report)
    section = page.split('<section id="people"')[1].split("</section>")[0]
    assert 'href="#people"' in page
    assert "3 annotators, 12 items" in section
    assert "83.3%" in section
    assert "<img" not in section
    text = render_markdown(report)
    assert "## People" in text
    assert re.search(r"\| coherence \| .* \| 83\.3% \| 0\.0% \| 16\.7% \| 12 \|", text)
    latex = render_latex(report)
    assert "Contests: Which response is better? (dcrag)" in latex
    assert re.search(r"coherence & .* & 83\.3\\% & 0\.0\\% & 16\.7\\% & 12 &", latex)
    lines = list(csv.DictReader(io.StringIO(render_people([people]))))
    (line,) = [line for line in lines if line["criterion"] == "coherence" and line["first"]]
    assert (line["wins"], line["losses"], line["ties"]) == ("30", "6", "0")
    assert float(line["sign"]) == pytest.approx(4 * stats.binomtest(10, 12).pvalue)
    assert float(next(line for line in lines if line["fleiss"])["same"]) == pytest.approx(1 / 3)


def test_two_filled_sheets_of_one_name_are_refused_and_empty_ones_left_aside(sheets, tmp_path):
    place = sheets("edit", lambda *_: "1", systems=["dcrag"])
    sheet = place / "annotator-1.csv"
    (place / ".~lock.annotator-1.csv").write_text("somebody has it open", "utf-8")
    assert len({each.annotator for each in read_answers(place).annotations}) == 3
    again = tmp_path / sheet.name
    again.write_bytes(sheet.read_bytes())
    key = people_key(place)
    with pytest.raises(InputError, match="two sheets are called annotator-1"):
        read_filled([sheet, again], key, place)
    again.write_text(re.sub(r",1,(?=\r?\n)", ",,", sheet.read_text("utf-8-sig")), "utf-8")
    assert len(read_filled([sheet, again], key, place).annotations) == 12


def people_key(place):
    from dialore.evaluation.human.reading import read_key

    return read_key(key_of(place))


def test_pairs_that_nobody_is_asked_about_are_ties_all_the_same(tmp_path):
    results = made_up()
    for each in results.systems():
        for scored in results.responses(each):
            object.__setattr__(scored.response, "text", "The same.")
    chosen = criteria_set("dcrag")
    found = gather({each.name: results.responses(each) for each in results.systems()[:2]}, chosen)
    items, key = make_items(found, "dcrag", chosen, "pairwise", language="en", limit=5)
    assert (len(items), len(key.same)) == (0, 5)
    folder = tmp_path / "sheets"
    folder.mkdir()
    key_of(folder).write_text(key.model_dump_json(), "utf-8")
    for number in (1, 2):
        (folder / f"annotator-{number}.csv").write_text(render_csv(items, chosen, "pairwise"), "utf-8")
    people = people_of(read_answers(folder))
    assert people.counted == "no pair of different texts to ask about"
    assert table(people, "Contests")["coherence", "dcrag / vanilla"]["ties"] == "100.0%"


def test_a_file_of_several_exports_is_refused(tmp_path):
    (tmp_path / "none.jsonl").write_text("\n", "utf-8")
    with pytest.raises(InputError):
        read_answers(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="no such file"):
        read_answers(tmp_path / "missing.jsonl")
