"""Word, PowerPoint and Excel: whatever a person sees in a file is read, once, or is said to be left out."""

from __future__ import annotations

import io
import zipfile

import openpyxl
import pptx
import pytest
from openpyxl.comments import Comment
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from dialore.retrieval.chunking import Unreadable
from dialore.retrieval.documents.indexing import build_documents
from dialore.retrieval.groups import RefusedGroups
from dialore.retrieval.loaders.excel import CODES, format_number, read_xlsx
from dialore.retrieval.loaders.powerpoint import read_pptx
from dialore.retrieval.loaders.reader import Reader
from dialore.retrieval.loaders.word import read_docx
from dialore.sources.documents import DocumentIndex

OFFICE = "http://schemas.openxmlformats.org"
STRICT = "http://purl.oclc.org/ooxml"
WORD = f"{OFFICE}/wordprocessingml/2006/main"
RELATIONS = f"{OFFICE}/package/2006/relationships"
OTHERS = (
    f'xmlns:m="{OFFICE}/officeDocument/2006/math" xmlns:mc="{OFFICE}/markup-compatibility/2006" xmlns:r="{OFFICE}/r"'
)


def package(main: str, parts: dict[str, str], related: dict[str, str] | None = None, kinds: str = OFFICE) -> bytes:
    """A package whose main part names others: kinds of relation by their targets."""
    folder, _, name = main.rpartition("/")

    def relations(pairs: dict[str, str]) -> str:
        found = (
            f'<Relationship Id="{target}" Type="{kinds}/x/{kind}" Target="{target}"/>' for target, kind in pairs.items()
        )
        return f'<Relationships xmlns="{RELATIONS}">{"".join(found)}</Relationships>'

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("_rels/.rels", relations({main: "officeDocument"}))
        archive.writestr(f"{folder}/_rels/{name}.rels", relations(related or {}))
        for part, text in parts.items():
            archive.writestr(part, text)
    return out.getvalue()


def word(body: str, related: dict[str, str] | None = None, **parts: str) -> bytes:
    """A Word document of a body's XML, with other parts by their names and what is in their roots."""
    texts = {"word/document.xml": f'<w:document xmlns:w="{WORD}" {OTHERS}><w:body>{body}</w:body></w:document>'}
    texts |= {f"word/{name}.xml": f'<w:x xmlns:w="{WORD}" {OTHERS}>{text}</w:x>' for name, text in parts.items()}
    return package("word/document.xml", texts, {f"{name}.xml": name.rstrip("123") for name in parts} | (related or {}))


