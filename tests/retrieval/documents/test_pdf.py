"""What stands in PDFs: fonts of all kinds, forms, notes, scans, lines and pages that run on."""

from __future__ import annotations

import pytest

from dialore.retrieval.chunking import Unreadable
from dialore.retrieval.loaders.pdf import _garbled_pages, read_pdf
from tests.retrieval.documents import pdfs
from tests.retrieval.documents.files import pdf


def read(data: bytes, **options: bool) -> tuple[str, list[str]]:
    """The text of a PDF, and what is told of it."""
    told: list[str] = []
    [section] = read_pdf(data, lambda where, why: told.append(f"{where}: {why}"), **options)
    return "\n".join(paragraph.text for paragraph in section.paragraphs), told


@pytest.mark.parametrize(
    ("text", "codec", "cmap", "ordering"),
    [
        ("港は六時に開きます。", "shift_jis", "90ms-RKSJ-H", "Japan1"),
        ("港は六時に開きます。", "euc_jp", "EUC-H", "Japan1"),
        ("항구는 여섯 시에 연다.", "cp949", "KSCms-UHC-H", "Korea1"),
        ("港口六点开门。", "gbk", "GBK-EUC-H", "GB1"),
        ("港口六點開門。", "big5", "ETen-B5-H", "CNS1"),
    ],
)
def test_eastern_fonts_that_name_no_letters_are_read(text, codec, cmap, ordering):
    assert read(pdfs.eastern(text, codec, cmap, ordering)) == (text, [])


def test_half_a_character_in_a_font_harms_nobody(tmp_path):
    from dialore.retrieval.documents.indexing import build_documents
    from dialore.sources.documents import DocumentIndex

    font = b"<</Type /Font /Subtype /TrueType /BaseFont /Any /ToUnicode 6 0 R>>"
    mapped = (
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def /CMapType 2 def\n"
        b"1 begincodespacerange <00> <ff> endcodespacerange 2 beginbfchar <41> <D83D> <42> <0042> endbfchar\n"
        b"endcmap end end"
    )
    (tmp_path / "half.pdf").write_bytes(
        pdfs.page(b"BT /F1 12 Tf 72 700 Td (BAB) Tj ET", font, more={6: pdfs.stream(mapped)})
    )
    (tmp_path / "whole.txt").write_text("The kiln cools at night.", "utf-8")
    report = build_documents(tmp_path / "index", [tmp_path], vectors=False)
    assert (report.documents, report.rejects) == (2, [])
    with DocumentIndex(tmp_path / "index") as index:
        assert {piece.text for piece in index.passages()} >= {"The kiln cools at night."}


def test_what_is_filled_into_a_form_and_what_notes_say_is_read():
    value = pdfs.stream(
        b"/Tx BMC BT /F1 12 Tf 2 4 Td (Rosalind Marsh) Tj ET EMC",
        b"/Type /XObject /Subtype /Form /BBox [0 0 200 20] /Resources <</Font <</F1 5 0 R>>>>",
    )
    field = (
        b"<</Type /Annot /Subtype /Widget /FT /Tx /T (guest) /V (Rosalind Marsh) /F 4 /Rect [200 690 400 710] /P 3 0 R "
    )
    more = {
        10: b"<</Fields [11 0 R 13 0 R] /DA (/F1 12 Tf 0 g) /DR <</Font <</F1 5 0 R>>>>>>",
        11: field + b"/AP <</N 12 0 R>>>>",
        12: value,
        13: b"<</Type /Annot /Subtype /Widget /FT /Tx /T (room) /V (Garden wing) /F 4 /Rect [200 640 400 660] /P 3 0 R "
        b"/DA (/F1 12 Tf 0 g)>>",
        14: b"<</Type /Annot /Subtype /Text /Contents (Ask for the key.) /Rect [10 10 30 30]>>",
        15: b"<</Type /Annot /Subtype /Link /Contents (not seen) /Rect [10 10 30 30]>>",
    }
    shown = b"BT /F1 12 Tf 72 695 Td (Guest:) Tj 0 -50 Td (Room:) Tj ET"
    text, told = read(pdfs.page(shown, entries=b"/Annots [11 0 R 13 0 R 14 0 R 15 0 R]", more=more))
    for words in ("Guest:", "Room:", "Rosalind Marsh", "Garden wing", "Ask for the key."):
        assert words in text
    assert "not seen" not in text
    assert told == []


def picture(text: bytes = b"") -> bytes:
    image = pdfs.stream(
        b"\0" * 100, b"/Type /XObject /Subtype /Image /Width 10 /Height 10 /ColorSpace /DeviceGray /BitsPerComponent 8"
    )
    return pdfs.page(b"q 500 0 0 700 50 50 cm /I1 Do Q " + text, more={20: image})


def test_pages_without_text_are_named():
    with pytest.raises(Unreadable, match="page 1: no text but pictures"):
        read(picture())
    stamped = b"BT /F1 9 Tf 72 20 Td (Page 4) Tj ET"
    text, [told] = read(picture(stamped))
    assert text == "Page 4"
    assert told.startswith("page 1: no text but pictures; if they are scanned, the extra ocr reads them")
    with pytest.raises(Unreadable, match=r"^it has no text$"):
        read(pdf("", ""))


