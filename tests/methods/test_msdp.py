"""MSDP against its paper: what each stage is asked, byte for byte, after which samples, and what switches change."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dialore.cli.app import app
from dialore.dialogue import Dialogue
from dialore.errors import InputError, ModelError, StageError
from dialore.knowledge import Fact
from dialore.methods.few_shot import SampleDatabase, build_samples, samples_of
from dialore.methods.msdp import read_facts, read_line
from dialore.methods.registry import create_method
from dialore.methods.stage_runner import LLMRunner
from dialore.methods.stages import StageContext
from dialore.prompts.library import PromptLibrary
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.graph.writing import build_graph
from tests.methods.sample_fixture import histories

KG, RG = "knowledge-generation", "response-generation"
EXPECTED = Path(__file__).parent / "expected" / "msdp.json"
DIALOGUES = {
    "pizza": {"topic": "Pizza", "turns": ["What do you cook?", "Mostly soup.", "I love to eat pizza."]},
    "tea": {"topic": "Tea", "turns": ["Tea or coffee?"]},
    "journey": {"turns": ["I travel to Japan next week."]},
    "茶": {"topic": "茶", "turns": ["你喜欢喝什么？", "我最喜欢喝茶。"]},
}


def dialogue_of(name: str) -> Dialogue:
    return Dialogue.model_validate({"id": name, **DIALOGUES[name]})


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("base") / "own.samples"
    samples = list(samples_of(histories()))
    perplexities = {sample.id: float(len(sample.knowledge)) for sample in samples}
    build_samples(samples, path, load_embedder(), perplexities=perplexities, perplexity_by="lengths")
    opened = SampleDatabase(path)
    yield opened
    opened.close()


@pytest.fixture
def answers(model):
    model.answers = {KG: " Pizza comes from Naples.\n( another", RG: "System replies: I like it too!"}
    return model.answers


@pytest.fixture
def talk(base, model, answers):
    """Run a method over the scripted model: its draft and its stages."""

    async def go(name: str, dialogue: str | Dialogue = "pizza", *, samples=None, on_token=None, variant="", **options):
        asked = dialogue_of(dialogue) if isinstance(dialogue, str) else dialogue
        stages = StageContext(LLMRunner(model, PromptLibrary()), name, asked, on_token, prompt_variant=variant)
        method = create_method(name, {"samples": samples or base}, options)
        return await method.respond(asked, stages), stages

    return go


# --- the calls


async def test_knowledge_is_written_then_the_response_from_it(talk, model):
    response, stages = await talk("msdp")
    assert model.stages == [KG, RG]
    assert all(len(step) == 1 for step in model.steps)
    assert response.text == "I like it too!"
    (known,) = response.knowledge
    assert (known.text, known.kind, known.source) == ("Pizza comes from Naples.", "passage", "model")
    assert known.location == {"title": "Pizza"}
    samples, written = sorted(each.summary for each in stages.trace if each.summary)[::-1]
    assert re.fullmatch(r"Samples: \d+, the last \S+ \(0\.\d\d\)", samples)
    assert written == "Knowledge written: Pizza comes from Naples. ( another"
    assert "We know that: Pizza comes from Naples." in model.asked[1].messages[-1].content
    traced = [traced.stage for traced in stages.trace]
    assert traced == ["response-samples", "knowledge-samples", KG, RG]


async def test_the_single_stage_writes_without_knowledge_after_the_same_samples(talk, model):
    response, stages = await talk("ssdp")
    assert model.stages == [RG]
    assert response.knowledge == []
    assert "know" not in model.asked[0].continuation.lower().replace("you know", "")
    single = next(traced for traced in stages.trace if traced.stage == "response-samples").output["found"]
    _, stages = await talk("msdp")
    assert single == next(traced for traced in stages.trace if traced.stage == "response-samples").output["found"]


async def test_the_knowledge_generator_alone_answers_with_the_knowledge(talk, model):
    pieces: list[str] = []
    response, _ = await talk("msdp-kg", on_token=pieces.append)
    assert model.stages == [KG]
    assert response.text == "".join(pieces) == response.knowledge[0].text == "Pizza comes from Naples."


@pytest.mark.parametrize(("name", "calls"), [("msdp", 2), ("msdp-kg", 1), ("ssdp", 1), ("msdp-dcrag", 2)])
async def test_the_calls_are_those_that_are_declared(talk, model, name, calls):
    await talk(name)
    method = create_method(name, {"samples": object()})
    assert len(model.asked) == calls == int(method.calls.split()[0])


async def test_ground_stops_before_the_response(base, model, answers):
    dialogue = dialogue_of("pizza")
    stages = StageContext(LLMRunner(model, PromptLibrary()), "msdp", dialogue)
    grounds = await create_method("msdp", {"samples": base}).ground(dialogue, stages)
    assert model.stages == [KG]
    assert [piece.text for piece in grounds.knowledge] == ["Pizza comes from Naples."]


# --- the prompts

KNOWLEDGE_RAW = (
    "( No, but I would like to try the pizza there. ) Pizza => "
    "Naples is where the Margherita pizza was first baked, in 1889.\n"
    "( I love pizza more than anything. ) Pizza => Pizza is a flat bread that is baked with tomato sauce and cheese.\n"
    "( I love to eat pizza. ) Pizza =>"
)
FORMATS_RAW = {
    3: "Kyoto User: I am going to Japan. System: You should see Kyoto. User: I have seen Kyoto in films only. "
    "We know that: Kyoto was the capital of Japan for more than a thousand years. "
    "System replies: Kyoto was the capital of Japan for a thousand years.\n"
    "Pizza User: What do you cook? System: Mostly soup. User: I love to eat pizza. "
    "We know that: Pizza comes from Naples. System replies:",
    2: "Kyoto We know that: Kyoto was the capital of Japan for more than a thousand years. "
    "User: I am going to Japan. System: You should see Kyoto. User: I have seen Kyoto in films only. "
    "System replies: Kyoto was the capital of Japan for a thousand years.\n"
    "Pizza We know that: Pizza comes from Naples. "
    "User: What do you cook? System: Mostly soup. User: I love to eat pizza. System replies:",
    1: "Kyoto I am going to Japan. You should see Kyoto. I have seen Kyoto in films only. "
    "Kyoto was the capital of Japan for more than a thousand years. => "
    "Kyoto was the capital of Japan for a thousand years.\n"
    "Pizza What do you cook? Mostly soup. I love to eat pizza. Pizza comes from Naples. =>",
}


@pytest.fixture
def kyoto(tmp_path):
    """A base of one sample, so that a whole prompt can be written down."""
    build_samples(samples_of(histories()[6:7]), tmp_path / "kyoto.samples", load_embedder())
    opened = SampleDatabase(tmp_path / "kyoto.samples")
    yield opened
    opened.close()


async def test_the_raw_prompt_for_knowledge_is_the_published_one(talk, model):
    await talk("msdp", shots=2)
    request = model.asked[0]
    assert request.continuation == KNOWLEDGE_RAW
    assert request.continuation_stop == ("\n",)
    assert request.sampling.temperature == 0  # greedy search (Section 3.6)


@pytest.mark.parametrize("number", FORMATS_RAW)
async def test_the_raw_prompt_for_the_response_has_the_connecting_words_of_its_format(talk, model, kyoto, number):
    options = {} if number == 3 else {"format": number}
    await talk("msdp", samples=kyoto, least=0.0, most=1.0, **options)
    assert model.asked[1].continuation == FORMATS_RAW[number]
    assert model.asked[1].continuation_stop == ("\n",)
    assert model.asked[1].sampling.temperature == 0
    # The same lines, in the same order, stand in the chat form.
    chat = [line for message in model.asked[1].messages for line in message.content.split("\n")]
    assert [line for line in chat if line in FORMATS_RAW[number].split("\n")] == FORMATS_RAW[number].split("\n")


async def test_the_single_stage_has_the_same_prompt_less_the_knowledge(talk, model, kyoto):
    await talk("ssdp", samples=kyoto, least=0.0, most=1.0)
    assert model.asked[0].continuation == (
        "Kyoto User: I am going to Japan. System: You should see Kyoto. User: I have seen Kyoto in films only. "
        "System replies: Kyoto was the capital of Japan for a thousand years.\n"
        "Pizza User: What do you cook? System: Mostly soup. User: I love to eat pizza. System replies:"
    )


async def test_a_chinese_dialogue_gets_chinese_samples_and_words(talk, model):
    model.answers = {KG: "茶树原产于中国。", RG: "系统回复：我也喜欢喝茶。"}
    response, _ = await talk("msdp", "茶", least=0.0, most=1.0)
    assert response.text == "我也喜欢喝茶。"
    knowledge, response = model.asked
    assert knowledge.continuation.endswith("( 我最喜欢喝茶。 ) 茶 =>")
    assert knowledge.continuation.count("\n") == 1
    last = response.continuation.split("\n")[-1]
    assert last == "茶 用户：你喜欢喝什么？ 系统：我最喜欢喝茶。 我们知道：茶树原产于中国。 系统回复：".replace(
        "用户：你", "系统：你"
    ).replace("系统：我最", "用户：我最")
    assert "System" not in response.messages[0].content


async def test_only_the_last_turns_are_shown_to_the_dialogue_generator(talk, model):
    await talk("msdp", turns=1)
    assert model.asked[1].continuation.endswith(
        "Pizza User: I love to eat pizza. We know that: Pizza comes from Naples. System replies:"
    )
    await talk("msdp", turns=0)
    assert "What do you cook?" in model.asked[3].continuation


async def test_what_is_fixed_comes_first_in_the_response_prompt(talk, model):
    await talk("msdp", "pizza")
    await talk("msdp", "tea")
    first, second = model.asked[1], model.asked[3]
    assert first.messages[0] == second.messages[0]
    assert first.messages[1] != second.messages[1]
    assert first.continuation.split("\n")[:-1] == second.continuation.split("\n")[:-1]


# --- topics


@pytest.mark.parametrize(("dialogue", "options"), [("journey", {}), ("pizza", {"topic": "none"})])
async def test_without_a_topic_no_line_has_one(talk, model, dialogue, options):
    response, _ = await talk("msdp", dialogue, **options)
    knowledge, reply = (request.continuation.split("\n") for request in model.asked)
    assert all(") =>" in line for line in knowledge)
    assert all(line.startswith(("System:", "User:")) for line in reply)
    assert response.knowledge[0].location == {}


async def test_the_query_that_was_searched_stands_in_for_a_topic(talk, model):
    searched = Dialogue.model_validate({"id": "q", "turns": ["I love it."], "query": "history of pizza"})
    await talk("msdp-kg", searched)
    assert model.asked[0].continuation.endswith("( I love it. ) history of pizza =>")


# --- selection


def found(stages: StageContext, stage: str) -> list[str]:
    return next(traced for traced in stages.trace if traced.stage == stage).output["found"]


async def test_the_nearest_sample_stands_last(talk, base):
    _, stages = await talk("msdp", shots=3)
    nearest = [sample.id for sample, _ in base.nearest(dialogue_of("pizza"), 3)]
    assert found(stages, "knowledge-samples") == nearest[::-1]
    traced = next(traced for traced in stages.trace if traced.stage == "knowledge-samples")
    assert traced.output["scores"] == sorted(traced.output["scores"])


async def test_other_selections(talk, base):
    _, stages = await talk("msdp", selection="perplexity", shots=3, fit=True)
    assert found(stages, "knowledge-samples") == [s.id for s in base.clearest(dialogue_of("pizza"), 3)]
    seen = set()
    for seed in range(5):
        _, stages = await talk("msdp", selection="random", shots=3, seed=seed)
        _, again = await talk("msdp", "tea", selection="random", shots=3, seed=seed)
        assert found(stages, "knowledge-samples") == found(again, "knowledge-samples")
        seen.add(tuple(found(stages, "knowledge-samples")))
    assert len(seen) > 1


async def test_unfit_samples_come_in_only_if_wanted(talk):
    unfit = {"en3@2", "en4@1"}
    _, stages = await talk("msdp", "journey", shots=8)
    assert not unfit & set(found(stages, "knowledge-samples"))
    _, stages = await talk("msdp", "tea", shots=8)  # of a topic that the base has
    assert set(found(stages, "knowledge-samples")) == {"en2@1", "en3@2"}
    _, stages = await talk("msdp", "tea", shots=8, fit=False)
    assert unfit < set(found(stages, "knowledge-samples"))


async def test_response_samples_overlap_their_knowledge_unless_random(talk):
    _, stages = await talk("msdp")
    grounded = set(found(stages, "response-samples"))
    _, stages = await talk("msdp", response_selection="random")
    everyone = set(found(stages, "response-samples"))
    assert grounded < everyone
    assert len(everyone) == 8
    _, stages = await talk("msdp", least=0.95, most=1.0)
    assert not grounded & set(found(stages, "response-samples"))


async def test_too_few_samples_are_noted_and_no_samples_still_answer(talk, model):
    _, stages = await talk("msdp")
    notes = {traced.stage: traced.notes for traced in stages.trace}
    assert notes["knowledge-samples"] == ["only 2 of 10 samples are there for en"]
    response, _ = await talk("msdp", shots=0, response_shots=0)
    assert model.asked[-2].continuation == "( I love to eat pizza. ) Pizza =>"
    assert "=>" in model.asked[-2].messages[-1].content
    assert "examples:" not in "\n".join(message.content for message in model.asked[-1].messages)
    assert response.text


# --- answers that are not what was asked for


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (" Tea is old.\n( x ) y => z", "Tea is old."),
        ("\n\nTea is old.", "Tea is old."),
        ("( I love tea ) Tea => Tea is old.", "Tea is old."),
        ("=> Tea is old.", "Tea is old."),
        ("( I love tea ) Tea =>", None),
        (" \n ", None),
    ],
)
def test_the_sentence_in_an_answer(text, line):
    assert read_line(text) == line


@pytest.mark.parametrize("lead", ["System replies: ", "系统回复：", "System: ", "=> ", " ", "Friend: =>"])
@pytest.mark.parametrize("method", ["msdp", "msdp-dcrag"])
async def test_a_label_that_is_repeated_is_taken_off_for_a_reader_of_the_stream_too(talk, model, method, lead):
    model.answers["response-generation"] = f"{lead}Hi. "
    pieces = []
    response, _ = await talk(method, on_token=pieces.append)
    assert response.text == "".join(pieces) == "Hi."


async def test_knowledge_that_cannot_be_read_is_left_out_and_counted(talk, model):
    model.answers[KG] = "( I love to eat pizza. ) Pizza =>"
    response, stages = await talk("msdp")
    traced = next(traced for traced in stages.trace if traced.stage == KG)
    assert traced.outcome == "unparsed"
    assert response.knowledge == []
    assert response.text == "I like it too!"
    assert model.asked[1].continuation.endswith("User: I love to eat pizza. System replies:")


async def test_a_stage_that_fails_names_itself(talk, model):
    model.answers[KG] = ModelError("no", hint="again")
    with pytest.raises(StageError, match=f"stage {KG} of dialogue pizza"):
        await talk("msdp")


@pytest.mark.parametrize(
    ("name", "options", "wanted"),
    [
        ("msdp", {"selection": "querry"}, "did you mean query"),
        ("msdp", {"response_selection": "query"}, "known: overlap, random"),
        ("msdp", {"format": 4}, "value of format"),
        ("msdp", {"least": 0.9, "most": 0.6}, "0 <= least <= most <= 1"),
        ("msdp", {"shots": -1}, "at least 0"),
        ("ssdp", {"turns": -1}, "at least 0"),
        ("msdp-dcrag", {"shots": -2}, "at least 0"),
        ("msdp-kg", {"selection": "overlap"}, "value of selection"),
        ("msdp-kg", {"topic": "choosen"}, "did you mean chosen"),
        ("ssdp", {"topic": "gold"}, "value of topic"),
        ("pplm", {"topic": "gold"}, "value of topic"),
        ("msdp", {"retrieved": True}, "needs documents"),
    ],
)
def test_options_that_do_not_fit_are_refused(name, options, wanted):
    with pytest.raises(InputError, match=wanted):
        create_method(name, {"samples": object(), "graph": object()}, options)


def test_without_a_base_there_is_no_method():
    with pytest.raises(InputError, match="needs the source samples"):
        create_method("msdp", {})


# --- DCRAG's variant


async def test_dcrags_variant_prompts_both_stages_with_the_same_nearest_samples(talk, model, base):
    model.answers[KG] = " (pizza, IsA, food); (pizza, AtLocation, Naples)\n"
    response, stages = await talk("msdp-dcrag", shots=2)
    nearest = [sample for sample, _ in base.nearest(dialogue_of("pizza"), 2, topic="none", fit=False)][::-1]
    knowledge, reply = model.asked
    assert knowledge.continuation == (
        "".join(f"( {sample.last_turn} ) => {sample.knowledge}\n" for sample in nearest) + "( I love to eat pizza. ) =>"
    )
    lines = reply.continuation.split("\n")
    assert [line.rpartition("System replies: ")[2] for line in lines[:2]] == [sample.response for sample in nearest]
    assert lines[2] == (
        "User: What do you cook? System: Mostly soup. User: I love to eat pizza. "
        "We know that: (pizza, IsA, food); (pizza, AtLocation, Naples) System replies:"
    )
    assert knowledge.sampling.temperature == reply.sampling.temperature == 0.7  # Appendix A.1.2
    assert [(fact.kind, fact.source, fact.triple) for fact in response.knowledge] == [
        ("fact", "model", "(pizza, IsA, food)"),
        ("fact", "model", "(pizza, AtLocation, Naples)"),
    ]
    assert [traced.stage for traced in stages.trace] == ["knowledge-samples", KG, RG]


async def test_as_dcrag_runs_it_the_prompts_are_msdps_own(talk, model, base):
    """DCRAG, Appendix A.1.1: "officially proposed prompts", samples and pattern alone (MSDP, Table 14)."""
    model.answers[KG] = "(pizza, IsA, food)"
    await talk("msdp-dcrag", shots=2, variant="paper", prompt_variant="paper")
    knowledge, reply = model.asked
    await talk("msdp-dcrag", shots=2)
    for paper, ours in ((knowledge, model.asked[2]), (reply, model.asked[3])):
        (message,) = paper.messages
        assert message.content == paper.continuation.strip() == ours.continuation.strip()
        assert paper.sampling.temperature == 0.7  # Appendix A.1.2
        assert [each.role for each in ours.messages] == ["system", "user"]
    assert reply.messages[0].content.endswith("We know that: (pizza, IsA, food) System replies:")
    model.asked.clear()
    await talk("msdp-dcrag", "茶", shots=0, variant="paper", prompt_variant="paper")
    assert model.asked[0].messages[0].content == "( 我最喜欢喝茶。 ) =>"
    assert model.asked[1].messages[0].content.startswith("System: 你喜欢喝什么？ User: 我最喜欢喝茶。 We know that: ")


def test_its_base_is_built_of_the_dialogues_as_their_authors_gave_them(tmp_path):
    """Appendix A.1.1: triplets of the train and valid sets, turns ending in `__eou__`, by hard matching."""
    texts = {
        "train": "I drink tea . __eou__ With honey ? It is sweet . __eou__\nHello . __eou__ Hi . __eou__\n",
        "valid": "My honey is gone . __eou__ Then take sugar , it is sweet . __eou__ Thanks . __eou__\n",
    }
    for name, text in texts.items():
        (tmp_path / f"dialogues_{name}.txt").write_text(text, encoding="utf-8")
    facts = [Fact("tea", "RelatedTo", "honey"), Fact("honey", "HasProperty", "sweet"), Fact("sugar", "IsA", "sweet")]
    build_graph(facts, tmp_path / "own.graph", name="own", embedder=load_embedder())
    files = [str(tmp_path / f"dialogues_{name}.txt") for name in texts]
    command = ["samples", "build", str(tmp_path / "own.samples"), *files, "-D", "dailydialog"]
    done = CliRunner().invoke(app, [*command, "--align-graph", str(tmp_path / "own.graph")])
    assert done.exit_code == 0, done.output
    opened = SampleDatabase(tmp_path / "own.samples")
    try:
        asked = Dialogue(id="d", turns=["Tea, please."])
        found = {sample.response: sample.knowledge for sample, _ in opened.nearest(asked, 9, topic="none", fit=False)}
    finally:
        opened.close()
    assert found == {
        "With honey? It is sweet.": "(tea, RelatedTo, honey)",
        "Then take sugar, it is sweet.": "(honey, HasProperty, sweet)",
    }


def test_facts_in_a_line():
    assert [fact.triple for fact in read_facts("(tea, IsA, drink) and (tea, IsA, drink)", "en")] == [
        "(tea, IsA, drink)"
    ]
    (chinese,) = read_facts("（茶，IsA，饮料）", "zh")
    assert (chinese.fact.head, chinese.fact.tail) == ("茶", "饮料")
    (passage,) = read_facts("Tea is a drink.", "en")
    assert (passage.kind, passage.text, passage.source) == ("passage", "Tea is a drink.", "model")
    assert read_facts("", "en") == []


# --- what needs no model, as it was


async def test_the_selection_is_what_it_was(talk):
    """Expected: which samples stand in both prompts of each dialogue, and their scores."""
    selected = {}
    for name in (*DIALOGUES, *(f"{name} (fit off)" for name in DIALOGUES)):
        _, stages = await talk("msdp", name.split()[0], shots=4, response_shots=4, fit="off" not in name)
        traced = {traced.stage: traced.output for traced in stages.trace}
        selected[name] = {
            "knowledge": traced["knowledge-samples"]["found"],
            "scores": traced["knowledge-samples"]["scores"],
            "response": traced["response-samples"]["found"],
        }
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    for name, wanted in expected["selection"].items():
        assert selected[name]["knowledge"] == wanted["knowledge"]
        assert selected[name]["response"] == wanted["response"]
        assert selected[name]["scores"] == pytest.approx(wanted["scores"], abs=2e-4)
    assert selected.keys() == expected["selection"].keys()


@pytest.mark.parametrize("name", ["msdp/knowledge-generation", "msdp/response-generation", "ssdp/response-generation"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_prompts_are_greedy_and_end_at_a_line_break_where_they_are_continued(name, language):
    front = PromptLibrary().get(name, language).front
    assert front.sampling.temperature == 0
    assert front.sampling.stop == ()
    assert front.stop == ("\n",)
