"""Files of every format, read for real."""

from __future__ import annotations

import pytest

from dialore.errors import InputError
from dialore.retrieval.chunking import Chunking
from dialore.retrieval.documents.indexing import add_documents, build_documents
from dialore.sources.documents import DocumentIndex
from tests.retrieval.documents.files import MARKDOWN, library, pdf, sheet, slides, word


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = library(tmp_path_factory.mktemp("library"))
    out = tmp_path_factory.mktemp("out") / "index"
    return build_documents(out, [folder], chunking=Chunking("sentence")), DocumentIndex(out), folder


def details(index: DocumentIndex, name: str) -> list[tuple[str, str]]:
    return [(piece.text, piece.title) for piece in index.passages() if piece.file.endswith(name)]


def test_what_cannot_be_read_is_counted_and_shown(built):
    report, index, folder = built
    reasons = {line.partition(": ")[0].removeprefix(f"{folder.resolve()}/"): line for line in report.rejects}
    assert report.rejected == 5
    assert "encrypted" in reasons["secret.pdf"]
    assert "damaged PDF" in reasons["broken.pdf"]
    assert "no text" in reasons["scan.pdf"]
    assert "binary" in reasons["binary.txt"]
    assert f"{folder.resolve()}/latin.txt: it does not say its encoding: read as cp1252" in report.notices
    assert "no text" in reasons["blank.txt"]
    names = {document.name.removeprefix(f"{folder.resolve()}/") for document in index.documents()}
    assert names == {
        "kettle.md",
        "basil.html",
        "deep/notes.txt",
        "birds.jsonl.gz",
        "engine.pdf",
        "utf16.txt",
        "latin.txt",
    }


def test_markdown_keeps_its_headings_as_titles(built):
    _, index, _ = built
    assert details(index, "kettle.md") == [
        ("Read this first.", "Kettle handbook"),
        ("Descale it with vinegar once a month.", "Kettle handbook > Cleaning"),
        ("Rinse twice.", "Kettle handbook > Cleaning"),
        ("Never use bleach.", "Kettle handbook > Cleaning"),
        ("Dry it well.", "Kettle handbook > Cleaning"),
        ("part: lid | life: 2 years", "Kettle handbook > Cleaning"),
        ("```\nwipe --softly\n```", "Kettle handbook > Cleaning > By hand"),
        ("保修期为两年。", "Kettle handbook > 保修"),
    ]


def test_code_stands_in_passages_as_it_is(tmp_path):
    code = "```python\ndef pour(cups):\n    return [cups]  # `two`\n```"
    text = f"""# Tea

Pour it. Then:

{code}

    steep  --minutes 3

:::{{note}} Mind the *heat*
:class: x
See {{ref}}`how to pour <pouring>`.
:::
"""
    assert [piece for piece, _, _ in read(tmp_path, "a.md", text.encode())] == [
        "Pour it.",
        "Then:",
        code,
        "```\nsteep  --minutes 3\n```",
        "Mind the heat",
        "See how to pour.",
    ]
    build_documents(tmp_path / "whole", [tmp_path / "a.md"], chunking=Chunking("whole"), vectors=False)
    assert f"Then:\n{code}\n```\nsteep" in next(iter(DocumentIndex(tmp_path / "whole").passages())).text


def test_long_code_is_split_at_its_lines_within_its_fence(tmp_path):
    lines = [f"line {number}  of a program" for number in range(200)]
    found = read(tmp_path, "a.md", "\n".join(["```c", *lines, "```"]).encode())
    assert all(text.startswith("```c\nline") and text.endswith("\n```") for text, _, _ in found)
    assert [line for text, _, _ in found for line in text.split("\n")[1:-1]] == lines
    assert len(found) > 5


@pytest.mark.parametrize("depth", [12, 90, 150, 600])
def test_lists_of_any_depth_are_read(tmp_path, depth):
    text = "\n".join(f"{'  ' * level}- item{level}" for level in range(depth))
    found = " ".join(text for text, _, _ in read(tmp_path, "a.md", text.encode()))
    assert [f"item{level}" for level in range(depth)] == found.replace("- ", "").split()


def test_html_is_read_without_its_furniture(built):
    _, index, _ = built
    found = details(index, "basil.html")
    assert [title for _, title in found] == ["Growing basil", "Growing basil > Pruning", "Growing basil"]
    assert found[2][0] == "Copyright and cookies"
    assert found[1][0].startswith("Pinch the tips above")
    assert "Shop" not in str(found)
    assert index.find("pinch the tips", 1)[0].url == "https://example.org/basil"


def test_a_pdf_keeps_its_pages_and_sentences_that_run_over_them(built):
    _, index, _ = built
    pages = [(p.text, p.page) for p in index.passages() if p.file.endswith("engine.pdf")]
    assert pages == [
        ("The engine has four cylinders.", 1),
        ("Its oil must be changed every year.", 1),
        ("The belt lasts longer.", 1),
    ]
    assert index.find("how often is oil changed", 1)[0].title == "Engine manual"


def test_jsonl_keeps_title_url_and_the_rest(built):
    _, index, _ = built
    found = index.find("puffin burrows", 1)[0]
    assert found.text == "Puffins nest in burrows."
    assert (found.title, found.url, found.metadata["year"]) == ("Puffin", "http://birds/p", 2020)
    assert index.find("gull", 1)[0].text == "A gull."


def test_text_is_unwrapped_and_utf16_is_read(built):
    _, index, _ = built
    assert details(index, "notes.txt") == [("The tide turns at noon.", ""), ("The ferry leaves at one.", "")]
    assert index.find("海鸥", 1)[0].text == "海鸥在飞。"


