"""Weave: what it asks, what it looks up, what it sends, in every case that its issue names."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.errors import InputError, ModelError, SourceError, WindowError
from dialore.knowledge import Knowledge, Passage
from dialore.llm.model import Completion, Usage
from dialore.methods import weave as module
from dialore.methods.registry import create_method
from dialore.methods.selection import requests_information
from dialore.methods.stage_runner import LLMRunner
from dialore.prompts.library import PromptLibrary
from dialore.sources.in_memory import InMemoryPassages
from dialore.sources.persona import PersonaSource

DRAFT = "Oh, I think they open at ten."
OPENS = "The Lantern Café opens at half past seven."
OWNER = "The Lantern Café belongs to Mara Oduya."
TALK = Dialogue(id="cafe", turns=["Good morning!", "Hi there.", "When does the Lantern Café open?"])
NOTHING = {"needs": [], "topics": ["weekend"], "shift": False}
ASKED = {
    "needs": [{"what": "its opening hour", "source": "library", "query": "Lantern Café opens", "asked": True}],
    "topics": ["breakfast"],
    "shift": False,
}
OPTIONAL = {**ASKED, "needs": [{**ASKED["needs"][0], "asked": False}]}


class Model:
    """Answers by stage, in pieces, each after its delay; keeps what was asked, and what ran beside what."""

    name = "scripted"

    def __init__(self, answers, delays=None):
        self.answers = {"draft": DRAFT, "needs": NOTHING, **answers}
        self.delays = delays or {}
        self.asked = {}
        self.under_way = set()
        self.together = []

    async def complete(self, request, on_token=None):
        stage = request.label.rsplit("/", 1)[-1]
        stage = "needs" if stage == "repair" else stage
        self.asked[stage] = request
        self.under_way.add(stage)
        await asyncio.sleep(self.delays.get(stage, 0.001))
        self.together.append(set(self.under_way))
        answer = self.answers[stage]
        if isinstance(answer, Exception):
            self.under_way.discard(stage)
            raise answer
        text = answer if isinstance(answer, str) else json.dumps(answer)
        if on_token is not None:
            for start in range(0, len(text), 4):
                on_token(text[start : start + 4])
                await asyncio.sleep(self.delays.get(f"{stage}-piece", 0))
                if isinstance(self.answers.get(f"{stage}-breaks"), Exception):
                    raise self.answers[f"{stage}-breaks"]
        self.under_way.discard(stage)
        return Completion(text=text, model=self.name, usage=Usage(calls=1, prompt_tokens=10, completion_tokens=5))

    def prompt(self, stage):
        return "\n".join(message.content for message in self.asked[stage].messages)


class Empty:
    """Documents in which nothing is found."""

    name, kind = "documents", "documents"

    async def search(self, query, dialogue, top=10, scope=()):
        return []

    def close(self):
        pass


class Down:
    """Documents that cannot be asked."""

    name, kind = "documents", "documents"

    async def search(self, query, dialogue, top=10, scope=()):
        raise SourceError("the index is damaged")

    def close(self):
        pass


FIRST = " ".join(TALK.texts)


@pytest.fixture(autouse=True)
def likely(monkeypatch):
    """Pieces that name the opening hour are likely of use, others hardly: what is calibrated is tested elsewhere.

    By the words of the last turns nothing is found; the tests of the first look have `early` say otherwise.
    """
    monkeypatch.setattr(
        module,
        "probabilities_of_use",
        lambda pieces, query, *_: [0.9 if "half past" in each.text and query != FIRST else 0.01 for each in pieces],
    )


@pytest.fixture
def early(monkeypatch):
    """The last turns find as much as any query."""
    monkeypatch.setattr(
        module,
        "probabilities_of_use",
        lambda pieces, *_: [0.9 if "half past" in each.text else 0.01 for each in pieces],
    )


class Heard:
    """What a reader of the stream got, and when."""

    def __init__(self, model):
        self.model, self.pieces, self.beside = model, [], []

    def __call__(self, piece):
        self.pieces.append(piece)
        self.beside.append(set(self.model.under_way))

    @property
    def text(self):
        return "".join(self.pieces)


async def answer(model, sources=None, dialogue=TALK, **options):
    """The response, and what the reader heard of it."""
    given = (
        {"documents": InMemoryPassages([Passage(OPENS, "Hours"), Passage(OWNER, "People")])}
        if sources is None
        else sources
    )
    agent = Agent(create_method("weave", given, options), LLMRunner(model, PromptLibrary()))
    heard = Heard(model)
    response = await agent.respond(dialogue, heard)
    plain = await Agent(agent.method, LLMRunner(model, PromptLibrary())).respond(dialogue)
    assert (plain.text, plain.status) == (response.text, response.status)  # streaming changes nothing
    if response.status == "ok":
        assert heard.text == response.text
        assert "[" not in heard.text
    return response, heard


def stage_of(response, name):
    return next(step for step in response.trace if step.stage == name)


async def test_where_nothing_is_needed_the_draft_is_the_response():
    model = Model({}, {"draft-piece": 0.002, "needs": 0.5, "draft": 0.6})
    response, heard = await answer(model)
    assert response.text == response.draft == DRAFT
    assert response.usage.calls == 2
    assert {"needs", "draft"} in model.together  # one step
    assert (response.plan, response.demands.extended, response.knowledge) == ([], ["weekend"], [])
    assert len(heard.pieces) > 1
    assert heard.beside[-1] == {"draft"}  # the rest of the draft streams as it is written


async def test_what_is_held_back_is_sent_at_once_when_it_is_certain():
    response, heard = await answer(Model({}, {"needs": 0.5}))
    assert heard.pieces == [DRAFT]
    assert response.usage.calls == 2


async def test_what_is_asked_and_found_is_written_and_cited():
    model = Model({"needs": ASKED, "write": "They open at half past seven [1]."})
    response, heard = await answer(model)
    assert response.text == "They open at half past seven."
    assert response.draft == DRAFT
    assert response.usage.calls == 3
    assert [piece.text for piece in response.knowledge] == [OPENS]
    (piece,), (cited,) = response.knowledge, response.citations
    assert (piece.used, piece.probability, cited.knowledge) == (True, 0.9, piece.id)
    assert DRAFT not in heard.text
    assert all("draft" not in under_way for under_way in heard.beside)
    assert "[1] (Hours) " + OPENS in model.prompt("write")
    assert OWNER not in model.prompt("write")
    assert DRAFT in model.prompt("write")
    assert response.plan == ["library"]


async def test_a_draft_that_was_shown_what_is_asked_is_the_response(early):
    model = Model({"needs": ASKED, "draft": "They open at half past seven [1]."})
    response, _ = await answer(model)
    assert response.text == response.draft == "They open at half past seven."
    assert response.usage.calls == 2
    assert "[1] (Hours) " + OPENS in model.prompt("draft")
    assert OWNER not in model.prompt("draft")
    (piece,), (cited,) = response.knowledge, response.citations
    assert (piece.text, piece.used, cited.knowledge) == (OPENS, True, piece.id)
    assert stage_of(response, "first-look-library").output["query"] == FIRST
    assert stage_of(response, "selection").output["pieces"][-1]["need"] == "the last turns"


@pytest.mark.parametrize(("turn", "shown"), [("When does the Lantern Café open?", True), ("I like cafés.", False)])
async def test_the_draft_is_shown_what_may_be_of_use_only_where_the_turn_asks(turn, shown, monkeypatch):
    monkeypatch.setattr(module, "probabilities_of_use", lambda pieces, *_: [0.1 for _ in pieces])
    model = Model({})
    await answer(model, dialogue=Dialogue(id="cafe", turns=["Good morning!", "Hi there.", turn]))
    assert (OPENS in model.prompt("draft")) == shown


async def test_what_the_draft_says_of_what_it_was_shown_is_drawn_on_without_a_citation(early):
    response, _ = await answer(Model({"draft": "The Lantern Café opens at half past seven."}))
    assert (response.citations, [piece.used for piece in response.knowledge]) == ([], [True])


async def test_what_the_draft_was_not_shown_is_a_reason_to_write(monkeypatch):
    chances = {OPENS: {FIRST: 0.5}, OWNER: {"Mara": 0.02}}
    monkeypatch.setattr(
        module, "probabilities_of_use", lambda pieces, query, *_: [chances[each.text].get(query, 0) for each in pieces]
    )
    asked = {"what": "its owner", "source": "library", "query": "Mara", "asked": True}
    write = "It opens at half past seven [2], and belongs to Mara Oduya [1]."
    drafted = {"draft": "It opens at half past seven [1].", "needs": {"needs": [asked]}, "write": write}
    model = Model(drafted)
    response, _ = await answer(model)
    assert response.usage.calls == 3
    assert [piece.text for piece in response.knowledge] == [OWNER, OPENS]  # what the draft cites may stay in it
    model = Model({**drafted, "draft": DRAFT, "write": "It belongs to Mara Oduya [1]."})
    response, _ = await answer(model)
    assert [piece.text for piece in response.knowledge] == [OWNER]


async def test_what_is_hardly_of_use_is_no_reason_to_write(monkeypatch):
    chances = {OPENS: 0.9, OWNER: 0.02}
    monkeypatch.setattr(
        module,
        "probabilities_of_use",
        lambda pieces, query, *_: [
            chances[each.text] if each.text == OPENS or query != FIRST else 0 for each in pieces
        ],
    )
    response, _ = await answer(Model({"needs": ASKED}))
    assert (response.text, response.usage.calls) == (DRAFT, 2)
    assert [piece.text for piece in response.knowledge] == [OPENS]
    reasons = {piece["text"]: piece["why"] for piece in stage_of(response, "selection").output["pieces"]}
    assert "(People) " + OWNER in reasons
    assert reasons["(People) " + OWNER] == "no reason to write the draft anew"


async def test_a_citation_of_the_draft_that_does_not_hold_has_it_written_anew(early):
    model = Model(
        {
            "needs": ASKED,
            "draft": "They open at eight [1].",
            "check-draft": {"unsupported": [1]},
            "write": "They open at half past seven [1].",
            "check": {"unsupported": []},
        }
    )
    response, heard = await answer(model, check=True)
    assert (response.text, heard.text, response.usage.calls) == (("They open at half past seven.",) * 2 + (5,))
    assert "- They open at eight" in model.prompt("write")
    model.answers |= {"draft": "They open at half past seven [1].", "check-draft": {"unsupported": []}}
    response, _ = await answer(model, check=True)
    assert (response.text, response.usage.calls) == ("They open at half past seven.", 3)


async def test_the_trace_says_of_every_piece_why_it_was_looked_for_and_what_became_of_it():
    response, _ = await answer(Model({"needs": ASKED, "write": "At half past seven [1]."}))
    kept, dropped = stage_of(response, "selection").output["pieces"]
    assert kept["id"] == response.knowledge[0].id
    said = {name: kept[name] for name in ("need", "asked", "source", "query", "probability", "kept", "why")}
    assert said == {
        "need": "its opening hour",
        "asked": True,
        "source": "library",
        "query": "Lantern Café opens",
        "probability": 0.9,
        "kept": True,
        "why": "",
    }
    assert (dropped["kept"], dropped["why"]) == (False, "its probability is under 0.0125")
    assert stage_of(response, "selection").summary == "Kept 1 of 2 pieces"


@pytest.mark.parametrize(
    "documents", [InMemoryPassages([OWNER]), Empty()], ids=["all below the threshold", "nothing found"]
)
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("need", ["optional", "asked"])
async def test_what_is_asked_and_not_found_is_said_and_what_was_optional_is_let_be(documents, language, need):
    talk = TALK if language == "en" else Dialogue(id="cafe", language="zh", turns=["灯笼咖啡馆几点开门？"])
    model = Model({"needs": ASKED if need == "asked" else OPTIONAL, "write": "I'm not sure, to be honest."})
    response, _ = await answer(model, {"documents": documents}, talk)
    assert response.knowledge == []
    if need == "optional":
        assert (response.text, response.usage.calls) == (DRAFT, 2)
    else:
        assert (response.text, response.usage.calls) == ("I'm not sure, to be honest.", 3)
        assert "its opening hour" in model.prompt("write")
        assert stage_of(response, "selection").output["not_found"] == ["its opening hour"]


async def test_what_a_graph_lacks_is_left_to_the_draft(small_graph, monkeypatch):
    monkeypatch.setattr(module, "probabilities_of_use", lambda pieces, *_: [0.0 for _ in pieces])
    need = {"what": "what helps", "source": "graph", "query": "sore throat", "asked": True}
    response, _ = await answer(Model({"needs": {"needs": [need]}}), {"graph": small_graph})
    assert (response.text, response.usage.calls) == (DRAFT, 2)


async def test_a_source_that_holds_nothing_is_not_asked():
    response, _ = await answer(
        Model({}),
        {"documents": InMemoryPassages([OPENS], own_language=True)},
        Dialogue(id="x", language="zh", turns=["你好"]),
    )
    assert response.usage.calls == 1


async def test_what_the_history_has_said_is_neither_given_nor_missing():
    talk = Dialogue(id="cafe", turns=[OPENS, "Thanks!", "When was that again?"])
    response, _ = await answer(Model({"needs": ASKED}), {"documents": InMemoryPassages([OPENS])}, talk)
    assert (response.text, response.usage.calls) == (DRAFT, 2)
    assert stage_of(response, "selection").output["pieces"][0]["why"] == "the history has said it"


async def test_a_piece_that_was_found_may_stay_unused():
    response, _ = await answer(Model({"needs": OPTIONAL, "write": DRAFT}))
    assert response.text == response.draft == DRAFT
    assert [piece.used for piece in response.knowledge] == [False]
    assert response.citations == []


@pytest.mark.parametrize(
    ("turn", "is_request"),
    [
        ("Please list the opening hours", True),
        ("opening hours sunday", True),
        ("介绍一下灯塔", True),
        (f"Summarise this: {'It rained. ' * 500}", True),
        (f"{'It rained. ' * 500} Why is that?", True),
        ("It rained. " * 500, False),
        ("I find the wax a little greasy.", False),
        ("我昨天去了北京", False),
    ],
)
def test_questions_directives_and_fragments_request_information(turn, is_request):
    assert requests_information(turn) is is_request


@pytest.mark.parametrize("turn", ["The Lantern Café was closed yesterday.", "灯笼咖啡馆昨天关门了，我很失望。"])
async def test_a_turn_that_only_tells_something_leaves_the_draft_as_it_is(turn):
    """Small models mark the needs of every turn as requested and unclear."""
    needs = [{"what": "its owner", "source": "library", "query": "café owner", "asked": True, "unclear": True}]
    model = Model({"needs": {"needs": needs, "topics": []}})
    response, _ = await answer(model, dialogue=Dialogue(id="told", turns=[turn]))
    assert response.text == DRAFT
    assert "write" not in model.asked


async def test_a_draft_that_goes_against_what_is_found_is_mended():
    persona = PersonaSource({"I run a bakery.": ()})
    sources = {"persona": persona, "documents": InMemoryPassages([OPENS])}
    model = Model({"needs": OPTIONAL, "write": "Half past seven [2], before my bakery does [1]."})
    response, _ = await answer(model, sources)
    assert response.text == "Half past seven, before my bakery does."
    texts = {piece.id: piece.text for piece in response.knowledge}
    assert [texts[each.knowledge] for each in response.citations] == [OPENS, "I run a bakery."]
    for stage in ("needs", "draft", "write"):
        assert "I run a bakery." in model.prompt(stage)


async def test_a_citation_that_does_not_hold_is_taken_out_and_what_rests_on_it_alone_is_written_again():
    model = Model(
        {
            "needs": ASKED,
            "write": "They open at eight [1].",
            "write-again": "They open at half past seven [1].",
            "check": {"unsupported": [1]},
            "check-again": {"unsupported": []},
        }
    )
    response, heard = await answer(model, check=True)
    assert response.text == "They open at half past seven."
    assert len(response.citations) == 1
    assert response.usage.calls == 6
    assert "- They open at eight" in model.prompt("write-again")
    assert "eight" not in heard.text
    model.answers["check-again"] = {"unsupported": [1]}
    response, _ = await answer(model, check=True)
    assert response.citations == []
    model.answers["check"] = {"unsupported": []}
    response, _ = await answer(model, check=True)
    assert (response.text, response.usage.calls) == ("They open at eight.", 4)


async def test_a_source_that_is_down_is_a_note():
    model = Model({"needs": ASKED, "write": "I can't say."})
    response, _ = await answer(model, {"documents": Down()})
    assert (response.text, response.usage.calls) == ("I can't say.", 3)
    assert "could not be asked" in stage_of(response, "look-up-library").notes[0]
    response, _ = await answer(Model({"needs": OPTIONAL}), {"documents": Down()})
    assert response.text == DRAFT


async def test_without_a_draft_the_response_is_written_all_the_same():
    model = Model({"needs": ASKED, "draft": ModelError("gone"), "write": "At half past seven [1]."})
    response, _ = await answer(model)
    assert (response.text, response.draft) == ("At half past seven.", "")
    assert "written without a draft" in stage_of(response, "draft").notes[0]
    response, _ = await answer(Model({"draft": ModelError("gone"), "write": "Hello."}))
    assert response.text == "Hello."


async def test_a_prompt_that_is_too_long_for_the_draft_is_not_sent_again():
    model = Model({"needs": ASKED, "draft": WindowError("the prompt has 900 tokens"), "write": "At half past seven."})
    agent = Agent(create_method("weave", {"documents": InMemoryPassages([OPENS])}), LLMRunner(model, PromptLibrary()))
    response = await agent.respond(Dialogue(id="d", turns=["When do you open?"]))
    assert response.status == "failed"
    assert "900 tokens" in response.error
    assert "write" not in [step.stage for step in response.trace]


async def test_a_draft_that_breaks_off_before_the_reader_is_not_followed_by_another_text():
    model = Model({"draft-breaks": ModelError("gone")}, {"draft": 0.4})
    agent = Agent(create_method("weave", {"documents": InMemoryPassages([OPENS])}), LLMRunner(model, PromptLibrary()))
    heard = Heard(model)
    response = await agent.respond(TALK, heard)
    assert (response.status, heard.text) == ("failed", "Oh,")


async def test_where_writing_fails_the_draft_is_sent():
    response, _ = await answer(Model({"needs": ASKED, "write": ModelError("gone")}))
    assert response.text == DRAFT
    assert "the draft is sent" in stage_of(response, "write").notes[0]
    response, _ = await answer(Model({"needs": ASKED, "write": " "}))
    assert response.text == DRAFT
    response, _ = await answer(Model({"needs": ASKED, "draft": ModelError("gone"), "write": ModelError("gone")}))
    assert response.status == "failed"


async def test_needs_that_cannot_be_read_are_the_last_turn_everywhere():
    for broken in ("no idea", ModelError("gone")):
        model = Model({"needs": broken, "write": "At half past seven [1]."})
        response, _ = await answer(model)
        assert response.text == "At half past seven."
        assert stage_of(response, "look-up-library").output["query"] == TALK.last.text


async def test_a_wrong_key_is_not_gone_on_after():
    wrong = ModelError("401", configuration=True)
    agent = Agent(
        create_method("weave", {"documents": InMemoryPassages([OPENS])}),
        LLMRunner(Model({"needs": wrong}), PromptLibrary()),
    )
    with pytest.raises(ModelError):
        await agent.respond(TALK)


async def test_a_short_persona_alone_leaves_nothing_to_look_up():
    response, _ = await answer(Model({}), {"persona": PersonaSource({"I run a bakery.": (), "I have two cats.": ()})})
    assert (response.text, response.usage.calls) == (DRAFT, 1)
    assert [piece.text for piece in response.knowledge] == ["I run a bakery.", "I have two cats."]
    response, _ = await answer(
        Model({"draft": "I have two cats, they woke me."}), {"persona": PersonaSource({"I have two cats.": ()})}
    )
    assert response.knowledge[0].used  # by the draft, which saw it


async def test_a_long_persona_is_looked_up_like_any_source():
    persona = PersonaSource(
        {f"I open Lantern Café number {n} daily.": () for n in range(5)} | {"It is half past ten.": ()}
    )
    needs = {"needs": [{"what": "time", "source": "persona", "query": "the time", "asked": True}]}
    model = Model({"needs": needs, "write": "Half past ten."})
    response, _ = await answer(model, {"persona": persona}, persona_limit=2)
    assert response.usage.calls == 3
    assert "It is half past ten." in [piece.text for piece in response.knowledge]
    assert len(response.knowledge) == 3


@pytest.mark.parametrize("asked", [True, False])
async def test_every_need_keeps_its_best_before_any_keeps_a_second(monkeypatch, asked):
    chances = {"a1": 0.9, "a2": 0.8, "a3": 0.7, "b1": 0.5, "b2": 0.4}
    monkeypatch.setattr(module, "probabilities_of_use", lambda pieces, *_: [chances[each.text] for each in pieces])

    class Two:
        name, kind = "documents", "documents"

        async def search(self, query, dialogue, top=10, scope=()):
            return [Knowledge(id=t, kind="passage", text=t, source="documents") for t in chances if t[0] == query]

        def close(self):
            pass

    needs = [{"what": each, "source": "Documents", "query": each, "asked": asked} for each in "ab"]
    model = Model({"needs": {"needs": needs}, "write": "Both."})
    response, _ = await answer(model, {"documents": Two()}, asked_limit=4)
    order = ["a1", "b1", "a2", "b2"]
    assert [piece.text for piece in response.knowledge] == (order if asked else order[:3])
    most = 4 if asked else 3
    reasons = [piece["why"] for piece in stage_of(response, "selection").output["pieces"]]
    assert reasons == ["", "", f"{most} are kept already", "", "" if asked else "3 are kept already"]


async def test_what_the_turn_asks_for_comes_before_what_would_only_be_nice(monkeypatch):
    monkeypatch.setattr(
        module, "probabilities_of_use", lambda pieces, query, *_: [0.9 if query == "nice" else 0.3] * len(pieces)
    )

    class One:
        name, kind = "documents", "documents"

        async def search(self, query, dialogue, top=10, scope=()):
            return [Knowledge(id=query, kind="passage", text=query, source="documents")]

        def close(self):
            pass

    needs = [
        {"what": each, "source": "documents", "query": each, "asked": each == "asked"} for each in ("nice", "asked")
    ]
    model = Model({"needs": {"needs": needs}, "write": "At half past seven [1]."})
    response, _ = await answer(model, {"documents": One()}, limit=1)
    assert [piece.text for piece in response.knowledge] == ["asked"]  # and nothing of what would be nice


async def test_the_needs_are_told_the_titles_that_a_source_holds():
    model = Model({})
    await answer(model)
    assert "Hours" in model.prompt("needs")


async def test_of_a_large_source_the_needs_are_told_the_nearest_titles():
    model = Model({})
    others = [Passage(f"Room {number} has a window.", title=f"Room {number}") for number in range(60)]
    await answer(model, {"documents": InMemoryPassages([*others, Passage(OPENS, title="Hours")])})
    assert "Hours" in model.prompt("needs")
    assert model.prompt("needs").count("Room") < 30


HONEY = {"needs": [], "topics": ["honey"]}
REMEDY = {"needs": [{"what": "what helps", "source": "graph", "query": "honey", "asked": True}], "topics": []}


@pytest.mark.parametrize(
    ("needs", "text", "why"),
    [(HONEY, DRAFT, {"no reason to write the draft anew"}), (REMEDY, "Try honey.", {""})],
    ids=["a topic that could come next", "what is asked"],
)
async def test_a_fact_is_written_with_only_where_it_is_asked_for(needs, text, why, small_graph, monkeypatch):
    monkeypatch.setattr(module, "probabilities_of_use", lambda pieces, *_: [0.5 for _ in pieces])
    talk = Dialogue(id="throat", turns=["How are you?", "I feel ill. What helps?"])
    model = Model({"needs": needs, "write": "Try honey [1]."})
    response, _ = await answer(model, {"graph": small_graph}, talk)
    assert response.text == text
    assert "honey" in stage_of(response, "look-up-graph").output["query"]
    pieces = stage_of(response, "selection").output["pieces"]
    assert {piece["why"] for piece in pieces[:1]} == why


async def test_grounding_gives_facts_of_topics_that_could_come_next(small_graph, monkeypatch):
    monkeypatch.setattr(module, "probabilities_of_use", lambda pieces, *_: [0.5 for _ in pieces])
    agent = Agent(create_method("weave", {"graph": small_graph}), LLMRunner(Model({"needs": HONEY}), PromptLibrary()))
    grounding = await agent.ground(Dialogue(id="throat", turns=["How are you?", "I feel ill."]))
    assert grounding.knowledge[0].fact.head == "honey"


async def test_the_needs_see_what_the_sources_hold():
    model = Model({})
    await answer(model)
    assert "library: a collection of documents" in model.prompt("needs")
    assert "Hours; People" in model.prompt("needs")


async def test_grounding_asks_for_needs_and_no_draft():
    model = Model({"needs": ASKED})
    agent = Agent(create_method("weave", {"documents": InMemoryPassages([OPENS])}), LLMRunner(model, PromptLibrary()))
    grounding = await agent.ground(TALK)
    assert [piece.text for piece in grounding.knowledge] == [OPENS]
    assert list(model.asked) == ["needs"]


def test_a_threshold_is_a_probability():
    with pytest.raises(InputError, match="threshold of weave"):
        create_method("weave", {}, {"threshold": 3})


async def test_a_title_that_is_named_as_the_source_is_the_source_that_has_it():
    needs = {"needs": [{**ASKED["needs"][0], "source": " hours "}]}
    response, _ = await answer(Model({"needs": needs, "write": "At half past seven [1]."}))
    assert (response.text, response.plan) == ("At half past seven.", ["library"])


async def test_what_is_planned_and_no_source_can_hold_stands_in_the_trace():
    needs = {"needs": [{**ASKED["needs"][0], "source": "the tide tables"}]}
    response, _ = await answer(Model({"needs": needs}))
    selection = stage_of(response, "selection")
    assert selection.output["not_looked_up"] == ["its opening hour (in the tide tables)"]
    assert "no such source: its opening hour" in selection.notes[0]


async def test_the_schema_of_the_needs_names_the_sources_and_bounds_every_list_and_text(small_graph):
    model = Model({})
    await answer(model)
    schema = model.asked["needs"].output_schema.definition
    need = schema["properties"]["needs"]
    assert need["items"]["properties"]["source"]["enum"] == ["library"]
    assert list(schema["properties"]) == ["needs"]  # topics are looked up in a graph alone
    await answer(model, {"graph": small_graph})
    schema = model.asked["needs"].output_schema.definition
    assert list(schema["properties"]) == ["needs", "topics"]
    for each in schema["properties"].values():
        assert each["maxItems"] == 3
    assert schema["properties"]["topics"]["items"]["maxLength"] == 40
    assert need["items"]["properties"]["query"]["maxLength"] == 160


async def test_a_model_that_this_process_runs_is_asked_once_until_it_is_quick(early):
    model = Model({"draft": "They open at half past seven [1]."})
    model.runs_here = True
    agent = Agent(create_method("weave", {"documents": InMemoryPassages([OPENS])}), LLMRunner(model, PromptLibrary()))
    assert (await agent.respond(TALK)).usage.calls == 1
    agent.stage_runner.timings[:] = [(50, 1.0)]
    assert (await agent.respond(TALK)).usage.calls == 2


@pytest.mark.parametrize("plan", ["none", "auto"])
async def test_without_needs_the_response_is_one_call_from_what_the_turns_find(plan, early):
    model = Model({"draft": "They open at half past seven [1]."})
    agent = Agent(
        create_method("weave", {"documents": InMemoryPassages([Passage(OPENS, "Hours"), OWNER])}, {"plan": plan}),
        LLMRunner(model, PromptLibrary()),
    )
    if plan == "auto":  # the first turn shows that the model writes few tokens a second
        await agent.respond(TALK)
        assert "needs" in model.asked
        model.asked.clear()
        agent.stage_runner.timings[:] = [(5, 1.0)]
    response = await agent.respond(TALK)
    assert (response.text, response.usage.calls, list(model.asked)) == ("They open at half past seven.", 1, ["draft"])
    assert [piece.text for piece in response.knowledge] == [OPENS]
    assert (await agent.ground(TALK)).knowledge[0].text == OPENS


def test_a_plan_is_one_of_three():
    with pytest.raises(InputError, match="plan of weave"):
        create_method("weave", {}, {"plan": "query"})


async def test_an_answer_that_is_citations_alone_is_asked_once_more_without_any(early):
    model = Model({"draft": "[1]", "draft-uncited": "They open at half past seven."})
    response, heard = await answer(model, plan="none")
    assert (response.text, heard.text, response.usage.calls) == (("They open at half past seven.",) * 2 + (2,))
    assert "- (Hours)" in model.prompt("draft-uncited")
    assert "citations alone" in stage_of(response, "draft").notes[0]


UNCLEAR = {**ASKED, "needs": [{**ASKED["needs"][0], "unclear": True}]}
WHICH = "Do you mean the Lantern Café or the lantern shop?"


async def test_what_may_mean_several_things_is_asked_back_though_the_draft_would_stand(early):
    model = Model({"needs": UNCLEAR, "write": WHICH})
    response, _ = await answer(model)
    assert (response.text, response.draft) == (WHICH, DRAFT)
    assert "its opening hour. Ask which one is meant" in model.prompt("write")
    for stage in ("draft", "needs", "write"):
        assert ("unclear" if stage == "needs" else "ask which one, and name them") in model.prompt(stage)
    fields = model.asked["needs"].output_schema.definition["properties"]["needs"]["items"]["properties"]
    assert "unclear" in fields


@pytest.mark.parametrize(
    "options", [{"clarify": False}, {"plan": "none"}, {}], ids=["off", "small model", "asked just now"]
)
async def test_nothing_is_asked_back_where_it_is_off_and_never_twice_in_a_row(early, options):
    asked_just_now = Dialogue(id="cafe", turns=["When does it open?", WHICH, "When does the Lantern Café open?"])
    model = Model({"needs": UNCLEAR, "write": OPENS})
    response, _ = await answer(model, dialogue=TALK if options else asked_just_now, **options)
    assert response.text in (DRAFT, OPENS)
    assert all("which one" not in model.prompt(stage) and "unclear" not in model.prompt(stage) for stage in model.asked)


async def test_strictly_grounded_responses_say_what_the_sources_hold_and_nothing_from_memory(early):
    lax, strict = Model({"needs": ASKED}), Model({"needs": ASKED})
    await answer(lax)
    await answer(strict, strict=True)
    assert "common knowledge" in lax.prompt("draft")
    assert "common knowledge" not in strict.prompt("draft")
    assert "what it does say on the matter" in strict.prompt("draft")


@pytest.mark.parametrize(("language", "words"), [("en", "do not answer from memory"), ("zh", "不要凭记忆回答")])
async def test_strictly_nothing_found_is_no_licence_to_guess(language, words):
    talk = TALK if language == "en" else Dialogue(id="cafe", language="zh", turns=["灯笼咖啡馆几点开门？"])
    model = Model({"needs": NOTHING})
    await answer(model, {"documents": Empty()}, talk, strict=True)
    assert words in model.prompt("draft")


async def test_the_first_look_is_by_the_whole_talk_and_by_the_last_turn(monkeypatch):
    asked = []

    def chances(pieces, query, dialogue, also=""):
        asked.append((query, also))
        return [0.9] * len(pieces)

    monkeypatch.setattr(module, "probabilities_of_use", chances)
    await answer(Model({}))
    assert (FIRST, TALK.last.text) in asked


def test_copies_of_a_runner_share_how_slow_the_model_is():
    runner = LLMRunner(Model({}), PromptLibrary())
    copied = dataclasses.replace(runner, instructions=("be brief",))
    assert not copied.is_slow
    runner.timings[:] = [(5, 1.0)]  # what is learnt by one request holds for the next
    assert copied.is_slow