def p(text: str, style: str = "") -> str:
    """A paragraph."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}{r(text)}</w:p>"


def r(text: str) -> str:
    """A run of text."""
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def cell(content: str, properties: str = "") -> str:
    """A cell of a table."""
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{content}</w:tc>"


def read(reader, data: bytes) -> tuple[list[tuple[str, list[str]]], list[str]]:
    """What a reader makes of a file, and what it says of it."""
    told: list[str] = []
    sections = list(reader(data, lambda where, why: told.append(f"{where}: {why}")))
    return [(section.title, [paragraph.text for paragraph in section.paragraphs]) for section in sections], told


def texts(reader, data: bytes) -> list[str]:
    """The paragraphs of a file of which nothing is left out."""
    sections, told = read(reader, data)
    assert not told
    return [text for _, found in sections for text in found]


ROW = "<w:tr>{}</w:tr>"
BOX = f"<w:txbxContent>{p('Mind the step.')}</w:txbxContent>"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            f"<w:p>{r('Rent ')}<w:del><w:r><w:delText>1</w:delText></w:r></w:del><w:ins>{r('250')}</w:ins></w:p>",
            ["Rent 250"],
        ),
        (f"<w:p><w:moveFrom>{r('old place')}</w:moveFrom><w:moveTo>{r('new place')}</w:moveTo></w:p>", ["new place"]),
        (f"<w:sdt><w:sdtPr/><w:sdtContent>{p('Open at nine.')}</w:sdtContent></w:sdt>", ["Open at nine."]),
        (f"<w:p>{r('by ')}<w:sdt><w:sdtContent>{r('Ann')}</w:sdtContent></w:sdt></w:p>", ["by Ann"]),
        (f'<w:p><w:fldSimple w:instr="DATE">{r("1 May")}</w:fldSimple></w:p>', ["1 May"]),
        (f"<w:p><w:r><w:instrText>REF x</w:instrText></w:r>{r('Table 3')}</w:p>", ["Table 3"]),
        (f"<w:p><w:smartTag><w:customXml>{r('Oslo')}</w:customXml></w:smartTag></w:p>", ["Oslo"]),
        (f"<w:p><w:hyperlink>{r('our page')}</w:hyperlink></w:p>", ["our page"]),
        (
            f"<w:p>{r('a')}<w:r><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t><w:noBreakHyphen/></w:r>{r('d')}</w:p>",
            ["a b c-d"],
        ),
        (
            f"<w:p>{r('Here:')}<mc:AlternateContent><mc:Choice>{BOX}</mc:Choice><mc:Fallback>{BOX}</mc:Fallback>"
            "</mc:AlternateContent></w:p>",
            ["Here:", "Mind the step."],
        ),
        (
            f"<w:p><mc:AlternateContent><mc:Choice/><mc:Fallback>{BOX}</mc:Fallback></mc:AlternateContent></w:p>",
            ["Mind the step."],
        ),
        (
            "<w:p><m:oMath><m:f><m:num><m:r><m:t>a+1</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f>"
            "<m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath></w:p>",
            ["(a+1)/2x^2"],
        ),
        (
            f"<w:p><w:ruby><w:rt>{r('かな')}</w:rt><w:rubyBase>{r('仮名')}</w:rubyBase></w:ruby>{r('です')}</w:p>",
            ["仮名です", "かな"],
        ),
        (f'<w:p><w:pPr><w:framePr w:dropCap="drop"/></w:pPr>{r("O")}</w:p>{p("nce upon")}', ["Once upon"]),
        (f'<w:p><w:pPr><w:framePr w:dropCap="drop"/></w:pPr>{r("End")}</w:p>', ["End"]),
    ],
)
def test_whatever_holds_text_in_a_paragraph_is_read_once(body, expected):
    assert texts(read_docx, word(body)) == expected


def test_tables_of_any_shape_say_each_cell_once():
    wide, below = '<w:gridSpan w:val="3"/>', "<w:vMerge/>"
    rows = [
        cell(p("Prices"), wide),
        cell(p("room"), '<w:vMerge w:val="restart"/>') + cell(p("one") + p("bed")) + cell(p("80")),
        cell("<w:p/>", below) + cell(p("two")) + cell(p("90")),
        f"<w:trPr><w:gridBefore/></w:trPr>{cell(p('a'))}<w:sdt><w:sdtContent>{cell(p('b'))}</w:sdtContent></w:sdt>",
        cell(p("outer") + f"<w:tbl>{ROW.format(cell(p('in')) + cell(p('ner')))}</w:tbl>"),
        "",
    ]
    body = f"<w:tbl><w:tblPr/>{''.join(ROW.format(row) for row in rows)}</w:tbl>"
    expected = ["Prices", "room | one bed | 80", "room | two | 90", "a | b", "outer", "in | ner"]
    assert texts(read_docx, word(body)) == expected
    assert texts(read_docx, word(f"<w:sdt><w:sdtContent>{body}</w:sdtContent></w:sdt>")) == expected


def test_notes_stand_after_their_paragraphs_and_repeated_headers_once_at_the_end():
    body = (
        f'<w:p>{r("Deposit.")}<w:r><w:footnoteReference w:id="2"/><w:commentReference w:id="0"/></w:r></w:p>'
        f'<w:p>{r("Keys.")}<w:r><w:endnoteReference w:id="2"/></w:r></w:p>'
    )
    parts = {
        "footnotes": f'<w:footnote w:type="separator" w:id="0">{p("-")}</w:footnote>'
        f'<w:footnote w:id="2">{p("Returned.")}</w:footnote>',
        "endnotes": f'<w:endnote w:id="2">{p("Two.")}</w:endnote>',
        "comments": f'<w:comment w:id="0">{p("Check!")}</w:comment><w:comment w:id="7">{p("Orphan.")}</w:comment>',
        "header1": p("House rules"),
        "header2": p("House rules"),
        "footer1": p("Call 123"),
    }
    assert read(read_docx, word(body, **parts))[0] == [
        ("", ["Deposit.", "Returned.", "Comment: Check!", "Keys.", "Two.", "Comment: Orphan."]),
        ("", ["House rules", "Call 123"]),
    ]


def test_headings_are_known_by_name_outline_and_what_their_style_is_based_on():
    styles = (
        '<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
        '<w:style w:styleId="Mine"><w:basedOn w:val="berschrift1"/></w:style>'
        '<w:style w:styleId="Sub"><w:pPr><w:outlineLvl w:val="1"/></w:pPr></w:style>'
        '<w:style w:styleId="Body"><w:basedOn w:val="Mine"/><w:pPr><w:outlineLvl w:val="9"/></w:pPr></w:style>'
        '<w:style w:styleId="A"><w:basedOn w:val="B"/></w:style><w:style w:styleId="B"><w:basedOn w:val="A"/></w:style>'
        '<w:style w:styleId="T"><w:name w:val="Title"/></w:style>'
    )
    named = (
        ("Hut", "T"),
        ("Stay", "Mine"),
        ("Quiet", "Sub"),
        ("At ten.", "Body"),
        ("Pay", "berschrift1"),
        ("Cash.", "A"),
    )
    body = "".join(p(text, style) for text, style in named)
    assert read(read_docx, word(body, styles=styles))[0] == [
        ("Hut > Stay > Quiet", ["At ten."]),
        ("Hut > Pay", ["Cash."]),
    ]


def test_the_strict_form_and_names_with_backslashes_are_read():
    strict = f'<w:document xmlns:w="{STRICT}/wordprocessingml/main"><w:body>{p("Strict.")}</w:body></w:document>'
    assert texts(read_docx, package("word/document.xml", {"word/document.xml": strict}, kinds=STRICT)) == ["Strict."]
    assert texts(read_docx, package("word/document.xml", {"word\\Document.xml": strict})) == ["Strict."]


def test_what_is_left_out_of_a_document_is_said():
    found, told = read(read_docx, word(p("Text.") + '<w:altChunk r:id="x"/>', header1="", footnotes="<w:footnote>&"))
    assert found == [("", ["Text."])]
    assert len(told) == 2
    assert "word/footnotes.xml: it is damaged" in told[0]
    assert "embedded document" in told[1]
    with pytest.raises(Unreadable, match="before 2007"):
        read(read_docx, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
    with pytest.raises(Unreadable, match="main part"):
        read(read_docx, package("word/document.xml", {}))


# --- PowerPoint


def presentation() -> bytes:
    """Slides with all that holds text besides plain boxes."""
    made = pptx.Presentation()
    only_title, blank = made.slide_layouts[5], made.slide_layouts[6]
    made.slides.add_slide(only_title).shapes.title.text = "We close on Mondays"
    slide = made.slides.add_slide(blank)
    inner = slide.shapes.add_group_shape().shapes.add_group_shape()
    inner.shapes.add_textbox(0, 0, 9, 9).text_frame.text = "Parking is free"
    slide.notes_slide.notes_text_frame.text = "Say where"
    data = CategoryChartData()
    data.categories = ["North", "South"]
    data.add_series("Guests", (12, 7))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.PIE, 0, 0, Inches(2), Inches(2), data).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "Who came"
    table = slide.shapes.add_table(2, 2, 0, 0, 9, 9).table
    table.cell(0, 0).merge(table.cell(0, 1))
    table.cell(0, 0).text, table.cell(1, 0).text, table.cell(1, 1).text = "Rooms", "single", "4"
    made.slide_layouts[6].shapes._spTree.append(slide.shapes.add_textbox(0, 0, 9, 9)._element)
    made.slide_layouts[6].shapes[-1].text_frame.text = "Hut Ltd."
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def test_groups_charts_notes_merged_cells_and_bare_titles_of_slides_are_read():
    sections = list(read_pptx(presentation(), lambda where, why: pytest.fail(f"{where}: {why}")))
    assert [(paragraph.text, paragraph.page) for section in sections for paragraph in section.paragraphs] == [
        ("We close on Mondays", 1),
        ("Parking is free", 2),
        ("Who came", 2),
        ("Guests | North: 12 | South: 7", 2),
        ("Rooms", 2),
        ("single | 4", 2),
        ("Say where", 2),
        ("Hut Ltd.", 0),
    ]


def test_diagrams_comments_and_footers_of_slides_are_read():
    drawing, slides = f"{OFFICE}/drawingml/2006/main", f"{OFFICE}/presentationml/2006/main"
    names = f'xmlns:a="{drawing}" xmlns:p="{slides}" xmlns:r="{OFFICE}/r"'

    def shape(text: str, kind: str = "", field: str = "") -> str:
        place = f'<p:ph type="{kind}"/>' if kind else ""
        said = f'<a:fld type="{field}"><a:t>{text}</a:t></a:fld>' if field else f"<a:r><a:t>{text}</a:t></a:r>"
        return f"<p:sp><p:nvSpPr><p:nvPr>{place}</p:nvPr></p:nvSpPr><p:txBody><a:p>{said}</a:p></p:txBody></p:sp>"

    footer = shape("Hut, 2026", "ftr") + shape("1", "sldNum", "slidenum")
    diagram = '<p:graphicFrame><a:graphic><dgm:relIds xmlns:dgm="d" r:dm="../data.xml"/></a:graphic></p:graphicFrame>'

    def slide(content: str) -> str:
        return f"<p:sld {names}><p:cSld><p:spTree>{content}{footer}</p:spTree></p:cSld></p:sld>"

    def relations(**targets: str) -> str:
        found = (f'<Relationship Id="{target}" Type="x/{kind}" Target="{target}"/>' for kind, target in targets.items())
        return f'<Relationships xmlns="{RELATIONS}">{"".join(found)}</Relationships>'

    listed = "".join(
        f'<p:sldId id="{at}" r:id="{name}"/>' for at, name in enumerate(("s/b.xml", "s/a.xml", "s/gone.xml"), 256)
    )
    parts = {
        "ppt/p.xml": f"<p:presentation {names}><p:sldIdLst>{listed}</p:sldIdLst></p:presentation>",
        "ppt/s/a.xml": slide(shape("Last.") + diagram),
        "ppt/s/b.xml": slide(shape("First", "title") + shape("Body.", "body")),
        "ppt/s/_rels/a.xml.rels": relations(diagramData="../data.xml", comments="../c.xml"),
        "ppt/data.xml": f"<d:dataModel xmlns:d='d' {names}><d:pt><d:t><a:p><a:r><a:t>Plan</a:t></a:r></a:p></d:t>"
        "</d:pt></d:dataModel>",
        "ppt/c.xml": f"<p:cmLst {names}><p:cm><p:text>Why so?</p:text></p:cm></p:cmLst>",
    }
    related = dict.fromkeys(("s/a.xml", "s/b.xml"), "slide")
    sections, told = read(read_pptx, package("ppt/p.xml", parts, related))
    assert sections == [("First", ["Body."]), ("", ["Last.", "Plan", "Comment: Why so?"]), ("", ["Hut, 2026"])]
    assert told == ["slide 3: it is missing or damaged"]


# --- Excel


def workbook(rows: str, related: dict[str, str] | None = None, **parts: str) -> bytes:
    """A workbook of one sheet of rows' XML, with other parts by their names and what is in their roots."""
    name = f'xmlns="{OFFICE}/spreadsheetml/2006/main"'
    sheets = '<sheets><sheet name="Rooms" sheetId="1" r:id="sheet.xml"/></sheets>'
    texts = {
        "xl/workbook.xml": f'<workbook {name} xmlns:r="{OFFICE}/r">{parts.pop("workbook", "")}{sheets}</workbook>',
        "xl/sheet.xml": f"<worksheet {name}>{parts.pop('head', '')}<sheetData>{rows}</sheetData></worksheet>",
    }
    texts |= {f"xl/{part}.xml": f"<x {name}>{text}</x>" for part, text in parts.items()}
    return package(
        "xl/workbook.xml", texts, {"sheet.xml": "worksheet"} | {f"{part}.xml": part for part in parts} | (related or {})
    )


