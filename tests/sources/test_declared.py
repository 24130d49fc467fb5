"""Declared sources: read, put in order, opened by kind; every fault one clear line."""

from __future__ import annotations

import textwrap

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, SourceError, UnknownNameError
from dialore.knowledge import Fact, Knowledge
from dialore.methods.stage_runner import NullRunner
from dialore.methods.stages import StageContext
from dialore.retrieval.dialogue_ranking import DialogueRanker
from dialore.retrieval.documents.indexing import build_documents
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.encoders import EndpointEmbedder
from dialore.retrieval.graph.writing import build_graph
from dialore.retrieval.reranking import dense_reranker, load_reranker
from dialore.sources.base import KnowledgeSource
from dialore.sources.declared import DeclaredSource, Reranked, default_sources, in_order, open_declared
from dialore.sources.graph import Graph, open_graph
from dialore.sources.persona import PersonaDocuments, PersonaSource
from dialore.sources.web.engines import WebResult
from dialore.sources.web.source import WebSource

CATS = Dialogue(
    id="cats",
    turns=["Do you have pets?"],
    persona=["I live in Trier.", "I have two cats."],
    extra={
        "documents": {"I have two cats.": ["Cats purr when they are content."], "I live in Trier.": ["Trier is old."]}
    },
)


class InMemoryPassages:
    """A source that is open already: it gives its texts in their own order, and remembers what it was asked."""

    def __init__(self, kind, texts=("one", "two")):
        self.name, self.kind, self.texts = kind, kind, texts
        self.closed = False

    async def search(self, query, dialogue, top=10, scope=()):
        return [Knowledge(id=text, kind="passage", text=text, source=self.kind) for text in self.texts[:top]]

    def close(self):
        self.closed = True


@pytest.fixture
def declare(tmp_path):
    """Open a declaration's text, with what is open already."""

    def go(text, **opened):
        path = tmp_path / "sources.yaml"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return open_declared(path, opened)

    return go


def test_the_paper_s_two_sources(declare):
    declared = declare(
        """
        sources:
          - {name: facts, kind: documents, depends_on: persona, description: {en: facts, zh: 事实}, top: 3}
          - {name: persona, kind: persona, description: who Friend is}
        """
    )
    assert declared.names == ("persona", "facts")
    persona, facts = declared.entries
    assert isinstance(persona.source, PersonaSource)
    assert isinstance(persona.source.retriever, DialogueRanker)
    assert isinstance(facts.source, PersonaDocuments)
    assert facts.source.retriever is persona.source.retriever
    assert (facts.depends_on, facts.join, facts.top, facts.description["zh"]) == (("persona",), "filter", 3, "事实")
    assert persona.description == {"en": "who Friend is", "zh": "who Friend is"}
    assert declared.find(" PERSONA ") is persona
    with pytest.raises(UnknownNameError, match="did you mean persona"):
        declared["personna"]


def test_many_sources_each_after_what_it_needs(declare):
    web = InMemoryPassages("web")
    declared = declare(
        """
        - {name: news, kind: web, description: news, depends_on: [home, memory], join: query}
        - {name: memory, kind: model, description: what the model knows, depends_on: [persona]}
        - {name: home, kind: documents, description: home, depends_on: [persona], join: filter, retriever: bm25}
        - {name: persona, kind: persona, description: who, retriever: dense}
        """,
        web=web,
    )
    assert declared.names == ("persona", "home", "memory", "news")
    assert declared.needed_by("news") == ("persona", "home", "memory")
    assert declared["memory"].source is None
    assert declared["news"].source is web
    assert [declared[name].join for name in declared.names[1:]] == ["filter", "query", "query"]
    assert type(declared["persona"].source) is PersonaSource
    assert type(declared["home"].source) is PersonaDocuments
    assert (declared["persona"].source.retriever.name, declared["home"].source.retriever.name) == ("dense", "bm25")
    declared.close()
    assert not web.closed  # whoever opened it closes it


