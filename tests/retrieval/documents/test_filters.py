"""Filters of passages: by metadata, and by who may read them, in every store."""

from __future__ import annotations

import json

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.knowledge import Passage
from dialore.retrieval.documents import sqlite
from dialore.retrieval.documents.filters import EVERY_GROUP, metadata_of, parse_where, reading_as
from dialore.retrieval.documents.indexing import add_documents, build_documents
from dialore.sources.documents import DocumentIndex, MultiDocuments

PIECES = [
    Passage(
        "The harbour opens at seven.",
        "Harbour",
        "https://a.example/1",
        metadata={"year": 2023, "tags": ["sea", "times"]},
    ),
    Passage("The harbour opens at eight.", "Harbour", metadata={"year": 2025, "tags": ["sea"], "draft": True}),
    Passage("The harbour pays its pilots 900 a week.", "Pay", metadata={"year": "2024", "groups": ["staff", "board"]}),
    Passage("The harbour will be sold in May.", "Plans", metadata={"groups": ["board"], "lang": "en"}),
    Passage("The harbour has a bakery.", "Bakery"),
]


@pytest.fixture
def index(place):
    path = place("harbour")
    build_documents(path, texts=PIECES)
    return path


def texts(found):
    return sorted(piece.text for piece in found)


def numbered(*places):
    return sorted(PIECES[place].text for place in places)


@pytest.mark.parametrize(
    ("where", "places"),
    [
        ("year >= 2024", (1, 2)),
        ("year<2024", (0,)),
        ("year = 2025 and draft = true", (1,)),
        ("tags = times", (0,)),
        ("tags in (times, 'unknown')", (0,)),
        ("tags != times", (1, 2, 3, 4)),
        ('title = "Bakery"', (4,)),
        ("lang = en AND title in (Plans, Pay)", (3,)),
        ("url >= https", (0,)),
        ("nothing = 1", ()),
        ("year > 2023 and year < 2025", (2,)),
    ],
)
@pytest.mark.parametrize("retriever", ["bm25", "dense", "fused"])
def test_metadata_narrows_what_is_found(index, where, places, retriever):
    with DocumentIndex(index, retriever=retriever) as opened:
        assert texts(opened.where(where).find("harbour")) == numbered(*places)
        assert texts(opened.where(where).passages()) == numbered(*places)
        assert len(opened.where(where)) == len(places)
        assert len(opened.find("harbour")) == len(PIECES)


@pytest.mark.parametrize(
    ("groups", "places"),
    [
        (None, (0, 1, 2, 3, 4)),
        ([EVERY_GROUP], (0, 1, 2, 3, 4)),
        ([], (0, 1, 4)),
        (["staff"], (0, 1, 2, 4)),
        (["board"], (0, 1, 2, 3, 4)),
        (["other", "%", "sta"], (0, 1, 4)),
    ],
)
@pytest.mark.parametrize("retriever", ["bm25", "dense", "fused"])
def test_a_reader_sees_what_has_no_group_or_one_of_theirs(index, groups, places, retriever):
    with reading_as(groups):
        opened = DocumentIndex(index, retriever=retriever)
    with opened:
        wanted = numbered(*places)
        assert texts(opened.find("harbour")) == wanted
        assert texts(opened.by("bm25").find("harbour")) == wanted
        assert texts(opened.every(Dialogue(["Hi"]))) == wanted
        assert texts(MultiDocuments([opened]).every(Dialogue(["Hi"]))) == wanted
        assert len(opened) == opened.stats()["passages"] == len(places)
        assert [document.passages for document in opened.documents()] == [len(places)]
        assert opened.titles(9) == list(dict.fromkeys(PIECES[place].title for place in places))
        assert opened.titles(1) == ["Harbour"]
        everything = {piece.text: piece for piece in DocumentIndex(index).passages()}
        for piece in everything.values():
            assert {near.text for near in opened.page(piece)} <= set(wanted)
        assert texts(opened.where("year = 2024").find("harbour")) == sorted({PIECES[2].text} & set(wanted))


def test_what_is_added_later_is_filtered_as_well(index):
    with reading_as([]):
        opened = DocumentIndex(index)
    with opened:
        assert len(opened.find("harbour")) == 3
        add_documents(index, texts=["The harbour is green."], texts_name="x", metadata={"groups": ["board"]})
        add_documents(index, texts=["The harbour is blue."], texts_name="y")
        assert "The harbour is blue." in texts(opened.find("harbour"))
        assert "The harbour is green." not in texts(opened.find("harbour green"))


