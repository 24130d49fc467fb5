"""Sheets as XLSX: filled in as people and their spreadsheets do, read back; what they look like; what is no sheet."""

from __future__ import annotations

import io
import random
import sys
import zipfile

import pytest

from dialore.errors import InputError, MissingExtraError
from dialore.evaluation.human.agreement import analyse
from dialore.evaluation.human.reading import read_sheet
from dialore.evaluation.human.sheets import criteria_set, gather, make_items
from dialore.evaluation.human.workbook import has_xlsx, write_xlsx
from tests.evaluation.made_up import made_up

openpyxl = pytest.importorskip("openpyxl", reason="the evaluation extra is not installed")
pytest.importorskip("scipy", reason="the evaluation extra is not installed")
CASES = [
    (form, language, name)
    for form, name in (("pairwise", "dcrag"), ("likert", "dcrag"), ("likert", "safari"), ("ranking", "dcrag"))
    for language in ("en", "zh")
]


@pytest.fixture(scope="module")
def found():
    results = made_up()
    return gather({system.name: results.responses(system) for system in results.systems()}, criteria_set("dcrag"))


@pytest.fixture
def export(found, tmp_path):
    """Writes a sheet; returns its items, its key and its path."""

    def made(form="pairwise", language="en", name="dcrag", limit=3, change=lambda items: None):
        items, key = make_items(found, name, criteria_set(name), form, language=language, limit=limit)
        change(items)
        path = tmp_path / "anna.xlsx"
        write_xlsx(path, items, criteria_set(name), form, language)
        return items, key, path

    return made


def choices(sheet):
    """Of each column with a list to choose from: the column's letter and the list."""
    found = {}
    for rule in sheet.data_validations.dataValidation:
        (area,) = rule.sqref.ranges
        assert (area.min_row, area.max_row) == (2, sheet.max_row)
        found[sheet.cell(1, area.min_col).value] = rule
    return found


def options(rule):
    return rule.formula1.strip('"').split(",")


def fill(path, answer):
    """Choose from every list: `answer(item, column, options)`; returns what was chosen."""
    book = openpyxl.load_workbook(path)
    sheet = book["answers"]
    columns = {cell.value: cell.column for cell in sheet[1]}
    given = {}
    for column, rule in choices(sheet).items():
        for row in range(2, sheet.max_row + 1):
            item = sheet.cell(row, columns["item"]).value
            given[item, column] = answer(item, column, options(rule))
            sheet.cell(row, columns[column]).value = given[item, column]
    book.save(path)
    return given


def as_people_do(seed):
    """Numbers as floats or texts, letters small or large or of full width, and spaces."""
    draw = random.Random(seed)

    def answer(_item, _column, listed):
        chosen = draw.choice(listed)
        if chosen.isdigit():
            return draw.choice([float(chosen), int(chosen), f"{chosen} ", chr(ord("０") + int(chosen))])
        return draw.choice(
            [chosen, f" {chosen.lower()} ", f"{chosen}\u3000", {"A": "Ａ", "B": "ｂ"}.get(chosen, chosen)]
        )

    return answer


def meant(value):
    """What a person means by a field."""
    import unicodedata

    text = unicodedata.normalize("NFKC", str(value)).strip().upper()
    return {"平局": "TIE"}.get(text, text) if not text[0].isdigit() else float(text)


@pytest.mark.parametrize(("form", "language", "name"), CASES)
def test_a_filled_in_sheet_reads_back(export, form, language, name):
    items, key, path = export(form, language, name)
    given = fill(path, as_people_do(5))
    *_, annotations, empty, _ = read_sheet(path, key, "anna")
    assert empty == 0
    assert len(annotations) == sum(len(criteria_set(name).criteria) - len(item.skips) for item in items)
    for each in annotations:
        if form == "pairwise":
            won = {"A": each.systems[0], "B": each.systems[1], "TIE": None}
            assert each.winner == won[meant(given[each.item, each.criterion])]
        else:
            columns = [each.criterion] if form == "likert" else [f"{each.criterion} {letter}" for letter in "ABC"]
            assert list(each.values.values()) == [meant(given[each.item, column]) for column in columns]