FAULTS = {
    "a cycle": (
        """
        - {name: a, kind: persona, description: x, depends_on: [c]}
        - {name: b, kind: model, description: x, depends_on: [a]}
        - {name: c, kind: model, description: x, depends_on: [b]}
        """,
        "in a circle: a -> c -> b -> a",
    ),
    "itself": ("[{name: a, kind: persona, description: x, depends_on: [a]}]", "circle: a -> a"),
    "an unknown dependency": (
        "[{name: persona, kind: persona, description: x}, {name: d, kind: model, description: x, depends_on: persna}]",
        "source that 'd' depends on: 'persna'.*did you mean persona",
    ),
    "no kind": ("[{name: handbook, description: x}]", r"source 'handbook': field sources\[0\].kind: Field required"),
    "an unknown kind": ("[{name: a, kind: wiki, description: x}]", "source 'a'.*'graph', 'documents', 'persona'"),
    "an unknown key": ("[{name: a, kind: persona, description: x, depend: b}]", r"source 'a': .*depend: Extra inputs"),
    "no description": ("[{name: a, kind: persona}]", "source 'a': .*description: Field required"),
    "a blank description": ("[{name: a, kind: persona, description: ' '}]", "source 'a': .*the planner has nothing"),
    "a name like NULL": ("[{name: 'Null', kind: persona, description: x}]", "source 'Null': .*not NULL"),
    "a name with a comma": ("[{name: 'a, b', kind: persona, description: x}]", "source 'a, b': .*a name is words"),
    "twice": (
        "[{name: a, kind: persona, description: x}, {name: a, kind: model, description: x}]",
        "sources 'a' and 'a' have the same name",
    ),
    "twice but for case": (
        "[{name: a, kind: persona, description: x}, {name: A, kind: model, description: x}]",
        "'a' and 'A' differ in case alone",
    ),
    "a filter that cannot be": (
        "[{name: p, kind: persona, description: x}, {name: w, kind: web, description: x, depends_on: p, join: filter}]",
        "source 'w' cannot be filtered.*join: query",
    ),
    "nothing to open": ("[{name: w, kind: web, description: x}]", "source 'w' has no `from`, and no web is open"),
    "a model from a file": ("[{name: m, kind: model, description: x, from: y}]", "source 'm'.*opened from nothing"),
    "an unknown retriever": (
        "[{name: p, kind: persona, description: x, retriever: bm52}]",
        "'bm52'.*did you mean bm25",
    ),
    "a retriever that does not fit": (
        "[{name: d, kind: documents, description: x, retriever: dialogue}]",
        "source 'd': the retriever `dialogue`",
    ),
    "no top": ("[{name: p, kind: persona, description: x, top: 0}]", "source 'p': .*top: .*greater than or equal to 1"),
    "a missing file": ("[{name: p, kind: persona, description: x, from: none.txt}]", "no such file: .*none.txt"),
    "nothing": ("sources: []", "sources: it is empty"),
    "no declaration": ("just words", "sources.yaml"),
    "no YAML": ("[{name: a", "not valid YAML"),
}


