"""Memory: what a user said of himself, found, expired, replaced by what is newer, and kept of a turn."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.errors import InputError, SourceError
from dialore.llm.model import Completion, Usage
from dialore.methods.memory_extraction import extract_statements, sentences_of_himself
from dialore.methods.registry import create_method
from dialore.methods.stage_runner import LLMRunner, NullRunner
from dialore.methods.usefulness import probabilities_of_use
from dialore.prompts.library import PromptLibrary
from dialore.session import Session
from dialore.sources.base import Listed
from dialore.sources.memory import MemorySource, open_memory
from dialore.sources.statements import Statement, standing, thing_of, with_intervals

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
SAID = ["I have two dogs.", "I work as a nurse in a hospital.", "I am allergic to peanuts."]


def statement(text, days=1, **fields):
    return Statement(text=text, said=NOW - timedelta(days=days), **fields)


def talk(*turns, **extra):
    return Dialogue(list(turns), **extra)


def told(*statements):
    return [one.model_dump(mode="json") for one in statements]


MINE = told(*map(statement, SAID))


async def test_what_the_dialogues_user_said_is_found_with_its_time_and_turn():
    mine = told(*map(statement, SAID[:2]), statement(SAID[2], turn="No nuts for me, I am allergic to peanuts."))
    found = await MemorySource().search("food allergies", talk("Can I eat peanuts?", memory=mine), top=2)
    assert len(found) == 2
    first = found[0]
    assert (first.text, first.kind, first.source) == (SAID[2], "passage", "memory")
    assert first.id == statement(SAID[2]).id
    assert first.said == '"Me", 2026-11-21'
    assert first.statement["turn"].startswith("No nuts")


async def test_one_open_source_serves_every_dialogue_its_own_users_memory():
    source = MemorySource()
    assert [one.text for one in await source.search("pets", talk("My pets?", memory=MINE), top=1)] == [SAID[0]]
    assert await source.search("pets", talk("My pets?")) == []
    other = talk("My pets?", memory=told(statement("I have a parrot.")))
    assert [one.text for one in await source.search("pets", other)] == ["I have a parrot."]


async def test_chinese_memory():
    mine = told(*map(statement, ("我养了两只狗。", "我是护士。", "我对花生过敏。")))
    found = await MemorySource().search("花生过敏", talk("我能吃花生吗？", memory=mine), top=1)
    assert [(one.text, one.said) for one in found] == [("我对花生过敏。", "“我”，2026-11-21")]


async def test_what_has_expired_is_never_found():
    ended = statement("I live in Leeds.", 400, expires=datetime.now(UTC) - timedelta(seconds=1))
    lasting = statement("I like the sea.", 400, expires=datetime.now(UTC) + timedelta(days=1))
    dialogue = talk("Where do I live?", memory=told(ended, lasting))
    assert [one.text for one in await MemorySource().search("Leeds", dialogue)] == ["I like the sea."]
    assert [one.text for one in MemorySource().every(dialogue)] == ["I like the sea."]


async def test_of_two_about_the_same_thing_the_newer_is_found_however_they_stand():
    old, new = statement("I live in Leeds.", 90), statement("I moved to York.", 3)
    for order in ((old, new), (new, old)):
        found = await MemorySource().search("home", talk("Where do I live?", memory=told(*order)))
        assert [one.text for one in found] == ["I moved to York."]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I'm 32 years old.", "I turned 33."),
        ("I am single.", "I got married!"),
        ("My favorite color is blue.", "My favourite color is green now."),
        ("I have two cats.", "I have three cats now."),
        ("I like horror movies.", "I don't like horror movies anymore."),
        ("I love coffee.", "I hate coffee."),
        ("I eat meat.", "I no longer eat meat."),
        ("I work as a nurse.", "I now work as a teacher."),
        ("我住在北京。", "我现在住在上海。"),
        ("我今年30岁。", "我31岁了。"),
        ("我喜欢吃辣。", "我不喜欢吃辣。"),
        ("我养了两只猫。", "我养了三只猫。"),
    ],
)
def test_what_is_the_same_thing(older, newer):
    assert thing_of(older) == thing_of(newer)
    assert standing([statement(older, 2), statement(newer, 1)], NOW)[0].text == newer


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I live in a small house.", "I live in Leeds."),
        ("I moved to the sales team.", "I live in York."),
        ("I have two cats.", "I want two cats."),
        ("I have two brothers.", "I have two sisters."),
        ("I love my mother.", "My mother loves me."),
        ("My wife works at a school.", "I work with my wife."),
        ("My favorite color is blue.", "My favorite food is pizza."),
        ("I am 30 minutes away from work.", "I am 32 years old."),
        ("我喜欢吃辣。", "我喜欢吃甜。"),
        ("我住在北京。", "我在北京工作。"),
        ("我叫小明。", "我叫醒了孩子。"),
        ("我不吃肉。", "我不喝酒。"),
    ],
)
def test_what_is_not_the_same_thing(one, other):
    assert len(standing([statement(one, 2), statement(other, 1)], NOW)) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I like to swim.", "I love swimming!"),
        ("I play electric guitar.", "Oh, I play the electric guitar."),
        ("I'm a nurse.", "I am a nurse"),
        ("I travel lots.", "I really travel a lot."),
        ("我喜欢游泳。", "我爱游泳"),
    ],
)
def test_what_is_said_again_is_kept_once_for_as_long_as_it_has_held(one, other):
    kept = with_intervals([statement(one, 9), statement(other, 1)], NOW)
    assert [(each.text, each.holds_until) for each in kept] == [(one, None)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I'm an Olympian.", "I was an Olympian."),
        ("I love swimming.", "I hate swimming."),
        ("我爱游泳。", "我讨厌游泳。"),
    ],
)
def test_what_is_said_otherwise_is_no_duplicate(one, other):
    kept = with_intervals([statement(one, 9), statement(other, 1)], NOW)
    assert [(each.text, each.holds_until is None) for each in kept] == [(other, True), (one, False)]


async def test_a_malformed_memory_is_a_source_error_in_one_line():
    for memory in ("text", [{"text": "I ski."}], [{"text": " ", "said": "2026-11-03T18:20:00Z"}]):
        with pytest.raises(SourceError, match="memory") as caught:
            await MemorySource().search("ski", talk("Do I ski?", memory=memory))
        assert "\n" not in str(caught.value)


async def test_a_file_stands_in_where_the_dialogue_brings_none(tmp_path):
    path = tmp_path / "me.jsonl"
    path.write_text("".join(one.model_dump_json() + "\n" for one in map(statement, SAID)), "utf-8")
    source = open_memory(path)
    assert [one.text for one in await source.search("pets", talk("My dogs?"), top=1)] == [SAID[0]]
    assert await source.search("pets", talk("My dogs?", memory=[])) == []
    path.write_text('{"text": "I ski."}\n', "utf-8")
    with pytest.raises(InputError, match=r"me.jsonl, line 1: field said"):
        open_memory(path)


async def test_pieces_get_the_probability_of_persona_sentences():
    dialogue = talk("Hi!", "Hello.", "Which food am I allergic to?", memory=MINE)
    found = await MemorySource().search("food that the user is allergic to", dialogue)
    chances = probabilities_of_use(found, "food that I am allergic to", dialogue)
    assert dict(zip([one.text for one in found], chances, strict=True))[SAID[2]] == max(chances)


# --- in methods


class Model:
    """Answers by stage; keeps what was asked."""

    name = "scripted"

    def __init__(self, **answers):
        self.answers, self.asked = answers, {}

    async def complete(self, request, on_token=None):
        stage = request.label.rsplit("/", 1)[-1].replace("-", "_")
        self.asked[stage] = "\n".join(message.content for message in request.messages)
        answer = self.answers[stage]
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return Completion(text=text, model=self.name, usage=Usage(calls=1, prompt_tokens=10, completion_tokens=5))

    async def close(self):
        pass


NEED = {"what": "allergies", "source": "memory", "query": "food that I am allergic to", "asked": True}


async def test_weave_looks_up_the_memory_of_the_dialogue_and_cites_it():
    model = Model(draft="Not peanuts: you are allergic [1].", needs={"needs": [NEED], "topics": []})
    with_memory = talk("Which food am I allergic to?", memory=MINE)
    agent = Agent(create_method("weave", {"memory": MemorySource()}), LLMRunner(model, PromptLibrary()))
    response = await agent.respond(with_memory)
    assert response.text == "Not peanuts: you are allergic."
    assert [response.knowledge[0].text, response.knowledge[0].source] == [SAID[2], "memory"]
    assert '("Me", 2026-11-21) I am allergic to peanuts.' in model.asked["draft"]
    assert "said of himself or herself" in model.asked["needs"]

    del model.asked["needs"]
    await agent.respond(talk("Which food am I allergic to?"))
    assert "needs" not in model.asked  # nothing is remembered: there is nothing to ask


async def test_rag_full_context_and_lexical_read_it_too():
    model = Model(response_generation="You have dogs.")
    for method in ("rag", "full-context"):
        agent = Agent(create_method(method, {"memory": MemorySource()}), LLMRunner(model, PromptLibrary()))
        response = await agent.respond(talk("Which pets do I have?", memory=MINE))
        assert SAID[0] in {piece.text for piece in response.knowledge}
        assert "I have two dogs." in model.asked["response_generation"]
    response = await Agent(create_method("lexical", {"memory": MemorySource()}), NullRunner()).respond(
        talk("Which dogs do I have?", memory=MINE)
    )
    assert SAID[0] in response.text


async def test_a_session_opens_it_where_none_is_named():
    async with Session() as bench:
        assert isinstance(bench.source("memory"), MemorySource)
        assert isinstance(bench.source("memory"), Listed)


# --- what is kept of a turn


def asked(model):
    return LLMRunner(model, PromptLibrary())


@pytest.mark.parametrize(
    ("turn", "earlier", "new"),
    [
        ("By the way, I live in York now. What's the weather?", "I live in Leeds.", "I live in York."),
        ("我搬到杭州了。那里好玩吗？", "我住在北京。", "我搬到了杭州。"),
    ],
)
async def test_the_model_says_what_is_kept_and_what_it_replaces(turn, earlier, new):
    model = Model(extraction={"statements": [{"text": new, "replaces": [1, 7]}]})
    known = [statement("I have two dogs.", 9), statement(earlier, 2)]
    kept = await extract_statements(talk(turn), known, asked(model))
    assert [(one.text, one.turn) for one in kept.statements] == [(new, turn)]
    assert kept.replaced == {known[1].id: known[1].closed_by(kept.statements[0])}
    assert (kept.statements[0].replaces, kept.statements[0].doubts) == (known[1].id, "")
    assert kept.usage.calls == 1
    assert f"1. {earlier}\n2. I have two dogs." in model.asked["extraction"]


@pytest.mark.parametrize(
    "extracted",
    [
        {"text": "I am a vegan.", "replaces": [], "unsure": [1]},
        {"text": "I am a vegan.", "replaces": [1], "unsure": [1]},
    ],
)
async def test_where_it_is_unsure_what_a_statement_ends_both_stay_and_the_reply_is_told_to_ask(extracted):
    known = [statement("I love steak.", 9)]
    kept = await extract_statements(talk("I am a vegan."), known, asked(Model(extraction={"statements": [extracted]})))
    [new] = kept.statements
    assert (kept.replaced, new.replaces, new.doubts) == ({}, "", known[0].id)
    dialogue = talk("What could you cook for me, a vegan?", memory=told(*known, new))
    found = {piece.text: piece.said for piece in await MemorySource().search("vegan steak", dialogue)}
    assert found.keys() == {"I love steak.", "I am a vegan."}
    assert found["I am a vegan."].endswith('; may contradict "I love steak.": ask which holds')


@pytest.mark.parametrize(
    ("earlier", "new", "doubts"),
    [
        ("I love steak.", "I am a vegan.", False),  # no word is shared: small models name statements at random
        ("I went to a concert of a choir in Leeds.", "My choir meets on Mondays after work.", True),
    ],
)
async def test_a_replacement_that_the_words_do_not_bear_closes_nothing(earlier, new, doubts):
    known = [statement(earlier, 9)]
    model = Model(extraction={"statements": [{"text": new, "replaces": [1]}]})
    kept = await extract_statements(talk(new), known, asked(model))
    assert (kept.replaced, kept.statements[0].replaces) == ({}, "")
    assert kept.statements[0].doubts == (known[0].id if doubts else "")


@pytest.mark.parametrize("text", ["That is great, Mel!", "I am proud of you.", "你做得很好！", "太棒了！"])
async def test_what_is_not_said_of_the_user_is_not_kept(text):
    kept = await extract_statements(talk(text), [], asked(Model(extraction={"statements": [{"text": text}]})))
    assert not kept.statements


async def test_a_statement_holds_since_the_time_that_it_names():
    model = Model(extraction={"statements": [{"text": "I moved to York in May 2023.", "replaces": [1]}]})
    known = [statement("I live in Leeds.", 2000), statement("I ski.", 1)]
    kept = await extract_statements(talk("I moved to York in May 2023."), known[:1], asked(model))
    since = datetime(2023, 5, 1, tzinfo=UTC)
    assert kept.statements[0].holds_from == since
    assert kept.replaced[known[0].id].holds_until == since


def test_what_is_said_later_closes_what_was_said_before_whatever_it_names():
    old, new = statement("I live in Leeds.", 9), statement("I live in York.", 1, holds_from=NOW - timedelta(days=90))
    closed = with_intervals([new, old], NOW)[1]
    assert (closed.text, closed.holds_until) == (old.text, new.said), "it has held, though not for long"


def test_what_doubts_another_closes_nothing_until_one_is_said_again():
    old = statement("I live in Leeds.", 9)
    new = statement("I live in York.", 5, doubts=old.id)
    assert len(standing([old, new], NOW)) == 2
    again = statement("I live in Leeds.", 1)
    assert [each.text for each in standing([old, new, again], NOW)] == ["I live in Leeds."]
    settled = with_intervals([old, new, again], NOW)
    assert with_intervals(settled, NOW) == settled


@pytest.mark.parametrize(
    ("turns", "text", "is_kept"),
    [
        (["Do you bake on Mondays?"], "I keep bees on a roof.", False),
        (["The roof is red."], "I keep bees on the roof.", False),
        (["Hi!", "Where do you live?", "In Leeds."], "I live in Leeds.", True),
        (["Hi!", "Do you keep bees?", "Tell me more."], "I keep bees.", False),
        (["I've got two cats, Tom and Ada."], "I have two cats.", True),
        (["你们几点开门？"], "我住在月球上。", False),
    ],
)
async def test_a_statement_is_borne_by_the_words_of_the_turn(turns, text, is_kept):
    model = Model(extraction={"statements": [{"text": text}]})
    kept = await extract_statements(Dialogue(turns), [], asked(model))
    assert [one.text for one in kept.statements] == ([text] if is_kept else [])


async def test_what_does_not_parse_keeps_nothing():
    kept = await extract_statements(talk("I ski."), [], asked(Model(extraction="I'd rather not.", repair="Nor now.")))
    assert kept.statements == []


async def test_secrets_addresses_and_what_is_too_long_are_not_kept():
    texts = [
        "My password is swordfish.",
        "You can reach me at ann@example.org.",
        "My card is 4111 1111 1111 1111.",
        "x" * 400,
        " ",
        "I ski.",
    ]
    model = Model(extraction={"statements": [{"text": text} for text in texts]})
    kept = await extract_statements(talk("My password is swordfish, and I ski."), [], asked(model))
    assert [(one.text, one.turn) for one in kept.statements] == [("I ski.", "")]


async def test_without_a_model_sentences_in_the_first_person_are_kept():
    turn = "Hi! I work as a nurse. My son is ten, and I'm tired. Do I have to stay? I'm looking for a plumber."
    kept = await extract_statements(talk(turn), [], NullRunner())
    assert [one.text for one in kept.statements] == ["I work as a nurse.", "My son is ten, and I'm tired."]
    assert all(one.turn == turn for one in kept.statements)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("I don't like fish, so no.", True),
        ("Well, I have two dogs.", True),
        ("I’m a vegetarian.", True),
        ("I'm so glad!", False),
        ("I have two dogs, don't I?", False),
        ("Tell me about York.", False),
        ("I want you to remember that the boss said yes.", False),
        ("我养了两只猫。", True),
        ("我老婆在银行工作。", True),
        ("我有点累。", False),
        ("我住在哪里？", False),
    ],
)
def test_the_plain_rule(text, kept):
    assert sentences_of_himself(text) == ([text] if kept else [])


# --- time


async def test_a_question_of_another_time_finds_what_held_then_and_says_until_when():
    moved = statement("I moved to York.", 3)
    memory = told(statement("I live in Leeds.", 400), moved, statement("I have two dogs.", 400))
    now = await MemorySource().search("home", talk("Where do I live?", memory=memory), top=3)
    assert {one.text for one in now} == {"I moved to York.", "I have two dogs."}
    before = await MemorySource().search("home", talk("Where did I live before?", memory=memory), top=3)
    assert {one.text for one in before} == {"I live in Leeds.", "I moved to York.", "I have two dogs."}
    closed = next(one for one in before if one.text == "I live in Leeds.")
    assert closed.said == f'"Me", 2025-10-18, held until {moved.said.date().isoformat()}'
    year = statement("I live in Leeds.", 400).said.year
    then = await MemorySource().search("home", talk(f"Where did I live in {year}?", memory=memory), top=3)
    # What holds now is always among what is found.
    assert {one.text for one in then} == {"I live in Leeds.", "I have two dogs.", "I moved to York."}


@pytest.mark.parametrize(
    ("question", "former", "present", "liking"),
    [
        ("Where did I live in 2025?", "I live in Leeds.", "I live in York.", "I play {}."),
        ("我2025年住在哪里？", "我住在上海。", "我住在北京。", "我会{}。"),
    ],
)
async def test_what_held_in_a_past_year_is_found_first_and_what_holds_now_after_it(question, former, present, liking):
    spans = [
        Statement(text=former, said="2024-02-01T00:00:00Z", holds_until="2026-02-01T00:00:00Z"),
        Statement(text=present, said="2026-02-01T00:00:00Z"),
    ]
    words = ["chess", "golf", "tennis", "piano", "跳舞", "唱歌", "画画", "游泳"]
    older = [Statement(text=liking.format(word), said="2020-01-01T00:00:00Z") for word in words]
    found = await MemorySource().search(question, talk(question, memory=told(*spans, *older)), top=4)
    assert [piece.text for piece in found][:2] == [former, present]  # also if many others held then
    assert len(found) == 4


async def test_lines_of_a_memory_file_end_at_line_feeds_alone(tmp_path):
    text = "I say \u2028 \u2029 \u0085 \x1e a lot."
    line = json.dumps({"text": text, "said": NOW.isoformat()}, ensure_ascii=False)
    (tmp_path / "m.jsonl").write_bytes(f"{line}\n".encode() + b"\n")
    [kept] = open_memory(tmp_path / "m.jsonl").statements
    assert kept.text == text


async def test_a_turn_is_found_by_who_said_it_and_when_and_nothing_replaces_it():
    turns = [
        statement("I live in Leeds.", 90, is_turn=True, speaker="Ann"),
        statement("I live in York.", 3, is_turn=True),
    ]
    found = await MemorySource().search("home", talk("Where does Ann live?", memory=told(*turns)), top=2)
    speakers = {one.text: one.said.partition(",")[0] for one in found}
    assert speakers == {"I live in Leeds.": "Ann", "I live in York.": '"Me"'}


async def test_what_may_contradict_is_told_with_what():
    old = statement("I live in Leeds with my cat.", 90)
    new = statement("We are in York now, my cat and I.", 3, doubts=old.id)
    found = await MemorySource().search("home", talk("Where do I live?", memory=told(old, new)), top=2)
    assert any("may contradict" in one.said and old.text in one.said for one in found)


def test_the_same_said_again_has_held_since_it_was_first_said():
    first, again, other = statement("I like tea.", 9), statement("I like tea!", 2), statement("I don't like tea.", 1)
    assert [one.said for one in with_intervals([again, first], NOW)] == [first.said]
    closed = with_intervals([again, other, first], NOW)
    assert [(one.text, one.holds_until) for one in closed] == [(other.text, None), (first.text, other.said)]
    assert closed[0].replaces == first.id


@pytest.mark.parametrize(
    ("usual", "limited"),
    [
        ("I work as a nurse.", "I work as a baker in January."),
        ("I work as a nurse.", "I work as a baker in December 2027."),
        ("I live in Leeds.", "I live in York in August."),
        ("I am single.", "I am married in 2031."),
    ],
)
def test_a_statement_of_another_time_does_not_end_one_that_holds_now(usual, limited):
    statements = [statement(usual, days=3), statement(limited, days=1)]
    assert {one.text for one in standing(statements, NOW)} == {usual, limited}


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("I work as a nurse.", "I work as a baker since March."),
        ("I live in Leeds.", "I moved to York in August."),
        ("My birthday is on May 3.", "My birthday is on May 4."),
    ],
)
def test_a_statement_that_holds_since_a_time_ends_an_earlier_one(earlier, later):
    statements = [statement(earlier, days=3), statement(later, days=1)]
    assert [one.text for one in standing(statements, NOW)] == [later]


async def test_a_statement_of_another_time_does_not_replace_one_that_the_model_names():
    known = [statement("I work as a nurse.")]
    text = "I work as a baker in January."
    model = Model(extraction={"statements": [{"text": text, "replaces": [1]}]})
    made = await extract_statements(talk(text), known, asked(model))
    assert [one.text for one in made.statements] == [text]
    assert not made.replaced


async def test_a_question_of_the_present_with_a_month_finds_what_holds_now():
    memory = MemorySource([
        statement("I work as a nurse.", days=500),
        statement("I work as a teacher.", days=20),
        statement("I am allergic to peanuts.", days=70),
    ])  # fmt: skip
    present = "We fly in August; what food must I avoid?"
    found = await memory.search(present, talk(present), top=3)
    assert "I work as a nurse." not in [piece.text for piece in found]
    past = "What did I work as in August?"
    found = await memory.search(past, talk(past), top=1)
    assert [piece.text for piece in found] == ["I work as a nurse."]
