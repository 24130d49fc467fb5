"""`rag` and `full-context`: what is searched and by which query, what the prompts show, and what does not fit."""

from __future__ import annotations

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, SourceError, StageError, WindowError
from dialore.knowledge import Passage
from dialore.methods.registry import create_method
from dialore.methods.stage_runner import LLMRunner
from dialore.methods.stages import StageContext
from dialore.prompts.library import PromptLibrary
from dialore.session import create_agent
from dialore.sources.base import Listed, list_knowledge
from dialore.sources.declared import DeclaredSource, DeclaredSources, Reranked
from dialore.sources.documents import MultiDocuments, PoolSource
from dialore.sources.in_memory import InMemoryPassages
from dialore.sources.persona import PersonaSource
from tests.methods.conftest import ScriptedModel

TURNS = ["Do you sell mugs?", "We do, the Lowen and the Tarn.", "And how much is the second one?"]
MUGS = [
    Passage("The Lowen mug costs 14 crowns.", title="Prices"),
    Passage("The Tarn mug costs 19 crowns.", title="Prices"),
    "Parcels to the islands take a week.",
    "The shop was founded by two sisters.",
    "Plates are fired twice.",
    "Returns are free for thirty days.",
]
ANSWERS = {"query-rewriting": '"How much is the Tarn mug?"', "response-generation": "Friend: It is 19 crowns [1]."}


def talk(turns=tuple(TURNS), **fields):
    return Dialogue(id="d1", turns=turns, **fields)


def model(**answers):
    return ScriptedModel({**ANSWERS, **{name.replace("_", "-"): answer for name, answer in answers.items()}})


async def respond(name, dialogue, asked=None, sources=None, cite=False, **options):
    """A method's draft over a scripted model, its stages by name, and the last prompt as sent."""
    asked = asked or model()
    method = create_method(name, sources or {}, options)
    stages = StageContext(LLMRunner(asked, PromptLibrary()), name, dialogue, cite=cite)
    response = await method.respond(dialogue, stages)
    shown = "\n".join(message.content for message in asked.asked[-1].messages)
    return response, {traced.stage: traced for traced in stages.trace}, shown


class Failing:
    """A source that is down."""

    name, kind = "web", "web"

    async def search(self, query, dialogue, top=10, scope=()):
        raise SourceError("the engine is down", hint="start it")

    def close(self):
        pass


# --- rag


async def test_rag_searches_by_the_rewritten_turn_and_shows_five_passages():
    asked = model()
    response, trace, shown = await respond("rag", talk(), asked, {"documents": InMemoryPassages(MUGS)})
    assert list(trace) == ["query-rewriting", "retrieval-documents", "retrieval-library", "response-generation"]
    assert trace["retrieval-library"].output["query"] == "How much is the Tarn mug?"
    assert trace["query-rewriting"].summary.startswith("Query: ")
    assert response.knowledge[0].text == MUGS[1].text
    assert len(response.knowledge) == shown.count("\n- ") == 5
    assert "- (Prices) The Tarn mug costs 19 crowns." in shown
    assert "You are this person" not in shown
    assert "say that you do not know" in shown


async def test_rag_without_rewriting_and_of_one_turn_makes_one_call():
    asked = model()
    _, trace, _ = await respond("rag", talk(), asked, {"documents": InMemoryPassages(MUGS)}, rewrite=False, top=2)
    assert asked.stages == ["response-generation"]
    assert trace["retrieval-library"].output["query"] == TURNS[-1]
    assert len(trace["retrieval-library"].output["found"]) == 2
    asked = model()
    await respond("rag", talk(TURNS[:1]), asked, {"documents": InMemoryPassages(MUGS)})
    assert asked.stages == ["response-generation"]


