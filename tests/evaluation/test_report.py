"""Reports: the numbers, what is bold and marked, and the four forms."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path

import pytest

from dialore.errors import UnknownNameError
from dialore.evaluation.base import Score
from dialore.evaluation.geomean import ABOUT as GEOMEAN
from dialore.evaluation.report.build import make_report
from dialore.evaluation.report.data import SystemScores, format_signed, p_value, size_of, spread, three
from dialore.evaluation.report.forms import escape_markdown as markdown_escape
from dialore.evaluation.report.forms import render_csv, render_html, render_latex, render_markdown
from dialore.evaluation.report.tables import (
    MainTable,
    ablations,
    combiner,
    group_systems,
    how_to_read,
    rows_by_dialogue,
    significant,
)
from dialore.experiments.config import read_config
from dialore.experiments.results import beside_defaults
from tests.evaluation.made_up import COUNT, EVIL, MadeUp, made_up

pytest.importorskip("scipy", reason="the evaluation extra is not installed")


@pytest.fixture(scope="module")
def report():
    return make_report(made_up())


def rows_of(report):
    return {
        row.label: dict(zip([m.name for m in report.table.metrics], row.cells, strict=True))
        for group in report.table.groups
        for row in group.rows
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0.00"), (0.012, "0.0120"), (68.67, "68.7"), (1234.5, "1,230"), (99.96, "100"), (-0.0456, "−0.0456")],
)
def test_three_figures(value, shown):
    assert three(value) == shown


def test_signs_spreads_and_p_values():
    assert (format_signed(0.5), format_signed(-0.5), format_signed(0.0)) == ("+0.500", "−0.500", "0.00")


def test_what_rounding_leaves_over_of_nothing_is_nothing():
    left = 0.1 + 0.2 - 0.3 + 1.7e-16  # as kappas of chance agreement are
    assert 0 < left < 1e-15
    assert (three(left), three(-left), format_signed(left), format_signed(-left)) == ("0.00",) * 4
    assert three(1.5e-7) == "0.000000150"
    assert spread(1.0, 2.0, 2) == "0.50"
    assert spread(1.0, 1.0002, 2) == "0.0001"
    assert spread(None, 1.0, 2) == ""
    assert (p_value(0.0001), p_value(0.0123), p_value(math.nan), p_value(None)) == ("< 0.001", "0.012", "–", "–")


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("Qwen2.5-7B-Instruct", 7),
        ("mixtral-8x7b", 56),
        ("flan-t5-770M", 0.77),
        ("llama3.1:8b", 8),
        ("gpt-4o", None),
        ("no model", None),
        ("belle_7b_2m", 7),
    ],
)
def test_a_models_size_by_its_name(model, size):
    assert size_of(model) == size


def test_marks_against_the_baseline(report):
    cells = rows_of(report)
    better = cells["dcrag"]["f1"].comparison
    assert cells["dcrag"]["f1"].mark == "**"
    assert better.is_better
    assert better.pairs == COUNT - 1  # the baseline failed once
    assert better.difference == pytest.approx(0.2, abs=0.01)
    assert better.low < better.difference < better.high
    # What is the same for both is never significant, and the baseline has no mark against itself.
    assert cells["dcrag"]["cdp"].mark == ""
    assert cells["dcrag"]["cdp"].comparison.randomisation == 1.0
    assert cells["vanilla"]["f1"].comparison is None


def test_p_values_are_holm_corrected_over_the_systems_of_a_metric(report):
    from dialore.evaluation.statistics import wilcoxon

    results = made_up()
    vanilla, *others = results.systems()
    raw = []
    for other in others:
        mine, base = results.measures(other, "f1"), results.measures(vanilla, "f1")
        keys = [key for key in base if key in mine]
        raw.append(wilcoxon([mine[k][0] for k in keys], [base[k][0] for k in keys]))
    found = [cells["f1"].comparison.wilcoxon for name, cells in rows_of(report).items() if name != "vanilla"]
    assert sorted(found) == pytest.approx([min(raw) * 2, max(min(raw) * 2, *raw)])
    # As DCRAG's Table 1 prints significance: each test by itself, in a column; the star is named as the stricter one.
    plain = [cells["f1"].comparison.uncorrected for name, cells in rows_of(report).items() if name != "vanilla"]
    assert plain == pytest.approx(raw)
    assert any("Wilcoxon's test alone, uncorrected" in text for text in how_to_read(report.table))
    table = render_markdown(report).partition("## Significance")[2]
    assert "| Wilcoxon p | uncorrected |" in table
    cells = next(line for line in table.splitlines() if line.startswith("| f1 | dcrag |")).split(" | ")
    assert cells[-1].rstrip(" |") == markdown_escape(p_value(plain[0]))
    assert f",{plain[0]!r}," in render_csv(report)


def test_no_difference_has_no_mark():
    cells = rows_of(make_report(made_up(shift=0.0)))
    assert cells["dcrag"]["f1"].mark == ""
    assert cells["dcrag"]["f1"].place == 0 or cells["dcrag"]["f1"].text != cells["vanilla"]["f1"].text


def test_best_and_second(report):
    cells = rows_of(make_report(made_up(fails=False)))
    assert {name: cells[name]["f1"].place for name in cells} == {"vanilla": 0, "dcrag": 1, "dcrag (top=5)": 2}


def test_among_figures_of_different_numbers_of_responses_none_is_the_best(report):
    cells = rows_of(report)
    assert [cells[name]["f1"].score.n for name in cells] == [39, 40, 40]
    assert [cells[name]["f1"].place for name in cells] == [0, 0, 0]
    assert any("none is bold" in text for text in how_to_read(report.table))
    assert not any("none is bold" in text for text in how_to_read(make_report(made_up(fails=False)).table))
    (row, *_) = report.table.groups[0].rows
    assert row.n == 39
    for form in (render_html, render_markdown, render_latex, render_csv):
        assert "39" in form(report)


def test_what_is_missing_is_told_and_never_nought(report):
    ((about, reason),) = report.table.absent
    assert about.name == "kf1"
    assert "the dialogue has no gold knowledge" in reason
    assert "kf1" not in rows_of(report)["dcrag"]
    assert report.table.notes == ["of 39 responses only: the response failed (1)"]
    kept = make_report(made_up(), keep_absent=True)
    cell = rows_of(kept)["dcrag"]["kf1"]
    assert cell.text == ""
    assert "no gold knowledge" in kept.table.notes[cell.note - 1]


def test_another_baseline_and_an_unknown_one():
    report = make_report(made_up(), baseline="dcrag")
    assert rows_of(report)["vanilla"]["f1"].comparison.difference < 0
    assert not rows_of(report)["vanilla"]["f1"].comparison.is_better
    with pytest.raises(UnknownNameError, match="did you mean dcrag"):
        make_report(made_up(), baseline="dcrga")


def test_groups_by_data_set_and_by_model_where_models_have_several_systems():
    titles = [title for title, _ in group_systems(made_up(models=("a", "b"), datasets=("x", "y")).systems())]
    assert titles == ["x · a", "x · b", "y · a", "y · b"]
    assert [title for title, _ in group_systems(made_up(datasets=("x", "y")).systems())] == ["x", "y"]


def test_ablations_are_differences_from_the_full_method(report):
    (found,) = report.ablations
    assert (found.full.name, [each.name for each in found.variants]) == ("dcrag", ["dcrag (top=5)"])
    (f1,) = [each for each in found.comparisons if each.metric == "f1"]
    assert f1.difference == pytest.approx(-0.1, abs=0.01)
    assert f1.mark == "**"


ROOT = Path(__file__).parents[2]


def ablated(path):
    """By full system, the variants that a report of an experiment file's run names."""
    systems = []
    for each in read_config(path).systems:
        said = each.options | ({"stages": each.stages} if each.stages else {})
        systems.append(SystemScores(each.title, each.method, beside_defaults(each.method, said), "m", "d", "r"))
    return {each.full.name: [one.name for one in each.variants] for each in ablations(MadeUp(systems, {}), [])}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("scg-qp/table-1", {"Ours (Zero-shot)": ["Flan T5 w/o Cosmo"]}),
        ("scg-qp/table-2", {"With Topic Tracker": ["W/O Topic Tracker"]}),
        ("scg-qp/figure-3", {size: [f"{size} w/o Cosmo"] for size in ("Large", "XL", "XXL")}),
        ("safari/table-4", {"Zero-shot": ["In-context"]}),
        ("safari/table-5", {row: [f"{row} †"] for row in ("BM25", "Dense", "Ours, by turns")}),
        (
            "dcrag/figure-6",
            {f"{name} 20": [f"{name} {number}" for number in (5, 10, 15, 25, 30)] for name in ("T-RAG", "DCRAG")},
        ),
        ("msdp/table-1", {"MSDP-KG": ["Retrieval (top 1)"]}),
        ("msdp/table-5", {"MSDP-KG": ["w/ random", "w/o topic"]}),
        ("msdp/table-6", {"MSDP": ["w/ random", "w/o topic"]}),
        ("safari/table-6", {"Zero-shot": ["In-context"]}),
        (
            "safari/table-7",
            {
                "SAFARI": [
                    *("+ Ground Planning", "+ Ground Retrieval", "+ Ground P & R"),
                    *("- Dependency", "- Documents", "- Planning*", "- Planning**"),
                ]
            },
        ),
        ("safari/table-8", {"1": ["2", "3"]}),
        (
            "dcrag/table-3",
            {"DCRAG (Full)": [f"-w/o {part}" for part in ("FS", "FR+FS", "QP+CR", "TP+CR", "CR", "TtG")]},
        ),
        (
            "edit/table-2-wow",
            {"EDIT (the run's model)": ["-w/o KB's Answer", "-w/o ChatGPT's Answer"]},
        ),
    ],
)
def test_the_full_system_is_found_in_the_files_of_the_papers(name, wanted):
    assert ablated(ROOT / "examples" / f"{name}.yaml") == wanted


