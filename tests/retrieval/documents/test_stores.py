"""What every store of passages does: the file, the database server and, of questions, the list in memory."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, SourceError, UnknownNameError
from dialore.knowledge import Knowledge, Passage, stable_id
from dialore.retrieval.bm25 import Bm25
from dialore.retrieval.chunking import Chunking
from dialore.retrieval.documents.indexing import add_documents, build_documents, delete_documents
from dialore.retrieval.documents.sqlite import SqliteStore
from dialore.retrieval.static import StaticEmbedder
from dialore.sources.base import KnowledgeSource
from dialore.sources.documents import DocumentIndex
from dialore.sources.in_memory import InMemoryPassages

FACTS = [
    "Honey soothes a sore throat.",
    "A humidifier keeps the air moist.",
    "London has many museums that are free.",
    "Umbrellas are sold at every London station.",
    "The tide turns twice a day.",
    "蜂蜜可以缓解嗓子疼。",
    "故宫在北京的中心。",
    "姜茶对感冒有好处。",
]
ASK = Dialogue.model_validate({"id": "d", "turns": ["My throat hurts."]})
RETRIEVERS = ("bm25", "dense", "fused")
EMBEDDER = StaticEmbedder()
MUSEUM = Passage("It opens at nine.", "Museum of Tin", "http://tin/")


def texts(path) -> set[str]:
    with DocumentIndex(path, embedder=EMBEDDER) as opened:
        return {piece.text for piece in opened.passages()}


@pytest.fixture(params=["sqlite", "postgres", "shelf"])
def source(request, tmp_path):
    if request.param == "shelf":
        yield InMemoryPassages([*FACTS, Passage(MUSEUM.text, MUSEUM.title, MUSEUM.url)])
        return
    server = request.getfixturevalue("vector_server") if request.param == "postgres" else None
    path = server.url("source") if server else tmp_path / "source"
    build_documents(path, texts=[*FACTS, MUSEUM], embedder=EMBEDDER)
    with DocumentIndex(path) as index:
        yield index


@pytest.mark.parametrize("retriever", RETRIEVERS)
async def test_it_is_a_source_of_knowledge(source, retriever):
    assert isinstance(source, KnowledgeSource)
    assert source.kind == "documents"
    ranked = source.by(retriever)
    found = await ranked.search("what helps a sore throat?", ASK, 3)
    assert found[0].text == FACTS[0]
    assert len(found) <= 3
    assert [piece.score for piece in found] == sorted((piece.score for piece in found), reverse=True)
    assert (found[0].kind, found[0].source) == ("passage", "documents")
    assert found[0].id == stable_id("passage", "", "", FACTS[0])
    assert (await ranked.search("嗓子疼怎么办", ASK, 2))[0].text == FACTS[5]
    scope = [Knowledge(id="p", kind="persona", text="x", source="persona", documents=["y"])]
    assert await ranked.search("what helps a sore throat?", ASK, 3, scope) == found
    assert await ranked.search("throat", ASK, 0) == []
    ranked.close()
    assert len(await source.search("throat", ASK)) > 0, "closing a view closed the source"


async def test_titles_are_searched_with_the_text_and_terms_decide_bm25(source):
    ranked = source.by("bm25")
    [found] = await ranked.search("when does the tin museum open", ASK, 1)
    assert (found.text, found.title, found.url) == (MUSEUM.text, MUSEUM.title, MUSEUM.url)
    assert await ranked.search("volcano", ASK) == []
    with pytest.raises(UnknownNameError):
        source.by("vector")


def test_what_is_closed_says_so(place):
    build_documents(place("base"), texts=FACTS, embedder=EMBEDDER)
    index = DocumentIndex(place("base"))
    assert {piece.id: piece.text for piece in index.passages()}[stable_id("passage", "", "", FACTS[4])] == FACTS[4]
    index.close()
    with pytest.raises(SourceError, match="is closed"):
        index.find("throat")
    index.close()


def test_bm25_ranks_as_brute_force_does(place):
    draw = np.random.default_rng(3)
    words = [f"word{n}" for n in range(60)]
    passages = [" ".join(draw.choice(words, draw.integers(3, 30))) for _ in range(500)]
    build_documents(place("i"), texts=passages, vectors=False, chunking=Chunking("whole"))
    exact = Bm25(passages)
    with DocumentIndex(place("i")) as index:
        for _ in range(20):
            query = " ".join(draw.choice(words, 5))
            scores = dict(zip(passages, exact.scores(query), strict=True))
            wanted = sorted(scores.values(), reverse=True)[:10]
            found = index.find(query, 10)
            assert [piece.score for piece in found] == pytest.approx(wanted, abs=2e-4)
            assert [scores[piece.text] for piece in found] == pytest.approx(wanted, abs=2e-4)


def test_of_a_long_query_the_most_informative_terms_find(place, monkeypatch):
    monkeypatch.setattr("dialore.retrieval.documents.store.MOST_MATCHES", 10)
    passages = ["tea for two", *(f"coffee number {n}" for n in range(30)), "coffee with tea"]
    build_documents(place("i"), texts=passages, vectors=False)
    with DocumentIndex(place("i")) as index:
        assert [piece.text for piece in index.find("coffee tea", 5)] == ["coffee with tea", "tea for two"]
        assert len(index.find("coffee", 50)) == 31


def test_dense_ranks_by_the_embedder(place):
    build_documents(place("i"), texts=FACTS, embedder=EMBEDDER)
    cosines = EMBEDDER.encode(FACTS) @ EMBEDDER.encode(["rainy weather in the capital"])[0]
    wanted = [FACTS[row] for row in np.argsort(-cosines) if cosines[row] > 0]
    with DocumentIndex(place("i"), retriever="dense") as index:
        found = index.find("rainy weather in the capital", 3)
    assert [piece.text for piece in found] == wanted[:3]
    assert [piece.score for piece in found] == pytest.approx(np.sort(cosines)[::-1][:3], abs=0.01)


def test_other_embedders_or_none(place, tmp_path):
    """One without Chinese, of a folder of one's own."""
    for file in Path(str(files("dialore") / "data" / "embedding")).iterdir():
        if not file.name.startswith("chinese"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text("utf-8").replace(EMBEDDER.fingerprint, "0" * 16), "utf-8")
    build_documents(place("h"), texts=FACTS, embedder=StaticEmbedder(tmp_path))
    with DocumentIndex(place("h"), retriever="dense") as index:
        assert index.stats()["embedder"] == f"static:{tmp_path}"
        assert index.find("free museums in London")[0].text == FACTS[2]
    with pytest.raises(InputError, match="another version of the embedder static:"):
        DocumentIndex(place("h"), embedder=EMBEDDER)
    build_documents(place("n"), texts=FACTS, vectors=False)
    with DocumentIndex(place("n")) as index:
        assert index.find("tide")[0].text == FACTS[4]  # fused of what there is
        with pytest.raises(UnknownNameError, match="did you mean bm25"):
            index.by("bm52")
    with pytest.raises(InputError, match="no vectors"):
        DocumentIndex(place("n"), retriever="dense")


