"""Prompt files: both languages, strict variables, overrides, hashes."""

from __future__ import annotations

import re

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, UnknownNameError
from dialore.knowledge import Fact, Knowledge
from dialore.llm.model import Message, Sampling
from dialore.methods import dcrag
from dialore.prompts.history import history_messages, render_history
from dialore.prompts.library import PromptLibrary
from dialore.response import Demands
from dialore.text import is_chinese
from tests.prompts.test_safety import hostile_variables

ALL = list(PromptLibrary())
FACT = Knowledge.of_fact(Fact("honey", "UsedFor", "sore throat"), "honey is used for sore throat", 0.5)
VARIABLES = {
    "history": "Me: HISTORY-TEXT",
    "last_turn": "LAST-TURN",
    "language": "English",
    "target": 8,
    "retrieval": True,
    "thoughts": True,
    "facts": [FACT],
    "limit": 20,
    "cite": False,
    "demands": Demands(
        explicit=["Q-EXPLICIT"],
        implicit=["Q-IMPLICIT"],
        maintained=["T-MAINTAINED"],
        extended=["T-EXTENDED"],
        thoughts={kind: f"THOUGHT-{kind}" for kind in ("explicit", "implicit", "maintained", "extended")},
    ).model_dump(),
}
NEEDED = {
    "query-production": ["HISTORY-TEXT", "LAST-TURN"],
    "topic-planning": ["HISTORY-TEXT", "LAST-TURN"],
    "cross-revision": [
        "HISTORY-TEXT",
        "LAST-TURN",
        "Q-EXPLICIT",
        "T-EXTENDED",
        "THOUGHT-implicit",
        "THOUGHT-maintained",
    ],
    "fact-selection": ["HISTORY-TEXT", "LAST-TURN", "[1] (honey, UsedFor, sore throat)", "20"],
}
NEEDED_TO_WRITE = {
    "vanilla": ["HISTORY-TEXT", "LAST-TURN"],
    "t-rag": ["HISTORY-TEXT", "LAST-TURN", "(honey, UsedFor, sore throat)"],
    "dcrag": ["HISTORY-TEXT", "LAST-TURN", "(honey, UsedFor, sore throat)", "Q-IMPLICIT", "THOUGHT-extended"],
}
# DCRAG's prompts and its baselines'; each other method's tests look at its own.
PROMPTS = [prompt for prompt in ALL if prompt.name.split("/")[0] in NEEDED_TO_WRITE]


def test_every_prompt_is_there_in_both_languages_or_is_told_the_dialogues():
    names = {(prompt.name, prompt.language) for prompt in ALL}
    assert len(names) >= 14
    assert {name for name, language in names if language == "zh"} <= {name for name, _ in names}
    alone = [prompt for prompt in ALL if (prompt.name, "zh") not in names]
    # DCRAG's prompts are English for Chinese dialogues too (Tables 12 to 20); MSDP's have no words of their own to say.
    assert all("{{ language }}" in each.text for each in alone if not each.name.startswith("msdp-dcrag/"))
    assert PromptLibrary().get("judge/meep", "zh") == PromptLibrary().get("judge/meep", "en")


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: f"{prompt.name}.{prompt.language}")
def test_a_prompt_holds_what_its_stage_needs(prompt):
    history = [Message(role="user", content="HISTORY-TEXT")] if prompt.front.history == "messages" else []
    whole = "\n".join(message.content for message in prompt.render(VARIABLES, history=history).messages)
    method, stage = prompt.name.split("/")
    is_paper = stage.endswith(".paper")
    for wanted in NEEDED.get(stage.partition(".")[0]) or NEEDED_TO_WRITE[method]:
        # Tables 14 to 17 give the dialogue history alone.
        assert (wanted in whole) or (wanted == "LAST-TURN" and is_paper and stage != "response-generation.paper")
    assert is_chinese(whole) == (prompt.language == "zh")
    assert ("in English" in whole) >= is_paper
    assert "{{" not in whole
    assert "\n\n\n" not in whole


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: f"{prompt.name}.{prompt.language}")
def test_what_never_changes_comes_first(prompt):
    changed = {**VARIABLES, "history": "another", "last_turn": "one", "facts": [], "limit": 20}
    first, second = prompt.render(VARIABLES).messages, prompt.render(changed).messages
    assert first[0] == second[0]
    assert first[0].role == "system"
    assert first[1] != second[1]


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: f"{prompt.name}.{prompt.language}")
def test_its_output_is_a_shape_that_the_methods_have(prompt):
    for name in prompt.front.output.split(" | "):
        assert name == "text" or hasattr(dcrag, name)
    assert prompt.front.sampling.temperature == 0.7  # DCRAG, Appendix A.1.2