def test_repetitions_of_a_dialogue_are_one_observation():
    rows = rows_by_dialogue(combiner("f1"), {("a", 0): (0.2,), ("a", 1): (0.4,), ("b", 0): (1.0,)})
    assert rows["a"] == pytest.approx((0.3,))
    assert list(rows) == ["a", "b"]
    first = rows_by_dialogue(combiner("distinct-2"), {("a", 1): (9.0,), ("a", 0): (1.0, 2.0)})
    assert first == {"a": (1.0, 2.0)}


def test_cost_and_failures(report):
    vanilla = report.surveys[0]
    assert dict(vanilla.failures) == {"the endpoint broke": 1}
    assert list(vanilla.outcomes.values()) == ["39", "1", "40", "97.5%", "0.0%", "2.5%", "0.0%"]
    assert vanilla.by_stage == [("generation", ["39", "0", "1", "0"])]
    assert [vanilla.costs[name] for name in ("responses", "calls", "prompt tokens", "cached calls")] == [
        "40",
        "2",
        "100",
        "10.0%",
    ]
    assert vanilla.costs["p50"] == "21.0 s"
    assert vanilla.costs["p50 with its wait"] == "21.0 s"


def test_csv_reads_back_as_the_same_numbers(report):
    lines = list(csv.DictReader(io.StringIO(render_csv(report))))
    assert len(lines) == 9
    for system in made_up().systems():
        for name, score in system.scores.items():
            (line,) = [each for each in lines if (each["system"], each["metric"]) == (system.name, name)]
            assert (float(line["value"]) if line["value"] else None) == score.value
            assert (line["reason"] != "") == bool(score.problems)
    marked = [each["system"] for each in lines if each["mark"]]
    assert marked == ["dcrag", "dcrag (top=5)"]