@pytest.mark.parametrize(("text", "wanted"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_one_clear_line(declare, text, wanted):
    with pytest.raises(InputError, match=wanted) as caught:
        declare(text)
    assert "\n" not in str(caught.value)


def test_what_was_opened_is_closed_where_a_later_source_fails(declare, monkeypatch, graph_file):
    closed = []
    monkeypatch.setattr(Graph, "close", lambda source: closed.append(source.name))
    with pytest.raises(InputError, match="no web is open"):
        declare(
            f"""
            - {{name: g, kind: graph, description: x, from: {graph_file}}}
            - {{name: w, kind: web, description: x}}
            """
        )
    assert closed == ["g"]


async def test_a_persona_file_beside_the_declaration(declare, tmp_path):
    (tmp_path / "me.yaml").write_text("I sail: [A jib is a sail]\nI sing: []\n", encoding="utf-8")
    declared = declare(
        """
        - {name: persona, kind: persona, description: x, from: me.yaml}
        - {name: documents, kind: documents, description: x, depends_on: persona}
        """
    )
    dialogue = Dialogue(id="d", turns=["Do you sail?"])
    (found,) = await declared["persona"].source.search("Do you sail?", dialogue, 1)
    assert found.text == "I sail"
    (under,) = await declared["documents"].source.search("Do you sail?", dialogue, 5, [found])
    assert (under.text, under.persona) == ("A jib is a sail", "I sail")


async def test_documents_that_are_open_are_joined_to_the_query_not_filtered(declare):
    shelf = InMemoryPassages("documents")
    declared = declare(
        """
        - {name: persona, kind: persona, description: x}
        - {name: shelf, kind: documents, description: x, depends_on: persona, join: query}
        """,
        documents=shelf,
    )
    assert declared["shelf"].source is shelf
    assert declared["shelf"].join == "query"


async def test_a_reranker_of_another_source_puts_its_pieces_in_order():
    shelf = InMemoryPassages("documents", ("about the moon", "cats and dogs", "cats purr"))
    source = Reranked(shelf, load_reranker("bm25"))
    assert isinstance(source, KnowledgeSource)
    found = await source.search("why do cats purr", CATS, 2)
    assert [piece.text for piece in found] == ["cats purr", "cats and dogs"]
    assert found[0].score > found[1].score > 0
    source.close()
    assert shelf.closed


async def test_the_trace_of_a_reranked_web_has_the_query_that_was_sent(declare):
    class Engine:
        name, asked = "notebook", []

        async def search(self, query, dialogue, count):
            self.asked.append(query)
            texts = ("Cats purr.", "Ask me@example.org.", "Dogs bark.")
            return [WebResult(f"https://example.org/{at}", "", text=text) for at, text in enumerate(texts)]

        def close(self):
            pass

    class Read:
        def __init__(self):
            self.queries = []

        def rerank(self, query, texts, top):
            self.queries.append(query)
            return [(texts.index("Cats purr."), 1.0)]

    web = WebSource(Engine())
    declared = declare("[{name: news, kind: web, description: x, retriever: bm25}]", web=web)
    source = declared["news"].source
    assert isinstance(source, Reranked)
    assert source.source is web
    source.reranker = read = Read()
    stages = StageContext(NullRunner(), "safari", CATS)
    found = await stages.search("retrieval-news", source, "Why do cats purr? Write to me@example.org", 1)
    assert [piece.text for piece in found] == ["Cats purr."]
    (sent,) = Engine.asked
    assert "me@example.org" not in sent
    (traced,) = stages.trace
    assert traced.output == {"source": "web", "query": sent, "found": [found[0].id]}
    assert "an e-mail address was taken out of the query" in traced.notes
    assert read.queries == [sent]


@pytest.mark.parametrize("retriever", ["", ", retriever: bm25"])
async def test_the_trace_of_a_web_that_is_down_has_the_query_that_was_sent_too(declare, retriever):
    class Down:
        name = "down"

        async def search(self, query, dialogue, count):
            raise SourceError("the engine is down")

        def close(self):
            pass

    declared = declare(f"[{{name: news, kind: web, description: x{retriever}}}]", web=WebSource(Down()))
    stages = StageContext(NullRunner(), "safari", CATS)
    assert await stages.search("retrieval-news", declared["news"].source, "cats for me@example.org", 1) == []
    (traced,) = stages.trace
    assert (traced.outcome, traced.output["query"]) == ("failed", "cats for")
    assert "me@example.org" not in traced.model_dump_json()


@pytest.mark.parametrize("wrapped", [False, True])
async def test_the_trace_of_a_reranker_that_is_down_has_the_query_that_was_sent_too(wrapped):
    class Found:
        name = "found"

        async def search(self, query, dialogue, count):
            return [WebResult("https://cats.example", "Cats", text="Cats purr.")]

        def close(self):
            pass

    down = dense_reranker(EndpointEmbedder("m", "http://127.0.0.1:9/v1", retries=0))
    web = Reranked(WebSource(Found(), reranker="bm25"), down) if wrapped else WebSource(Found(), reranker=down)
    stages = StageContext(NullRunner(), "safari", CATS)
    assert await stages.search("retrieval-news", web, "cats for me@example.org", 1) == []
    (traced,) = stages.trace
    assert (traced.outcome, traced.output["query"]) == ("failed", "cats for")
    assert "me@example.org" not in traced.model_dump_json()


@pytest.mark.parametrize("scope", [(), (Knowledge(id="p", kind="persona", text="I sail", source="persona"),)])
async def test_a_reranked_source_that_tells_nothing_is_asked_as_before(scope):
    class Under(InMemoryPassages):
        async def search(self, query, dialogue, top=10, scope=()):
            self.asked = (query, top, tuple(scope))
            return await super().search(query, dialogue, top)

    under = Under("documents", ("cats purr", "dogs bark"))
    stages = StageContext(NullRunner(), "safari", CATS)
    found = await stages.search("retrieval", Reranked(under, load_reranker("bm25")), "dogs", 1, scope)
    assert [piece.text for piece in found] == ["dogs bark"]
    assert under.asked == ("dogs", 5, scope)
    (traced,) = stages.trace
    assert (traced.output["query"], traced.notes) == ("dogs", [])


@pytest.mark.parametrize("retriever", ["", ", retriever: bm25", ", retriever: dense", ", retriever: dense:static"])
async def test_an_index_beside_the_declaration_is_opened_and_closed(declare, tmp_path, retriever):
    (tmp_path / "cats.txt").write_text("Cats purr when they are content.\n", encoding="utf-8")
    (tmp_path / "moon.txt").write_text("The moon has no air.\n", encoding="utf-8")
    build_documents(tmp_path / "index", [tmp_path / "cats.txt", tmp_path / "moon.txt"])
    declared = declare(f"[{{name: book, kind: documents, description: x, from: index{retriever}}}]")
    found = await declared["book"].source.search("Why do cats purr?", CATS, 1)
    assert "purr" in found[0].text
    declared.close()


async def test_a_corpus_for_the_web(declare, tmp_path):
    (tmp_path / "moon.txt").write_text("The moon has no air.\n", encoding="utf-8")
    build_documents(tmp_path / "index", [tmp_path / "moon.txt"])
    declared = declare("[{name: news, kind: web, description: x, from: 'corpus:index', retriever: bm25}]")
    found = await declared["news"].source.search("moon air", CATS, 1)
    assert "no air" in found[0].text
    declared.close()


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "small.graph"
    facts = [Fact("cat", "CapableOf", "purr"), Fact("cat", "IsA", "pet"), Fact("ship", "UsedFor", "sailing")]
    build_graph(facts, path, name="small", embedder=load_embedder())
    return path


async def test_a_graph_is_a_source_like_any_other(declare, graph_file):
    declared = declare(f"[{{name: common sense, kind: graph, description: x, from: {graph_file}, retriever: paper}}]")
    source = declared["Common Sense"].source
    assert isinstance(source, KnowledgeSource)
    found = await source.search("Does your cat purr?", CATS, 1)
    assert [piece.fact.head for piece in found] == ["cat"]
    assert await source.search("Hm.", CATS, 1) == []
    declared.close()
    with pytest.raises(SourceError, match="common sense"):
        await source.search("Does your cat purr?", CATS, 1)


async def test_a_graph_that_is_open_is_used(declare, graph_file):
    graph = open_graph(graph_file)
    declared = declare("[{name: graph, kind: graph, description: x}]", graph=graph)
    declared.close()
    assert await declared["graph"].source.search("cats", CATS, 5)
    graph.close()


@pytest.mark.parametrize(
    ("opened", "names"),
    [
        ({}, ("persona", "documents")),
        ({"documents": InMemoryPassages("documents")}, ("persona", "documents", "library")),
        (
            {"web": InMemoryPassages("web"), "graph": InMemoryPassages("graph")},
            ("persona", "documents", "graph", "web"),
        ),
    ],
    ids=["nothing", "an index", "web and graph"],
)
def test_by_default_what_is_open_is_declared(opened, names):
    declared = default_sources(opened)
    assert declared.names == names
    assert declared["documents"].depends_on == ("persona",)
    for entry in declared.entries:
        assert set(entry.description) == {"en", "zh"}
    for given in declared.demonstrations.values():
        assert [one.plan for one in given] == [("persona", "documents"), (), ("persona",)]
        assert all(set(one.knowledge) == set(one.plan) for one in given)


async def test_a_persona_that_is_open_stands_in_for_dialogues_without_one():
    declared = default_sources({"persona": PersonaSource({"I sail": ["A jib is a sail"]})}, retriever="bm25")
    found = await declared["persona"].source.search("x", Dialogue(id="d", turns=["Hello"]), 1)
    assert [piece.text for piece in found] == ["I sail"]
    own = await declared["persona"].source.search("x", CATS, 5)
    assert {piece.text for piece in own} == set(CATS.persona)


def test_an_order_keeps_what_needs_no_change():
    on = {"c": (), "a": ("b",), "b": ("c",), "d": ()}
    entries = [DeclaredSource(name, "model", {}, depends_on=before) for name, before in on.items()]
    assert [entry.name for entry in in_order(entries)] == ["c", "b", "a", "d"]
