"""JSON, notebooks, OpenDocument and RTF; files whose names do not say what they are; links that leave a folder."""

from __future__ import annotations

import io
import json
import sys
import zipfile

import pytest

from dialore.retrieval.chunking import Unreadable
from dialore.retrieval.documents.indexing import build_documents
from dialore.retrieval.groups import RefusedGroups
from dialore.retrieval.loaders.reading import guess_format, read_sections
from dialore.sources.documents import DocumentIndex

WORDS = "The ferry leaves at 18:35."
RTF = rb"{\rtf1\ansi\ansicpg1252{\info{\title Times}PROPERTIES}The ferry leaves at 18:35, caf\'e9.\par}"
OPEN_DOCUMENT = "urn:oasis:names:tc:opendocument:xmlns"


def read(tmp_path, content: bytes, file_format: str):
    """Return the texts of a file, its notices and its sections."""
    path = tmp_path / "file"
    path.write_bytes(content)
    notices: list[str] = []
    sections = list(read_sections(path, file_format, pytest.fail, lambda where, why: notices.append(f"{where}: {why}")))
    return [paragraph.text for section in sections for paragraph in section.paragraphs], notices, sections


def dump(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{"question": "When?", "answer": "At 18:35."}], ["question: When? | answer: At 18:35."]),
        ([{"text": WORDS}, "Bye."], [WORDS, "Bye."]),
        ({"documents": [{"content": WORDS, "meta": {"a": 1}}]}, [WORDS]),
        ([{"kwargs": {"page_content": WORDS, "metadata": {}}}], [WORDS]),
        ([{"a": {"b": 1, "c": ["x", "y"]}, "d": None}], ["a.b: 1 | a.c: x, y"]),
    ],
)
def test_lists_of_objects_are_read(tmp_path, value, expected):
    texts, notices, _ = read(tmp_path, dump(value), "json")
    assert (texts, notices) == (expected, [])


def test_lines_of_json_are_read_whatever_the_ending(tmp_path):
    texts, _, _ = read(tmp_path, dump({"text": WORDS}) + b"\n" + dump({"text": "Bye."}) + b"\n", "json")
    assert texts == [WORDS, "Bye."]


@pytest.mark.parametrize("content", [b"{", b'{"name": "package"}', b"12", b'{"a": [{"b": 1}], "c": [{"d": 1}]}'])
def test_other_json_is_refused(tmp_path, content):
    with pytest.raises(Unreadable):
        read(tmp_path, content, "json")


@pytest.mark.parametrize(
    "value",
    [
        [{"text": WORDS, "Groups": ["board"]}],
        [{"text": WORDS, "meta": {"groups": "board"}}],
        [{"question": "When?", "groups": "board"}],
        {"groups": ["board"], "items": [{"text": WORDS}]},
        {"metadata": {"groups": ["board"]}, "items": [{"question": "When?"}]},
    ],
)
def test_groups_of_json_are_applied(tmp_path, value):
    _, _, sections = read(tmp_path, dump(value), "json")
    assert [section.metadata["groups"] for section in sections] == [["board"]]


@pytest.mark.parametrize(
    "value",
    [
        [{"text": WORDS, "a": {"groups": "board"}}],
        [{"question": "When?", "groups": None}],
        {"a": {"groups": ["board"]}, "items": [{"text": WORDS}]},
    ],
)
def test_groups_of_json_that_cannot_be_applied_are_refused(tmp_path, value):
    with pytest.raises(RefusedGroups):
        read(tmp_path, dump(value), "json")


def notebook(*cells: dict[str, object], **metadata: object) -> bytes:
    return dump({"nbformat": 4, "metadata": metadata, "cells": list(cells)})


def test_notebooks_are_read_without_their_pictures(tmp_path):
    outputs = [{"data": {"image/png": "aGVsbG8=", "text/plain": "42"}}, {"output_type": "stream", "text": ["a\n", "b"]}]
    cells = [
        {"cell_type": "markdown", "source": ["# Ferry\n", WORDS]},
        {"cell_type": "code", "source": "print('```')", "outputs": outputs},
    ]
    texts, notices, sections = read(tmp_path, notebook(*cells, kernelspec={"name": "python3"}), "notebook")
    assert texts[0] == WORDS
    assert "print('```')" in texts[1]
    assert "42" in texts[2]
    assert "a\nb" in texts[3]
    assert "aGVsbG8" not in "".join(texts)
    assert {section.title for section in sections} == {"Ferry"}
    assert not notices