def test_markdown_has_a_row_a_system_and_holds_no_markup_of_others():
    results = made_up(fails=False)
    results.title = EVIL
    text = render_markdown(make_report(results))
    table = text.split("## Scores")[1].split("\n\n")[1].splitlines()
    assert len(table) == 2 + 3
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert [len(re.findall(r"\*\*\d", line)) for line in table[2:]] == [0, 1, 0]
    assert "<script" not in text
    assert "NaN" not in text.replace(markdown_escape(EVIL), "")


def test_tables_have_one_scale_and_csv_has_the_values():
    """Shares are displayed in per cent, as BLEU is; what was measured stays as it is."""
    report = make_report(made_up())
    cell = rows_of(report)["dcrag"]["f1"]
    assert float(cell.text) == pytest.approx(100 * cell.score.value, abs=0.05)
    markdown = render_markdown(report)
    assert "| f1 %↑ |" in markdown
    assert "| +20.0" in markdown.partition("## Significance")[2]
    assert "per cent" in " ".join(how_to_read(report.table))
    lines = list(csv.DictReader(io.StringIO(render_csv(report))))
    (line,) = [each for each in lines if (each["system"], each["metric"]) == ("dcrag", "f1")]
    assert float(line["value"]) == cell.score.value < 1
    assert float(line["difference"]) == pytest.approx(0.2, abs=0.01)


