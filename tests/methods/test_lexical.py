"""The lexical responder: every stage in its shape, limits, floor, wording, and the same reply every time."""

from __future__ import annotations

import re

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, StageError
from dialore.knowledge import Fact, Knowledge
from dialore.methods.lexical import LexicalResponder
from dialore.methods.lexical.english import phrase
from dialore.methods.lexical.selection import MOST
from dialore.methods.lexical.tables import table
from dialore.methods.lexical.turns import kind_of
from dialore.methods.lexical.wording import word_fact
from dialore.methods.outputs import Queries, Revision, SelectedFacts, ThoughtQueries, ThoughtRevision, ThoughtTopics
from dialore.methods.registry import create_method
from dialore.methods.stages import StageCall, Stages, Text
from dialore.methods.usage import mark_used
from dialore.retrieval.embedding import load_embedder
from dialore.sources.graph.relations import RELATIONS, verbalise
from dialore.sources.graph.source import Graph
from dialore.sources.graph.writing import build_graph
from dialore.text import is_mentioned

FACTS = [
    ("sore throat", "CausesDesire", "drink warm tea"),
    ("honey", "UsedFor", "sore throat"),
    ("sore throat", "IsA", "symptom"),
    ("cold", "Causes", "sore throat"),
    ("job interview", "HasPrerequisite", "suit"),
    ("job interview", "Causes", "nervousness"),
    ("job interview", "HasFirstSubevent", "shake hands"),
    ("nervousness", "CausesDesire", "breathe deeply"),
    ("nervousness", "Causes", "dry mouth"),
    ("job interview", "AtLocation", "office"),
    ("tea", "HasContext", "breakfast"),
    ("submarine", "UsedFor", "explore ocean"),
    ("嗓子疼", "CausesDesire", "喝温水"),
    ("蜂蜜", "UsedFor", "嗓子疼"),
    ("感冒", "Causes", "嗓子疼"),
    ("感冒", "CausesDesire", "多喝热水"),
    ("面试", "HasPrerequisite", "简历"),
    ("面试", "Causes", "紧张"),
    ("紧张", "CausesDesire", "深呼吸"),
]
TURNS = {
    "en": ["How are you?", "Not great, I have a job interview tomorrow.", "And now I've got a sore throat."],
    "zh": ["你好吗？", "不太好，我明天有面试。", "而且我感冒了，嗓子疼。"],
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "lexical.graph"
    embedder = load_embedder()
    build_graph([Fact(*parts) for parts in FACTS], path, name="lexical", embedder=embedder)
    opened = Graph.open(path, embedder)
    yield opened
    opened.close()


@pytest.fixture
def responder(graph):
    return LexicalResponder(graph, graph.embedder)


def dialogue(language="en", turns=None, name="d1"):
    return Dialogue(id=name, turns=turns or TURNS[language], language=language)


def knowledge(head, relation, tail, language="en"):
    fact = Fact(head, relation, tail)
    return Knowledge.of_fact(fact, verbalise(fact, language), 0.5)


async def ask(responder, prompt, output, about=None, on_text=None, **variables):
    about = about or dialogue()
    answer = await responder.answer(StageCall(prompt, prompt.split("/")[1], about, output, variables, "x"), on_text)
    return answer.value


async def respond(responder, graph, method, about, **options):
    stages = Stages(responder, method, about)
    made = create_method(method, {"graph": graph}, options) if method != "vanilla" else create_method(method, {})
    return await made.respond(about, stages), stages


# --- the stages


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_dcrag_runs_through_the_same_stages(responder, graph, language):
    draft, stages = await respond(responder, graph, "dcrag", dialogue(language))
    names = [stage.stage for stage in stages.trace]
    assert names == [
        "query-production",
        "topic-planning",
        "cross-revision",
        "fact-retrieval",
        "fact-selection-foreseen",
        "fact-selection-unforeseen",
        "response-generation",
    ]
    assert {stage.by for stage in stages.trace} == {"lexical responder", "dialore"}
    assert all(stage.outcome == "ok" for stage in stages.trace)
    assert stages.usage.calls == 0
    assert draft.text
    assert draft.grounds.demands.thoughts["extended"]


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_demands_keep_their_kinds_and_limits(responder, graph, language):
    about = dialogue(language)
    draft, _ = await respond(responder, graph, "dcrag", about)
    demands = draft.grounds.demands
    for kind, most in (("explicit", 6), ("implicit", 6), ("maintained", 5), ("extended", 6)):
        found = getattr(demands, kind)
        assert 0 < len(found) <= most
        assert len(set(found)) == len(found)
        said = [is_mentioned(entity, about.texts, language) for entity in found]
        assert all(said) if kind in {"explicit", "maintained"} else not any(said), (kind, found)
    assert not set(demands.implicit) & set(demands.extended)


async def test_last_turn_comes_first_and_extended_topics_are_foreseen(responder, graph):
    draft, stages = await respond(responder, graph, "dcrag", dialogue())
    demands = draft.grounds.demands
    assert demands.explicit[0] == "sore throat"
    assert demands.maintained == ["sore throat"]
    assert "drink warm tea" in demands.extended
    retrieval = next(stage for stage in stages.trace if stage.stage == "fact-retrieval")
    assert retrieval.output["foreseen"]["found"] > 0


async def test_shapes_without_thoughts(responder):
    queries = await ask(responder, "dcrag/query-production", Queries)
    assert type(queries) is Queries
    assert queries.explicit
    thoughtful = await ask(responder, "dcrag/query-production", ThoughtQueries)
    assert thoughtful.explicit == queries.explicit
    assert "last turn" in thoughtful.explicit_thoughts
    topics = await ask(responder, "dcrag/topic-planning", ThoughtTopics, dialogue("zh"))
    assert "最后一句" in topics.maintained_thoughts


async def test_revision_drops_repeats_and_what_is_far(responder):
    given = {
        "explicit": ["sore throat", "Sore throat"],
        "implicit": ["nervousness", "drink warm tea"],
        "maintained": ["sore throat", "job interview"],
        "extended": ["drink warm tea", "honey", "submarine"],
    }
    revised = await ask(responder, "dcrag/cross-revision", Revision, demands=given)
    assert revised.explicit == ["sore throat", "job interview"]
    assert revised.implicit == ["nervousness"]
    assert revised.extended == ["drink warm tea", "honey"]
    crowded = given | {"extended": [f"sore throat {number}" for number in range(20)]}
    assert len((await ask(responder, "dcrag/cross-revision", ThoughtRevision, demands=crowded)).extended) == 6


# --- selection


async def select(responder, facts, limit=20):
    chosen = await ask(responder, "dcrag/fact-selection", SelectedFacts, facts=facts, limit=limit)
    return chosen.selected


async def test_selection_is_by_nearness_with_a_floor(responder):
    near = knowledge("sore throat", "CausesDesire", "drink warm tea")
    far = knowledge("submarine", "MadeOf", "steel")
    assert await select(responder, [far, near]) == [2]
    assert await select(responder, [far]) == []


async def test_selection_has_limits_and_wants_differences(responder):
    remedies = ("drink warm tea", "eat honey", "see doctor", "rest", "drink water", "buy medicine")
    facts = [knowledge("sore throat", "CausesDesire", remedy) for remedy in remedies * 2]
    assert len(await select(responder, facts, limit=3)) == 3
    assert len(await select(responder, facts)) <= MOST
    other = knowledge("cold", "Causes", "sore throat")
    assert len(facts) + 1 in await select(responder, [*facts, other], limit=5)


async def test_selection_passes_over_what_was_said_and_other_languages(responder):
    said = knowledge("sore throat", "HasContext", "job interview")
    foreign = knowledge("嗓子疼", "CausesDesire", "喝温水", "zh")
    about_words = knowledge("sore throat", "DerivedFrom", "throat sickness")
    assert await select(responder, [said, foreign, about_words]) == []


# --- the reply


@pytest.mark.parametrize("method", ["t-rag", "dcrag"])
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_a_fact_given_is_drawn_on(responder, graph, method, language):
    about = dialogue(language)
    draft, stages = await respond(responder, graph, method, about)
    used = [item for item in mark_used(draft.grounds.knowledge, draft.text, about.texts, language) if item.used]
    assert used, draft.text
    assert any(used[0].triple in note for note in stages.trace[-1].notes)
    assert about.last.text not in draft.text
    assert 1 <= len(re.findall(r"[.!?。！？]", draft.text)) <= 3
    assert bool(re.search(r"[一-鿿]", draft.text)) == (language == "zh")


async def test_a_reply_is_the_same_every_time_and_differs_between_dialogues(graph):
    texts = set()
    for number in range(12):
        first, _ = await respond(LexicalResponder(graph, graph.embedder), graph, "dcrag", dialogue(name=f"d{number}"))
        second, _ = await respond(LexicalResponder(graph, graph.embedder), graph, "dcrag", dialogue(name=f"d{number}"))
        assert first.text == second.text
        texts.add(first.text)
    assert len(texts) > 3


async def test_text_is_streamed_in_pieces(responder, graph):
    for language in ("en", "zh"):
        pieces: list[str] = []
        value = await ask(responder, "vanilla/response-generation", Text, dialogue(language), on_text=pieces.append)
        assert "".join(pieces) == value.text
        assert len(pieces) > 3


async def test_a_fact_far_from_the_dialogue_is_not_said(responder):
    value = await ask(
        responder, "t-rag/response-generation", Text, facts=[knowledge("throat", "RelatedTo", "submarine periscope")]
    )
    assert "submarine" not in value.text
    assert value.text


async def test_a_fact_that_cannot_be_worded_gives_way_to_the_next(responder):
    facts = [
        knowledge("sore throat", "CausesDesire", "you be xyzzy the plugh"),
        knowledge("sore throat", "CausesDesire", "drink warm tea"),
    ]
    value = await ask(responder, "t-rag/response-generation", Text, facts=facts)
    assert "warm tea" in value.text
    assert "xyzzy" not in value.text


async def test_what_was_said_before_is_not_said_again(responder):
    first = (await ask(responder, "vanilla/response-generation", Text, dialogue(turns=["Thank you!"]))).text
    talk = ["Thank you!", first, "Thanks again."]
    second = (await ask(responder, "vanilla/response-generation", Text, dialogue(turns=talk))).text
    assert second
    assert second.split(". ")[0] not in first


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_without_links_the_reply_is_plain(responder, graph, language):
    turns = {"en": ["Zzyzx qwxv?"], "zh": ["嘟噜噜？"]}[language]
    draft, stages = await respond(responder, graph, "dcrag", dialogue(language, turns))
    assert draft.text
    assert draft.grounds.knowledge == []
    assert draft.grounds.demands.queries == []
    thoughts = stages.trace[0].output["explicit_thoughts"]
    assert thoughts == table("replies", language)["thoughts"]["none"]


async def test_vanilla_needs_no_graph():
    responder = LexicalResponder(None, load_embedder())
    draft, _ = await respond(responder, None, "vanilla", dialogue(turns=["Hello there!"]))
    assert draft.text.startswith(("Hello", "Hi"))


async def test_another_method_is_told_what_it_needs(responder, graph, dialogue):
    stages = Stages(responder, "safari", dialogue)
    with pytest.raises(StageError, match="safari needs a language model") as caught:
        await stages.write("safari/response-generation")
    assert isinstance(caught.value.cause, InputError)
    assert "DIALORE_MODEL" in caught.value.mend
    assert stages.trace[0].outcome == "failed"
    assert LexicalResponder.methods == ("vanilla", "t-rag", "dcrag")


# --- turns and wording


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Hello there!", "greeting"),
        ("Good morning. Where is the museum?", "where"),
        ("Why did she leave so early?", "why"),
        ("Could you open the window, please?", "request"),
        ("Would you like some tea, Mr. Brown?", "offer"),
        ("Thanks a lot for everything.", "thanks"),
        ("Bye, see you later!", "goodbye"),
        ("I failed my driving test.", "bad"),
        ("That is not a problem.", "statement"),
        ("I won the race!", "good"),
        ("I won't be there.", "statement"),
        ("I'm going to paint the kitchen.", "plan"),
        ("Really?", "surprise"),
        ("The shop opens at nine.", "statement"),
        ("谢谢你的帮助。", "thanks"),
        ("请问图书馆在哪里？", "where"),
        ("我的手机坏了。", "bad"),
        ("我打算周末去爬山。", "plan"),
        ("你好！", "greeting"),
        ("商店九点开门。", "statement"),
    ],
)
def test_kinds_of_turns(text, kind):
    assert kind_of(text, dialogue(turns=[text], language=None).language) == kind


