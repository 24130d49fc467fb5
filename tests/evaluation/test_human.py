"""Human evaluation: blinding and its key, sheets read back, errors by row and column, agreement with known answers."""

from __future__ import annotations

import csv
import io
import math
import random

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, UnknownNameError
from dialore.evaluation.human.agreement import analyse, mean_ratings
from dialore.evaluation.human.reading import Annotation, read_key, read_sheet
from dialore.evaluation.human.sheets import (
    CONTROL,
    Key,
    answer_columns,
    criteria_set,
    criteria_sets,
    for_annotator,
    gather,
    make_items,
    render_csv,
    table_of,
)
from dialore.evaluation.report.data import ScoredResponse
from dialore.knowledge import Fact, Knowledge
from dialore.response import Demands, Response, StageTrace
from tests.evaluation.made_up import COUNT, made_up

pytest.importorskip("scipy", reason="the evaluation extra is not installed")
FORMS = ("pairwise", "likert", "ranking")
SYSTEMS = ["vanilla", "dcrag", "dcrag (top=5)"]


@pytest.fixture(scope="module")
def found():
    results = made_up()
    return gather({system.name: results.responses(system) for system in results.systems()}, criteria_set("dcrag"))


def export(found, name="dcrag", form="pairwise", **changes):
    return make_items(found, name, criteria_set(name), form, **{"language": "en", **changes})


def fill(items, key, path, answer):
    """Fill a sheet's empty columns as an annotator would: `answer(item id, column)`."""
    chosen = criteria_set(key.criteria)
    lines = list(csv.DictReader(io.StringIO(render_csv(items, chosen, key.form).removeprefix("\ufeff"))))
    for line in lines:
        letters = len(key.items[line["item"]].systems)
        for column in answer_columns(chosen.criteria, key.form, letters):
            line[column] = answer(line["item"], column)
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return path


@pytest.mark.parametrize("name", criteria_sets())
def test_every_criterion_asks_in_both_languages(name):
    chosen = criteria_set(name)
    assert chosen.form in FORMS
    for words in (chosen.title, chosen.guide, *(w for c in chosen.criteria.values() for w in (c.compare, c.rate))):
        assert words.en.isascii()
        assert any("一" <= character <= "鿿" for character in words.zh)
    # An answer's column is no other one's: it would be filled with what is read.
    columns = table_of([], chosen, chosen.form)[0]
    assert len(columns) == len(set(columns))
    for criterion in chosen.criteria.values():
        assert {min(criterion.anchors), max(criterion.anchors)} == set(criterion.scale)


def test_the_papers_criteria():
    assert list(criteria_set("dcrag").criteria) == ["naturalness", "coherence", "engagingness", "informativeness"]
    assert {n: c.scale for n, c in criteria_set("safari").criteria.items()} == {
        "coherence": (1, 5),
        "persona-consistency": (0, 1),
        "knowledge-consistency": (0, 1),
    }
    # SCG-QP rates queries, ranks responses, and counts errors; EDIT judges each of five questions.
    forms = ("scg-qp-query", "scg-qp-response", "scg-qp-errors", "edit", "edit-questions")
    assert [criteria_set(name).form for name in forms] == ["likert", "ranking", "likert", "likert", "likert"]
    errors = ["incorrect-topic", "trivial", "instruction-mismatch", "other"]
    assert list(criteria_set("scg-qp-errors").criteria) == errors
    assert {c.scale for n in ("scg-qp-errors", "edit-questions") for c in criteria_set(n).criteria.values()} == {(0, 1)}
    assert list(criteria_set("edit-questions").criteria) == [f"question-{number}" for number in range(1, 6)]
    assert list(criteria_set("msdp").criteria) == ["relevance", "engagement", "knowledgeability"]
    with pytest.raises(UnknownNameError, match="did you mean dcrag"):
        criteria_set("dcarg")


def test_only_dialogues_that_every_system_answered(found):
    assert len(found) == COUNT - 1
    assert "d2" not in found


