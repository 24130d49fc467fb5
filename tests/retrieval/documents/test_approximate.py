"""The approximate index beside a large index file: it proposes, the index file decides."""

from __future__ import annotations

import sys
from contextlib import closing
from unittest.mock import patch

import numpy as np
import pytest

from dialore.retrieval.chunking import Chunking
from dialore.retrieval.documents import sqlite
from dialore.retrieval.documents.indexing import add_documents, build_documents, delete_documents
from dialore.retrieval.documents.opening import open_store
from dialore.sources.documents import DocumentIndex

WORDS = [
    "ferry",
    "harbour",
    "tide",
    "honey",
    "throat",
    "museum",
    "umbrella",
    "garden",
    "bread",
    "lamp",
    "river",
    "stone",
]
WHOLE = Chunking("whole")


def sentences(count, seed=0):
    rng = np.random.default_rng(seed)
    return [f"{n}: {' '.join(rng.choice(WORDS, 6))}." for n in range(count)]


def valid(path):
    with closing(open_store(path)) as store, store.read() as transaction:
        return transaction.settings().approximate


def dense(path, query, top=10):
    with DocumentIndex(path, retriever="dense") as index:
        return [(passage.text, passage.score) for passage in index.find(query, top)]


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "APPROXIMATE_FROM", 500)
    path = tmp_path / "index"
    build_documents(path, texts=sentences(1000), chunking=WHOLE)
    return path


def files(path):
    return {file.name for file in path.parent.iterdir() if file.suffix == ".hnsw"}


def test_it_gives_what_exact_search_gives(path, tmp_path):
    exact = tmp_path / "exact"
    sqlite.APPROXIMATE_FROM = 10_000
    build_documents(exact, texts=sentences(1000), chunking=WHOLE)
    assert valid(exact) is None
    assert files(path) == {valid(path).file}
    shared = total = 0
    for query in sentences(50, seed=1):
        approximate, every = dense(path, query), dense(exact, query)
        assert dict(approximate).items() <= dict(dense(exact, query, 30)).items()  # scores are exact ones
        shared += len(set(approximate) & set(every))
        total += len(every)
    assert shared / total > 0.95  # the graph differs from build to build


def test_passages_added_since_are_found_and_a_tenth_of_them_brings_it_up_to_date(path):
    first = valid(path)
    add_documents(path, texts=["The lighthouse keeper plays chess at midnight."], texts_name="later")
    assert valid(path) == first
    assert dense(path, "chess at the lighthouse")[0][0].startswith("The lighthouse keeper")
    add_documents(path, texts=sentences(200, seed=2), texts_name="many")
    second = valid(path)
    assert (second.passages, second.last) == (1201, 1201)
    assert files(path) == {second.file}
    assert dense(path, "chess at the lighthouse")[0][0].startswith("The lighthouse keeper")


def test_what_is_deleted_is_not_found_and_many_deletions_build_it_anew(path):
    [(text, _), *_] = dense(path, "honey for the throat")
    with DocumentIndex(path) as index:
        ids = {passage.text: passage.id for passage in index.passages()}
    delete_documents(path, ids=[ids[text]])
    assert valid(path).passages == 1000
    assert text not in dict(dense(path, "honey for the throat"))
    delete_documents(path, ids=list(ids.values())[:300])
    assert valid(path).passages == len(set(list(ids.values())[300:]) - {ids[text]})


def test_a_reader_goes_on_while_it_is_replaced(path):
    with DocumentIndex(path, retriever="dense") as index:
        assert index.find("honey", 3)
        build_documents(path, texts=[*sentences(600, seed=3), "Honey soothes a sore throat."], chunking=WHOLE)
        assert index.find("Honey soothes a sore throat.", 1)[0].text == "Honey soothes a sore throat."


@pytest.mark.parametrize("harm", ["gone", "torn", "no library"])
def test_where_it_cannot_be_read_search_is_exact_until_the_next_change(path, monkeypatch, harm):
    file = path.with_name(valid(path).file)
    with patch.object(sqlite.SqliteStore, "approximate", return_value=None):
        exact = dense(path, "honey for the throat")
    if harm == "gone":
        file.unlink()
    elif harm == "torn":
        file.write_bytes(file.read_bytes()[:1000])
    else:
        monkeypatch.setitem(sys.modules, "usearch.index", None)
    assert dense(path, "honey for the throat") == exact


@pytest.mark.parametrize("harm", ["gone", "torn"])
def test_the_next_change_makes_a_lost_one_anew(path, harm):
    first = path.with_name(valid(path).file)
    if harm == "gone":
        first.unlink()
    else:
        first.write_bytes(first.read_bytes()[:1000])
    add_documents(path, texts=["One more."], texts_name="one")
    assert files(path) == {valid(path).file} != {first.name}
    assert valid(path).passages == 1001


def test_an_index_whose_name_begins_alike_keeps_its_own(path):
    other = path.with_name("index.old")
    build_documents(other, texts=sentences(600), chunking=WHOLE)
    add_documents(path, texts=["One more."], texts_name="one")
    assert files(path) == {valid(path).file, valid(other).file}


def test_without_the_library_a_build_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "APPROXIMATE_FROM", 500)
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    report = build_documents(tmp_path / "index", texts=sentences(600), chunking=WHOLE)
    [notice] = report.notices
    assert "approximate]" in notice
    assert report.passages == 600


def test_what_others_left_is_swept(path):
    (path.parent / "index.0badcafe.hnsw").write_bytes(b"half")
    (path.parent / ".index.0badcafe.hnsw.123.tmp").write_bytes(b"half")
    add_documents(path, texts=["One more."], texts_name="one")
    assert files(path) == {valid(path).file}
    assert not list(path.parent.glob("*.tmp"))