@pytest.mark.parametrize("language", ["en", "zh"])
def test_tables_fit_together(language):
    replies, facts = table("replies", language), table("facts", language)
    for rule in table("cues", language)["rules"]:
        assert replies[rule["kind"]]["say"]
    assert set(facts) <= set(RELATIONS)
    for relation, entry in facts.items():
        for template in entry["say"]:
            assert "{head" in template, relation
            assert "{tail" in template, relation
    for entry in replies.values():
        assert set(entry.get("prefer", ()) if isinstance(entry, dict) else ()) <= set(facts)


@pytest.mark.parametrize(
    ("concept", "form", "said"),
    [
        ("take baby for walk", "thing", "taking a baby for a walk"),
        ("take baby for walk", "do", "take a baby for a walk"),
        ("rainy day trip", "noun", "a rainy day trip"),
        ("companionship", "noun", "companionship"),
        ("hour of sleep", "noun", "an hour of sleep"),
        ("swim", "doing", "swimming"),
        ("lie in bed", "doing", "lying in bed"),
        ("go to cinema", "do", "go to the cinema"),
        ("quit job", "do", "quit your job"),
        ("lose job", "act", "lose a job"),
        ("tired", "thing", "being tired"),
        ("hard for beginners", "adj", "hard for beginners"),
        ("eased by gentle walk", "done", "eased by a gentle walk"),
        ("friend's voice", "noun", "a friend's voice"),
        ("Mother's Day", "thing", "Mother's Day"),
        ("wake up", "do", "wake up"),
        ("travel guide", "thing", None),
        ("sit on", "do", None),
        ("xyzzy", "thing", None),
        ("you slip and fall", "do", None),
        ("companionship", "do", None),
    ],
)
def test_english_forms(concept, form, said):
    assert phrase(concept, form) == said


def test_wordings_are_kind_sayable_and_one_language():
    assert word_fact(knowledge("gun", "UsedFor", "kill people"), "en") is None
    assert word_fact(knowledge("gift", "HasPrerequisite", "choose gift"), "en") is None
    assert word_fact(knowledge("sore throat", "CausesDesire", "drink warm tea"), "zh") is None
    assert word_fact(knowledge("tea", "DerivedFrom", "leaf"), "en") is None
    worded = word_fact(knowledge("jeans", "IsA", "trousers"), "en")
    assert worded.sentence == "jeans are trousers"