@pytest.mark.parametrize(("thoughts", "shape"), [(True, "Thought"), (False, "")])
@pytest.mark.parametrize("stage", ["query-production", "topic-planning", "cross-revision"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_json_asked_for_has_the_fields_of_the_shape(thoughts, shape, stage, language):
    names = {"query-production": "Queries", "topic-planning": "Topics", "cross-revision": "Revision"}
    model = getattr(dcrag, shape + names[stage])
    prompt = PromptLibrary().get(f"dcrag/{stage}", language)
    system = prompt.render({**VARIABLES, "thoughts": thoughts}).messages[0].content
    asked = re.findall(r'"(\w+)":', system.splitlines()[-1])
    assert asked == list(model.model_fields)


def test_a_missing_variable_fails_before_any_call():
    prompt = PromptLibrary().get("dcrag/fact-selection", "en")
    with pytest.raises(InputError, match=r"limit.*it is given: facts, history, last_turn"):
        prompt.render({"history": "x", "last_turn": "y", "facts": []})


def test_a_folder_overrides_one_prompt_and_leaves_the_rest(tmp_path):
    (tmp_path / "vanilla").mkdir()
    text = "---\nversion: 7\noutput: text\nsampling: {temperature: 0}\n---\n<!-- user -->\nSay hi to {{ last_turn }}\n"
    (tmp_path / "vanilla" / "response-generation.en.md").write_text(text, encoding="utf-8")
    library = PromptLibrary(tmp_path)
    rendered = library.get("vanilla/response-generation", "en").render(VARIABLES)
    assert [message.content for message in rendered.messages] == ["Say hi to LAST-TURN"]
    assert rendered.sampling == Sampling(temperature=0)
    assert rendered.prompt.startswith("vanilla/response-generation.en v7 ")
    assert rendered.prompt != PromptLibrary().get("vanilla/response-generation", "en").reference
    assert library.get("dcrag/topic-planning", "zh").text == PromptLibrary().get("dcrag/topic-planning", "zh").text
    assert len(list(library)) == len(ALL)


def test_a_pattern_is_the_message_and_the_text_to_be_continued(tmp_path):
    path = tmp_path / "msdp" / "knowledge-generation.en.md"
    path.parent.mkdir()
    path.write_text("---\nversion: 1\noutput: text\n---\n<!-- pattern -->\nSay {{ word }} =>\n", encoding="utf-8")
    request = PromptLibrary(tmp_path).get("msdp/knowledge-generation", "en").render({"word": "hi"})
    assert [(message.role, message.content) for message in request.messages] == [("user", "Say hi =>")]
    assert request.continuation == "Say hi =>"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("no front matter", "no front matter"),
        ("---\nversion: one\noutput: text\n---\n<!-- user -->\nx\n", "version"),
        ("---\nversion: 1\noutput: text\n---\nx\n", "no message"),
        ("---\nversion: 1\noutput: text\n---\n<!-- user -->\n{% if %}\n", "prompt"),
        ("---\nversion: 1\noutput: text\ntemprature: 2\n---\n<!-- user -->\nx\n", "temprature"),
    ],
)
def test_a_malformed_prompt_is_one_clear_error(tmp_path, text, wanted):
    (tmp_path / "vanilla").mkdir()
    (tmp_path / "vanilla" / "response-generation.en.md").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=wanted) as caught:
        PromptLibrary(tmp_path).get("vanilla/response-generation", "en").render(VARIABLES)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["dcrag/query-produktion", "../secrets", "dcrag"])
def test_an_unknown_prompt_is_refused(name):
    with pytest.raises(UnknownNameError, match="unknown prompt"):
        PromptLibrary().get(name, "en")


def test_a_method_without_its_prompts_is_told_where_they_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("dialore.prompts.library._BESIDE", [tmp_path])
    with pytest.raises(InputError, match=rf"it is to be mine/reply\.en\.md .* looked in: {tmp_path}"):
        PromptLibrary().get("mine/reply", "en")


def test_the_last_speaker_is_me_and_the_other_is_friend():
    turns = [
        {"speaker": "Ann", "text": "Hi"},
        {"speaker": "Bob", "text": "Hey\nyou"},
        {"speaker": "Ann", "text": "Bye"},
    ]
    assert render_history(Dialogue(id="1", turns=turns)) == "Me: Hi\nFriend: Hey you\nMe: Bye"
    chinese = [{"speaker": "甲", "text": "你好"}, {"speaker": "乙", "text": "早上好"}]
    assert render_history(Dialogue(id="2", turns=chinese)) == "朋友：你好\n我：早上好"
    three = [*turns[:2], {"speaker": "Cy", "text": "Me too"}]
    assert render_history(Dialogue(id="3", turns=three)) == "Ann: Hi\nFriend: Hey you\nMe: Me too"


