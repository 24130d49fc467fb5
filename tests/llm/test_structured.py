from __future__ import annotations

import time
from enum import Enum
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from dialore.errors import ModelError
from dialore.llm.structured import UnparsedError, complete_structured, output_schema, parse
from tests.llm.models import Scripted, ask


class Topic(BaseModel):
    name: str
    kept: bool = True


class Plan(BaseModel):
    queries: list[str]
    topic_plan: str = ""
    topics: list[Topic] = []


class Loose(BaseModel):
    items: list[str] = []


class Judged(BaseModel):
    verdict: Literal["Yes", "No"]
    score: Annotated[float, Field(ge=0, le=1)]
    note: str | None = None


def queries(*texts: str) -> Plan:
    return Plan(queries=list(texts))


PARSED = {
    "plain": ('{"queries": ["a"], "topic_plan": "x"}', Plan(queries=["a"], topic_plan="x")),
    "fence": ('Sure!\n```json\n{"queries": ["a"]}\n```\nHope it helps {:-)}', queries("a")),
    "open fence": ('```\n{"queries": ["a"]}', queries("a")),
    "prose": ('Here you are: {"queries": ["a"]} as asked.', queries("a")),
    "last of several": ('First {"queries": ["draft"]}, no: {"queries": ["final"]}', queries("final")),
    "half a character": ('{"queries": ["tea \\ud83d", "a"]}', queries("tea \ufffd", "a")),
    "half a character as it stands": ('{"queries": ["tea \ud83d"]}', queries("tea \ufffd")),
    "a character in two halves, cut off": ('{"queries": ["tea \\ud83d\\ude00", "a"', queries("tea \U0001f600", "a")),
    "braces in prose": ('{"queries": ["a"]} where {x} is free', queries("a")),
    "braces in strings": ('so {"queries": ["a } b", "{c"]} there', queries("a } b", "{c")),
    "trailing commas": ('{"queries": ["a", "b",],}', queries("a", "b")),
    "single quotes": ("{'queries': ['a', 'b']}", queries("a", "b")),
    "apostrophes": ("{'queries': ['don't go', \"it's\"]}", queries("don't go", "it's")),
    "python words": (
        '{"queries": [], "topics": [{"name": "x", "kept": False}], "topic_plan": None}',
        Plan(queries=[], topics=[Topic(name="x", kept=False)]),
    ),
    "comments": ('{"queries": ["a"], // these\n "topic_plan": "x"}', Plan(queries=["a"], topic_plan="x")),
    "no quotes": ("{queries: [a, b]}", queries("a", "b")),
    "cut off": ('{"queries": ["a", "b"], "topic_plan": "x and', Plan(queries=["a", "b"], topic_plan="x and")),
    "full width": ('｛“queries”：［“你好，世界”，“他说："好"”］｝', queries("你好，世界", '他说："好"')),
    "full width between": ('{"queries"：["a"，"b：c"]}', queries("a", "b：c")),
    "keys": ('{"QUERIES": ["a"], "Topic Plan": "x"}', Plan(queries=["a"], topic_plan="x")),
    "wrapped": ('{"result": {"Queries": ["a"]}}', queries("a")),
    "JSON in a string": ('"{\\"queries\\": [\\"a\\"]}"', queries("a")),
    "scalar for a list": ('{"queries": "only one"}', queries("only one")),
    "text for a list": ('{"queries": "a; b, c"}', queries("a", "b", "c")),
    "bullets for a list": (
        '{"queries": "1. green tea\\n2. what else, if any?"}',
        queries("green tea", "what else, if any?"),
    ),
    "a sentence stays whole": (
        '{"queries": "What tea, if any, does she like?"}',
        queries("What tea, if any, does she like?"),
    ),
    "Chinese text for a list": ('{"queries": "绿茶、红茶；咖啡"}', queries("绿茶", "红茶", "咖啡")),
    "null for a list": ('{"queries": null}', queries()),
    "numbers for text": ('{"queries": [1, "b"]}', queries("1", "b")),
    "object for a list": ('{"queries": [], "topics": {"Name": "x"}}', Plan(queries=[], topics=[Topic(name="x")])),
    "twice the same": ('{"queries": ["a", "a"]}', queries("a", "a")),
    "byte order mark": ('\ufeff{"queries": ["a"]}', queries("a")),
    "bare list": ('["a", "b"]', Loose(items=["a", "b"])),
    "empty object": ("{}", Loose()),
    "words": ('{"Verdict": "yes", "score": "0.5", "note": null}', Judged(verdict="Yes", score=0.5)),
}