def test_groups_of_notebooks_are_applied_or_refused(tmp_path):
    cell = {"cell_type": "markdown", "source": WORDS}
    front = {"cell_type": "raw", "source": "---\ngroups: board\n---"}
    for content in (notebook(cell, groups=["board"]), notebook(front, cell)):
        _, _, sections = read(tmp_path, content, "notebook")
        assert [section.metadata["groups"] for section in sections] == [["board"]]
    with pytest.raises(RefusedGroups):
        read(tmp_path, notebook({**cell, "metadata": {"groups": ["board"]}}), "notebook")


def open_document(body: str, properties: str = "", styles: str = "") -> bytes:
    kinds = ("office", "text", "table", "meta", "style", "draw")
    names = " ".join(f'xmlns:{name}="{OPEN_DOCUMENT}:{name}:1.0"' for name in kinds)
    parts = {
        "content": f"{styles}<office:body><office:text>{body}</office:text></office:body>",
        "styles": "<style:master-page><style:header><text:p>Page head</text:p></style:header></style:master-page>",
        "meta": f"<office:meta>{properties}</office:meta>",
    }
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as package:
        for name, part in parts.items():
            package.writestr(f"{name}.xml", f"<office:document {names}>{part}</office:document>")
    return archive.getvalue()


def note(text: str) -> str:
    return f"<text:note><text:note-citation>1</text:note-citation><text:p>{text}</text:p></text:note>"


def table(*rows: str) -> str:
    return f"<table:table>{''.join(f'<table:table-row>{row}</table:table-row>' for row in rows)}</table:table>"


def table_cell(*texts: str, attributes: str = "") -> str:
    content = "".join(f"<text:p>{text}</text:p>" for text in texts)
    return f"<table:table-cell {attributes}>{content}</table:table-cell>"


def test_open_document_texts_are_read_with_all_that_stands_in_them(tmp_path):
    listed = "<text:list><text:list-item><text:p>In a list.</text:p></text:list-item></text:list>"
    in_cell = f"<table:table-cell>{listed}{table(table_cell('Nested.'))}</table:table-cell>"
    header = f"<table:table-header-rows><table:table-row>{table_cell('Class') + table_cell('Price')}</table:table-row>"
    rows = f"<table:table-row>{table_cell('Adult' + note('Over 16.')) + in_cell}</table:table-row>"
    body = f"""
        <text:tracked-changes><text:p>Deleted.</text:p></text:tracked-changes>
        <text:h text:outline-level="2">Ferry</text:h>
        <text:p>From<text:s/>pier<text:tab/>7{note("Not on Sundays.")}<office:annotation><text:p>Check.</text:p>
        </office:annotation>.</text:p>
        <text:p><draw:frame><draw:text-box><text:p>In a box.</text:p></draw:text-box></draw:frame></text:p>
        <text:section><text:p>In a section.</text:p></text:section>
        <table:table>{header}</table:table-header-rows>{rows}</table:table>
        <text:p><draw:object/></text:p>"""
    groups = '<meta:user-defined meta:name="Groups">board</meta:user-defined>'
    texts, notices, sections = read(tmp_path, open_document(body, groups), "odt")
    assert texts == [
        "From pier 7.",
        "Not on Sundays.",
        "Comment: Check.",
        "In a box.",
        "In a section.",
        "Class: Adult Over 16. | Price: In a list. Nested.",
        "Page head",
    ]
    assert {section.title for section in sections} == {"Ferry"}
    assert all(section.metadata["groups"] == ["board"] for section in sections)
    assert len(notices) == 1
    assert "1 embedded objects" in notices[0]


def test_open_document_texts_that_hide_text_or_cannot_be_read(tmp_path):
    styles = '<style:style style:name="H"><style:text-properties text:display="none"/></style:style>'
    body = '<text:p>Seen<text:span text:style-name="H"> hidden</text:span>.</text:p>'
    hidden = '<text:section text:display="none"><text:p>gone</text:p></text:section>'
    texts, notices, _ = read(tmp_path, open_document(body + hidden, styles=styles), "odt")
    assert texts == ["Seen.", "Page head"]
    assert "10 characters" in notices[0]
    path = tmp_path / "file"
    sections = read_sections(path, "odt", pytest.fail, pytest.fail, include_hidden=True)
    texts = [paragraph.text for section in sections for paragraph in section.paragraphs]
    assert texts == ["Seen hidden.", "gone", "Page head"]
    with pytest.raises(Unreadable):
        read(tmp_path, b"PK", "odt")
    empty = '<meta:user-defined meta:name="groups"/>'
    with pytest.raises(RefusedGroups):
        read(tmp_path, open_document(body, empty), "odt")