async def test_a_rewriting_that_says_nothing_leaves_the_turn():
    asked = model(query_rewriting="\n")
    _, trace, _ = await respond("rag", talk(), asked, {"documents": InMemoryPassages(MUGS)})
    assert trace["retrieval-library"].output["query"] == TURNS[-1]


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_rag_shows_the_persona_and_searches_its_documents(language):
    persona = {
        "en": {"I live in Trier.": ["The Porta Nigra is a gate in Trier."]},
        "zh": {"我住在西安。": ["大雁塔在西安。"]},
    }
    turns = {"en": ["Is there a gate in Trier?"], "zh": ["西安有塔吗？"]}[language]
    (sentence, (document,)), *_ = persona[language].items()
    dialogue = talk(turns, language=language, persona=[sentence], extra={"documents": persona[language]})
    response, _, shown = await respond("rag", dialogue)
    assert [piece.text for piece in response.knowledge] == [document, sentence]
    assert f"\n- {sentence}\n" in shown.partition("<knowledge>")[0]
    assert f"<knowledge>\n- {document}\n</knowledge>" in shown


async def test_rag_fuses_what_several_sources_find():
    sources = {"documents": InMemoryPassages(MUGS[:3]), "web": InMemoryPassages(MUGS[3:], kind="web")}
    response, _, _ = await respond("rag", talk(), sources=sources, top=4)
    assert [piece.source for piece in response.knowledge].count("web") == 2
    assert response.knowledge[0].score == pytest.approx(1 / 61, abs=1e-6)


async def test_rag_asks_the_graph_only_where_nothing_else_gives_anything(small_graph):
    sore = talk(["I have a sore throat."])
    response, _, shown = await respond("rag", sore, sources={"graph": small_graph})
    assert {piece.kind for piece in response.knowledge} == {"fact"}
    assert len(response.knowledge) == 4
    assert response.knowledge[0].text in shown
    response, trace, _ = await respond("rag", sore, sources={"graph": small_graph, "documents": InMemoryPassages(MUGS)})
    assert "retrieval-graph" not in trace
    assert {piece.kind for piece in response.knowledge} == {"passage"}


async def test_rag_goes_on_without_a_source_that_is_down_and_says_that_nothing_was_found():
    response, trace, shown = await respond("rag", talk(), sources={"web": Failing()})
    assert (trace["retrieval-web"].outcome, response.knowledge) == ("failed", [])
    assert "(nothing was found)" in shown
    assert response.text


async def test_rag_reads_declared_sources_but_not_what_the_model_knows():
    described = {"en": "-", "zh": "-"}
    declared = DeclaredSources(
        [
            DeclaredSource("memory", "model", described),
            DeclaredSource("shop", "documents", described, InMemoryPassages(MUGS), top=1),
        ]
    )
    response, trace, _ = await respond("rag", talk(), sources={"sources": declared})
    assert list(trace) == ["query-rewriting", "retrieval-shop", "response-generation"]
    assert len(response.knowledge) == 1


async def test_rag_through_an_agent_cites_marks_and_streams():
    agent = create_agent("rag", model=model(), sources={"documents": InMemoryPassages(MUGS)}, cite=True)
    *pieces, response = [piece async for piece in agent.stream(talk())]
    assert "".join(pieces) == response.text == "It is 19 crowns."
    assert [citation.knowledge for citation in response.citations] == [response.knowledge[0].id]
    assert [piece.id for piece in response.used] == [response.knowledge[0].id]
    grounding = await agent.ground(talk())
    assert [piece.id for piece in grounding.knowledge] == [piece.id for piece in response.knowledge]


# --- full-context


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_full_context_shows_everything_before_the_history(language):
    persona = {"I keep bees.": ["Bees dance.", MUGS[5]], "I am old.": []}
    dialogue = talk(language=language, persona=list(persona), extra={"documents": persona})
    asked = model()
    response, trace, shown = await respond("full-context", dialogue, asked, {"documents": InMemoryPassages(MUGS)})
    assert list(trace) == ["listing", "response-generation"]
    assert trace["listing"].output == {"passages": 7, "words": 38, "left_out": 0}
    texts = [piece.text for piece in response.knowledge]
    assert texts[:2] == ["Bees dance.", MUGS[5]]  # once, though the shelf has it too
    assert texts[-2:] == list(persona)
    assert all(f"- {text}" in shown for text in texts if "costs" not in text)
    assert shown.index("- Plates") < shown.index(TURNS[0])