def test_pairs_are_balanced_blind_and_the_same_for_a_seed(found):
    items, key = export(found, against="dcrag", limit=20, seed=4)
    assert len(items) == 40
    first = [each.systems[0] for each in key.items.values() if "vanilla" in each.systems]
    assert (first.count("dcrag"), first.count("vanilla")) == (10, 10)
    sheet = render_csv(items, criteria_set("dcrag"), "pairwise")
    head, *_ = csv.reader(io.StringIO(sheet))
    assert "system" not in "".join(head)
    for item in items:
        systems = key.items[item.id].systems
        assert [text.split(" NaN ")[-1] for text in item.texts] == [
            f"Tea is nice. {s} {key.items[item.id].dialogue[1:]}" for s in systems
        ]
    assert export(found, against="dcrag", limit=20, seed=4) == (items, key)
    assert export(found, against="dcrag", limit=20, seed=5)[1].items != key.items


def test_each_annotator_has_an_order_of_their_own(found):
    items, _ = export(found, limit=10)
    one, two = (for_annotator(items, number, 0) for number in (1, 2))
    assert [each.id for each in one] != [each.id for each in two]
    assert sorted(each.id for each in one) == sorted(each.id for each in two)


def test_forms_and_what_they_refuse(found):
    assert len(export(found, form="likert", limit=5)[0]) == 15
    ranking, key = export(found, form="ranking", limit=5)
    assert [len(item.texts) for item in ranking] == [3] * 5
    assert len({each.systems for each in key.items.values()}) > 1
    with pytest.raises(UnknownNameError, match="unknown system"):
        export(found, against="nobody")
    with pytest.raises(InputError, match="compares systems"):
        export({name: (d, {"vanilla": r["vanilla"]}) for name, (d, r) in found.items()})
    with pytest.raises(InputError, match="no dialogue has a response"):
        export({})


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "＝1+1"])
def test_a_spreadsheet_takes_nothing_for_a_formula(found, text):
    _, answers = found["d0"]
    evil = {s: r.model_copy(update={"text": text}) for s, r in answers.items()}
    items, _ = export({"d0": (found["d0"][0], evil)}, form="likert")
    rows = list(csv.DictReader(io.StringIO(render_csv(items, criteria_set("dcrag"), "likert"))))
    assert {row["response"] for row in rows} == {f"'{text}"}


def test_no_item_is_called_by_what_a_spreadsheet_takes_for_a_number(found):
    names = [item.id for seed in range(40) for item in export(found, limit=20, seed=seed)[0]]
    assert len(set(names)) > 2000
    assert all(name[0] == "i" and int(name[1:], 16) >= 0 for name in names)


@pytest.mark.parametrize("form", FORMS)
def test_a_sheet_reads_back(found, form, tmp_path):
    items, key = export(found, form=form, limit=4)
    draw = random.Random(1)
    given = {}

    def answer(item, column):
        value = draw.choice(["A", "b", "Tie"]) if form == "pairwise" else str(draw.randint(1, 3))
        given[item, column] = value
        return value

    *_, annotations, empty, _ = read_sheet(fill(items, key, tmp_path / "ann.csv", answer), key, "ann")
    assert empty == 0
    assert len(annotations) == len(items) * 4
    for each in annotations:
        systems = key.items[each.item].systems
        if form == "pairwise":
            side = given[each.item, each.criterion].upper()
            assert each.winner == {"A": systems[0], "B": systems[1], "TIE": None}[side]
        elif form == "likert":
            assert each.values == {systems[0]: float(given[each.item, each.criterion])}
        else:
            assert each.values == {
                s: float(given[each.item, f"{each.criterion} {letter}"])
                for s, letter in zip(systems, "ABC", strict=True)
            }


def test_what_is_wrong_is_told_by_row_and_column(found, tmp_path):
    items, key = export(found, limit=2)
    path = fill(items, key, tmp_path / "bob.csv", lambda item, column: "A")
    lines = path.read_text("utf-8-sig").replace("\r\n", "\n")
    rows = list(csv.reader(io.StringIO(lines)))
    place = rows[0].index("coherence")
    rows[1][place] = "C"
    rows[2][0] = "nonsense"
    rows[3][0] = rows[1][0]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=";").writerows(rows)
    with pytest.raises(InputError) as wrong:
        read_sheet(path, key, "bob")
    said = str(wrong.value)
    assert "bob.csv, row 2, column coherence: 'C' is none of A, B, tie" in said
    assert "row 3, column item: 'nonsense' is no item of this export" in said
    assert "row 4, column item" in said
    assert "stands twice" in said
    rows[0][place] = "coherance"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    with pytest.raises(InputError, match="no column coherence"):
        read_sheet(path, key, "bob")