@pytest.mark.parametrize(
    ("speakers", "wanted"),
    [
        ("u", ["user: 1"]),
        ("usu", ["user: 1", "assistant: 2", "user: 3"]),
        ("su", ["assistant: 1", "user: 2"]),
        ("ussuu", ["user: 1", "assistant: 2\n3", "user: 4\n5"]),
        ("usvu", ["user: u: 1", "assistant: 2", "user: v: 3\nu: 4"]),
        ("us", ["assistant: 1", "user: 2"]),
    ],
    ids=["one turn", "by turns", "the assistant first", "several in a row", "three speakers", "the system last"],
)
def test_the_history_as_messages(speakers, wanted):
    names = {"u": "u", "s": "system", "v": "v"}
    turns = [{"speaker": names[each], "text": str(number)} for number, each in enumerate(speakers, 1)]
    if speakers == "usvu":  # who spoke last before the last speaker answers: here the one named system is asked
        turns[2]["speaker"], turns[1]["speaker"] = "v", "system"
        turns = [turns[0], turns[2], turns[1], turns[3]]
        wanted = ["user: u: 1\nv: 3", "assistant: 2", "user: u: 4"]
    messages = history_messages(Dialogue(id="x", turns=turns))
    assert [f"{message.role}: {message.content}" for message in messages] == wanted


def test_a_message_keeps_its_lines_and_ends_nothing_that_it_stands_in():
    turns = [{"speaker": "user", "text": "one\ntwo </knowledge> three"}]
    assert history_messages(Dialogue(id="x", turns=turns))[0].content == "one\ntwo ‹/knowledge> three"


WRITING = [prompt for prompt in ALL if prompt.front.history == "messages"]


def test_what_writes_in_our_form_asks_by_messages_and_no_paper_does():
    chosen = {prompt.name for prompt in WRITING}
    assert not [name for name in chosen if name.endswith((".paper", ".supervised"))]
    by_name = {f"{name}/response-generation" for name in ("vanilla", "rag", "full-context", "t-rag", "dcrag")}
    by_name |= {f"{name}/response-generation" for name in ("safari", "scg-qp", "edit")}
    assert by_name | {"weave/draft", "weave/write"} <= chosen


@pytest.mark.parametrize("prompt", WRITING, ids=lambda prompt: f"{prompt.name}.{prompt.language}")
def test_instructions_are_few_and_name_no_roles(prompt):
    known = hostile_variables("") | dict.fromkeys(("draft", "last_turn", "topic"), "")
    empty = (
        "own",
        "persona",
        "demonstrations",
        "facts",
        "passages",
        "knowledge",
        "unsupported",
        "missing",
        "topics",
        "unclear",
    )
    known |= {name: [] for name in (*empty, "extended", "about_you")} | {"proposal": "", "new_topic": ""}
    known |= {"about": "", "goal": "", "temper": "doubtful"}
    known["demands"] = Demands().model_dump()
    known["citing"] = PromptLibrary().get("shared/citing", prompt.language).render({}).messages[0].content
    text = "\n".join(message.content for message in prompt.render(known | {"draft": "DRAFT"}).messages)
    # A word of Chinese has some 1.6 characters.
    count = len(text.split()) if prompt.language == "en" else sum(map(is_chinese, text)) / 1.6
    assert 10 < count <= 120
    assert not re.search(r"\bMe\b|Friend|“我”是|“朋友”", text)


def test_a_system_message_is_filled_in_anew_where_its_values_differ(tmp_path):
    (tmp_path / "vanilla").mkdir()
    text = "---\nversion: 1\noutput: text\n---\n<!-- system -->\nAt most {{ limit }}: {{ names | join(',') }}\n"
    (tmp_path / "vanilla" / "response-generation.en.md").write_text(text + "<!-- user -->\n{{ last_turn }}\n", "utf-8")
    prompt = PromptLibrary(tmp_path).get("vanilla/response-generation", "en")

    def said(limit: object, names: object = "a") -> str:
        return prompt.render({"limit": limit, "names": names, "last_turn": "x"}).messages[0].content

    assert [said(limit) for limit in (1, True, 1, 2)] == [f"At most {limit}: a" for limit in (1, True, 1, 2)]
    growing = ["a"]
    assert said(2, growing) == "At most 2: a"
    growing.append("b")
    assert said(2, growing) == "At most 2: a,b"


def test_a_prompt_is_had_in_a_form_where_there_is_one(tmp_path):
    library = PromptLibrary()
    plain, paper = (library.get("dcrag/response-generation", "en", form) for form in ("", "paper"))
    assert (plain.name, paper.name) == ("dcrag/response-generation", "dcrag/response-generation.paper")
    assert paper.reference.startswith("dcrag/response-generation.paper.en v2 ")
    assert library.get("dcrag/response-generation.paper", "en") == paper
    assert library.get("weave/draft", "en", "paper").name == "weave/draft"
    (tmp_path / "dcrag").mkdir()
    own = tmp_path / "dcrag" / "response-generation.paper.en.md"
    own.write_text(paper.text.replace("one to three", "two"), "utf-8")
    assert PromptLibrary(tmp_path).get("dcrag/response-generation", "en", "paper").path == own
    assert PromptLibrary(tmp_path).get("dcrag/response-generation", "en").path == plain.path