def test_equal_passages_are_kept_once_and_given_once(place):
    given = ["Tea is hot."] * 5 + [Passage("Tea is hot.", url=f"u{n}") for n in "abc"]
    report = build_documents(place("i"), texts=given, vectors=False)
    assert (report.passages, report.duplicates) == (4, 4)
    with DocumentIndex(place("i")) as index:
        assert len(index.find("hot tea", 10)) == 1
        many = [Passage("Tea is hot.", url=f"u{n}") for n in range(500)] + ["Tea was cold yesterday, said the butler."]
        build_documents(place("i"), texts=many, vectors=False)
        assert {piece.text for piece in index.find("tea", 2)} == {"Tea is hot.", many[-1]}


def test_an_open_index_that_is_built_again_in_its_place_is_seen(place):
    build_documents(place("i"), texts=["Tea is hot.", "Cats sleep."])
    with DocumentIndex(place("i")) as index:
        assert index.by("dense").find("tea", 1)[0].text == "Tea is hot."
        build_documents(place("i"), texts=["Snow is cold.", "Tea is green."])
        for retriever in ("dense", "bm25"):
            assert index.by(retriever).find("tea", 1)[0].text == "Tea is green."


def test_adding_updating_and_deleting(place, tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.txt").write_text(f"This is {name} one. This is {name} two.", "utf-8")
    out = place("i")
    build_documents(out, [folder], chunking=Chunking("sentence"))
    index = DocumentIndex(out)
    assert len(index) == 6
    (folder / "a.txt").write_text("This is a one. This is a three.", "utf-8")
    (folder / "d.txt").write_text("This is d.", "utf-8")
    report = add_documents(out, [folder])
    assert (report.added, report.deleted, report.unchanged) == (3, 2, 2)
    assert len(index) == 7
    assert index.find("three", 1)[0].text == "This is a three."
    kept = [f"This is {x}." for x in ("b one", "b two", "c one", "c two")]
    assert texts(out) == {*kept, "This is a one.", "This is a three.", "This is d."}
    assert index.by("bm25").find("a two")[0].text != "This is a two."

    (folder / "b.txt").unlink()
    assert add_documents(out, [folder]).deleted == 0
    assert add_documents(out, [folder], prune=True).deleted == 2
    gone = [folder / "c.txt", tmp_path / "none"]
    report = delete_documents(out, files=gone, ids=["passage:000000000000", "x"])
    assert report.deleted == 2
    assert report.missing == ["passage:000000000000", "x", str(tmp_path / "none")]
    assert texts(out) == {"This is a one.", "This is a three.", "This is d."}
    identifier = index.find("three", 1)[0].id
    delete_documents(out, ids=[identifier])
    assert index.by("bm25").find("three") == []
    assert identifier not in {piece.id for piece in index.passages()}
    # What was deleted of a file comes back when the file is added again: two passages each of a and c.
    assert add_documents(out, [folder]).added == 4
    assert index.find("three", 1)[0].id == identifier
    delete_documents(out, files=[folder])
    assert (len(index), index.documents(), index.find("this")) == (0, [], [])
    index.close()


def test_texts_join_those_of_their_name(place):
    base = place("base")
    build_documents(base, texts=FACTS, embedder=EMBEDDER)
    report = add_documents(base, texts=["Ginger warms.", FACTS[0]], texts_name="texts")
    assert (report.added, report.duplicates, report.documents) == (1, 1, 1)
    assert add_documents(base, texts=["Ginger cools."], texts_name="other").documents == 2
    assert delete_documents(base, files=["other"]).deleted == 1
    assert texts(base) == {*FACTS, "Ginger warms."}


def test_deleting_by_url(place):
    pieces = [Passage(f"Fact {n}.", url=f"http://x/{n % 3}") for n in range(9)]
    build_documents(place("i"), texts=pieces)
    report = delete_documents(place("i"), urls=["http://x/1", "http://y"])
    assert (report.deleted, report.missing) == (3, ["http://y"])
    assert texts(place("i")) == {f"Fact {n}." for n in range(9) if n % 3 != 1}


def test_scores_are_those_of_what_is_left(place):
    """Frequencies and lengths of terms follow changes: scores are those of an index that was built so."""
    build_documents(place("a"), texts=["tea and rice", "tea", "rice", "green tea leaves of spring"], vectors=False)
    build_documents(place("b"), texts=["tea", "coffee and tea", "tea and rice"], vectors=False)
    add_documents(place("b"), texts=["rice", "green tea leaves of spring"])
    with DocumentIndex(place("a")) as one, DocumentIndex(place("b")) as other:
        delete_documents(place("b"), ids=[other.find("coffee")[0].id])
        found = [{piece.text: piece.score for piece in index.find("tea rice spring", 9)} for index in (one, other)]
        assert found[0] == found[1]
        assert one.fingerprint == other.fingerprint


def test_many_threads_ask_while_one_changes(place):
    base = place("base")
    build_documents(base, texts=FACTS, embedder=EMBEDDER)
    stop, failures = threading.Event(), []

    def ask(index) -> None:
        while not stop.is_set():
            try:
                found = index.find("honey for the throat", 5)
                assert found[0].text == FACTS[0]
                news = {piece.text for piece in found if piece.text.startswith("News")}
                assert len(news) in {0, 2}, news  # a change is there whole or not at all
            except Exception as error:  # noqa: BLE001
                failures.append(error)
                return

    with contextlib.closing(DocumentIndex(base)) as index:
        threads = [threading.Thread(target=ask, args=(index,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for n in range(4):
            add_documents(base, texts=["News of honey.", "News of the throat."], texts_name=f"news {n}")
            delete_documents(base, files=[f"news {n}"])
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []


@pytest.mark.parametrize(
    ("statement", "message", "hint"),
    [
        ("SELECT * FROM state", "was never finished", "build it again"),
        ("CREATE VIRTUAL TABLE t USING unknown_module(a)", "cannot use", "build it again"),
    ],
)
def test_errors_of_sqlite_without_a_code_of_their_own(tmp_path, statement, message, hint):
    database = sqlite3.connect(":memory:")
    with pytest.raises(InputError, match=message) as raised, SqliteStore(tmp_path / "i")._explain_errors():
        database.execute(statement)
    assert hint in raised.value.hint