@pytest.mark.parametrize("form", ["pairwise", "likert", "ranking"])
def test_what_people_do_to_a_sheet_changes_no_answer(export, form):
    items, key, path = export(form)
    fill(path, as_people_do(6))
    before = read_sheet(path, key, "anna").annotations
    book = openpyxl.load_workbook(path)
    sheet = book["answers"]
    head, *rows = [[cell.value for cell in row] for row in sheet.iter_rows()]
    draw = random.Random(7)
    draw.shuffle(rows)
    order = draw.sample(range(len(head)), len(head))
    book.remove(sheet)
    sheet = book.create_sheet("mine")
    sheet.append(["my notes are on paper"])
    sheet.append([])
    for row in (head, *rows):
        sheet.append([row[place] for place in order] + ["", "a note" if row is head else None])
        sheet.append([None, "  "])
    book.move_sheet("guide", -1)
    book.create_sheet("notes", 0)["A1"] = "my items"
    book.save(path)
    *_, after, empty, _ = read_sheet(path, key, "anna")
    assert empty == 0
    assert sorted(after, key=repr) == sorted(before, key=repr)
    assert len({each.item for each in after}) == len(items)


def test_agreement_and_wins_of_filled_in_sheets(export, tmp_path):
    _, key, path = export(limit=8)

    def prefers(system):
        return lambda item, column, listed: (
            "AB"[key.items[item].systems.index(system)] if system in key.items[item].systems else "tie"
        )

    annotations = []
    for who, system in (("anna", "dcrag"), ("ben", "dcrag"), ("cai", "vanilla")):
        copy = tmp_path / f"{who}.xlsx"
        copy.write_bytes(path.read_bytes())
        fill(copy, prefers(system))
        annotations += read_sheet(copy, key, who).annotations
    findings = analyse(annotations)
    # Of every item two annotators say the same, and the third something else.
    assert [each.same for each in findings.agreement] == [pytest.approx(1 / 3)] * 4
    contest = next(c for c in findings.contests if {c.first, c.second} == {"dcrag", "vanilla"})
    wins = contest.rate.wins if contest.first == "dcrag" else contest.rate.losses
    assert (wins, contest.rate.n) == (16, 24)


def test_wrong_answers_are_told_by_row_and_column(export):
    _, key, path = export("likert", limit=2)
    fill(path, lambda item, column, listed: 3.5 if column == "coherence" else True if column == "naturalness" else 5)
    with pytest.raises(InputError, match="row 2, column naturalness: 'True' is no whole number from 1 to 5"):
        read_sheet(path, key, "anna")


HOSTILE = ["=HYPERLINK(1)", "+1+1", "-2", "@SUM(A1)", "#N/A", "#REF!", "007", "1e5", "TRUE", "2026-01-01", "'tis"]


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_are_texts_and_stay_so_when_the_sheet_is_saved_again(export, text):
    def change(items):
        items[0].texts[0] = text

    _, _, path = export(change=change)
    for _ in range(2):
        book = openpyxl.load_workbook(path)
        cell = book["answers"]["C2"]
        assert (cell.value, cell.data_type) == (text, "s")
        assert cell.quotePrefix is (text[0] in "=+-@")
        book.save(path)
    with zipfile.ZipFile(path) as archive:
        assert b"<f>" not in archive.read("xl/worksheets/sheet1.xml")


def test_what_no_cell_can_hold_is_shown_as_such(export):
    def change(items):
        items[0].texts = ["a\x0bb\x00\r\nc", "😀" * 40000]

    _, _, path = export(change=change)
    sheet = openpyxl.load_workbook(path)["answers"]
    assert sheet["C2"].value == "a�b�\nc"
    assert len(sheet["D2"].value) == 32767
    assert sheet["D2"].value.endswith("😀 … (shortened; the CSV has all of it)")


@pytest.mark.parametrize(("form", "language", "name"), CASES)
def test_what_annotators_see(export, form, language, name):
    chosen = criteria_set(name)
    items, _, path = export(form, language, name)
    book = openpyxl.load_workbook(path)
    assert book.sheetnames == ["answers", "guide"]
    sheet = book["answers"]
    assert sheet.freeze_panes == "B2"
    assert sheet.max_row == len(items) + 1
    assert all(cell.alignment.wrap_text for row in sheet.iter_rows() for cell in row)
    rules = choices(sheet)
    asked = {column: chosen.criteria[column.split(" ")[0]] for column in rules}
    assert set(asked) == {c for c in (cell.value for cell in sheet[1]) if c.split(" ")[0] in chosen.criteria}
    for column, rule in rules.items():
        low, high = (1, 3) if form == "ranking" else asked[column].scale
        tie = "平局" if language == "zh" else "tie"
        wanted = ["A", "B", tie] if form == "pairwise" else [str(n) for n in range(low, high + 1)]
        assert options(rule) == wanted
        question = (asked[column].rate if form == "likert" else asked[column].compare).in_(language)
        assert rule.prompt.startswith(question)
        assert (rule.showErrorMessage, rule.showInputMessage, rule.allow_blank) == (True, True, True)
        assert max(len(rule.prompt), len(rule.error)) <= 255
        assert len(rule.promptTitle) <= 32
    said = [cell.value for row in book["guide"].iter_rows() for cell in row if cell.value]
    assert said[:2] == [chosen.title.in_(language), chosen.guide.in_(language)]
    for column, criterion in chosen.criteria.items():
        assert {column, criterion.title.in_(language)} <= set(said)
        if form == "likert":
            points = next(text for text in said if f"{criterion.scale[1]} = {_words(criterion, language)}" in text)
            assert points.startswith(f"{criterion.scale[0]} = ")


