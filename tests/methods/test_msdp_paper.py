"""MSDP's paper setting: every prompt of its tables' systems, and what they differ by."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.experiments.config import SystemConfig, read_config
from dialore.knowledge import Knowledge
from dialore.methods.few_shot import SampleDatabase, build_samples, samples_of
from dialore.methods.registry import create_method
from dialore.methods.stage_runner import LLMRunner
from dialore.prompts.library import PromptLibrary
from dialore.retrieval.embedding import load_embedder
from dialore.sources.base import SearchResult
from tests.methods.sample_fixture import histories

FILES = sorted((Path(__file__).parents[2] / "examples" / "msdp").glob("*.yaml"))
KG, RG = "knowledge-generation", "response-generation"
TURNS = {"en": ["Coffee or tea?", "Tea with lemon."], "zh": ["你喜欢喝什么？", "我最喜欢喝茶。"]}
TOPIC = {"en": ("Breakfast", "Tea"), "zh": ("早饭", "茶")}
SAID = {
    "en": ("Tea is old.", "We know that: ", "System replies:"),
    "zh": ("茶很古老。", "我们知道：", "系统回复："),
}


def rows():
    """Every row of the paper that can be had, by file and name."""
    for path in FILES:
        for system in read_config(path).systems:
            if system.method != "pplm":
                yield pytest.param(system, id=f"{path.stem}: {system.title}")


def row(table, name):
    path = next(path for path in FILES if path.stem == table)
    return next(system for system in read_config(path).systems if system.title == name)


class Base:
    """A base of one sentence, which keeps the query."""

    name = "base"

    async def search(self, query, dialogue, top=10, scope=()):
        self.asked = (query, top)
        text = SAID["en"][0]
        piece = Knowledge(id="p", kind="passage", text=text, source="documents", title="Tea")
        return SearchResult([piece])


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    path = tmp_path_factory.mktemp("base") / "own.samples"
    made = list(samples_of(histories()))
    build_samples(made, path, load_embedder(), perplexities={each.id: 1.0 for each in made}, perplexity_by="none")
    opened = SampleDatabase(path)
    yield opened
    opened.close()


@pytest.fixture
def asked(samples, model):
    """Run a row over one dialogue: its prompts by stage, and the response."""

    async def go(system, language="en", **changes):
        model.answers = {KG: SAID[language][0], RG: "Me too."}
        model.asked.clear()
        own, title = TOPIC[language]
        fields = {"topic": own, "knowledge": [{"text": "Gold.", "title": title}], "reference": "Reply."}
        dialogue = Dialogue(id="d", turns=TURNS[language], language=language, **fields)
        options = {"least": 0.0, "most": 1.0} if system.method != "msdp-kg" else {}
        documents = Base()
        given = {"samples": samples, "documents": documents}
        method = create_method(system.method, given, system.options | options | changes)
        response = await Agent(method, LLMRunner(model, PromptLibrary())).respond(dialogue)
        prompts = dict(zip(model.stages[-len(model.asked) :], model.asked, strict=True))
        for request in prompts.values():
            assert "Gold." not in str(request.messages)  # the title is known, not what it says
        return prompts, response, getattr(documents, "asked", None)

    return go


@pytest.mark.parametrize("system", list(rows()))
async def test_a_row_of_the_paper_asks_the_pattern_alone(asked, system):
    prompts, *_ = await asked(system)
    kinds = {"msdp-kg": {KG}, "msdp": {KG, RG}, "ssdp": {RG}}[system.method]
    assert prompts.keys() == kinds - ({KG} if system.options.get("retrieved") else set())
    if "our prompts" in system.title:
        assert all(len(request.messages) == 2 for request in prompts.values())
        return
    for request in prompts.values():
        assert [message.content for message in request.messages] == [request.continuation]
        assert request.messages[0].role == "user"
        assert request.sampling.temperature == 0  # greedy (Section 3.6)
        assert request.sampling.stop == ("\n",)


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_the_single_stage_differs_by_the_knowledge_alone(asked, language):
    two, response, _ = await asked(row("table-7", "MSDP"), language)
    one, *_ = await asked(row("table-7", "SSDP"), language)
    _, known, replies = SAID[language]
    less = re.sub(f" {known}[^\n]*? (?={replies})", " ", two[RG].continuation)
    assert response.knowledge[0].text in two[RG].continuation
    assert less == one[RG].continuation
    assert less.count("\n") == two[RG].continuation.count("\n")


async def test_the_retrieved_sentence_stands_where_the_generated_one_does(asked):
    written, *_ = await asked(row("table-3", "MSDP"))
    found, response, query = await asked(row("table-3", "MSDP w/ retrieved knowledge"))
    assert query == (
        "( Tea ) Coffee or tea? Tea with lemon.",
        1,
    )  # Appendix F.2; top 1 (Section 3.6)
    assert [(piece.text, piece.source) for piece in response.knowledge] == [(SAID["en"][0], "documents")]
    assert found[RG].continuation == written[RG].continuation
    _, response, _ = await asked(row("table-1", "Retrieval (top 1)"))
    assert response.text == SAID["en"][0]


LONG_HISTORY = {
    0: "( Tea ) Good morning! Hello. What do you drink? Coffee or tea? Tea with lemon.",
    1: "( Tea ) Tea with lemon.",
    3: "( Tea ) What do you drink? Coffee or tea? Tea with lemon.",
    99: "( Tea ) Good morning! Hello. What do you drink? Coffee or tea? Tea with lemon.",
}


@pytest.mark.parametrize(("count", "expected"), LONG_HISTORY.items())
@pytest.mark.parametrize("method", ["msdp-kg", "msdp"])
async def test_the_retrieval_query_has_as_many_turns_as_query_turns_says(asked, method, count, expected, monkeypatch):
    monkeypatch.setitem(TURNS, "en", ["Good morning!", "Hello.", "What do you drink?", *TURNS["en"]])
    options = {"prompt_variant": "paper", "topic": "checked", "retrieved": True}
    system = SystemConfig(name="retrieved", method=method, options=options)
    _, _, query = await asked(system, query_turns=count)
    assert query == (expected, 1)
    _, _, default = await asked(system)
    assert default == (LONG_HISTORY[3], 1)


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("table-1-fkg", "DPR (seen)"),
        ("table-1-wiki", "DPR (wiki)"),
        ("table-3-fcm", "FCM w/ DPR (seen)"),
        ("table-3-wiki", "FCM w/ DPR (wiki)"),
    ],
)
async def test_tuned_retrievers_are_asked_with_the_whole_history(asked, table, name, monkeypatch):
    """Appendix F.2: the query has the topic and all turns."""
    monkeypatch.setitem(TURNS, "en", ["Good morning!", "Hello.", "What do you drink?", *TURNS["en"]])
    _, _, query = await asked(row(table, name))
    assert query == (LONG_HISTORY[0], 1)


@pytest.mark.parametrize(("which", "topic"), [("checked", "Tea "), ("chosen", "Breakfast "), ("none", "")])
async def test_the_topic_is_the_checked_passages_title_or_the_chosen_one(asked, which, topic):
    prompts, *_ = await asked(row("table-3", "MSDP"), topic=which)
    assert prompts[KG].continuation.endswith(f"\n( Tea with lemon. ) {topic}=>")
    assert prompts[RG].continuation.split("\n")[-1].startswith(f"{topic}User: Coffee or tea?".replace("User", "System"))


async def test_a_trained_generator_responds_from_knowledge_that_is_prompted_for(asked):
    """ "FCM w/ MSDP-KG" (Tables 3, 9 and 11): the first stage asks the samples' pattern, the second what FCM learnt."""
    msdp, *_ = await asked(row("table-3", "MSDP"))
    for table, name in (
        ("table-3-fcm", "FCM w/ MSDP-KG"),
        ("table-9-fcm", "FCM w/ MSDP-KG (que.)"),
        ("table-11-fcm", "FCM w/ MSDP-KG"),
    ):
        system = row(table, name)
        assert list(system.stages) == ["msdp/response-generation"]
        prompts, *_ = await asked(system)
        assert prompts[KG].continuation == msdp[KG].continuation
        assert prompts[RG].continuation == (
            "Tea System: Coffee or tea? User: Tea with lemon. We know that: Tea is old. System replies:"
        )
    prompts, *_ = await asked(row("table-3-fcm", "FCM w/ FKG"))
    assert prompts[KG].continuation == "Tea System: Coffee or tea? User: Tea with lemon. =>"