def test_numbers_outside_the_scale_and_half_filled_ranks(found, tmp_path):
    items, key = export(found, "safari", "likert", limit=1)
    assert {item.skips for item in items} >= {("persona-consistency",)}  # nobody's persona is known here
    items, key = export(found, "edit", "likert", limit=1)
    path = fill(items, key, tmp_path / "a.csv", lambda item, column: "2")
    with pytest.raises(InputError, match="column reasonable: '2' is no whole number from 0 to 1"):
        read_sheet(path, key, "a")
    items, key = export(found, form="ranking", limit=1)
    path = fill(items, key, tmp_path / "b.csv", lambda item, column: "" if column == "coherence B" else "1")
    with pytest.raises(InputError, match="column coherence B: is empty, where other ranks are given"):
        read_sheet(path, key, "b")


def test_empty_fields_are_counted_not_scored(found, tmp_path):
    items, key = export(found, limit=1)
    path = fill(items, key, tmp_path / "a.csv", lambda item, column: "" if column == "coherence" else "A")
    *_, annotations, empty, _ = read_sheet(path, key, "a")
    assert empty == len(items)
    assert "coherence" not in {each.criterion for each in annotations}


def test_files_that_are_no_keys_or_sheets(tmp_path, found):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match="no key"):
        read_key(tmp_path / "x.json")
    with pytest.raises(InputError, match="no such file"):
        read_key(tmp_path / "none.json")
    _, key = export(found, limit=1)
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8"):
        read_sheet(tmp_path / "x.csv", key, "a")
    assert Key.model_validate_json(key.model_dump_json()) == key


def pairwise(annotator, item, winner, systems=("x", "y")):
    return Annotation(
        annotator=annotator,
        item=item,
        dialogue=item,
        criteria="dcrag",
        criterion="coherence",
        form="pairwise",
        systems=systems,
        winner=winner,
    )


def test_agreement_with_known_figures():
    # Fleiss' kappa of two raters over four items, worked by hand: agreement 3/4, by chance (5/8)² + (3/8)² = 34/64.
    labels = [("x", "x"), ("x", "x"), ("y", "y"), ("x", "y")]
    given = [pairwise(who, f"i{n}", pair[k]) for n, pair in enumerate(labels) for k, who in enumerate("ab")]
    (found,) = analyse(given).agreement
    assert (found.annotators, found.items) == (2, 4)
    assert found.same == pytest.approx(0.75)
    assert found.fleiss == pytest.approx((0.75 - 34 / 64) / (1 - 34 / 64))
    assert found.cohen == pytest.approx(0.5)  # (3/4 - 1/2) / (1 - 1/2)
    # Alpha: 1 - observed / expected disagreement; 8 values, 5 of x, 3 of y: expected 2·5·3 / (8·7).
    assert found.alpha == pytest.approx(1 - (2 / 8) / (30 / 56))


def test_win_rates_count_judgements_and_tests_count_items():
    given = [pairwise(who, f"i{n}", "x", ("y", "x") if n % 2 else ("x", "y")) for n in range(12) for who in "abc"]
    given += [pairwise(who, "t", winner) for who, winner in zip("abc", ("x", "y", None), strict=True)]
    (contest,) = analyse(given).contests
    assert (contest.first, contest.second, contest.items) == ("x", "y", 13)
    assert (contest.rate.wins, contest.rate.losses, contest.rate.ties) == (37, 1, 1)
    assert contest.sign == pytest.approx(2 * 0.5**12)  # 12 items won, the one without a majority is a tie
    assert contest.p < 0.001


def scored(annotator, dialogue, values, form="likert", criterion="coherence"):
    return Annotation(
        annotator=annotator,
        item=dialogue + "".join(values),
        dialogue=dialogue,
        criteria="safari",
        criterion=criterion,
        form=form,
        systems=tuple(values),
        values=values,
    )