def _words(criterion, language):
    return criterion.anchors[criterion.scale[1]].in_(language)


def test_rows_are_as_high_as_their_texts_want(export):
    def change(items):
        items[0].texts[0] = "word " * 80
        items[1].texts[0] = "字" * 400

    _, _, path = export("likert", change=change)
    rows = openpyxl.load_workbook(path)["answers"].row_dimensions
    plain, english, chinese = (rows[number].height for number in (4, 2, 3))
    assert 10 * 14 < english < 14 * 14
    assert 20 * 14 < chinese < 24 * 14
    assert plain < english


def test_the_sheet_is_blind(export):
    _, key, path = export(change=lambda items: [setattr(item, "texts", ["a", "b"]) for item in items])
    with zipfile.ZipFile(path) as archive:
        whole = b"".join(archive.read(name) for name in archive.namelist()).decode()
    for keyed in key.items.values():
        for system in keyed.systems:
            assert system not in whole


def test_empty_sheets_and_sheets_without_a_column(export):
    items, key, path = export(limit=1)
    assert read_sheet(path, key, "anna")[3:] == ([], len(items) * 4, 0)
    book = openpyxl.load_workbook(path)
    book["answers"]["F1"] = "coherance"
    book.save(path)
    with pytest.raises(InputError, match=r"anna\.xlsx: no column coherence"):
        read_sheet(path, key, "anna")


def test_two_sheets_of_answers_are_not_chosen_between(export):
    _, key, path = export(limit=1)
    book = openpyxl.load_workbook(path)
    book.copy_worksheet(book["answers"])
    book.save(path)
    with pytest.raises(InputError, match="2 sheets have a column item"):
        read_sheet(path, key, "anna")


def damaged(path, name, change):
    """The file with one part changed."""
    made = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(made, "w") as new:
        for each in old.namelist():
            new.writestr(each, change(old.read(each)) if each == name else old.read(each))
    return made.getvalue()


DAMAGES = {
    "cut short": lambda path: path.read_bytes()[:-200],
    "empty": lambda path: b"",
    "CSV": lambda path: b"item,coherence\ni1,A\n",
    "an old XLS": lambda path: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2000),
    "another archive": lambda path: b"PK\x05\x06" + bytes(18),
    "cut XML": lambda path: damaged(path, "xl/worksheets/sheet1.xml", lambda text: text[:900]),
    "no XML": lambda path: damaged(path, "xl/workbook.xml", lambda text: b"nothing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_xlsx_is_one_clear_line(export, damage):
    _, key, path = export(limit=1)
    path.write_bytes(DAMAGES[damage](path))
    with pytest.raises(InputError, match=r"anna\.xlsx is no XLSX"):
        read_sheet(path, key, "anna")


def test_files_that_are_not_there_and_folders_that_are_not(export, tmp_path):
    items, key, _ = export(limit=1)
    with pytest.raises(InputError, match="cannot read"):
        read_sheet(tmp_path / "none.xlsx", key, "anna")
    with pytest.raises(InputError, match="cannot write"):
        write_xlsx(tmp_path / "none" / "a.xlsx", items, criteria_set("dcrag"), "pairwise", "en")


def test_without_openpyxl_the_extra_is_named(export, monkeypatch):
    items, key, path = export(limit=1)
    assert has_xlsx()
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert not has_xlsx()
    with pytest.raises(MissingExtraError, match=r"reading anna\.xlsx needs an optional .*\[evaluation\]"):
        read_sheet(path, key, "anna")
    with pytest.raises(MissingExtraError, match=r"writing anna\.xlsx"):
        write_xlsx(path, items, criteria_set("dcrag"), "pairwise", "en")