def sheet_row(*values: str | float | None, number: int | None = None) -> str:
    """A row: texts in place, numbers, and nothing."""
    cells = []
    for at, value in enumerate(values):
        reference = f'r="{"ABCDEFG"[at]}{number}"' if number else ""
        if isinstance(value, str):
            cells.append(f'<c {reference} t="inlineStr"><is><t>{value}</t></is></c>')
        elif value is not None:
            cells.append(f"<c {reference}><v>{value}</v></c>")
    place = f' r="{number}"' if number else ""
    return f"<row{place}>{''.join(cells)}</row>"


@pytest.mark.parametrize("head", ["", '<dimension ref="A1"/>', '<dimension ref="A1:A1"/>'])
def test_cells_are_read_whatever_the_sheet_says_of_its_size(head):
    rows = (
        sheet_row("Summer prices", number=1) + sheet_row("Room", "Price", number=3) + sheet_row("Single", 80, number=4)
    )
    assert texts(read_xlsx, workbook(rows, head=head)) == ["Summer prices", "Room: Single | Price: 80"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("Only", "row")], ["Only | row"]),
        ([("Only cell",)], ["Only cell"]),
        ([("a", "b", "unused"), (1, 2)], ["a: 1 | b: 2", "unused"]),
        ([(1, "x"), (2, "y")], ["1 | x", "2 | y"]),
        ([("Region", 2024, 2025), ("North", 3, 4)], ["Region: North | 2024: 3 | 2025: 4"]),
        ([(None, "a", "b"), ("first", 1, 2)], ["first | a: 1 | b: 2"]),
        (
            [("Report", "Q3"), ("Room", "Beds", "Price"), ("One", 1, 80)],
            ["Report | Q3", "Room: One | Beds: 1 | Price: 80"],
        ),
        ([("a", "b"), (1, 2), (), ("c", "d", "e"), (3, 4, 5)], ["a: 1 | b: 2", "c: 3 | d: 4 | e: 5"]),
        ([("a", "b"), (1, 2), (), ("c", "d"), (3, 4)], ["a: 1 | b: 2", "c: 3 | d: 4"]),
        (
            [("q", "a"), ("who", "we"), (), ("what", "this"), ("how", "so")],
            ["q: who | a: we", "q: what | a: this", "q: how | a: so"],
        ),
        ([("a", "b"), (1, 2), (), (3, 4)], ["a: 1 | b: 2", "a: 3 | b: 4"]),
        (
            [("Is breakfast included?", "Yes, it is."), ("Dogs?", "No.")],
            ["Is breakfast included? | Yes, it is.", "Dogs? | No."],
        ),
    ],
)
def test_rows_have_the_names_of_their_columns_where_there_are_some(rows, expected):
    assert texts(read_xlsx, workbook("".join(sheet_row(*row, number=at) for at, row in enumerate(rows, 1)))) == expected
    if all(None not in row for row in rows):  # some writers leave the references out
        assert texts(read_xlsx, workbook("".join(sheet_row(*row) for row in rows))) == expected