def test_scores_have_means_and_systems_are_compared_by_dialogue():
    given = []
    for n in range(10):
        for who in "ab":
            given += [scored(who, f"d{n}", {"x": 4.0 + n % 2}), scored(who, f"d{n}", {"y": 2.0 + n % 2})]
    findings = analyse(given)
    assert {each.system: each.mean for each in findings.standings} == {"x": 4.5, "y": 2.5}
    assert all(each.low <= each.mean <= each.high and each.items == 10 for each in findings.standings)
    (contest,) = findings.contests
    assert (contest.rate.wins, contest.items, contest.mcnemar) == (20, 10, None)
    assert contest.p < 0.01
    assert findings.agreement[0].alpha == pytest.approx(1.0)
    assert math.isnan(contest.t)  # every difference is the same


def test_scores_are_compared_by_a_paired_t_test_too():
    first, second = [4.0, 3.0, 4.0, 2.0, 4.0, 3.0], [3.0, 3.0, 2.0, 2.0, 3.0, 1.0]
    given = [
        scored("a", f"d{n}", {system: values[n]}) for system, values in (("x", first), ("y", second)) for n in range(6)
    ]
    (contest,) = analyse(given).contests
    assert contest.t == pytest.approx(pytest.importorskip("scipy.stats").ttest_rel(first, second).pvalue)


def test_yes_and_no_are_tested_by_mcnemar_over_items_and_not_over_annotators():
    given = [scored("a", f"d{n}", {system: float(system == "x" or n < 2)}) for n in range(20) for system in "xy"]
    (contest,) = analyse(given).contests
    assert contest.mcnemar == pytest.approx(2 * 0.5**18)  # 18 items differ, all for x
    # Three annotators who say the same are no three times as many observations.
    few = [
        scored(who, f"d{n}", {s: float(s == "x" or n >= 4)}, criterion=criterion)
        for criterion in ("coherence", "other")
        for who in "abc"
        for n in range(20)
        for s in "xy"
    ]
    assert [each.mcnemar for each in analyse(few).contests] == [pytest.approx(2 * 2 * 0.5**4)] * 2  # Holm, over two
    divided = [scored(who, "d", {"x": float(who == "a"), "y": 0.0}) for who in "ab"]
    assert analyse(divided).contests[0].mcnemar == 1.0


def test_lower_ranks_win():
    given = [scored("a", f"d{n}", {"x": 1.0, "y": 2.0}, form="ranking") for n in range(8)]
    (contest,) = analyse(given).contests
    assert (contest.rate.wins, contest.rate.losses) == (8, 0)


def test_one_annotator_agrees_with_nobody():
    (found,) = analyse([pairwise("a", "i", "x")]).agreement
    assert all(math.isnan(value) for value in (found.same, found.cohen, found.fleiss, found.alpha))


def grounded(knowledge, persona=("I like tea.", "I am a cook.")):
    return Dialogue(id="d", turns=["Hi"], persona=list(persona), knowledge=knowledge)


def one_item(dialogue, name="safari"):
    answers = {"x": Response(id="d", method="m", text="I cook."), "y": Response(id="d", method="m", text="Hello.")}
    items, key = make_items({"d": (dialogue, answers)}, name, criteria_set(name), "likert", language="en")
    return items[0], key


def test_safaris_persona_is_persona_and_knowledge_is_asked_of_grounded_turns_alone():
    persona = {"text": "I am a cook.", "source": "persona"}
    item, key = one_item(grounded([persona, {"text": "Cooks boil water.", "source": "documents"}]))
    assert (item.shown["persona"], item.shown["knowledge"], item.skips) == (["I am a cook."], ["Cooks boil water."], ())
    item, key = one_item(grounded([persona]))
    assert (item.shown["knowledge"], item.skips) == ([], ("knowledge-consistency",))
    assert key.items[item.id].skips == item.skips
    sheet = list(csv.DictReader(io.StringIO(render_csv([item], criteria_set("safari"), "likert"))))
    assert (sheet[0]["knowledge-consistency"], sheet[0]["persona-consistency"]) == ("–", "")