async def test_full_context_cites_and_streams():
    answers = model(response_generation="The Tarn is 19 crowns [2].")
    agent = create_agent("full-context", model=answers, sources={"documents": InMemoryPassages(MUGS)}, cite=True)
    *pieces, response = [piece async for piece in agent.stream(talk())]
    assert "".join(pieces) == response.text == "The Tarn is 19 crowns."
    assert [piece.text for piece in response.used] == [MUGS[1].text]


async def test_full_context_beyond_its_bound_fails_that_dialogue_and_names_the_mend():
    agent = create_agent(
        "full-context", model=model(), sources={"documents": InMemoryPassages(MUGS)}, options={"words": 30}
    )
    response = await agent.respond(talk())
    assert response.status == "failed"
    assert "stage listing of dialogue d1: the documents have more than 30 words (take rag" in response.error
    short = create_agent("full-context", model=model(), sources={"documents": PoolSource()}, options={"words": 30})
    assert (await short.respond(talk(extra={"pool": ["Mugs."]}))).status == "ok"


async def test_full_context_leaves_out_what_comes_first_where_it_may():
    options = {"words": 15, "truncate": True}
    agent = create_agent("full-context", model=model(), sources={"documents": InMemoryPassages(MUGS)}, options=options)
    response = await agent.respond(talk(persona=[]))
    listing = response.trace[0].output
    assert listing["words"] <= 15
    assert listing["passages"] + listing["left_out"] == len(MUGS)
    assert [piece.text for piece in response.knowledge] == MUGS[listing["left_out"] :]


async def test_full_context_beyond_the_window_names_the_mend():
    asked = model(response_generation=WindowError("the prompt has 9000 tokens, tiny takes 4096"))
    with pytest.raises(StageError, match=r"9000 tokens, tiny takes 4096 \(take rag, which retrieves"):
        await respond("full-context", talk(TURNS[:1]), asked, {"documents": InMemoryPassages(MUGS)})


async def test_full_context_refuses_what_cannot_be_listed():
    declared = DeclaredSources([DeclaredSource("net", "web", {"en": "-", "zh": "-"}, Failing())])
    agent = create_agent("full-context", model=model(), sources={"sources": declared})
    with pytest.raises(InputError, match=r"the source web \(web\) cannot be given whole \(name documents"):
        await agent.respond(talk())
    memory = DeclaredSources([DeclaredSource("memory", "model", {"en": "-", "zh": "-"})])
    agent = create_agent("full-context", model=model(), sources={"sources": memory})
    with pytest.raises(InputError, match="what the model knows cannot be given whole"):
        await agent.respond(talk())


def test_options_are_checked():
    with pytest.raises(InputError, match="option top of rag must be at least 1"):
        create_method("rag", {}, {"top": 0})
    with pytest.raises(InputError, match="option words of full-context must be at least 1"):
        create_method("full-context", {}, {"words": 0})


# --- what sources hold


def test_sources_are_listed_whole():
    dialogue = talk(extra={"pool": [{"text": "Mugs.", "title": "Shop"}]})
    every = list_knowledge(MultiDocuments([InMemoryPassages(MUGS), PoolSource()]), dialogue)
    assert [piece.text for piece in every] == [*(getattr(each, "text", each) for each in MUGS), "Mugs."]
    assert not isinstance(Failing(), Listed)
    with pytest.raises(InputError, match="cannot be given whole"):
        list_knowledge(Reranked(Failing(), None), dialogue)
    assert [piece.text for piece in list_knowledge(PersonaSource({"I keep bees.": ()}), dialogue)] == ["I keep bees."]
    own = InMemoryPassages(["Mugs.", "杯子。"], own_language=True)
    assert [piece.text for piece in own.every(dialogue)] == ["Mugs."]