def test_formulas_without_values_and_missing_texts_are_kept_as_far_as_they_go_and_said():
    rows = (
        sheet_row("Item", "Total")
        + '<row><c t="inlineStr"><is><t>Sum</t></is></c><c><f>SUM(A1:A9)</f><v></v></c></row>'
        + '<row><c t="s"><v>0</v></c><c t="s"><v>5</v></c></row>'
        + '<row><c t="str"><f>A1&amp;"x"</f><v>done</v></c><c t="b"><v>1</v></c><c t="e"><v>#REF!</v></c></row>'
    )
    strings = "<si><r><t>Sha</t></r><r><t>red</t></r><rPh><t>guide</t></rPh></si>"
    sections, told = read(read_xlsx, workbook(rows, sharedStrings=strings))
    assert sections == [
        ("Rooms", ["Item: Sum | Total: =SUM(A1:A9)", "Item: Shared", "Item: done | Total: TRUE | #REF!"])
    ]
    assert [line.partition(":")[0] for line in told] == ["sheet Rooms", "sheet Rooms"]
    assert "1 formulas without a value" in told[0]
    assert "texts of 1 cells are missing" in told[1]


def test_comments_charts_and_sheets_without_anything_are_read_as_they_are():
    made = openpyxl.Workbook()
    made.active.title = "Beds"
    made.active.append(["Room", "Beds"])
    made.active.append(["One", 2])
    made.active["B2"].comment = Comment("and a cot", "Ann")
    chart = openpyxl.chart.BarChart()
    chart.title = "How many beds"
    chart.add_data(openpyxl.chart.Reference(made.active, min_col=2, min_row=1, max_row=2), titles_from_data=True)
    made.active.add_chart(chart)
    made.create_sheet("Empty")
    out = io.BytesIO()
    made.save(out)
    sections, told = read(read_xlsx, out.getvalue())
    assert sections == [("Beds", ["Room: One | Beds: 2", "Comment on B2: and a cot", "How many beds"])]
    assert not told