@pytest.mark.parametrize("name", PARSED)
def test_parse(name):
    text, value = PARSED[name]
    assert parse(text, type(value)) == value


UNPARSED = {
    "empty": ("", Loose, "empty"),
    "prose": ("I think the weather is fine. Tea; coffee, both.", Loose, "no JSON"),
    "quoted prose": ('"a fine day"', Loose, "no JSON"),
    "a word": ("null", Loose, "no JSON"),
    "citations": ("As was said [1], and again [2, 3].", Loose, "no JSON"),
    "template": ("Use {items} here", Loose, "no JSON"),
    "other keys": ('{"foo": 1}', Loose, "none of the keys items"),
    "other keys repaired": ("{foo: 1", Loose, "none of the keys items"),
    "wrong type": ('{"queries": [{"a": 1}]}', Plan, "queries.0"),
    "missing": ('{"topic_plan": "x"}', Plan, "queries: Field required"),
    "out of range": ('{"verdict": "yes", "score": 7}', Judged, "score"),
    "other word": ('{"verdict": "maybe", "score": 1}', Judged, "verdict"),
    "deep": ("[" * 100_000, Loose, ""),
    "deep objects": ('{"a":' * 20_000, Loose, ""),
}


@pytest.mark.parametrize("name", UNPARSED)
def test_unparsed_says_why(name):
    text, kind, reason = UNPARSED[name]
    with pytest.raises(UnparsedError) as caught:
        parse(text, kind)
    assert reason in caught.value.message
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    "piece",
    [
        "{Note: and more words come, then more: yes. ",
        "{x: 1} ",
        "{",
        '{"a":',
        "“",
        "{'a' ",
        "｛“问”：",
        "```json\n{a: 1\n",
    ],
)
def test_a_long_answer_that_is_no_json_is_given_up_soon(piece):
    def seconds(length):
        started = time.process_time()
        with pytest.raises(UnparsedError):
            parse(piece * (length // len(piece)), Plan)
        return time.process_time() - started

    # Squared, eight times the length takes 64 times as long; a machine that hesitates once is given another try.
    assert any(seconds(200_000) < 24 * max(seconds(25_000), 0.01) for _ in range(3))


def test_enums_and_aliases():
    class Colour(Enum):
        DARK_RED = "dark red"

    class Painted(BaseModel):
        colour: Colour
        kind: str = Field(alias="type")

    assert parse('{"Colour": "Dark_Red", "Type": "x"}', Painted).colour is Colour.DARK_RED


async def test_outcomes():
    for text, outcome in [
        ('{"queries": ["a"]}', "parsed"),
        ("{'queries': ['a']}", "repaired_locally"),
        ('{"Queries": "a"}', "repaired_locally"),
    ]:
        result = await complete_structured(Scripted(text), ask(), Plan)
        assert (result.outcome, result.value, len(result.completions), result.error) == (outcome, queries("a"), 1, "")


async def test_the_schema_goes_with_the_request():
    model = Scripted('{"queries": []}')
    await complete_structured(model, ask(), Plan)
    assert model.asked[0].output_schema == output_schema(Plan)
    assert "queries" in output_schema(Plan).definition["properties"]


async def test_the_model_repairs_once():
    model = Scripted("I would say a.", '{"queries": ["a"]}')
    result = await complete_structured(model, ask("Hi", label="plan"), Plan)
    assert (result.outcome, result.value, len(result.completions)) == ("repaired_by_model", queries("a"), 2)
    repair = model.asked[1]
    assert [message.role for message in repair.messages] == ["user", "assistant", "user"]
    assert repair.messages[1].content == "I would say a."
    assert "no JSON" in repair.messages[2].content
    assert '"queries"' in repair.messages[2].content
    assert repair.label == "plan/repair"


async def test_unparsed_is_an_outcome():
    result = await complete_structured(Scripted("no", "still no"), ask(), Plan)
    assert (result.outcome, result.value, len(result.completions)) == ("unparsed", None, 2)
    assert "no JSON" in result.error


async def test_model_errors_pass_through():
    for answers in ([ModelError("down")], ["no", ModelError("down")]):
        with pytest.raises(ModelError, match="down"):
            await complete_structured(Scripted(*answers), ask(), Plan)