def test_what_is_not_asked_is_not_read(tmp_path):
    item, key = one_item(grounded([{"text": "I am a cook.", "source": "persona"}]))
    sheet = read_sheet(fill([item], key, tmp_path / "a.csv", lambda item, column: "1"), key, "a")
    assert [each.criterion for each in sheet.annotations] == ["coherence", "persona-consistency"]


def test_only_grounded_turns_are_drawn_where_the_paper_does():
    answers = [Response(id="d", method="m", text="Hello.")]
    told = [ScoredResponse(grounded(pieces), answers[0]) for pieces in ([], ["Tea is hot."])]
    assert gather({"x": told[:1]}, criteria_set("safari")) == {}
    assert list(gather({"x": told}, criteria_set("safari"))) == ["d"]


def test_equal_texts_are_ties_that_nobody_is_asked_about(found, tmp_path):
    _, answers = found["d0"]
    same = {s: r.model_copy(update={"text": "Yes."}) if s != "dcrag" else r for s, r in answers.items()}
    items, key = export({"d0": (found["d0"][0], same)})
    assert len(items) == 2
    assert [set(each.systems) for each in key.same] == [{"vanilla", "dcrag (top=5)"}]
    sheet = read_sheet(fill(items, key, tmp_path / "a.csv", lambda item, column: "A"), key, "a")
    ties = [each for each in sheet.annotations if not each.asked]
    assert len(ties) == 4
    findings = analyse(sheet.annotations)
    contest = next(c for c in findings.contests if "vanilla" in c.second and "top" in c.first)
    assert (contest.rate.ties, contest.rate.n) == (1, 1)
    assert findings.agreement[0].items == 0  # a tie that nobody was asked about is no agreement


def test_one_item_in_ten_is_a_control_and_a_batch_falls_with_it(found, tmp_path):
    items, key = export(found, "msdp", limit=18, against="dcrag")
    controls = {name: each for name, each in key.items.items() if CONTROL in each.systems}
    assert (len(items), len(controls)) == (40, 4)
    assert sorted(each.batch for each in controls.values()) == [0, 1, 2, 3]
    own = for_annotator(items, 1, 0)
    assert [[item.batch for item in own[n : n + 10]] for n in range(0, 40, 10)] == [
        [own[n].batch] * 10 for n in range(0, 40, 10)
    ]

    def answer(item, column):
        right = "AB"[1 - key.items[item].systems.index(CONTROL)] if item in controls else "A"
        return {"A": "B", "B": "A"}[right] if item in controls and controls[item].batch == 2 else right

    sheet = read_sheet(fill(items, key, tmp_path / "a.csv", answer), key, "a")
    assert sheet.dropped == 1
    assert {key.items[each.item].batch for each in sheet.annotations} == {0, 1, 3}
    assert all(CONTROL not in each.systems for each in sheet.annotations)
    assert len(sheet.annotations) == 27 * 3


def test_the_least_of_two_scores_is_a_score(tmp_path):
    dialogue = grounded([])
    used = [Knowledge.of_fact(Fact("tea", "IsA", "drink"), "tea is a drink", 1.0).model_copy(update={"used": True})]
    answer = Response(id="d", method="m", text="Tea.", knowledge=used)
    chosen = criteria_set("msdp-knowledge")
    items, key = make_items({"d": (dialogue, {"x": answer})}, "msdp-knowledge", chosen, "likert", language="en")
    assert {text for item in items for text in item.texts if CONTROL not in key.items[item.id].systems} == {
        "tea is a drink"
    }
    values = {"relevance": "4", "correctness": "2"}

    def told(item, column):
        return "1" if CONTROL in key.items[item].systems else values[column]

    sheet = read_sheet(fill(items, key, tmp_path / "a.csv", told), key, "a")
    assert {each.criterion: each.values["x"] for each in sheet.annotations} == {
        "relevance": 4.0,
        "correctness": 2.0,
        "combination": 2.0,
    }


def test_scg_qps_responses_are_ranked_without_their_follow_up_questions():
    chosen = criteria_set("scg-qp-response")
    assert chosen.form == "ranking"
    assert "no notice of a question" in chosen.guide.en