def test_an_approximate_index_proposes_and_the_filter_decides(tmp_path, monkeypatch):
    pytest.importorskip("usearch")
    monkeypatch.setattr(sqlite, "APPROXIMATE_FROM", 50)
    path = tmp_path / "many"
    pieces = [Passage(f"Ship {number} has a red funnel.", metadata={"number": number}) for number in range(120)]
    secret = [
        Passage(f"Ship {number} has a red funnel, said the pilot.", metadata={"groups": ["x"]}) for number in range(60)
    ]
    build_documents(path, texts=[*secret, *pieces])
    with reading_as([]):
        opened = DocumentIndex(path, retriever="dense")
    with opened:
        found = opened.find("Ship 7 has a red funnel, said the pilot.", 10)
        assert len(found) == 10
        assert not any("pilot" in piece.text for piece in found)
        assert [piece.text for piece in opened.where("number = 77").find("funnel")] == ["Ship 77 has a red funnel."]
        assert len(opened.where("number < 5").find("a red funnel", 10)) == 5


@pytest.mark.parametrize(
    "where", ["", "year", "year >= ", "year ~ 3", "year = 1 or year = 2", "year = 1 and", "a in ()", 'a = "\\x"']
)
def test_what_is_no_condition_is_an_error(where):
    with pytest.raises(InputError, match="not a condition"):
        parse_where(where)


def test_values_of_conditions_are_never_sql(index):
    with DocumentIndex(index) as opened:
        for where in ("year = \"1' OR '1'='1\"", "title = '\") OR 1=1 --'", "x.y-z = 1"):
            assert opened.where(where).find("harbour") == []


def test_metadata_of_the_command_line():
    pairs = ["year=2024", "tags=[1, 2]", "note=a=b", "empty="]
    assert metadata_of(pairs, "a, b,") == {
        "year": 2024, "tags": [1, 2], "note": "a=b", "empty": "", "groups": ["a", "b"],
    }  # fmt: skip
    with pytest.raises(InputError, match="no metadata"):
        metadata_of(["year"])


def test_front_matter_and_columns_are_metadata(tmp_path):
    (tmp_path / "a.md").write_text(
        "---\ntitle: Pay\nyear: 2024\nGroups: [staff]\n---\nPilots get 900 a week.\n", "utf-8"
    )
    (tmp_path / "b.csv").write_text("name,year,Groups\nAnchor,2022,\nBuoy,2024,staff;board\n", "utf-8")
    (tmp_path / "c.jsonl").write_text(
        json.dumps({"text": "A buoy is red.", "groups": ["board"], "year": 2021}), "utf-8"
    )
    (tmp_path / "bad.md").write_text("---\ngroups: [staff\n---\nSecret.\n", "utf-8")
    report = build_documents(tmp_path / "index", [tmp_path / name for name in ("a.md", "b.csv", "c.jsonl", "bad.md")])
    assert ["groups" in reject and "bad.md" in reject for reject in report.rejects] == [True]
    with DocumentIndex(tmp_path / "index") as opened:
        groups = {piece.text: piece.metadata.get("groups") for piece in opened.passages()}
        years = texts(opened.where("year >= 2023").passages())
    anchor, buoy = (next(text for text in groups if name in text) for name in ("Anchor", "Buoy"))
    assert groups == {
        "Pilots get 900 a week.": ["staff"],
        anchor: [],
        buoy: ["staff", "board"],
        "A buoy is red.": ["board"],
    }
    assert "staff" not in buoy
    assert years == sorted(["Pilots get 900 a week.", buoy])
    with reading_as([]), DocumentIndex(tmp_path / "index") as opened:
        assert texts(opened.passages()) == [anchor]


def test_other_metadata_has_an_unchanged_file_read_again(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("Pilots get 900 a week.\n", "utf-8")
    build_documents(tmp_path / "index", file)
    assert add_documents(tmp_path / "index", file).unchanged == 1
    report = add_documents(tmp_path / "index", file, metadata={"groups": ["staff"]})
    assert (report.added, report.deleted, report.passages) == (1, 1, 1)
    with reading_as([]), DocumentIndex(tmp_path / "index") as opened:
        assert opened.find("pilots") == []