def test_print_headers_and_threads_of_comments_are_read():
    made = openpyxl.Workbook()
    made.active.title = "Beds"
    made.active.append(["One", "Two"])
    made.active["A1"].comment = Comment("[Threaded comment] Comment: a cot, please", "Ann")
    made.active.oddHeader.center.text = "Hut && Barn"
    made.active.oddHeader.left.font = "Arial,Bold"
    made.active.oddHeader.left.text = "Draft &P"
    made.active.oddFooter.right.text = "Hut && Barn"
    out = io.BytesIO()
    made.save(out)
    thread = (
        f'<ThreadedComments xmlns="{OFFICE}/t"><threadedComment ref="A1"><text>a cot, please</text></threadedComment>'
    )
    thread += '<threadedComment ref="B1"><text>or two</text></threadedComment></ThreadedComments>'
    rels = "xl/worksheets/_rels/sheet1.xml.rels"
    whole = io.BytesIO()
    with zipfile.ZipFile(out) as old, zipfile.ZipFile(whole, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == rels:
                end = b'<Relationship Id="t" Type="x/threadedComment" Target="/xl/t.xml"/></Relationships>'
                data = data.replace(b"</Relationships>", end)
            new.writestr(name, data)
        new.writestr("xl/t.xml", thread)
    sections, told = read(read_xlsx, whole.getvalue())
    (section,) = sections
    assert section[1][1:3] == ["Comment on A1: [Threaded comment] Comment: a cot, please", "Comment on B1: or two"]
    assert section[1][3:] == ["Draft Hut & Barn", "Hut & Barn"]
    assert not told


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        ('<w:result w:val="1"/>', "no"),
        ('<w:default w:val="2"/>', "perhaps"),
        ("", "yes"),
        ('<w:result w:val="7"/>', ""),
    ],
)
def test_a_drop_down_list_of_a_form_says_what_it_shows(chosen, shown):
    entries = "".join(f'<w:listEntry w:val="{word}"/>' for word in ("yes", "no", "perhaps"))
    field = f'<w:fldChar w:fldCharType="begin"><w:ffData><w:ddList>{chosen}{entries}</w:ddList></w:ffData></w:fldChar>'
    body = f"<w:p><w:r><w:t>Dogs: </w:t></w:r><w:r>{field}</w:r></w:p>"
    sections, told = read(read_docx, word(body))
    assert " ".join(sections[0][1]).split() == ["Dogs:", *shown.split()]
    assert not told


