"""Draft-ground: what is asked at once, when the edit stands, and what a reader of the stream gets."""

from __future__ import annotations

import asyncio

import pytest

from dialore.errors import InputError, ModelError
from dialore.knowledge import Knowledge
from dialore.methods.registry import create_method
from dialore.methods.stages import ModelResponder, Stages
from dialore.prompts.library import PromptLibrary

DRAFT, EDIT = "Oh no, take something warm for it!", "Oh no, take warm tea with honey for it!"
DRAFTING, EDITING = "response-generation-draft", "grounding-edit"
FIRST, SECOND = "preference-draft-first", "preference-edit-first"


@pytest.fixture
def scripted(model):
    model.answers |= {DRAFTING: DRAFT, EDITING: EDIT, FIRST: {"better": "B"}, SECOND: {"better": "A"}}
    return model


async def test_the_draft_is_written_while_the_demands_are_found(run, scripted):
    response, _ = await run("draft-ground")
    assert response.text == EDIT
    assert {DRAFTING, "query-production", "topic-planning"} in scripted.steps
    assert {FIRST, SECOND} in scripted.steps
    assert len(scripted.stages) == 9
    assert scripted.stages.index("cross-revision") < scripted.stages.index(EDITING) < scripted.stages.index(FIRST)


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("B", "A", "edit"),
        ("B", "same", "edit"),
        ("same", "A", "edit"),
        ("same", "same", "draft"),
        ("B", "B", "draft"),  # whatever comes second is preferred: no preference at all
        ("A", "A", "draft"),
        ("A", "B", "draft"),
    ],
)
async def test_the_edit_stands_where_it_is_preferred_and_the_other_order_does_not_object(
    run, scripted, first, second, kept
):
    scripted.answers |= {FIRST: {"better": first}, SECOND: {"better": second}}
    response, stages = await run("draft-ground")
    assert response.text == (EDIT if kept == "edit" else DRAFT)
    assert response.draft == DRAFT
    choice = next(traced for traced in stages.trace if traced.stage == "choice")
    names = {"same": "no difference"}
    votes = {
        "draft first": (names | {"A": "draft", "B": "edit"})[first],
        "edit first": (names | {"A": "edit", "B": "draft"})[second],
    }
    assert choice.output == {"kept": kept, "draft": DRAFT, "edit": EDIT, "votes": votes}
    assert choice.notes


async def test_an_edit_that_changes_nothing_is_not_asked_about(run, scripted):
    scripted.answers[EDITING] = DRAFT.upper()
    response, stages = await run("draft-ground")
    assert response.text == DRAFT
    assert FIRST not in scripted.stages
    assert next(t for t in stages.trace if t.stage == "choice").output["kept"] == "draft"


async def test_without_preference_the_edit_stands_after_four_steps(run, scripted):
    response, _ = await run("draft-ground", preference=False)
    assert response.text == EDIT
    assert len(scripted.stages) == 7


async def test_the_edit_is_given_the_draft_and_the_knowledge(run, scripted):
    response, _ = await run("draft-ground")
    asked = next(r for r in scripted.asked if r.label.endswith(EDITING)).messages[-1].content
    assert DRAFT in asked
    assert response.knowledge
    for fact in response.knowledge:
        assert fact.triple in asked


class Shelf:
    """A source in memory."""

    name, kind = "documents", "documents"

    def __init__(self, *texts):
        self.texts = texts
        self.queries = []

    async def search(self, query, dialogue, top=10, within=()):
        self.queries.append(query)
        return [
            Knowledge(id=f"passage:{n}", kind="passage", text=t, source="documents") for n, t in enumerate(self.texts)
        ]

    def close(self):
        pass


async def test_every_further_source_is_searched_and_what_is_useful_comes_first(scripted, small_graph, dialogue):
    scripted.answers["passage-selection"] = {"selected": [2]}
    shelf = Shelf("Mugs are cups.", "Honey soothes a sore throat.")
    method = create_method("draft-ground", {"graph": small_graph, "documents": shelf})
    stages = Stages(ModelResponder(scripted, PromptLibrary()), "draft-ground", dialogue)
    response = await method.respond(dialogue, stages)
    assert response.knowledge[0].text == "Honey soothes a sore throat."
    assert response.knowledge[1].kind == "fact"
    assert "honey" in shelf.queries[0]  # the revised demands are part of what is looked for


async def test_without_facts_and_sources_there_is_nothing_to_ground_in(small_graph):
    with pytest.raises(InputError, match="no source"):
        create_method("draft-ground", {"graph": small_graph}, {"facts": False})


async def test_a_grounding_that_fails_leaves_the_draft(run, scripted):
    scripted.answers["cross-revision"] = ModelError("the endpoint is gone")
    response, stages = await run("draft-ground")
    assert response.text == DRAFT
    assert any("the draft is sent" in note for traced in stages.trace for note in traced.notes)


class SlowEdit:
    """The scripted model, whose edit waits until a reader has something, where it is told to."""

    name = "slow"

    def __init__(self, model, read):
        self.model, self.read = model, read

    async def complete(self, request, on_text=None):
        if request.label.endswith(EDITING) and self.read is not None:
            await self.read.wait()
        return await self.model.complete(request)


@pytest.mark.parametrize(
    ("patience", "streams", "sent"), [(0.05, True, DRAFT), (30.0, True, EDIT), (0.0, True, EDIT), (0.05, False, EDIT)]
)
async def test_a_reader_of_the_stream_gets_the_edit_if_it_comes_in_time(
    scripted, small_graph, dialogue, patience, streams, sent
):
    pieces: list[str] = []
    read = asyncio.Event()

    def take(piece):
        pieces.append(piece)
        read.set()

    method = create_method("draft-ground", {"graph": small_graph}, {"patience": patience})
    responder = ModelResponder(SlowEdit(scripted, read if sent == DRAFT else None), PromptLibrary())
    stages = Stages(responder, "draft-ground", dialogue, take if streams else None)
    response = await method.respond(dialogue, stages)
    assert response.text == sent
    assert pieces == ([sent] if streams else [])