def test_text_that_is_no_text_is_told():
    shifted = "Wkh ihuub ohdyhv wkh kduerxu dw qlqh dqg uhwxuqv lq wkh hyhqlqj zlwk iuhvk ilvk iru wkh pdunhw. " * 3
    assert "its fonts do not say" in read(pdf(shifted))[1][0]
    plain = "The ferry leaves the harbour at nine and returns in the evening with fresh fish for the market. " * 3
    assert read(pdf(plain))[1] == []


PLAIN = "The ferry leaves the harbour at nine and returns in the evening with fresh fish for the market. " * 3


@pytest.mark.parametrize(
    "garbled",
    [
        "aaaa aa aaaaaa aaa " * 40,
        "".join(chr(0xC0 + at * 7 % 64) + " " * (at % 5 == 0) for at in range(400)),
        "".join("!\"#$%&'()*+,-./:;<=>"[at * 5 % 19] for at in range(400)),
        "\ue001\ue002\ue003 " * 100,
    ],
)
def test_what_is_text_in_no_language_is_left_out_by_name(garbled):
    assert _garbled_pages([garbled, PLAIN]) == {0}
    assert _garbled_pages([garbled[at : at + 40] for at in range(0, 400, 40)]) == set(range(10))


def test_a_file_of_garbled_pages_is_refused_and_one_page_of_them_is_named():
    lines = "\n".join(["aaaa aa aaaaaa aaa aaaa aaa"] * 20)
    with pytest.raises(Unreadable, match="pages 1-2: its fonts do not say"):
        read(pdf(lines, lines))
    text, [told] = read(pdf(PLAIN, lines))
    assert text == PLAIN.strip()
    assert told.startswith("page 2: its fonts do not say")


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "Tiếng Việt là ngôn ngữ của người Việt và là ngôn ngữ chính thức tại Việt Nam, được hơn tám mươi triệu "
        "người nói ở khắp nơi trên thế giới. ",
        "Příliš žluťoučký kůň úpěl ďábelské ódy, strč prst skrz krk, vlk zmrzl, zhltl hrst zrn. ",
        "Паром отходит из гавани в девять часов и возвращается вечером со свежей рыбой для рынка. ",
        "厨房早上八点开门，客人可以在大厅里等候，晚上十点关门。",
        "주방은 아침 여덟 시에 문을 열고 저녁 열 시에 문을 닫습니다. ",
        "تغادر العبارة الميناء في التاسعة وتعود في المساء ومعها سمك طازج للسوق. ",
        "ห้องครัวเปิดเวลาแปดโมงเช้าและปิดเวลาสี่ทุ่มทุกวัน ",
        "रसोई सुबह आठ बजे खुलती है और रात दस बजे बंद होती है। ",
        "1,204.50 17.3 2026-03-01 99% 12:30 4/5 (7) ",
        "Chapter one ............................ 7\n",
        "Name: ____________________ Date: ____________ ",
        "E ka haku aloha aku, e aloha mai kāua i ka pō a i ke ao, a pau ka la. ",
    ],
)
def test_text_of_any_language_numbers_and_forms_stay(text):
    assert _garbled_pages([text * 20, text]) == set()


def test_words_are_whole_over_lines_and_accents_on_their_letters():
    text, _ = read(pdf("The light-\nhouse keeps a log of pas-\nsing ships."))
    assert text == "The lighthouse keeps a log of passing ships."
    accented = pdfs.page(
        b"BT /F1 12 Tf 72 700 Td (Caf) Tj (e\\264 au lait) Tj ET",
        b"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding>>",
    )
    assert read(accented)[0] == "Café au lait"


def test_an_xfa_form_is_named():
    from io import BytesIO

    import pypdf
    from pypdf.generic import ArrayObject, DictionaryObject, NameObject, TextStringObject

    writer = pypdf.PdfWriter(BytesIO(pdf("The tide turns at noon.")))
    forms = ArrayObject([TextStringObject("template"), TextStringObject("<template/>")])
    fields = {NameObject("/Fields"): ArrayObject(), NameObject("/XFA"): forms}
    writer._root_object[NameObject("/AcroForm")] = DictionaryObject(fields)
    out = BytesIO()
    writer.write(out)
    text, told = read(out.getvalue())
    assert text == "The tide turns at noon."
    assert told == [": it is an XFA form: what such a form holds beside its pages is not read"]


def test_attached_files_are_named():
    from io import BytesIO

    import pypdf

    writer = pypdf.PdfWriter(BytesIO(pdf("The tide turns at noon.")))
    writer.add_attachment("table.csv", b"a,b")
    out = BytesIO()
    writer.write(out)
    assert read(out.getvalue()) == ("The tide turns at noon.", [": files that are attached to it are not read: 1"])


def test_scanned_pages_are_read_by_the_extra():
    pytest.importorskip("rapidocr")
    numpy = pytest.importorskip("numpy")
    import pypdfium2

    [page] = pypdfium2.PdfDocument(pdf("\n".join(["The ferry leaves at nine.", "Bring a warm coat."])))
    grey = page.render(scale=2, grayscale=True).to_numpy()
    height, width = grey.shape[:2]
    image = pdfs.stream(
        numpy.ascontiguousarray(grey).tobytes(),
        b"/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceGray /BitsPerComponent 8"
        % (width, height),
    )
    scan = pdfs.page(b"q 612 0 0 792 0 0 cm /I1 Do Q", more={20: image})
    text, told = read(scan, ocr=True)
    assert text == "The ferry leaves at nine. Bring a warm coat."
    assert told == []