@pytest.mark.parametrize(
    ("value", "code", "expected"),
    [
        ("0.25", "9", "25%"),
        ("0.1234", "10", "12.34%"),
        ("1234.5", "4", "1,234.50"),
        ("-7", "37", "(7)"),
        ("46082", "14", "2026-03-01"),
        ("46082.75", "22", "2026-03-01 18:00"),
        ("0.5", "18", "12:00 PM"),
        ("46082", "d mmm yyyy", "1 Mar 2026"),
        ("46082", "[$-409]dddd, mmmm dd", "Sunday, March 01"),
        ("60", "d/m/yy", "28/2/00"),
        ("46082", 'yyyy"年"m"月"d"日"', "2026年3月1日"),
        ("1.5", "[h]:mm", "36:00"),
        ("0.0625", "mm:ss", "30:00"),
        ("1234.5", '#,##0.00 "€"', "1,234.50 €"),
        ("1234.5", '_("$"* #,##0.00_)', "$1,234.50"),
        ("9", "[$£-809]#,##0", "£9"),
        ("-3", '0.0;[Red]"loss "0.0', "loss 3.0"),
        ("-3", "0.0", "-3.0"),
        ("0.5", "0.0##", "0.5"),
        ("7", "0000", "0007"),
        ("1234567", "#,##0,", "1,235"),
        ("123456789", "000-00-0000", "123456789"),
        ("2.5", "# ?/?", "2.5"),
        ("5", '[>=100]0" many";0" few"', "5"),
        ("0.30000000000000004", "General", "0.3"),
        ("123456789012", "0", "123456789012"),
        ("1", '"yes"', "1"),
        ("4", "165", "4"),
        ("1e400", "0", "inf"),
        ("x", "0", "x"),
        ("99999999", "14", "99999999"),
        ("5", '0" d"', "5 d"),
        ("-1", "yyyy", "-1"),
    ],
)
def test_numbers_are_as_a_person_sees_them(value, code, expected):
    own = not code.isdigit() or code in {"0", "0000"}
    assert format_number(value, code if own else CODES.get(code, "General")).text == expected


def test_a_sheet_that_is_missing_or_torn_is_said_and_the_others_are_read():
    names = f'xmlns="{OFFICE}/spreadsheetml/2006/main"'
    sheets = "".join(f'<sheet name="S{at}" r:id="{at}.xml"/>' for at in (1, 2, 3))
    parts = {
        "xl/workbook.xml": f'<workbook {names} xmlns:r="{OFFICE}/r"><sheets>{sheets}</sheets></workbook>',
        "xl/2.xml": f"<worksheet {names}><sheetData>{sheet_row('kept')}<row><c",
        "xl/3.xml": f"<worksheet {names}><sheetData>{sheet_row('whole')}</sheetData></worksheet>",
    }
    data = package("xl/workbook.xml", parts, dict.fromkeys(("1.xml", "2.xml", "3.xml"), "worksheet"))
    sections, told = read(read_xlsx, data)
    assert sections == [("S2", ["kept"]), ("S3", ["whole"])]
    assert told[0] == "sheet S1: it is missing in the file"
    assert told[1].startswith("xl/2.xml: it is damaged")


def test_a_workbook_of_the_other_calendar_shows_its_dates():
    styles = '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
    made = workbook('<row><c s="1"><v>1</v></c></row>', styles=styles, workbook='<workbookPr date1904="1"/>')
    assert texts(read_xlsx, made) == ["1904-01-02"]


# --- What the programs do not show


def run(text: str, properties: str) -> str:
    """A run of text with properties."""
    return f"<w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r>"