def test_model_size_against_score_only_where_sizes_are_known():
    names = [figure.name for _, figures in make_report(made_up()).figures["f1"] for figure in figures]
    assert names == ["bars", "distribution", "knowledge"]
    results = made_up(models=("x-7B",))
    other = made_up(models=("mine",))
    both = MadeUp([results.systems()[0], other.systems()[0]], {**results._responses, **other._responses})
    figures = make_report(both, sizes={"mine": 13.0}).figures["f1"][0][1]
    sizes = next(figure for figure in figures if figure.name == "sizes")
    assert [row[1] for row in sizes.rows] == ["7", "13"]


def test_model_sizes_are_compared_where_each_model_is_a_group_of_its_own():
    report = make_report(made_up(models=("x-7B", "x-70B")), dialogues=0)
    groups = report.figures["f1"]
    assert [title for title, _ in groups] == ["x-7B", "x-70B", report.table.groups[0].rows[0].system.dataset]
    (sizes,) = groups[-1][1]
    assert sizes.name == "sizes"
    assert {(row[0], row[1]) for row in sizes.rows} == {
        (row.system.name, size) for row in report.table.groups[0].rows for size in ("7", "70")
    }


def test_an_interval_that_does_not_hold_its_figure_is_not_shown():
    import dataclasses

    results = made_up()
    system = results.systems()[1]
    assert rows_of(make_report(results))["dcrag"]["f1"].spread == "2.0"
    system.scores["f1"] = dataclasses.replace(system.scores["f1"], low=0.1, high=0.2)
    assert rows_of(make_report(results))["dcrag"]["f1"].spread == ""


@pytest.mark.parametrize(
    ("families", "wanted"),
    [
        ([("a", 3), ("b", 2)], [[("a", 3), ("b", 2)]]),
        ([("a", 8), ("b", 5), ("c", 11)], [[("a", 8)], [("b", 5)], [("c", 5)], [("c", 6)]]),
        ([("a", 20)], [[("a", 6)], [("a", 7)], [("a", 7)]]),
    ],
)
def test_columns_stand_in_parts_that_a_page_is_wide_enough_for(families, wanted):
    blocks = MainTable([], families, []).parts()
    assert [[(title, len(places)) for title, places in block] for block in blocks] == wanted
    assert [place for block in blocks for _, places in block for place in places] == list(
        range(sum(dict(families).values()))
    )


def test_significant_differences_in_words(report):
    (group,) = report.table.groups
    assert significant(group.comparisons) == [
        "dcrag is better on f1** than vanilla.",
        "dcrag (top=5) is better on f1** than vanilla.",
    ]
    same = make_report(made_up(shift=0.0)).table.groups[0].comparisons
    assert significant(same)[0] == "dcrag: no difference from vanilla is significant."


def test_a_mean_of_metrics_has_a_column_and_no_test():
    """It has no measures of single responses, and no metric of its name to combine them."""
    results = made_up()
    results._metrics.append(GEOMEAN)
    for system in results.systems():
        system.scores["geomean"] = Score("geomean", 12.5, n=40)
    report = make_report(results)
    assert rows_of(report)["dcrag"]["geomean"].text == "12.5"
    assert rows_of(report)["dcrag"]["geomean"].comparison is None
