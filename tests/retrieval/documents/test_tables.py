"""Tables of every format: each row says what its values are, wherever a passage begins."""

from __future__ import annotations

import io

import docx
import openpyxl
import pptx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import OxmlElement
from docx.oxml.ns import qn

from dialore.retrieval.chunking import Chunking, Paragraph, Section
from dialore.retrieval.documents.indexing import build_documents
from dialore.retrieval.loaders.reading import read_sections
from dialore.retrieval.loaders.tables import Cell, render_table
from dialore.sources.documents import DocumentIndex

HEADER = ("hut", "opens", "beds", "valley")
BODY = [(f"Hut {at}", f"{at % 12 + 6}:30", f"{at + 10}", f"Valley {at % 7}") for at in range(80)]


def saved(document) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def in_html() -> bytes:
    head = "".join(f"<th>{name}</th>" for name in HEADER)
    rows = "".join("<tr>" + "".join(f"<td>{value}</td>" for value in row) + "</tr>" for row in BODY)
    return f"<html><body><table><thead><tr>{head}</tr></thead>{rows}</table></body></html>".encode()


def in_markdown() -> bytes:
    lines = [HEADER, ("---",) * len(HEADER), *BODY]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines).encode()


def in_word() -> bytes:
    document = docx.Document()
    table = document.add_table(0, len(HEADER))
    for row in (HEADER, *BODY):
        for cell, text in zip(table.add_row().cells, row, strict=True):
            cell.text = text
    return saved(document)


def in_powerpoint() -> bytes:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    table = slide.shapes.add_table(len(BODY) + 1, len(HEADER), 0, 0, 9, 9).table
    for at, row in enumerate((HEADER, *BODY)):
        for column, text in enumerate(row):
            table.cell(at, column).text = text
    return saved(presentation)


def in_excel() -> bytes:
    workbook = openpyxl.Workbook()
    for row in (HEADER, *BODY):
        workbook.active.append(row)
    return saved(workbook)


FORMATS = {"md": in_markdown, "html": in_html, "docx": in_word, "pptx": in_powerpoint, "xlsx": in_excel}


def read(tmp_path, name: str, data: bytes) -> list[str]:
    path = tmp_path / name
    path.write_bytes(data)
    file_format = path.suffix[1:].replace("md", "markdown")
    sections = read_sections(path, file_format, lambda where, why: pytest.fail(f"{where}: {why}"))
    return [paragraph.text for section in sections for paragraph in section.paragraphs]


@pytest.mark.parametrize("ending", FORMATS)
def test_each_passage_of_a_table_names_its_columns(tmp_path, ending):
    (tmp_path / f"a.{ending}").write_bytes(FORMATS[ending]())
    build_documents(tmp_path / "index", [tmp_path / f"a.{ending}"], vectors=False)
    with DocumentIndex(tmp_path / "index") as index:
        passages = [piece.text for piece in index.passages()]
    assert len(passages) > 3
    lines = [line for passage in passages for line in passage.split("\n")]
    expected = {" | ".join(f"{name}: {value}" for name, value in zip(HEADER, row, strict=True)) for row in BODY}
    assert set(lines) == expected