def test_bad_lines_of_jsonl_are_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\nnot json\n{"title": "no text"}\n[1]\n"also fine"\n', "utf-8")
    report = build_documents(tmp_path / "index", [path])
    assert (report.passages, report.rejected) == (2, 3)
    assert "line 2: not JSON" in report.rejects[0]
    path.write_text("[1]\n[2]\n", "utf-8")
    with pytest.raises(InputError, match="nothing to make passages of"):
        build_documents(tmp_path / "other", [path])
    assert not (tmp_path / "other").exists()


def test_jsonl_that_nothing_else_could_take_is_left_out_or_mended(tmp_path):
    path = tmp_path / "a.jsonl"
    # Brackets without end, and halves of characters, which JSON can spell and no file can hold.
    halves = '{"text": "half \\ud83d a character", "title": "\\udc00", "note": ["\\ud83d"], "k\\ud83d": 1}'
    path.write_text("[" * 200_000 + f'\n{halves}\n{{"text": "whole \\ud83d\\ude00"}}\n', "utf-8")
    report = build_documents(tmp_path / "index", [path])
    assert (report.passages, report.rejected) == (2, 1)
    assert "line 1: not JSON" in report.rejects[0]
    assert [piece.text for piece in DocumentIndex(tmp_path / "index").passages()] == [
        "half \ufffd a character",
        "whole \U0001f600",
    ]


def read(tmp_path, name: str, data: bytes) -> list[tuple[str, str, int]]:
    (tmp_path / name).write_bytes(data)
    build_documents(tmp_path / "index", [tmp_path / name], chunking=Chunking("sentence"), vectors=False)
    with DocumentIndex(tmp_path / "index") as index:
        return [(piece.text, piece.title, piece.page) for piece in index.passages()]


def test_terms_and_what_unfolds_are_read_of_html(tmp_path):
    page = """<title>Glossary</title><body><h1>Glossary</h1><p>Words that we use for coffee, milk and machines.</p>
    <dl><dt>Ristretto</dt><dd>A short espresso.</dd><div><dt>Crema</dt><dt>Foam</dt><dd>It is brown.</dd></div></dl>
    <details><summary>How do I descale it?</summary><p>Run vinegar through the machine once a month.</p></details>"""
    assert read(tmp_path, "a.html", page.encode()) == [
        ("Words that we use for coffee, milk and machines.", "Glossary", 0),
        ("Ristretto: A short espresso.", "Glossary", 0),
        ("Crema, Foam: It is brown.", "Glossary", 0),
        ("How do I descale it?", "Glossary", 0),
        ("Run vinegar through the machine once a month.", "Glossary", 0),
    ]


def test_the_title_of_a_short_page_is_not_its_text_too(tmp_path):
    page = b"<title>Tea</title><h1>Tea</h1><p>Tea is hot.</p>"
    assert read(tmp_path, "a.html", page) == [("Tea is hot.", "Tea", 0)]


def test_word_powerpoint_and_excel_are_read(tmp_path):
    assert read(tmp_path, "a.docx", word()) == [
        ("Read this first.", "Kettle", 0),
        ("Rinse it twice.", "Kettle > Cleaning", 0),
        ("lid | 2 years", "Kettle > Cleaning", 0),
    ]
    assert read(tmp_path, "b.pptx", slides()) == [
        ("We sell tea.", "Plans", 1),
        ("Say it slowly.", "Plans", 1),
        ("cup | 3", "Figures", 2),
    ]
    assert read(tmp_path, "c.xlsx", sheet()) == [
        ("part: lid | life: 2", "Parts", 0),
        ("part: spout | life: 5", "Parts", 0),
    ]


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx"])
def test_a_damaged_office_file_is_said_to_be(tmp_path, name):
    for data in (b"PK\3\4 and then nothing of the kind", b"", word()[:900]):
        with pytest.raises(InputError, match="it is a damaged"):
            read(tmp_path, name, data)


def test_what_a_folder_has_besides_is_named(built):
    report, _, folder = built
    assert report.skipped == [str(folder.resolve() / "picture.png")]


def test_a_format_may_be_said(tmp_path):
    path = tmp_path / "page.unknown"
    path.write_text("First. Still first.\nSecond.\n", "utf-8")
    build_documents(tmp_path / "lines", [path], file_format="lines")
    assert [p.text for p in DocumentIndex(tmp_path / "lines").passages()] == ["First. Still first.", "Second."]
    path.write_text(MARKDOWN, "utf-8")
    build_documents(tmp_path / "md", [path], file_format="markdown")
    assert DocumentIndex(tmp_path / "md").find("bleach", 1)[0].title == "Kettle handbook > Cleaning"


def test_a_file_that_was_readable_stays_when_it_no_longer_is(tmp_path):
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf("Whales sing."))
    build_documents(tmp_path / "index", [path])
    path.write_bytes(b"%PDF-1.7 torn")
    with pytest.raises(InputError, match="damaged PDF"):
        add_documents(tmp_path / "index", [path])
    assert [p.text for p in DocumentIndex(tmp_path / "index").passages()] == ["Whales sing."]


def test_a_missing_library_names_its_extra_and_the_others_are_read(built, tmp_path, monkeypatch):
    for name in ("pypdfium2", "lxml"):
        (tmp_path / f"{name}.py").write_text("raise ImportError", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    report = build_documents(
        tmp_path / "index", [built[2] / name for name in ("engine.pdf", "basil.html", "kettle.md")]
    )
    assert report.documents == 1
    assert len(report.rejects) == 2
    assert all("needs an optional dependency (pip install" in line and "[documents]" in line for line in report.rejects)