async def test_the_released_code_selects_and_asks_otherwise(asked):
    paper, *_ = await asked(row("table-3", "MSDP"))
    released, *_ = await asked(row("table-3-released", "MSDP (released)"), covered=0.0)
    assert released[KG].continuation.split("\n")[-1] == paper[KG].continuation.split("\n")[-1]
    # The last turn alone, in its own words (tasks/msdp of Megatron-LM).
    *shown, last = released[RG].continuation.split("\n")
    assert last == "Topic: Tea. User says: Tea with lemon. We know that: Tea is old. System replies:"
    pattern = re.compile(r"Topic: .+\. User says: .+ We know that: .+ System replies: .+")
    assert shown
    assert all(map(pattern.fullmatch, shown))
    samples, *_ = await asked(row("table-3-released", "MSDP (released samples)"), covered=0.0)
    assert samples[KG].continuation == released[KG].continuation
    assert samples[RG].continuation == paper[RG].continuation


async def test_without_topics_the_same_lines_lack_them(asked):
    whole, *_ = await asked(row("table-6", "MSDP"))
    bare, *_ = await asked(row("table-6", "w/o topic"))
    lines = [line.partition(" ")[2] for line in whole[RG].continuation.split("\n")]
    assert bare[RG].continuation.split("\n") == lines
    assert all(") =>" in line for line in bare[KG].continuation.split("\n"))


async def test_selections_differ_by_the_samples_alone(asked):
    last = set()
    for name in ("MSDP-KG (que.)", "MSDP-KG (ppl.)", "MSDP-KG (ran.)"):
        prompts, *_ = await asked(row("table-8", name))
        last.add(prompts[KG].continuation.split("\n")[-1])
    assert last == {"( Tea with lemon. ) Tea =>"}
    que, *_ = await asked(row("table-9", "MSDP (que.)"))
    ppl, *_ = await asked(row("table-9", "MSDP (ppl.)"))
    assert que[RG] == ppl[RG]


async def test_figure_4_differs_by_the_number_of_samples_alone(asked, samples):
    for path, stage, shots in (("figure-4-knowledge", KG, "shots"), ("figure-4-response", RG, "response_shots")):
        config = read_config(next(each for each in FILES if each.stem == path))
        for system in config.systems:
            prompts, *_ = await asked(system, fit=False) if stage == KG else await asked(system)
            assert prompts[stage].continuation.count("\n") == min(system.options[shots], 8)
