"""Settings from arguments, environment and file; and what a session opens and closes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

from dialore import InMemoryPassages, Session, Settings, create_agent
from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.knowledge import Fact, Knowledge
from dialore.llm.fake import FakeModel
from dialore.response import Response
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.graph.fact_ranking import Ranking
from dialore.session import Models, open_agents
from dialore.settings import ModelSettings, SourceSettings, read_settings
from dialore.sources.base import SearchResult
from dialore.sources.registry import KINDS, SourceKind

if TYPE_CHECKING:
    from pathlib import Path

HELLO = Dialogue(id="hello", turns=["I have a sore throat."])


def test_arguments_win_over_the_environment_and_this_over_the_file(tmp_path, monkeypatch):
    path = tmp_path / "dialore.toml"
    path.write_text(
        'method = "vanilla"\ncite = true\n[model]\nmodel = "from-file"\nbase_url = "http://file/v1"\nretries = 1\n'
        '[sources]\npersona = "me.txt"\n[options]\nlimit = 5\n',
        "utf-8",
    )
    (tmp_path / "me.txt").write_text("I sail.\n", "utf-8")
    monkeypatch.setenv("DIALORE_MODEL", "from-environment")
    monkeypatch.setenv("DIALORE_BASE_URL", "http://environment/v1")
    monkeypatch.setenv("DIALORE_DOCUMENTS", "one.docs, two.docs")
    settings = read_settings(path, {"model.model": "from-arguments"})
    assert (settings.model.model, settings.model.base_url) == ("from-arguments", "http://environment/v1")
    assert (settings.method, settings.cite, settings.model.retries) == (["vanilla"], True, 1)
    assert settings.options == {"limit": 5}
    assert settings.sources.places("persona") == [str(tmp_path / "me.txt")]
    assert settings.sources.places("documents") == ["one.docs", "two.docs"]
    monkeypatch.setenv("DIALORE_SETTINGS", str(path))
    assert read_settings().cite


def test_a_file_is_not_looked_for_by_itself(tmp_path, monkeypatch):
    (tmp_path / "dialore.toml").write_text("cite = true\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    assert not read_settings().cite


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a.toml", "method = ", "not valid TOML"),
        ("a.yaml", "sources: {documnts: x}", "did you mean documents"),
        ("a.yaml", "model: {retries: -1}", "model.retries"),
        ("a.yaml", "modle: x", "unknown setting: 'modle'"),
        ("a.yaml", "model: {cache: x, no_cache: true}", "exclude each other"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, name, text, wanted):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=wanted):
        read_settings(path)


def test_a_key_is_neither_shown_nor_kept():
    settings = read_settings(changes={"model.api_key": "sk-secret"})
    assert "sk-secret" not in repr(settings)
    assert "sk-secret" not in settings.model_dump_json()


async def test_a_source_is_opened_once_and_only_where_it_is_wanted():
    async with Session() as bench:
        models = Models(FakeModel())
        first, second = bench.agent("dcrag", models), bench.agent("t-rag", models)
        assert first.method.graph is second.method.graph
        # It can do without a graph, and nobody named one.
        assert bench.agent("safari", models).method.graph is None
    async with Session(SourceSettings.model_validate({"graph": "starter"})) as bench:
        assert bench.agent("safari", models).method.graph is not None


def test_one_place_is_taken_where_one_can_be():
    with pytest.raises(InputError, match=r"sources\.search takes one location, not 2"):
        Session(SourceSettings.model_validate({"search": ["brave:", "brave:"]})).source("web")


async def test_agents_of_settings():
    settings = Settings.model_validate({"method": ["vanilla", "t-rag"], "model": {"model": "rehearsal"}})
    async with open_agents(settings) as agents:
        assert [(await agent.respond(HELLO)).method for agent in agents] == ["vanilla", "t-rag"]


async def test_an_agent_closes_what_it_was_made_of():
    closed = []

    class Closing(FakeModel):
        async def close(self):
            closed.append(self.name)

    async with create_agent("vanilla", model=Closing()) as agent:
        assert (await agent.respond(HELLO)).status == "ok"
    assert closed == ["rehearsal"]


class Notes:
    """A source of a kind that the package does not know: lines that hold a word of the query."""

    kind = "notes"

    def __init__(self, path: Path) -> None:
        self.name, self.lines, self.is_open = path.name, path.read_text("utf-8").splitlines(), True

    async def search(self, query, dialogue, top=10, scope=()):
        found = (line for line in self.lines if set(line.lower().split()) & set(query.lower().split()))
        return SearchResult(
            Knowledge(id=f"passage:{line}", kind="passage", text=line, source=self.kind) for line in islice(found, top)
        )

    def close(self):
        self.is_open = False


@pytest.mark.parametrize("declares", ["", "from: notes.txt"])
async def test_a_kind_of_source_is_one_class_and_one_entry(tmp_path, monkeypatch, declares):
    kind = SourceKind("notes", f"{__name__}:Notes", "Notes of your own.", key="notes")
    monkeypatch.setitem(KINDS, "notes", kind)
    (tmp_path / "notes.txt").write_text("honey soothes a sore throat\nbees hum\n", "utf-8")
    (tmp_path / "declared.yaml").write_text(
        f"- {{name: remedies, kind: notes, description: home, {declares}}}", "utf-8"
    )
    (tmp_path / "agent.yaml").write_text(
        f"method: safari\nsources: {{{'' if declares else 'notes: notes.txt, '}declared: declared.yaml}}", "utf-8"
    )
    settings = read_settings(tmp_path / "agent.yaml")
    assert "sources.notes" in {setting.path for setting in Settings.list_settings()}
    async with Session(settings.sources) as bench:
        agent = bench.agent("safari", Models(FakeModel()))
        (declared,) = agent.method.declared.entries
        response = await agent.respond(HELLO)
        assert {(piece.source, piece.text) for piece in response.knowledge} == {
            ("notes", "honey soothes a sore throat")
        }
        assert Response.model_validate_json(response.model_dump_json()) == response
    assert not declared.source.is_open


def connected(model):
    return lambda settings, name: model


@pytest.mark.parametrize(
    ("methods", "sources", "cite", "words"),
    [
        (["dcrag"], {"documents": ["no such.idx"]}, False, "dcrag: no use for the source documents"),
        (["dcrag", "vanilla"], {"persona": ["p.yaml"]}, False, "dcrag, vanilla: no use for the source persona"),
        (["msdp"], {}, True, "msdp: no use for citations"),
    ],
)
async def test_what_no_method_reads_is_an_error_that_names_those_that_do(methods, sources, cite, words):
    settings = Settings(method=methods, cite=cite, sources=SourceSettings(**sources))
    with pytest.raises(InputError, match=words) as caught:
        async with open_agents(settings, connected(FakeModel())):
            pass
    assert "methods that have: " in str(caught.value)
    assert "weave" in str(caught.value) or cite
    assert "vanilla" not in caught.value.hint


async def test_what_one_of_several_methods_reads_is_none(tmp_path):
    settings = Settings(method=["vanilla", "dcrag"], cite=True, sources=SourceSettings(graph=["starter"]))
    async with open_agents(settings, connected(FakeModel())) as agents:
        assert [agent.method.name for agent in agents] == ["vanilla", "dcrag"]


def test_in_python_too():
    with pytest.raises(InputError, match=r"dcrag: no use for the source documents.*weave"):
        create_agent("dcrag", model=FakeModel(), sources={"documents": InMemoryPassages(["We open at nine."])})


@pytest.mark.parametrize("kind", ["documents", "persona", "graph", "search", "declared"])
def test_where_nothing_is_named_it_is_weave_on_the_starter_graph(kind, monkeypatch):
    for settings in (read_settings(changes={f"sources.{kind}": ["x"]}), read_settings()):
        assert settings.method == ["weave"]
    assert settings.knowledge.places("graph") == ["starter"]
    assert read_settings(changes={"method": ["t-rag"]}).knowledge.places("graph") == []
    monkeypatch.setenv(f"DIALORE_{kind.upper()}", "x")
    assert read_settings().knowledge.model_extra == {kind: ["x"]}


def test_in_python_the_method_is_weave_too():
    shelf = InMemoryPassages(["We open at nine."])
    with create_agent(model=FakeModel(), sources={"documents": shelf}) as agent:
        assert agent.method.name == "weave"
    with create_agent(model=FakeModel()) as agent:
        assert (agent.method.name, agent.method.graph.name) == ("weave", "starter")
    with create_agent(model=None, sources={"documents": shelf}) as agent:
        assert agent.method.name == "lexical"


async def test_the_embedder_ranks_facts_and_a_rehearsal_asks_no_endpoint(tmp_path):
    from dialore.retrieval.graph.writing import build_graph
    from tests.retrieval.embedding_server import EmbeddingServer

    path = tmp_path / "g.graph"
    build_graph([Fact("sore throat", "IsA", "symptom")], path, name="g", embedder=load_embedder())
    server = EmbeddingServer()
    try:
        given = {"graph": [str(path)], "ranking": {"name": "paper", "history": 1}}
        sources = SourceSettings.model_validate({**given, "embedder": f"endpoint:small@{server.url}"})
        assert sources.ranking == "paper,history=1"
        async with Session(sources) as bench:
            agent = bench.agent("t-rag", Models(FakeModel()))
            assert agent.method.graph.ranking == Ranking.named("paper,history=1")
            found = await agent.ground(HELLO)
            assert found.knowledge[0].triple == "(sore throat, IsA, symptom)"
        sent = [text for asked in server.requests for text in asked.body["input"]]
        assert {"(sore throat, IsA, symptom)", "I have a sore throat."} <= set(sent)
        asked = len(server.requests)
        async with Session(sources) as bench:
            models = bench.models(ModelSettings(model="rehearsal"))
            assert (await bench.agent("t-rag", models).respond(HELLO)).knowledge
        assert len(server.requests) == asked
    finally:
        server.close()