def count_and_read_all(reader, data: bytes) -> tuple[list[str], str, list[str]]:
    """What is read of a file with hidden content, what is said of it, and what is read with that content."""
    sections, told = read(reader, data)
    [said] = told
    whole = [p.text for section in reader(data, pytest.fail, include_hidden=True) for p in section.paragraphs]
    return [text for _, found in sections for text in found], said, whole


def test_hidden_text_of_word_is_left_out_and_counted():
    styles = (
        '<w:style w:type="character" w:styleId="Secret"><w:rPr><w:vanish/></w:rPr></w:style>'
        '<w:style w:type="character" w:styleId="Mine"><w:basedOn w:val="Secret"/></w:style>'
        '<w:style w:type="paragraph" w:styleId="Draft"><w:rPr><w:vanish/></w:rPr></w:style>'
    )
    drawing = f'<w:r><w:drawing><w:inline><w:docPr hidden="1"/>{BOX}</w:inline></w:drawing></w:r>'
    shape = 'v:shape xmlns:v="urn:schemas-microsoft-com:vml" style="visibility:hidden"'
    older = f"<w:r><w:pict><{shape}>{BOX}</v:shape></w:pict></w:r>"
    body = (
        f"<w:p>{r('Open.')}{run('abc', '<w:vanish/>')}{run('!', '<w:webHidden/>')}"
        f"{run('?', '<w:vanish w:val=&quot;0&quot;/>'.replace('&quot;', chr(34)))}</w:p>"
        f"<w:p>{run('def', '<w:rStyle w:val=&quot;Mine&quot;/>'.replace('&quot;', chr(34)))}</w:p>"
        f"{p('ghi', 'Draft')}<w:p>{drawing}{older}</w:p>"
        f"<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:footnoteReference w:id='2'/></w:r></w:p>"
        f"<w:tbl>{ROW.format('<w:trPr><w:hidden/></w:trPr>' + cell(p('jkl')))}{ROW.format(cell(p('shown')))}</w:tbl>"
    )
    notes = f'<w:footnote w:id="2">{p("mno")}</w:footnote>'
    found, said, whole = count_and_read_all(read_docx, word(body, styles=styles, footnotes=notes))
    assert found == ["Open.!?", "shown"]
    for count in ("9 characters", "1 table row", "1 footnote", "2 shapes", "include_hidden"):
        assert count in said
    text = " ".join(whole)
    assert all(part in text for part in ("abc", "def", "ghi", "jkl", "mno", "Mind the step."))


def test_hidden_slides_and_shapes_are_left_out_and_counted():
    made = pptx.Presentation()
    for text in ("Prices", "Salaries"):
        slide = made.slides.add_slide(made.slide_layouts[6])
        slide.shapes.add_textbox(0, 0, 9, 9).text_frame.text = text
        slide.notes_slide.notes_text_frame.text = f"Notes on {text}"
    made.slides[1]._element.set("show", "0")
    box = made.slides[0].shapes.add_textbox(0, 0, 9, 9)
    box.text_frame.text = "Discount"
    box._element.nvSpPr.cNvPr.set("hidden", "1")
    out = io.BytesIO()
    made.save(out)
    found, said, whole = count_and_read_all(read_pptx, out.getvalue())
    assert found == ["Prices", "Notes on Prices"]
    assert "1 slide (2)" in said
    assert "1 shape" in said
    assert whole == ["Prices", "Discount", "Notes on Prices", "Salaries", "Notes on Salaries"]


def hidden_workbook() -> bytes:
    """A workbook with all that Excel can hide, and a group of rows that is only folded."""
    made = openpyxl.Workbook()
    made.active.title = "Rooms"
    for row in (
        ("room", "beds", "cost"),
        ("One", 2, 7),
        ("Two", 3, 8),
        ("Three", 4, 9),
        ("Four", 5, 6),
        ("Five", 6, 5),
    ):
        made.active.append(row)
    made.active.column_dimensions["C"].hidden = True
    made.active.row_dimensions[3].hidden = True
    made.active.row_dimensions[4].hidden = True
    made.active.row_dimensions[5].hidden = True
    made.active.row_dimensions[5].outlineLevel = 1
    made.active["B6"].number_format = ";;;"
    made.active["A3"].comment = Comment("not yet", "Ann")
    for name, state in (("Pay", "hidden"), ("Plans", "veryHidden")):
        made.create_sheet(name).append([f"{name} of Ann"])
        made[name].sheet_state = state
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def test_hidden_sheets_rows_columns_and_cells_are_left_out_and_counted():
    found, said, whole = count_and_read_all(read_xlsx, hidden_workbook())
    assert found == ["room: One | beds: 2", "room: Four | beds: 5", "room: Five"]
    for count in ("2 sheets (Pay, Plans)", "2 rows", "1 column", "1 cell by their format", "1 comment"):
        assert count in said
    assert {"room: Two | beds: 3 | cost: 8", "room: Five | beds: 6 | cost: 5", "Pay of Ann", "Plans of Ann"} <= set(
        whole
    )
    assert "Comment on A3: not yet" in whole


