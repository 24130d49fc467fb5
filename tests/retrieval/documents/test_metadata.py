"""Metadata in both stores: what is normalised, bounded and stored once, and how it is filtered."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import os
import sqlite3

import pytest

from dialore.errors import InputError
from dialore.knowledge import Passage
from dialore.retrieval.documents.filters import parse_where, reading_as
from dialore.retrieval.documents.indexing import add_documents, build_documents, delete_documents
from dialore.retrieval.documents.metadata import MAX_METADATA_BYTES, encode_metadata
from dialore.retrieval.documents.opening import open_store
from dialore.sources.documents import DocumentIndex, open_documents

ODD = {
    "nan": math.nan,
    "infinite": [1.5, -math.inf],
    "huge": 10**40,
    "endless": 10**5000,
    "half": "a\ud800b",
    "nul": "a\0b",
    7: "number as key",
    None: "null as key",
    "day": dt.date(2026, 1, 5),
    "moment": dt.datetime(2026, 1, 5, 10, 30),  # noqa: DTZ001
    "set": {"one"},
    "digits": "9" * 400,
    "exponent": "1e999",
    'quote"d': 1,
}
PIECES = [
    Passage("The ferry leaves at 18:35.", metadata={"year": 2024, "Valid from": "2025-12-31", "Price (EUR)": "12.5"}),
    Passage(
        "The ferry carries bicycles.",
        metadata={"2024": "yes", "metadata": {"year": 2023}, "Valid from": "2026-01-31"},
    ),
    Passage("The ferry has a café.", metadata={"at": {"port": {"name": ["North", "South"]}}, "Valid from": "2026-02"}),
    Passage("The ferry is old.", metadata={"Valid from": "n/a", "year": "2022-05-01T10:00"}),
    Passage("Dogs go by ferry.", metadata=ODD),
]


@pytest.fixture
def index(place):
    path = place("ferry")
    build_documents(path, texts=PIECES)
    return path


def found(path, where):
    with DocumentIndex(path) as opened:
        return [PIECES.index(piece) for text in texts(opened, where) for piece in PIECES if piece.text == text]


def texts(opened, where):
    return sorted((piece.text for piece in opened.where(where).find("ferry")), key=lambda text: text[-8:])


@pytest.mark.parametrize(
    ("where", "places"),
    [
        ("year = 2024", {0}),
        ("year >= 2022", {0, 3}),
        ("year < 2023", {3}),
        ('"Valid from" >= "2026-01-01"', {1, 2}),
        ('"Valid from" >= 2026', {1, 2}),
        ('"Valid from" = 2026-01', {1}),
        ("'Valid from' <= 2026-01", {0, 1}),
        ('"Valid from" > 2026-01', {2}),
        ('"Valid from" in (2025, 2026-02)', {0, 2}),
        ('"Valid from" = "n/a"', {3}),
        ('"Price (EUR)" >= 12 and "Price (EUR)" < 13', {0}),
        ('"2024" = yes', {1}),
        ("2024 = yes", {1}),
        ("metadata.year = 2023", {1}),
        ("metadata.year = 2024", {0}),
        ("at.port.name = South", {2}),
        ("at.port != South and year != 2024", {1, 2, 3, 4}),
        ("at.port.name != South", {0, 1, 3, 4}),
        ("day = 2026-01-05 and moment = 2026-01", {4}),
        ("huge = 1e40", set()),
        ("set = one", {4}),
        ("7 = 'number as key'", {4}),
        ("nan = 1", set()),
        ("digits > 5", set()),
        ("infinite = 1.5", {4}),
    ],
)
def test_any_field_is_filtered_whatever_stands_in_others(index, where, places):
    if where == "digits > 5" and not isinstance(index, str):
        places = {4}  # SQLite compares numbers of any length
    assert set(found(index, where)) == places


def test_metadata_that_json_lacks_breaks_no_filter_of_files(tmp_path):
    (tmp_path / "notes.jsonl").write_text('{"text": "Ferries run.", "year": 2024}\n{"text": "Dogs.", "x": NaN}\n')
    (tmp_path / "far.jsonl").write_text('{"text": "Cats.", "x": [1e999, -Infinity]}\n')
    (tmp_path / "front.md").write_text("---\nrating: .nan\n---\nBirds.\n")
    files = [tmp_path / name for name in ("notes.jsonl", "far.jsonl", "front.md")]
    build_documents(tmp_path / "i", files, metadata={"weight": math.nan})
    with DocumentIndex(tmp_path / "i") as opened:
        assert [piece.text for piece in opened.where("year = 2024").passages()] == ["Ferries run."]
        with reading_as(["staff"]), DocumentIndex(tmp_path / "i") as restricted:
            assert len(restricted) == 4


def test_an_index_in_a_file_refuses_metadata_that_is_no_json(tmp_path):
    path = tmp_path / "i"
    build_documents(path, texts=PIECES)
    with contextlib.closing(sqlite3.connect(path)) as database, pytest.raises(sqlite3.IntegrityError):
        database.execute("UPDATE metadata SET content = '{\"year\": NaN' WHERE number = 2")


def test_encoding_is_stable_and_plain_json():
    text = encode_metadata(ODD)
    assert encode_metadata(json.loads(text)) == text
    assert encode_metadata({}) == ""


@pytest.mark.parametrize("metadata", [{"x": "m" * MAX_METADATA_BYTES}, {"x": json.loads("[" * 700 + "]" * 700)}])
def test_metadata_beyond_its_limits_is_rejected_by_file_and_line(tmp_path, metadata):
    lines = [{"text": "Tea is warm."}, {"text": "Tea is green.", **metadata}, {"text": "Tea is red."}]
    file = tmp_path / "tea.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    report = build_documents(tmp_path / "i", file)
    assert report.added == 2
    [reject] = report.rejects
    assert f"{file}, line 2" in reject
    with pytest.raises(InputError, match="more, text 1"):
        add_documents(tmp_path / "i", texts=[Passage("Tea.", metadata=metadata)], texts_name="more")
    with pytest.raises(InputError):
        build_documents(tmp_path / "j", texts=["Tea."], metadata=metadata)


def test_a_document_whose_metadata_grew_too_large_stays_as_it_was(tmp_path):
    file = tmp_path / "a.md"
    file.write_text("---\nnote: short\n---\nTea is warm.\n", "utf-8")
    build_documents(tmp_path / "i", file)
    file.write_text(f"---\nnote: {'m' * MAX_METADATA_BYTES}\n---\n# A\nTea is cold.\n# B\nTea is hot.\n", "utf-8")
    (tmp_path / "b.txt").write_text("Milk.", "utf-8")
    report = add_documents(tmp_path / "i", [file, tmp_path / "b.txt"])
    assert len([reject for reject in report.rejects if "a.md" in reject]) == 1
    with DocumentIndex(tmp_path / "i") as opened:
        assert {piece.text for piece in opened.passages()} == {"Tea is warm.", "Milk."}


def test_metadata_is_stored_once_for_all_passages_of_a_document(place):
    path = place("once")
    long = "\n\n".join(f"Sentence number {number} says that a bird sings." for number in range(2000))
    extra = {"note": "m" * (MAX_METADATA_BYTES - 1000)}
    report = build_documents(path, texts=[Passage(long, metadata=extra), Passage("Short.", metadata={"note": "other"})])
    assert report.passages > 100
    with contextlib.closing(open_store(path)) as store:
        assert store.size() < 40 * MAX_METADATA_BYTES + 10**6
        with store.read() as transaction:
            [(count,)] = transaction.ask("SELECT COUNT(*) FROM metadata").fetchall()
    assert count == 2
    delete_documents(path, files=["texts"])
    with contextlib.closing(open_store(path)) as store, store.read() as transaction:
        assert transaction.ask("SELECT COUNT(*) FROM metadata").fetchone()[0] == 0


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("Valid from = 3", "from = 3"),
        ('"Valid from = 3', '"Valid from = 3'),
        ("a = 1 or b = 2", "or b = 2"),
        ("a in 1", "1"),
        ("a in (1 2)", "2"),
        ("a = ", "a value"),
        ('"" = 1', "field"),
    ],
)
def test_what_is_wrong_in_a_condition_is_shown(where, said):
    with pytest.raises(InputError, match="not a condition") as raised:
        parse_where(where)
    assert said in raised.value.message


# --- what is deleted


def test_deleted_text_leaves_the_file_and_its_log_and_the_file_shrinks(tmp_path):
    path = tmp_path / "i.idx"
    pieces = [Passage(f"Zanzibarius {n} sleeps near harbour {n}.", f"Quillwort {n}", metadata={"n": f"Xyloth{n}"})
              for n in range(3000)]  # fmt: skip
    build_documents(path, texts=["Whales sing."])
    whole = path.stat().st_size
    add_documents(path, texts=pieces, texts_name="secret")
    reader = DocumentIndex(path)  # keeps a connection, and so the log
    reader.find("whales")
    assert path.stat().st_size > 4 * whole
    delete_documents(path, files=["secret"])
    data = b"".join(file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")).lower()
    for word in (b"zanzibarius", b"quillwort", b"xyloth"):
        assert word not in data
    assert path.stat().st_size < 2 * whole
    assert [piece.text for piece in reader.find("whales")] == ["Whales sing."]
    reader.close()


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_an_index_is_private_and_keeps_permissions_that_its_owner_changed(tmp_path):
    path = tmp_path / "i.idx"
    build_documents(path, texts=["Whales sing."])
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    build_documents(path, texts=["Dogs bark."])
    assert path.stat().st_mode & 0o777 == 0o640


# --- files that are gone


def test_files_that_are_gone_are_reported_until_they_are_pruned(place, tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.txt").write_text(f"This is {name}.", "utf-8")
    path = place("gone")
    first = build_documents(path, folder)
    assert (first.added_documents, first.added, first.gone) == (3, 3, [])
    (folder / "b.txt").unlink()
    (folder / "a.txt").write_text("This is a new a.", "utf-8")
    report = add_documents(path, folder)
    assert report.gone == [str(folder / "b.txt")]
    assert (report.changed_documents, report.deleted_documents, report.unchanged) == (1, 0, 1)
    report = add_documents(path, folder, prune=True)
    assert (report.gone, report.deleted_documents, report.deleted, report.unchanged) == ([], 1, 1, 2)
    assert add_documents(path, folder).gone == []


def test_a_text_is_no_index_and_an_index_is_one_whatever_its_name_ends_in(tmp_path, monkeypatch):
    monkeypatch.setenv("DIALORE_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "notes.txt"
    text.write_text("Whales sing.", "utf-8")
    with pytest.raises(InputError, match="not a document index"):
        open_documents([text], indices_only=True)
    build_documents(tmp_path / "index.md", text)
    with contextlib.closing(open_documents([tmp_path / "index.md"])) as source:
        assert isinstance(source, DocumentIndex)
        assert source.path == tmp_path / "index.md"
