"""Citations: what is a mark and what is text, what a mark grounds, and that readers never see one."""

from __future__ import annotations

import asyncio
import random
import re

import pytest

from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.knowledge import Knowledge, Passage
from dialore.llm.model import Completion, Usage
from dialore.methods.baselines import Vanilla
from dialore.methods.citations import MarkReader, read_citations
from dialore.methods.edit import Edit
from dialore.methods.stage_runner import LLMRunner
from dialore.methods.stages import StageContext
from dialore.prompts.library import PromptLibrary
from dialore.response import Response
from dialore.sources.in_memory import InMemoryPassages


def piece(number):
    return Knowledge(id=f"k{number}", kind="passage", text=f"piece {number}", source="documents")


FIVE = [piece(number) for number in range(1, 6)]


def read(text):
    """The text without marks, and (span, ids) in order."""
    cited = read_citations(text, FIVE)
    grounds: dict[str, list[str]] = {}
    for each in cited.citations:
        grounds.setdefault(cited.text[each.start : each.end], []).append(each.knowledge)
    return cited.text, grounds, cited.notes


HONEY = {"Honey helps": ["k2"]}


@pytest.mark.parametrize(
    ("text", "bare", "grounds"),
    [
        ("Honey helps [2].", "Honey helps.", HONEY),
        ("Honey helps[2].", "Honey helps.", HONEY),
        ("Honey helps. [2]", "Honey helps.", {"Honey helps.": ["k2"]}),
        ("Honey helps.[2] Rest.", "Honey helps. Rest.", {"Honey helps.": ["k2"]}),
        ("Honey helps [[2]].", "Honey helps.", HONEY),
        ("Honey helps [^2].", "Honey helps.", HONEY),
        ("Honey helps ［２］.", "Honey helps.", HONEY),
        ("Honey helps 【2】, right?", "Honey helps, right?", HONEY),
        ("Honey helps [1][3].", "Honey helps.", {"Honey helps": ["k1", "k3"]}),
        ("Honey helps [1], [3].", "Honey helps.", {"Honey helps": ["k1", "k3"]}),
        ("Honey helps [1, 3].", "Honey helps.", {"Honey helps": ["k1", "k3"]}),
        ("Honey helps [1-3].", "Honey helps.", {"Honey helps": ["k1", "k2", "k3"]}),
        ("Honey helps [1–2, 2, 5].", "Honey helps.", {"Honey helps": ["k1", "k2", "k5"]}),
        ("Honey [1] helps throats [2].", "Honey helps throats.", {"Honey": ["k1"], "helps throats": ["k2"]}),
        ("Tea warms [1]. So, too, does ale [2]!", "Tea warms. So, too, does ale!",
         {"Tea warms": ["k1"], "So, too, does ale": ["k2"]}),
        ("Ask Dr. Who, by 3.5 pints [1].", "Ask Dr. Who, by 3.5 pints.", {"Ask Dr. Who, by 3.5 pints": ["k1"]}),
        ("Tea [1]. [2] Honey.", "Tea. Honey.", {"Tea": ["k1"], "Tea.": ["k2"]}),
        ("[1] Tea warms. Rest.", "Tea warms. Rest.", {"Tea warms.": ["k1"]}),
        ("- tea [1]\n- honey [2]\n", "- tea\n- honey", {"tea": ["k1"], "honey": ["k2"]}),
        ("蜂蜜润喉[2]。姜茶暖身［1］，真的！", "蜂蜜润喉。姜茶暖身，真的！", {"蜂蜜润喉": ["k2"], "姜茶暖身": ["k1"]}),
        ("蜂蜜能润喉。[2] 喝点吧【1，3】？", "蜂蜜能润喉。喝点吧？", {"蜂蜜能润喉。": ["k2"], "喝点吧": ["k1", "k3"]}),
        ("她说：“蜂蜜润喉[2]。”好的。", "她说：“蜂蜜润喉。”好的。", {"她说：“蜂蜜润喉": ["k2"]}),
    ],
)  # fmt: skip
def test_marks_are_taken_out_and_ground_what_stands_before_them(text, bare, grounds):
    assert read(text) == (bare, grounds, [])