def html_rows(text: str) -> str:
    """Rows by `/`, cells by commas: `!` marks a header, `2x3` the columns and rows that a cell spans."""
    rows = []
    for line in text.split("/"):
        cells = []
        for cell in line.split(","):
            content, _, span = cell.strip().partition("*")
            columns, _, below = span.partition("x")
            tag = "th" if content.startswith("!") else "td"
            cells.append(f'<{tag} colspan="{columns or 1}" rowspan="{below or 1}">{content.lstrip("!")}</{tag}>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>{''.join(rows)}</table>"


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("!hut,!beds/Alm,12", ["hut: Alm | beds: 12"]),
        ("!valley,!hut/Au*1x2,Alm/Ofen", ["valley: Au | hut: Alm", "valley: Au | hut: Ofen"]),
        (
            "!hut*1x2,!summer*2,!winter*2/!week,!sunday,!week,!sunday/Alm,1,2,3,4",
            ["hut: Alm | summer, week: 1 | summer, sunday: 2 | winter, week: 3 | winter, sunday: 4"],
        ),
        ("!hut,!May,!June/Alm,closed*2", ["hut: Alm | May / June: closed"]),
        (",!May,!June/!Alm,1,2", ["Alm | May: 1 | June: 2"]),
        ("!Prices 2026*2/!hut,!beds/Alm,12", ["Prices 2026", "hut: Alm | beds: 12"]),
        ("!hut,!beds/!Au*2/Alm,12/!Inn*2/Ofen,9", ["Au | hut: Alm | beds: 12", "Inn | hut: Ofen | beds: 9"]),
        ("!hut,!beds/Alm,12/!lift,!seats/Blau,4", ["hut: Alm | beds: 12", "lift: Blau | seats: 4"]),
        ("!hut,!beds,!dogs/Alm,12,", ["hut: Alm | beds: 12", "dogs"]),
        ("!only,!names", ["only | names"]),
        ("!Name,Ann/!Town,Au/!Fax,", ["Name | Ann", "Town | Au", "Fax"]),
        ("Name,Ann/Town,Au/Phone,555/Age,30", ["Name | Ann", "Town | Au", "Phone | 555", "Age | 30"]),
        ("Ann,Au,Alm/Ben,Inn,Ofen", ["Ann | Au | Alm", "Ben | Inn | Ofen"]),
        ("hut,opens,beds/Alm,8:30,12/Ofen,9:30,9", ["hut: Alm | opens: 8:30 | beds: 12"]),
        ("hut,opens/Alm,8:30/Ofen,9:30/Blau,7:30", ["hut: Alm | opens: 8:30"]),
        ("!a*0,!b*-1x0/1,2", None),
        ("!a,!b/1*99999x99999,2/3", None),
    ],
)
def test_headers_and_merged_cells_of_web_pages(tmp_path, table, expected):
    found = read(tmp_path, "a.html", html_rows(table).encode())
    assert found if expected is None else found[: len(expected)] == expected


def test_tables_that_only_arrange_a_page_have_no_header(tmp_path):
    page = "<table role=presentation><tr><th>Menu</th><th>News</th></tr><tr><td>a</td><td>b</td></tr></table>"
    assert read(tmp_path, "a.html", page.encode()) == ["Menu", "News", "a", "b"]
    nested = f"<table><tr><th>Left</th><th>Right</th></tr><tr><td>x</td><td>{html_rows('!hut,!beds/Alm,12')}</td></tr>"
    assert read(tmp_path, "b.html", nested.encode()) == ["Left", "Right", "x", "hut: Alm | beds: 12"]


def word_table(*rows: tuple[str, ...]):
    document = docx.Document()
    table = document.add_table(len(rows), len(rows[0]))
    for at, row in enumerate(rows):
        for column, text in enumerate(row):
            table.cell(at, column).text = text
    return document, table


TEXTS = (("hut", "valley"), ("Alm", "Au"), ("Ofen", "Inn"))


def test_word_marks_headers_in_several_ways(tmp_path):
    named = ["hut: Alm | valley: Au", "hut: Ofen | valley: Inn"]
    document, table = word_table(*TEXTS)
    assert read(tmp_path, "bare.docx", saved(document)) == [" | ".join(row) for row in TEXTS]
    table.rows[0]._tr.get_or_add_trPr().append(OxmlElement("w:tblHeader"))
    assert read(tmp_path, "marked.docx", saved(document)) == named
    document, table = word_table(*[(*row, f"x{at}") for at, row in enumerate(TEXTS)])
    for cell in table.rows[0].cells:
        cell.paragraphs[0].runs[0].bold = True
    assert read(tmp_path, "bold.docx", saved(document))[0] == "hut: Alm | valley: Au | x0: x1"
    document, table = word_table(*[(*row, f"x{at}") for at, row in enumerate(TEXTS)])
    style = document.styles.add_style("Lines", WD_STYLE_TYPE.TABLE)
    style.element.append(OxmlElement("w:tblStylePr", {qn("w:type"): "firstRow"}))
    table.style = style
    assert read(tmp_path, "styled.docx", saved(document))[0] == "hut: Alm | valley: Au | x0: x1"


