"""`groups` holds in every form in which a file names it; a file where it cannot be applied is refused by name."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from dialore.errors import InputError
from dialore.knowledge import Passage
from dialore.retrieval.documents.filters import reading_as
from dialore.retrieval.documents.indexing import add_documents, build_documents
from dialore.retrieval.groups import RefusedGroups, apply_groups, assigns_groups, names_groups, narrow_groups
from dialore.retrieval.loaders.reader import Reader
from dialore.sources.documents import DocumentIndex

OPEN = "Tea is served at five."
SECRET = "The quicksilver deal."
BOARD = json.dumps(["board"])


@pytest.fixture(scope="module")
def reader():
    """One process that reads the files of all tests."""
    with Reader() as opened:
        yield opened


def seen_by(index, *groups):
    """All that readers of some groups see of the texts in an index."""
    with reading_as(groups), DocumentIndex(index) as opened:
        return "\n".join(piece.text for piece in opened.passages())


def workbook(*rows: list[str], **properties: str) -> bytes:
    """A workbook with one sheet of texts, and custom properties."""
    office = "http://schemas.openxmlformats.org"
    main = f'xmlns="{office}/spreadsheetml/2006/main"'
    relation = f"{office}/officeDocument/2006/relationships"
    cells = (
        "".join(f'<c t="inlineStr"><is><t>{text}</t></is></c>' if text else "<c/>" for text in texts) for texts in rows
    )
    sheet = "".join(f"<row>{row}</row>" for row in cells)
    parts = {
        "_rels/.rels": f'<Relationships xmlns="{office}/package/2006/relationships">'
        f'<Relationship Id="a" Type="{relation}/officeDocument" Target="book.xml"/></Relationships>',
        "book.xml": f'<workbook {main} xmlns:r="{relation}"><sheets><sheet name="S" r:id="s"/></sheets></workbook>',
        "_rels/book.xml.rels": f'<Relationships xmlns="{office}/package/2006/relationships">'
        f'<Relationship Id="s" Type="{relation}/worksheet" Target="sheet.xml"/></Relationships>',
        "sheet.xml": f"<worksheet {main}><sheetData>{sheet}</sheetData></worksheet>",
    }
    if properties:
        named = "".join(f'<property name="{name}"><v>{text}</v></property>' for name, text in properties.items())
        parts["docProps/custom.xml"] = f"<Properties>{named}</Properties>"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return packed.getvalue()


APPLIED = {
    "pandas.csv": f",text,groups\n0,{SECRET},board\n",
    "trailing.csv": f"text,groups,\n{SECRET},board,\n",
    "year.csv": f"text,2024,groups\n{SECRET},5,board\n",
    "title.csv": f"Staff list\n\ntext,groups\n{SECRET},board\n",
    "comment.csv": f"# made by a program\ntext,groups\n{SECRET},board\n",
    "only.csv": f",groups\n{SECRET},board\n",
    "quoted.csv": f'"text"," GROUPS "\n{SECRET},board\n',
    "wide.csv": f"text,ｇｒｏｕｐｓ\n{SECRET},board\n",
    "remark.csv": f"text,Groups (readers):\n{SECRET},board\n",
    "list.csv": f"text,groups\n{SECRET},\"['board', 'staff']\"\n",
    "items.csv": f"text,groups.0,groups.1\n{SECRET},board,staff\n",
    "twice.csv": f"text,groups,Groups\n{SECRET},,board\n",
    "tabs.tsv": f"text\tgroups\n{SECRET}\tboard\n",
    "other-sign.csv": f"text,groups\n{SECRET[:-1]};a;b,board\nx;y;z,board\n",
    "swallowed.csv": f'text,year,groups\n"{OPEN},1,\n{SECRET},2,board\nx,"3",\n',
    "capital.jsonl": json.dumps({"text": SECRET, "Groups": ["board"]}),
    "nested.jsonl": json.dumps({"text": SECRET, "metadata": {"groups": ["board"]}}),
    "langchain.jsonl": json.dumps({"kwargs": {"page_content": SECRET, "metadata": {"groups": "board"}}}),
    "haystack.jsonl": json.dumps({"content": SECRET, "meta": {"groups": ["board"]}}),
    "node.jsonl": json.dumps(
        {
            "text": SECRET,
            "metadata": {"groups": ["board"], "_node": json.dumps({"groups": ["board"]})},
            "relationships": {"1": {"metadata": {"groups": ["board"]}}},
        }
    ),
    "twice.jsonl": f'{{"text": "{SECRET}", "groups": ["board"], "groups": []}}',
    "blank.md": f"\n\n---\ngroups: board\n---\n{SECRET}\n",
    "mark.md": f"\ufeff---\ngroups: board\n---\n{SECRET}\n",
    "comment.md": f"<!-- licence -->\n---\ngroups: board\n---\n{SECRET}\n",
    "spaced.md": f" ---\ngroups: board\n---\n{SECRET}\n",
    "four.md": f"----\ngroups: board\n----\n{SECRET}\n",
    "named.md": f"---yaml\ngroups: board\n---\n{SECRET}\n",
    "cr.md": f"---\rgroups: board\r---\r{SECRET}\r",
    "crlf.md": f"---\r\ngroups: board\r\n---\r\n{SECRET}\r\n",
    "toml.md": f"+++\ngroups = {BOARD}\n+++\n{SECRET}\n",
    "json.md": f'{{\n"groups": {BOARD}\n}}\n\n{SECRET}\n',
    "list.md": f"---\n- groups: board\n---\n{SECRET}\n",
    "flow.md": f"---\n{{title: x, 'Groups': [board]}}\n---\n{SECRET}\n",
    "nested.md": f"---\nmetadata:\n  groups: board\n---\n{SECRET}\n",
    "damaged.md": f'---\n"groups": board\nx: [\n---\n{SECRET}\n',
    "cases.md": f"---\ngroups: board\nGroups: []\n---\n{SECRET}\n",
    "plain.txt": f"---\ngroups: board\n---\n{SECRET}\n",
    "page.html": f"---\ngroups: board\n---\n<html><body><p>{SECRET}</p></body></html>",
    "meta.html": f'<html><head><meta name="Groups" content="board"></head><body><p>{SECRET}</p></body></html>',
}
REFUSED = {
    "between.csv": f"a,1\nb,2\nc,3\ntext,groups\n{SECRET},board\n",
    "comment.csv": f"# groups: board\ntext,year\n{SECRET},2024\nx,2025\n",
    "short.csv": f"text,groups\n{SECRET}\n",
    "long.csv": f"text,groups\nSo, {SECRET},board\n",
    "front.csv": f"---\ngroups: board\n---\ntext,year\n{SECRET},2024\n",
    "second.csv": f"a,b\n1,2\n\ntext,groups\n{SECRET},board\n",
    "json.csv": f'text,metadata\n{SECRET},"{{""groups"": [""board""]}}"\n',
    "null.jsonl": json.dumps({"text": SECRET, "groups": None}),
    "number.jsonl": json.dumps({"text": SECRET, "groups": 1.5}),
    "deep.jsonl": json.dumps({"text": SECRET, "source": {"access": [{"Groups": ["board"]}]}}),
    "front.jsonl": f"---\ngroups: board\n---\n{json.dumps(SECRET)}\n",
    "endless.md": f"---\ngroups: [board]\n\n# Plans\n\n{SECRET}\n",
    "bad.md": f"---\ngroups: [board\n---\n{SECRET}\n",
    "empty.md": f"---\ngroups:\n---\n{SECRET}\n",
    "template.md": f"---\ngroups: {{{{board}}}}\n---\n{SECRET}\n",
    "alias.md": f"---\na: &a board\ngroups: *a\n---\n{SECRET}\n",
    "inside.md": f"---\naccess:\n  groups: board\n---\n{SECRET}\n",
    "apart.md": f"---\ngroups: board\nGroups: staff\n---\n{SECRET}\n",
    "badtoml.md": f"+++\ngroups = board\n+++\n{SECRET}\n",
    "badjson.md": f'{{\n"groups": ["board"],\n}}\n\n{SECRET}\n',
    "fields.md": f"Title: Plans\nGroups: board\n\n{SECRET}\n",
    "heading.md": f"# Plans\n---\ngroups: board\n---\n{SECRET}\n",
    "remark.md": f"<!-- groups: board -->\n{SECRET}\n",
    "meta.html": f'<html><head><meta name="groups"></head><body><p>{SECRET}</p></body></html>',
}


@pytest.mark.parametrize("name", APPLIED)
def test_groups_are_applied_in_every_form(tmp_path, reader, name):
    (tmp_path / name).write_bytes(APPLIED[name].encode())
    report = build_documents(tmp_path / "index", [tmp_path / name], texts=[OPEN], vectors=False, reader=reader)
    assert report.restricted == 1 + (name == "other-sign.csv")
    assert "quicksilver" not in seen_by(tmp_path / "index", "other")
    assert "quicksilver" in seen_by(tmp_path / "index", "board")


@pytest.mark.parametrize("name", REFUSED)
def test_what_names_groups_that_cannot_be_applied_is_refused_by_name(tmp_path, reader, name):
    (tmp_path / name).write_bytes(REFUSED[name].encode())
    report = build_documents(tmp_path / "index", [tmp_path / name], texts=[OPEN], vectors=False, reader=reader)
    assert report.rejects
    assert all(name in reject and "groups" in reject for reject in report.rejects)
    assert "quicksilver" not in seen_by(tmp_path / "index", "*")


@pytest.mark.parametrize(
    "rows", [[["text", "groups"]], [["Staff list"], ["text", "groups"]], [["", "Groups "]], [["2024", "groups"]]]
)
def test_a_workbook_that_names_groups_is_refused(tmp_path, reader, rows):
    pytest.importorskip("lxml")
    (tmp_path / "a.xlsx").write_bytes(workbook(*rows, [SECRET, "board"]))
    report = build_documents(tmp_path / "index", [tmp_path / "a.xlsx"], texts=[OPEN], vectors=False, reader=reader)
    assert ["a.xlsx" in reject and "groups" in reject for reject in report.rejects] == [True]


def test_properties_of_office_files_and_books_name_groups(tmp_path, reader):
    pytest.importorskip("lxml")
    (tmp_path / "a.xlsx").write_bytes(workbook([SECRET, "x"], Groups="board; staff"))
    (tmp_path / "bad.xlsx").write_bytes(workbook([SECRET, "x"], groups=""))
    with zipfile.ZipFile(tmp_path / "b.epub", "w") as archive:
        archive.writestr("META-INF/container.xml", '<container><rootfile full-path="b.opf"/></container>')
        archive.writestr(
            "b.opf",
            '<package xmlns="http://www.idpf.org/2007/opf"><metadata><meta name="groups" content="board"/></metadata>'
            '<manifest><item id="c" href="c.html"/></manifest><spine><itemref idref="c"/></spine></package>',
        )
        archive.writestr("c.html", f"<html><body><p>{SECRET}</p></body></html>")
    report = build_documents(tmp_path / "index", [tmp_path], texts=[OPEN], vectors=False, reader=reader)
    assert (report.restricted, ["bad.xlsx" in reject for reject in report.rejects]) == (2, [True])
    assert seen_by(tmp_path / "index") == OPEN
    assert seen_by(tmp_path / "index", "board").count("quicksilver") == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "---\nMuscle groups: four\n---\n\nBody of the text.\n"),
        ("b.md", "# Groups\n\nGroups meet on Mondays. Body: of the text.\n"),
        ("c.csv", "text,Age groups,group\nBody,1,board\n"),
        ("d.csv", "Groups\nname,size\nBody,12\n"),
        ("e.jsonl", json.dumps({"text": '{"groups": "Body"}', "group": "a"})),
        ("f.md", "---\n\nBody\n\n---\n\nmore\n"),
    ],
)
def test_other_words_and_texts_about_groups_restrict_nothing(tmp_path, reader, name, text):
    (tmp_path / name).write_text(text, "utf-8")
    report = build_documents(tmp_path / "index", [tmp_path / name], vectors=False, reader=reader)
    assert (report.rejects, report.restricted) == ([], 0)
    assert "Body" in seen_by(tmp_path / "index")


def test_a_file_that_is_restricted_later_and_refused_leaves_the_index(tmp_path, reader):
    note = tmp_path / "note.md"
    note.write_text(SECRET, "utf-8")
    build_documents(tmp_path / "index", [note], texts=[OPEN], vectors=False, reader=reader)
    note.write_text(f"---\ngroups: [board\n---\n{SECRET}", "utf-8")
    report = add_documents(tmp_path / "index", [note], reader=reader)
    assert (len(report.rejects), report.deleted) == (1, 1)
    assert seen_by(tmp_path / "index", "*") == OPEN


def test_groups_of_the_call_narrow_those_of_files(tmp_path, reader):
    (tmp_path / "board.md").write_text(f"---\ngroups: board\n---\n{SECRET}", "utf-8")
    (tmp_path / "both.md").write_text("---\ngroups: board, staff\n---\nFor both.", "utf-8")
    (tmp_path / "open.md").write_text(OPEN, "utf-8")
    report = build_documents(tmp_path / "index", [tmp_path], vectors=False, reader=reader, metadata={"Groups": "staff"})
    assert (report.restricted, ["board.md" in reject for reject in report.rejects]) == (2, [True])
    assert ["both.md" in notice for notice in report.notices if "board" in notice] == [True]
    assert seen_by(tmp_path / "index", "staff").splitlines() == ["For both.", OPEN]
    assert seen_by(tmp_path / "index", "board") == ""


@pytest.mark.parametrize("groups", ["board", ["board"], ("board",), {"board"}, " board ,"])
def test_groups_of_passages_are_the_same_in_every_store(place, groups):
    index = place("restricted")
    restricted = [Passage(SECRET, metadata={"Groups": groups}), Passage("7", metadata={"groups": 7})]
    build_documents(index, texts=[OPEN, *restricted])
    assert seen_by(index) == OPEN
    assert seen_by(index, "board").splitlines() == [OPEN, SECRET]
    assert seen_by(index, "7").splitlines() == [OPEN, "7"]


@pytest.mark.parametrize("groups", [None, "", 1.5, True, {"a": 1}, [None], [""], [["board"]]])
def test_groups_that_cannot_be_applied_are_an_error(tmp_path, groups):
    for arguments in (
        {"texts": [Passage(SECRET, metadata={"groups": groups})]},
        {"texts": [SECRET], "metadata": {"groups": groups}},
        {"texts": [Passage(SECRET, metadata={"more": {"groups": ["board"]}})]},
    ):
        with pytest.raises(InputError, match="groups"):
            build_documents(tmp_path / "index", vectors=False, **arguments)
        assert not (tmp_path / "index").exists()


def test_names_that_mean_groups():
    named = ["groups", "Groups ", '"GROUPS"', "ＧＲＯＵＰＳ", "#groups", "groups*", "metadata.groups", "gro\u00adups"]
    assert all(map(names_groups, named))
    assert not any(map(names_groups, ["group", "subgroups", "age groups", "groups of users", "", None, 5]))
    assert assigns_groups('- "Groups" = board')
    assert not assigns_groups("Groups meet on Mondays: at five")


def test_groups_are_narrowed_to_what_is_allowed():
    assert narrow_groups(["a", "b"], None) == ["a", "b"]
    assert narrow_groups(["a", "b"], ["b", "c"]) == ["b"]
    assert narrow_groups([], ["b"]) == ["b"]
    assert narrow_groups([], []) == []
    for allowed in ([], ["b"]):
        with pytest.raises(RefusedGroups):
            narrow_groups(["a"], allowed)
    with pytest.raises(RefusedGroups):
        apply_groups([("groups", "a"), ("Groups", "b")])