@pytest.mark.parametrize(
    "text",
    [
        "Oh [laughs] no.",
        "In [2024] it rained.",
        "It ended [3-2].",
        "See [1](https://example.org) there.",
        "See [the page][1] there.",
        "Some text.\n[1]: https://example.org",
        "Write `x[1]` here.",
        "```python\nx[1] = y[2]\n```",
        "An open [bracket",
        "Empty [] and [ ] and [,].",
        "[1 of 2] things",
        "[123456789012345678901234567890]",
        "  two  spaces  stay ",
        "【注】没有编号",
    ],
)
def test_text_that_merely_has_brackets_stays(text):
    assert read(text) == (text, {}, [])


@pytest.mark.parametrize(
    "text",
    [
        "Honey helps [7].",
        "Honey helps 【8】.",
        "A number of [0, 1] or [3, 12], and a[0].",
        "See footnote [12][13].",
        "As [0] says, [0-5].",
    ],
)
def test_what_can_be_no_given_piece_stays(text):
    assert read(text)[:2] == (text, {})


def test_what_stays_beside_a_citation():
    bare, grounds, _ = read("Honey [12][2] helps [1] [99].")
    assert (bare, grounds) == ("Honey [12] helps [99].", {"Honey": ["k2"], "[12] helps": ["k1"]})


def test_what_is_there_of_a_range_is_cited():
    bare, grounds, notes = read("Honey helps [4-7].")
    assert (bare, grounds) == ("Honey helps.", {"Honey helps": ["k4", "k5"]})
    assert len(notes) == 1


def test_inline_code_that_is_left_open_ends_with_its_line():
    bare, grounds, _ = read("Press ` twice [1]\nthen rest [2].")
    assert bare == "Press ` twice [1]\nthen rest."
    assert list(grounds.values()) == [["k2"]]


PARTS = [
    *(
        "[1]",
        "[2]",
        "[7]",
        "[1][3]",
        "[1, 3]",
        "[1-3]",
        "［2］",
        "【4】",
        "[[1]]",
        "[^2]",
        "[2024]",
        "[",
        "]",
        "[1",
        "1]",
    ),
    *(
        "[1](x)",
        "[a][1]",
        "[laughs]",
        "`",
        "``",
        "```",
        "\n",
        " ",
        "  ",
        ". ",
        "。",
        ", ",
        "，",
        "!",
        "？",
        "(",
        ")",
        ":",
    ),
    *("honey", "tea warms", "蜂蜜", "润喉", "3", "3.5", "Dr. ", "-", "“", "”", "\t", "1, 2", "]["),
]


@pytest.mark.parametrize("seed", range(400))
def test_streamed_in_any_pieces_it_comes_out_the_same(seed):
    chance = random.Random(seed)
    text = "".join(chance.choices(PARTS, k=chance.randint(1, 40)))
    whole = read_citations(text, FIVE)
    for _ in range(4):
        reader, out, left = MarkReader(FIVE), "", text
        while left:
            size = chance.choice([1, 1, 2, 3, 7, 30])
            out += reader.feed(left[:size])
            assert whole.text.startswith(out)
            left = left[size:]
        out += reader.finish()
        assert out == whole.text
        assert out == reader.text
        assert reader.notes == whole.notes
        assert [mark.place for mark in reader.marks] == sorted(mark.place for mark in reader.marks)
    for each in whole.citations:
        assert 0 <= each.start < each.end <= len(whole.text)
        assert whole.text[each.start : each.end].strip() == whole.text[each.start : each.end]
    letters = re.compile(r"[^\W\d_]")
    assert letters.findall(whole.text) == letters.findall(text)  # nothing but marks is lost


