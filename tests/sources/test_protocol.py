"""Every source of knowledge keeps to the protocol of `dialore.sources.base`, whatever it is made of."""

from __future__ import annotations

from contextlib import closing

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, UnknownNameError
from dialore.knowledge import Fact
from dialore.retrieval.documents.indexing import build_documents
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.graph.writing import build_graph
from dialore.retrieval.reranking import load_reranker
from dialore.sources.base import KnowledgeSource, Listed, Rankable, SearchResult, list_knowledge, rank_by
from dialore.sources.declared import Reranked
from dialore.sources.documents import PoolSource, open_documents
from dialore.sources.graph import open_graphs
from dialore.sources.in_memory import InMemoryPassages
from dialore.sources.memory import MemorySource
from dialore.sources.persona import PersonaDocuments, PersonaSource
from dialore.sources.web.source import open_web

TEXTS = ("I have two cats that purr.", "A jib is a sail.", "Trier is an old town.")
CATS = Dialogue(
    id="cats",
    turns=["Why do cats purr?"],
    persona=TEXTS,
    extra={
        "documents": {TEXTS[0]: ["Cats purr when they are content."], TEXTS[2]: ["Trier lies on the Moselle."]},
        "memory": [{"text": text, "said": "2026-11-03T18:20:00Z"} for text in TEXTS],
        "pool": list(TEXTS),
    },
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    (folder / "notes.txt").write_text("Cats purr at night.\n", "utf-8")
    build_documents(folder / "book", texts=list(TEXTS))
    for name in ("pets", "ships"):
        facts = [Fact("cat", "CapableOf", "purr"), Fact("cat", "IsA", "pet"), Fact("ship", "UsedFor", name)]
        build_graph(facts, folder / f"{name}.graph", name=name, embedder=load_embedder())
    return folder


MADE = {
    "texts in memory": lambda _: InMemoryPassages(TEXTS),
    "a shelf for the web": lambda _: InMemoryPassages(TEXTS, kind="web"),
    "the dialogue's own base": lambda _: PoolSource("bm25"),
    "a persona": lambda _: PersonaSource(),
    "a persona by the dialogue": lambda _: PersonaSource(retriever="dialogue"),
    "documents under a persona": lambda _: PersonaDocuments(),
    "a memory": lambda _: MemorySource(),
    "an index": lambda files: open_documents([files / "book"]),
    "an index and more": lambda files: open_documents([files / "book", files / "notes.txt"]),
    "one that is reranked": lambda files: Reranked(open_documents([files / "book"]), load_reranker("bm25")),
    "the web": lambda files: open_web(f"corpus:{files / 'book'}"),
    "a graph": lambda files: open_graphs([str(files / "pets.graph")]),
    "several graphs": lambda files: open_graphs([str(files / f"{name}.graph") for name in ("pets", "ships")]),
}
KINDS = {"graph", "documents", "persona", "memory", "web"}


@pytest.fixture(params=MADE)
def source(request, files):
    with closing(MADE[request.param](files)) as made:
        yield made


async def test_the_best_come_first_and_no_more_than_are_asked_for(source):
    assert isinstance(source, KnowledgeSource)
    assert source.name
    assert source.kind in KINDS
    found = await source.search(CATS.last.text, CATS)
    assert isinstance(found, SearchResult)
    assert "purr" in found[0].text
    assert [piece.score for piece in found] == sorted((piece.score for piece in found), reverse=True)
    assert len({piece.id for piece in found}) == len(found)
    assert {piece.source for piece in found} == {source.kind}
    assert list(await source.search(CATS.last.text, CATS, 1)) == found[:1]


async def test_nothing_that_fits_is_no_error(source):
    bare = Dialogue(id="bare", turns=["Hm."])
    found = await source.search("Hm.", bare)
    assert isinstance(found, SearchResult)


async def test_one_that_can_be_listed_gives_all_that_it_finds(source):
    if not isinstance(source, Listed):
        with pytest.raises(InputError, match="cannot be given whole"):
            list_knowledge(source, CATS)
        return
    found = await source.search(CATS.last.text, CATS)
    assert {piece.id for piece in found} <= {piece.id for piece in list_knowledge(source, CATS)}


async def test_one_that_can_be_ranked_otherwise_finds_the_same_pieces(source):
    if not isinstance(source, Rankable):
        assert rank_by(source, "bm25") is source
        return
    found = await rank_by(source, "bm25").search(CATS.last.text, CATS)
    assert {piece.id for piece in found} <= {piece.id for piece in await source.search(CATS.last.text, CATS)}
    with pytest.raises(UnknownNameError, match="bm52"):
        rank_by(source, "bm52")
