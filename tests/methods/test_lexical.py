"""The method `lexical`: what is found without a language model, and how it is quoted."""

from __future__ import annotations

import pytest

from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.errors import InputError, SourceError
from dialore.knowledge import Fact, Knowledge
from dialore.methods.stage_runner import HOW_TO_ADD_A_MODEL
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.graph.writing import build_graph
from dialore.session import create_agent
from dialore.sources.base import SearchResult
from dialore.sources.graph import open_graph

FACTS = [
    ("sore throat", "CausesDesire", "drink warm tea"),
    ("honey", "UsedFor", "sore throat"),
    ("job interview", "HasPrerequisite", "suit"),
    ("submarine", "UsedFor", "explore ocean"),
    ("嗓子疼", "CausesDesire", "喝温水"),
    ("感冒", "Causes", "嗓子疼"),
    ("面试", "HasPrerequisite", "简历"),
]
TURNS = {
    "en": ["How are you?", "Not great, I have a job interview tomorrow.", "And now I've got a sore throat."],
    "zh": ["你好吗？", "不太好，我明天有面试。", "而且我感冒了，嗓子疼。"],
}


class InMemoryPassages:
    """Two passages of documents; `down` where it cannot be asked."""

    name, kind = "documents", "documents"

    def __init__(self, *, down: bool = False):
        self.down = down

    async def search(self, query, dialogue, top=10, scope=()):
        if self.down:
            raise SourceError("the index is damaged")
        texts = ("Ships sail. A sore throat eases with salt water. Rain falls.", "Submarines dive.")
        return SearchResult(
            Knowledge(id=f"p{n}", kind="passage", text=t, source="documents") for n, t in enumerate(texts)
        )

    def close(self):
        pass


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "lexical.graph"
    embedder = load_embedder()
    build_graph([Fact(*parts) for parts in FACTS], path, name="lexical", embedder=embedder)
    opened = open_graph(path, embedder=embedder)
    yield opened
    opened.close()


def dialogue(language="en", turns=None):
    return Dialogue(id="d1", turns=turns or TURNS[language], language=language)


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_concepts_mentioned_are_the_demands_and_the_best_fact_is_quoted_and_cited(graph, language):
    response = await create_agent("lexical", graph=graph).respond(dialogue(language))
    assert {"concept-mentions", "fact-retrieval", "ranking"} <= {traced.stage for traced in response.trace}
    wanted = {"en": ["job interview", "sore throat"], "zh": ["面试", "感冒", "嗓子疼"]}[language]
    assert response.demands.explicit == wanted
    assert response.demands.maintained == wanted[1:]
    (cited,) = response.citations
    quoted = response.text[cited.start : cited.end]
    (used,) = (piece for piece in response.knowledge if piece.id == cited.knowledge)
    assert (used.text, used.used) == (quoted, True)
    assert cited.start > 0  # it says that it quotes
    scores = [piece.score for piece in response.knowledge]
    assert scores == sorted(scores, reverse=True)
    assert (response.model, response.usage.calls, response.status) == ("no model", 0, "ok")


async def test_a_fact_that_the_dialogue_says_itself_is_not_quoted(graph):
    said = dialogue(turns=["Honey is good for a sore throat."])
    response = await create_agent("lexical", graph=graph).respond(said)
    assert "drink warm tea" in response.text


async def test_of_a_passage_the_nearest_sentence_is_quoted(graph):
    response = await create_agent("lexical", graph=graph, sources={"documents": InMemoryPassages()}).respond(dialogue())
    kinds = {piece.kind for piece in response.knowledge}
    assert kinds == {"fact", "passage"}
    asked = dialogue(turns=["Does salt water help?"])
    response = await create_agent("lexical", graph=graph, sources={"documents": InMemoryPassages()}).respond(asked)
    assert response.text.endswith(": A sore throat eases with salt water.")


async def test_a_source_that_is_down_leaves_the_others(graph):
    response = await create_agent("lexical", graph=graph, sources={"documents": InMemoryPassages(down=True)}).respond(
        dialogue()
    )
    assert {piece.kind for piece in response.knowledge} == {"fact"}
    assert response.status == "ok"


@pytest.mark.parametrize("turns", [["Why?"], ["Is it now?"]])
async def test_where_nothing_is_found_it_says_so(graph, turns):
    pieces: list[str] = []
    response = await create_agent("lexical", graph=graph).respond(dialogue(turns=turns), pieces.append)
    assert response.text == "".join(pieces) == "Nothing was found for this dialogue."
    assert (response.knowledge, response.citations) == ([], [])


@pytest.mark.parametrize(
    ("language", "turn"),
    [
        ("en", "Hi!"),
        ("en", "Hello, how are you?"),
        ("en", "Thank you very much for your help."),
        ("en", "See you later"),
        ("zh", "你好！"),
        ("zh", "非常感谢，再见"),
    ],
)
async def test_small_talk_is_not_answered_by_a_passage(graph, language, turn):
    agent = create_agent("lexical", graph=graph, sources={"documents": InMemoryPassages()})
    response = await agent.respond(dialogue(language, turns=[turn]))
    assert (response.status, response.citations, response.knowledge) == ("ok", [], [])


@pytest.mark.parametrize("turn", ["Thanks! Does salt water help?", "Is a sore throat good?", "OK, and honey?"])
async def test_a_question_beside_small_talk_is_looked_up(graph, turn):
    agent = create_agent("lexical", graph=graph, sources={"documents": InMemoryPassages()})
    assert (await agent.respond(dialogue(turns=[turn]))).citations


async def test_a_citation_has_its_number(graph):
    response = await create_agent("lexical", graph=graph).respond(dialogue())
    assert [citation.number for citation in response.citations] == [1]


async def test_grounding_is_the_same_without_the_response(graph):
    agent = create_agent("lexical", graph=graph)
    grounding, response = await agent.ground(dialogue()), await agent.respond(dialogue())
    assert [piece.id for piece in grounding.knowledge] == [piece.id for piece in response.knowledge]
    assert grounding.demands == response.demands


@pytest.mark.parametrize("method", ["dcrag", "vanilla", "safari"])
async def test_it_stands_in_for_every_method_where_there_is_no_model(graph, method):
    response = await create_agent(method, graph=graph, options={"nothing": 1}).respond(dialogue())
    assert (response.method, response.model) == ("lexical", "no model")


async def test_a_stage_that_needs_a_model_says_how_to_add_one(graph):
    agent = Agent(create_agent("t-rag", model="rehearsal", graph=graph).method, create_agent("lexical").stage_runner)
    with pytest.raises(InputError) as raised:
        await agent.respond(dialogue())
    assert raised.value.hint == HOW_TO_ADD_A_MODEL