@pytest.mark.parametrize("seed", range(100))
def test_marks_put_into_a_text_come_out_and_leave_it_as_it_was(seed):
    chance = random.Random(seed)
    texts = ["Honey coats the throat", "Ask Dr. Who, please", "tea at 3.5 degrees", "蜂蜜能润喉", "早点休息，多喝水"]
    sentences = [chance.choice(texts) + chance.choice(".!?") for _ in range(chance.randint(1, 6))]
    numbers = [chance.randint(1, 5) for _ in sentences]
    marked = [f"{sentence[:-1]} [{number}]{sentence[-1]}" for sentence, number in zip(sentences, numbers, strict=True)]
    cited = read_citations(" ".join(marked), FIVE)
    assert cited.text == " ".join(sentences)
    assert [each.knowledge for each in cited.citations] == [f"k{number}" for number in numbers]
    found = [cited.text[each.start : each.end] for each in cited.citations]
    assert found == [sentence[:-1] for sentence in sentences]


class Says:
    """A model that says one thing, in pieces of three characters where it is streamed."""

    name = "says"

    def __init__(self, **said):
        self.said, self.requests = {name.replace("_", "-"): text for name, text in said.items()}, {}

    async def complete(self, request, on_token=None):
        stage = request.label.rsplit("/", 1)[-1]
        self.requests[stage] = request
        text = self.said[re.sub(r"-\d+$", "", stage)]
        if on_token is not None:
            for place in range(0, len(text), 3):
                on_token(text[place : place + 3])
                await asyncio.sleep(0)
        return Completion(text=text, usage=Usage(calls=1))

    async def close(self):
        pass


DIALOGUES = {
    "en": (Dialogue(id="d", turns=["My throat is sore."]), "What calms throats?", "Honey coats the throat.",
           "Honey calms it [1]! I like tea [4]! [laughs] Rest [1].", "Honey calms it! I like tea [4]! [laughs] Rest.",
           ["Honey calms it", "[laughs] Rest"]),
    "zh": (Dialogue(id="d", turns=["我嗓子疼。"]), "什么能润喉？", "蜂蜜能润喉。",
           "喝点蜂蜜吧【1】！我爱喝茶［4］。早点休息[1]。", "喝点蜂蜜吧！我爱喝茶［4］。早点休息。",
           ["喝点蜂蜜吧", "早点休息"]),
}  # fmt: skip


@pytest.fixture(params=["en", "zh"])
def case(request):
    dialogue, question, answer, said, bare, spans = DIALOGUES[request.param]
    model = Says(question_generation=question, base_answer=answer, response_generation=said)
    return dialogue, model, bare, spans


def edit():
    base = InMemoryPassages(
        [Passage("Honey coats the throat. 蜂蜜能润喉。", title="Throats > Honey"), Passage("Sage tea helps.")]
    )
    return Edit(base, model_answers=False)


def agent(model, method, *, cite):
    return Agent(method, LLMRunner(model, PromptLibrary()), cite=cite)


async def test_a_response_carries_spans_and_its_reader_sees_no_mark(case):
    dialogue, model, bare, spans = case
    pieces = [item async for item in agent(model, edit(), cite=True).stream(dialogue)]
    response = pieces.pop()
    assert isinstance(response, Response)
    assert "".join(pieces) == response.text == bare
    assert len(pieces) > 5  # it streams
    [knowledge] = response.knowledge
    assert [each.knowledge for each in response.citations] == [knowledge.id] * 2
    assert [bare[each.start : each.end] for each in response.citations] == spans
    assert knowledge.used
    stage = next(stage for stage in response.trace if stage.stage == "response-generation")
    assert len(stage.notes) == 1
    assert "cites nothing: 1 pieces" in stage.notes[0]
    assert "4" in stage.completion  # what the model said is kept
    assert stage.output["text"] == bare
    assert "shared/citing" in stage.prompt


async def test_the_prompt_numbers_its_knowledge_and_says_how_to_cite_only_where_it_is_on(case):
    dialogue, model, _, _ = case
    shown = {}
    for cite in (True, False):
        await agent(model, edit(), cite=cite).respond(dialogue)
        system, user = (message.content for message in model.requests["response-generation"].messages)
        shown[cite] = system
        citing = PromptLibrary().get("shared/citing", dialogue.language).render({}).messages[0].content
        assert (citing in system) == cite
        answer = model.said["base-answer"]
        assert (f"\n[1] {answer}" in user, f"\n- {answer}" in user) == (cite, not cite)
        assert "\n\n\n" not in system
    assert shown[True].replace(f"\n\n{citing}", "") == shown[False]