def test_rows_and_columns_without_a_size_are_hidden():
    rows = sheet_row("a", "b").replace("<row", '<row ht="0" customHeight="1"') + sheet_row("c", "d")
    data = workbook(rows, head='<cols><col min="2" max="9" width="0" customWidth="1"/></cols>')
    found, said, whole = count_and_read_all(read_xlsx, data)
    assert found == ["c"]
    assert "1 row," in said
    assert "1 column;" in said
    assert whole == ["a: c | b: d"]


def test_an_option_of_the_command_reads_what_is_hidden(tmp_path):
    (tmp_path / "a.xlsx").write_bytes(hidden_workbook())
    (tmp_path / "b.xlsx").write_bytes(workbook(sheet_row("open")))
    report = build_documents(tmp_path / "index", [tmp_path], vectors=False)
    [notice] = report.notices
    assert "a.xlsx: " in notice
    with Reader(include_hidden=True) as reader:
        report = build_documents(tmp_path / "all", [tmp_path], vectors=False, reader=reader)
    assert not report.notices
    with DocumentIndex(tmp_path / "all") as index:
        assert any("Pay of Ann" in piece.text for piece in index.passages())


# --- Headings


@pytest.mark.parametrize("name", ["a.md", "a.html", "a.docx"])
def test_a_heading_that_nothing_follows_stands_in_a_passage_and_a_long_one_is_text(tmp_path, name):
    long = "Bring " + "warm clothes and " * 40 + "a torch"
    headings = [(1, "House"), (2, "Closed on Mondays"), (2, "Towels"), (3, "None here"), (2, long), (1, "End")]
    if name == "a.md":
        data = "\n\n".join(f"{'#' * level} {text}" for level, text in headings).encode()
    elif name == "a.html":
        data = "".join(f"<h{level}>{text}</h{level}>" for level, text in headings).encode()
    else:
        styles = "".join(f'<w:style w:styleId="h{at}"><w:name w:val="Heading {at}"/></w:style>' for at in (1, 2, 3))
        data = word("".join(p(text, f"h{level}") for level, text in headings), styles=styles)
    (tmp_path / name).write_bytes(data)
    build_documents(tmp_path / "index", [tmp_path / name], vectors=False)
    with DocumentIndex(tmp_path / "index") as index:
        found = [(piece.text, piece.title) for piece in index.passages()]
    assert [text for text, _ in found] == ["Closed on Mondays", "None here", found[2][0], "End"]
    assert found[0][1] == "House"
    assert found[1][1] == "House > Towels"
    assert found[2][0].startswith("Bring warm clothes")
    assert found[2][0].endswith("a torch")
    assert found[2][1].startswith("House > Bring warm")
    assert len(found[2][1]) < 200


def test_a_long_title_is_text_whatever_says_it(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"title": "%sthe end", "text": "Tea is hot."}' % ("very " * 1000), "utf-8")
    build_documents(tmp_path / "index", [tmp_path / "a.jsonl"], vectors=False)
    with DocumentIndex(tmp_path / "index") as index:
        found = list(index.passages())
    assert all(len(piece.title) <= 601 for piece in found)
    assert "the end" in " ".join(piece.text for piece in found)


def test_a_build_says_what_it_left_out_of_office_files(tmp_path):
    (tmp_path / "a.xlsx").write_bytes(workbook("<row><c><f>1+1</f></c></row>"))
    (tmp_path / "b.docm").write_bytes(word(p("Macros do not matter.") + '<w:altChunk r:id="x"/>'))
    report = build_documents(tmp_path / "index", [tmp_path], vectors=False)
    assert report.passages == 2
    assert sorted(line.rpartition("/")[2][:6] for line in report.notices) == ["a.xlsx", "b.docm"]


@pytest.mark.parametrize("hidden", ["column", "row", "format"])
def test_hidden_groups_of_a_workbook_are_refused(hidden):
    made = openpyxl.Workbook()
    for row in (("Text", "Groups"), ("The deal.", "board")):
        made.active.append(row)
    if hidden == "column":
        made.active.column_dimensions["B"].hidden = True
    elif hidden == "row":
        made.active.row_dimensions[1].hidden = True
    else:
        made.active["B1"].number_format = ";;;"
    content = io.BytesIO()
    made.save(content)
    with pytest.raises(RefusedGroups):
        list(read_xlsx(content.getvalue(), lambda _where, _why: None))
