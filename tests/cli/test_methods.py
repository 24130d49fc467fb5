"""`dialore methods`: what it says of each method is so."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import closing
from typing import ClassVar

import pytest
from benchmarks.made_up import made_up, open_world, with_persona

from dialore.llm.fake import FakeModel
from dialore.methods.registry import describe_method, method_class, method_names, method_sources
from dialore.prompts.library import PromptLibrary
from dialore.session import create_agent
from dialore.sources.graph import open_graph

# Other answers than a rehearsal's lead to these.
RARE = {"check", "write", "model-knowledge", "passage-selection", "grounding-edit", "preference"}
OPTIONS = {"scg-qp": {"decision": False}, "scg-qp-graph": {"decision": True}}


@pytest.fixture(scope="module")
def world():
    with closing(open_graph(None)) as graph, open_world(graph, 300) as sources:
        yield graph, sources


def asked_by(method, world, options):
    graph, sources = world
    given = {name: source for name, source in sources.items() if name in method_sources(method_class(method))}

    async def respond():
        read = graph if "graph" in method_sources(method_class(method)) else None
        agent = create_agent(method, model=FakeModel(), graph=read, sources=given, options=options)
        return [await agent.respond(with_persona(dialogue)) for dialogue in made_up(graph, 2)]

    responses = asyncio.run(respond())
    assert [response.status for response in responses] == ["ok", "ok"], responses
    traced = {stage.prompt.split(".")[0] for response in responses for stage in response.trace if stage.prompt}
    return traced, responses[0].usage.calls


@pytest.mark.parametrize("method", method_names())
def test_the_stages_that_are_named_are_those_that_are_asked(method, world):
    said = describe_method(method_class(method), PromptLibrary())
    named = {stage["prompt"] for stage in said["stages"]}
    asked, calls = asked_by(method, world, {})
    if method in OPTIONS:
        asked |= asked_by(method, world, OPTIONS[method])[0]
    assert asked <= named
    assert {prompt for prompt in named - asked if prompt.rpartition("/")[2] not in RARE} == set()
    assert all(stage["languages"] == ["en", "zh"] for stage in said["stages"])
    assert calls <= int(said["calls"].split()[0])


@pytest.mark.parametrize("method", method_names())
def test_a_description_leaves_nothing_out(method):
    said = describe_method(method_class(method), PromptLibrary())
    assert all(option["help"] for option in said["options"]), "an option without a word"
    assert said["paper"]
    assert said["about"]
    assert said["stages"] or said["calls"] == "0"


def test_a_method_of_another_package_need_not_name_its_stages():
    @dataclasses.dataclass
    class Theirs:
        """Without a class attribute `stages`."""

        name: ClassVar[str] = "msdp"
        paper: ClassVar[str] = "theirs"
        summary: ClassVar[str] = "theirs"
        required_sources: ClassVar[tuple[str, ...]] = ()
        calls: ClassVar[str] = "2"

    assert [stage["name"] for stage in describe_method(Theirs, PromptLibrary())["stages"]] == [
        "knowledge-generation",
        "response-generation",
    ]


def test_the_list_tells_sources_and_calls(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    listed = call("methods").out
    for words in ("dcrag", "[documents]", "17 calls", "samples"):
        assert words in listed
    (described,) = call("methods", "safari", "--json").lines
    assert described["optional_sources"] == ["sources", "persona", "documents", "graph", "web"]
    assert described["stages"][0]["prompt"] == "safari/planning"
    shown = call("methods", "scg-qp").out
    for words in ("scg-qp/topic-tracking", "en, zh", "differs from it", "dialore prompts PROMPT"):
        assert words in shown