async def test_where_it_is_off_brackets_stay_as_they_are(case):
    dialogue, model, _, _ = case
    response = await agent(model, edit(), cite=False).respond(dialogue)
    assert response.text == model.said["response-generation"]
    assert response.citations == []


async def test_what_is_cited_is_used_whatever_its_words():
    model = Says(question_generation="What helps?", base_answer="Sage tea.", response_generation="Try gargling [1].")
    for cite in (True, False):
        response = await agent(model, edit(), cite=cite).respond(Dialogue(id="d", turns=["It hurts."]))
        assert response.knowledge[0].used == cite


async def test_what_the_model_said_itself_is_no_document_to_be_cited():
    model = Says(question_generation="What helps?", model_answer="Sage.", response_generation="Try gargling [1].")
    response = await agent(model, Edit(), cite=True).respond(Dialogue(id="d", turns=["It hurts."]))
    assert (response.text, response.citations) == ("Try gargling.", [])
    assert response.knowledge[0].source == "model"


async def test_an_answer_from_the_base_is_to_be_looked_up_where_its_sentence_stands(case):
    dialogue, model, _, _ = case
    [piece] = (await agent(model, edit(), cite=True).respond(dialogue)).knowledge
    assert piece.location == {"title": "Throats", "section": "Honey"}


async def test_without_knowledge_nothing_is_asked_for_and_nothing_is_cited():
    model = Says(response_generation="Try honey [1].")
    response = await agent(model, Vanilla(), cite=True).respond(Dialogue(id="d", turns=["It hurts."]))
    assert (response.text, response.citations) == ("Try honey [1].", [])
    assert "square brackets" not in model.requests["response-generation"].messages[0].content


ALL_THAT_GROUND = ["dcrag", "edit", "safari", "scg-qp", "t-rag"]


@pytest.mark.parametrize("method", ALL_THAT_GROUND)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_method_that_gives_knowledge_can_cite(method, language):
    forms = {each.name.partition(".")[2] for each in PromptLibrary() if each.name.startswith(f"{method}/")}
    for form in forms - {"supervised"}:  # a trained sequence has no instructions, and no numbers
        named = [each for each in PromptLibrary() if each.name.startswith(f"{method}/") and each.language == language]
        texts = [each.text for each in named if each.name.partition(".")[2] == form]
        if not any("response-generation" in each.name and each.name.endswith(f".{form}") for each in named) and form:
            continue  # in English alone, or a form of another stage
        assert sum("{{ citing }}" in text and "loop.index if cite" in text for text in texts) == 1


WRITING = ["dcrag/response-generation", "t-rag/response-generation", "edit/response-generation"]


@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_response_prompts_know_how_to_cite(name, language):
    prompt = PromptLibrary().get(name, language)
    kinds = ("explicit", "implicit", "maintained", "extended")
    variables = {"history": "H", "last_turn": "L", "facts": FIVE, "knowledge": FIVE, "thoughts": False, "cite": True}
    variables |= {"draft": "D", "extended": []}
    variables |= {"citing": "HOW TO CITE", "demands": {kind: [] for kind in kinds}}
    system, user = (message.content for message in prompt.render(variables).messages)
    assert system.endswith("\n\nHOW TO CITE")
    assert "\n[1] piece 1\n[2] piece 2\n" in user


async def test_a_text_that_may_become_the_response_cites_too():
    dialogue = Dialogue(id="d", turns=["It hurts."])
    stages = StageContext(
        LLMRunner(Says(response_generation="Try tea [2]."), PromptLibrary()), "m", dialogue, cite=True
    )
    text = await stages.text("t-rag/response-generation", cites=FIVE, facts=FIVE)
    assert text == "Try tea."
    assert [each.knowledge for each in stages.citations(text)] == ["k2"]
    assert stages.citations("Try tea, then.") == []
    assert await stages.text("t-rag/response-generation", facts=FIVE) == "Try tea [2]."