def test_scg_qps_guidelines_are_whole():
    """The paper's appendix: the last 2-3 turns; an order of four; a search engine where unsure; the highest bar."""
    chosen = criteria_set("scg-qp-query")
    assert "two or three turns" in chosen.criteria["relevance"].rate.en
    guide = chosen.guide.en
    assert len(guide.partition("Specificity has an order")[2].partition(".")[0].split(";")) == 4
    assert "search engine" in guide
    assert "first three results" in guide
    assert "highest bar" in guide
    assert all(sorted(each.anchors) == [1, 3, 5] for each in chosen.criteria.values())


def test_a_system_that_never_makes_a_query_is_left_out_where_queries_are_judged():
    """SCG-QP, Table 1: "No Query" has a dash there."""
    talks = [Dialogue(id=str(number), turns=["I like tea."]) for number in range(3)]
    asked = [Response(text="Tea is warm.", demands=Demands(implicit=["kinds of tea"])) for _ in talks]
    silent = [Response(text="Nice.") for _ in talks]
    systems = {
        name: [ScoredResponse(talk, one) for talk, one in zip(talks, answers, strict=True)]
        for name, answers in (("No Query", silent), ("Ours", asked))
    }
    assert [list(answers) for _, answers in gather(systems, criteria_set("scg-qp-query")).values()] == [["Ours"]] * 3
    assert all(len(answers) == 2 for _, answers in gather(systems, criteria_set("scg-qp-response")).values())


def test_ratings_are_means_over_annotators():
    given = [scored(who, "d1", {s: v}) for who, v in (("a", 4.0), ("b", 2.0)) for s in "xy"]
    given += [scored("a", "d1", {"x": 5.0}, criterion="other")]
    assert mean_ratings(given) == {
        ("d1", "x"): {"coherence": 3.0, "other": 5.0, "average": 4.0},
        ("d1", "y"): {"coherence": 3.0},
    }
    ranks = [scored("a", "d1", {"x": 1.0, "y": 2.0}, form="ranking")]
    assert mean_ratings(ranks) == {("d1", "x"): {"coherence": 2.0}, ("d1", "y"): {"coherence": 1.0}}
    wins = [pairwise("a", "d1", "x"), pairwise("b", "d1", None)]
    assert mean_ratings(wins) == {("d1", "x"): {"coherence": 0.75}, ("d1", "y"): {"coherence": 0.25}}


def test_errors_of_each_module_are_asked_of_what_its_stage_gave(tmp_path):
    """DCRAG, Figure 5 and Tables 7 to 11."""
    trace = [
        StageTrace(stage="query-production", output={"explicit_thoughts": "Health.", "explicit": ["cough", "fever"]}),
        StageTrace(stage="fact-retrieval", output={"foreseen": {"found": 9, "kept": ["(cough, IsA, symptom)"]}}),
        StageTrace(stage="fact-selection-foreseen", output={"selected": [1]}),
    ]
    fact = Knowledge.of_fact(Fact("cough", "IsA", "symptom"), "cough is a kind of symptom", 0.5)
    answers = [
        ScoredResponse(
            Dialogue(id=str(number), turns=["I cough."]), Response(text="Oh.", trace=trace, knowledge=[fact])
        )
        for number in range(4)
    ]
    found = gather({"dcrag": answers}, criteria_set("dcrag-errors"))
    items, key = export(found, "dcrag-errors", "likert")
    assert items[0].shown["stages"] == [
        "query-production: explicit_thoughts: Health. | explicit: cough; fever",
        "fact-retrieval: foreseen: kept: (cough, IsA, symptom)",
        "knowledge: (cough, IsA, symptom)",
    ]
    chosen = criteria_set("dcrag-errors")
    assert len(chosen.criteria) == 12
    wrong = {items[0].id, items[1].id, items[2].id}
    path = fill(
        items, key, tmp_path / "anna.csv", lambda item, column: str(int(column == "foreseen-set" and item in wrong))
    )
    rates = {each.criterion: each.mean for each in analyse(read_sheet(path, key, "anna").annotations).standings}
    assert (rates["foreseen-set"], rates["final-response"]) == (0.75, 0.0)
