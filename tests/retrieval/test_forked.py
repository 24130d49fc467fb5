"""Indices and graphs that are open when a process is forked."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os

import pytest

from dialore.dialogue import Dialogue
from dialore.knowledge import Fact
from dialore.retrieval.documents.indexing import build_documents
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.graph.changes import GraphEditor
from dialore.retrieval.graph.writing import build_graph
from dialore.sources.documents import open_documents
from dialore.sources.graph import open_graph

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
_SOURCES = {}
"""The sources that forked processes inherit."""


def search(name):
    found = asyncio.run(_SOURCES[name].search("sore throat", Dialogue("I have a sore throat.")))
    return sorted(piece.text for piece in found)


def search_and_close(name):
    texts = search(name)
    _SOURCES.pop(name).close()
    gc.collect()
    return texts


def reads_with_the_connection_of(parent):
    store = _SOURCES["graph"].store
    with store.read():
        return id(store._local.transaction) == parent


@pytest.fixture(autouse=True)
def sources(tmp_path):
    (tmp_path / "a.md").write_text("Honey helps a sore throat.", "utf-8")
    build_documents(tmp_path / "a.idx", [tmp_path / "a.md"])
    fact = Fact("honey", "UsedFor", "sore throat")
    build_graph([fact], tmp_path / "a.graph", name="a", embedder=load_embedder())
    _SOURCES.update(documents=open_documents([str(tmp_path / "a.idx")]), graph=open_graph(tmp_path / "a.graph"))
    yield
    for source in _SOURCES.values():
        source.close()
    _SOURCES.clear()


@pytest.mark.parametrize("name", ["documents", "graph"])
def test_a_source_is_searched_and_closed_in_forked_processes(name):
    texts = search(name)
    assert texts
    for work in (search, search_and_close):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            answers = [pool.apply_async(work, [name]) for _ in range(2 if work is search else 1)]
            assert [answer.get(timeout=30) for answer in answers] == [texts] * len(answers)
    assert search(name) == texts


def test_a_forked_process_leaves_the_connections_of_its_parent(tmp_path):
    search("graph")
    store = _SOURCES["graph"].store
    with store.read():
        facts_before = store.meta.facts
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert (
                pool.apply_async(reads_with_the_connection_of, [id(store._local.transaction)]).get(timeout=30) is False
            )
            pool.apply_async(search_and_close, ["graph"]).get(timeout=30)
        with GraphEditor(tmp_path / "a.graph") as editor:
            editor.add([Fact("warm tea", "UsedFor", "sore throat")])
        assert store.find("warm tea") is None
        assert store.meta.facts == facts_before
    assert len(search("graph")) == 2
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert len(pool.apply_async(search, ["graph"]).get(timeout=30)) == 2