def test_rtf_is_read_and_its_groups_are_applied_or_refused(tmp_path):
    pytest.importorskip("kreuzberg")
    properties = rb"{\*\userprops{\propname Groups}\proptype30{\staticval %s}}"
    texts, _, sections = read(tmp_path, RTF.replace(b"PROPERTIES", properties % b"board"), "rtf")
    assert texts == [WORDS.replace(".", ", café.")]
    assert sections[0].title == "Times"
    assert sections[0].metadata["groups"] == ["board"]
    with pytest.raises(RefusedGroups):
        read(tmp_path, RTF.replace(b"PROPERTIES", properties % b""), "rtf")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (RTF, "rtf"),
        (b"From a Sun Oct 21 19:38:13 2007\nSubject: x\n\ny\n", "mbox"),
        (b"Subject: x\nMIME-Version: 1.0\n\ny\n", "eml"),
        (b'From: x\nMIME-Version: 1.0\nContent-Type: multipart/related;\n type="text/html"; boundary=X\n\n', "mhtml"),
        (notebook(), "notebook"),
        (dump([{"a": 1}]), "json"),
        (b'{"t": 1}\n{"t": 2}\n', "text"),
        (b"\n<!DOCTYPE html><p>x", "html"),
        (b"note: this\nis text: all of it\n", "text"),
    ],
)
def test_files_are_told_by_how_they_begin(tmp_path, content, expected):
    (tmp_path / "file").write_bytes(content)
    assert guess_format(tmp_path / "file") == expected


def test_a_file_that_is_named_itself_is_read_by_its_content_with_a_notice(tmp_path):
    (tmp_path / "app.log").write_text(WORDS)
    (tmp_path / "faq.data").write_bytes(dump([{"q": "When?"}]))
    (tmp_path / "picture.raw").write_bytes(bytes(range(256)) * 4)
    paths = [tmp_path / name for name in ("app.log", "faq.data", "picture.raw")]
    report = build_documents(tmp_path / "index", paths, vectors=False)
    with DocumentIndex(tmp_path / "index") as index:
        assert {piece.text for piece in index.passages()} == {WORDS, "q: When?"}
    told = "\n".join(report.notices)
    assert "app.log" in told
    assert "plain text" in told
    assert "faq.data" in told
    assert "picture.raw" in report.rejects[0]


# --- links

posix = pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")


@pytest.fixture
def linked(tmp_path):
    """A folder with links, and a file outside it."""
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "..2026").mkdir()
    (tmp_path / "secret.txt").write_text("The secret.")
    (folder / ".git" / "config").write_text("The token.")
    (folder / "..2026" / "volume.txt").write_text("From a volume.")
    (folder / "sub" / "a.txt").write_text(WORDS)
    return folder


def texts_of(tmp_path, *paths):
    report = build_documents(tmp_path / "index", paths, vectors=False)
    with DocumentIndex(tmp_path / "index") as index:
        return {piece.text for piece in index.passages()}, "\n".join(report.notices)


@posix
def test_links_that_lead_out_of_the_folder_or_to_hidden_files_are_not_followed(tmp_path, linked):
    (linked / "direct.txt").symlink_to(tmp_path / "secret.txt")
    (linked / "relative.txt").symlink_to("../secret.txt")
    (linked / "first.txt").symlink_to("second.txt")  # a chain
    (linked / "second.txt").symlink_to(tmp_path / "secret.txt")
    (linked / "token.txt").symlink_to(".git/config")
    (tmp_path / "link").symlink_to(linked)
    for named in (linked, tmp_path / "link"):
        texts, notices = texts_of(tmp_path, named)
        assert texts == {WORDS}
        for name in ("direct.txt", "relative.txt", "first.txt", "second.txt", "token.txt"):
            assert name in notices


@posix
def test_links_inside_the_folder_and_links_that_are_named_are_followed(tmp_path, linked):
    (linked / "b.txt").symlink_to("sub/a.txt")
    (linked / "volume.txt").symlink_to("..2026/volume.txt")
    (linked / "direct.txt").symlink_to(tmp_path / "secret.txt")
    assert texts_of(tmp_path, linked)[0] == {WORDS, "From a volume."}
    texts, notices = texts_of(tmp_path, linked, linked / "direct.txt")
    assert texts == {WORDS, "From a volume.", "The secret."}
    assert "direct.txt" not in notices