def test_merged_cells_and_two_header_rows_in_word_and_powerpoint(tmp_path):
    rows = (
        ("hut", "summer", "", "winter", ""),
        ("", "week", "sunday", "week", "sunday"),
        ("Alm", "8:00", "9:00", "10:00", ""),
        ("", "8:15", "9:15", "10:15", "11:15"),
    )
    expected = [
        "hut: Alm | summer, week: 8:00 | summer, sunday: 9:00 | winter, week / winter, sunday: 10:00",
        "hut: Alm | summer, week: 8:15 | summer, sunday: 9:15 | winter, week: 10:15 | winter, sunday: 11:15",
    ]
    merges = [((0, 0), (1, 0)), ((0, 1), (0, 2)), ((0, 3), (0, 4)), ((2, 0), (3, 0)), ((2, 3), (2, 4))]
    document, table = word_table(*rows)
    table.rows[0]._tr.get_or_add_trPr().append(OxmlElement("w:tblHeader"))
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    drawn = slide.shapes.add_table(len(rows), len(rows[0]), 0, 0, 9, 9).table
    for at, row in enumerate(rows):
        for column, text in enumerate(row):
            drawn.cell(at, column).text = text
    for first, last in merges:
        table.cell(*first).merge(table.cell(*last))
        drawn.cell(*first).merge(drawn.cell(*last))
    assert read(tmp_path, "a.docx", saved(document)) == expected
    assert read(tmp_path, "a.pptx", saved(presentation)) == expected


@pytest.mark.parametrize("is_merged", [True, False])
def test_merged_cells_and_two_header_rows_in_excel(tmp_path, is_merged):
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    sheet.append(["hut", "summer", None, "winter", None])
    sheet.append([None, "week", "sunday", "week", "sunday"])
    sheet.append(["Alm", "8:00", "9:00", "10:00", None])
    sheet.append([None, "8:15", "9:15", "10:15", "11:15"])
    if is_merged:
        for reference in ("A1:A2", "B1:C1", "D1:E1", "A3:A4", "D3:E3"):
            sheet.merge_cells(reference)
    found = read(tmp_path, "a.xlsx", saved(workbook))
    assert found[0].startswith("hut: Alm | summer, week: 8:00 | summer, sunday: 9:00 | winter, week")
    assert found[1].endswith("summer, sunday: 9:15 | winter, week: 10:15 | winter, sunday: 11:15")
    assert found[1].startswith("hut: Alm") == is_merged


def test_a_long_merged_text_is_said_once_and_long_names_are_not_repeated():
    long = "word " * 40
    rows = [[Cell("hut", is_header=True), Cell(long.strip(), is_header=True)]]
    rows += [[Cell("Alm"), Cell(long.strip(), rows=2)], [Cell("Ofen")]]
    texts = render_table(rows)
    assert sum(text.count(long.strip()) for text in texts) == 2
    assert texts[-1] == "hut: Ofen"


def test_a_row_of_several_passages_repeats_what_it_is_about():
    sentences = " ".join(f"Remark number {at} of the keeper is here." for at in range(40))
    row = Paragraph(f"hut: Alm | beds: 12 | notes: {sentences}", is_row=True)
    passages = list(Chunking(words=60).split(Section([row])))
    assert len(passages) > 3
    for passage in passages:
        for line in passage.text.split("\n"):
            assert line.startswith("hut: Alm | ")
            assert "notes: Remark" in line or "beds: 12" in line
    assert all(f"number {at} " in " ".join(passage.text for passage in passages) for at in range(40))
