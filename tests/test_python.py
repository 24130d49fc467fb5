"""Dialore from Python, as a notebook's user writes it: what is taken, what is said of mistakes, and what is shown."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading

import pytest

import dialore
from dialore import (
    Agent,
    Dialogue,
    DialoreError,
    InMemoryPassages,
    Passage,
    Response,
    Session,
    Settings,
    Utterance,
    connect,
    create_agent,
    load_run,
    read_dialogues,
    run_experiment,
)
from dialore.errors import InputError
from dialore.llm.fake import FakeModel
from dialore.methods.baselines import Vanilla
from dialore.methods.edit import Edit
from dialore.settings import ModelSettings

MESSAGES = [
    {"role": "user", "content": "Hi!"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": [{"type": "text", "text": "I have a cold."}]},
]
CAFE = InMemoryPassages(["We open at nine.", "A flat white is two shots of espresso with milk."])


def agent(method="vanilla", **parts):
    return create_agent(method, model="rehearsal", **parts)


def answer(*given, **named):
    return agent().respond_sync(*given, **named)


def answer_all(*given, **named):
    async def collect():
        return [response async for response in agent().respond_all(*given, **named)]

    return asyncio.run(collect())


def run(*given, **named):
    return asyncio.run(run_experiment(*given, **named))


DATA = {"name": "jsonl", "path": "no such.jsonl"}
MISTAKES = {
    "a method's name": (lambda: create_agent("dcragg"), "did you mean dcrag"),
    "a number as method": (lambda: create_agent(42), 'method="dcrag"'),
    "a class as method": (lambda: create_agent(Vanilla, model="rehearsal"), 'method="dcrag"'),
    "a made method with options": (
        lambda: agent(Vanilla(), options={"prompt_variant": "paper"}),
        r"to it: Vanilla\(",
    ),
    "a made method with sources": (
        lambda: agent(Vanilla(), sources={"documents": CAFE}),
        r"to it: Vanilla\(",
    ),
    "a number as model": (lambda: create_agent(model=42), r'model="gpt-4o".*connect\('),
    "another client as model": (lambda: create_agent(model=object()), r'model="gpt-4o".*connect\('),
    "a function as model": (lambda: create_agent(model=connect), r'model="gpt-4o".*connect\('),
    "a class as model": (lambda: create_agent(model=FakeModel), r'model="gpt-4o".*connect\('),
    "a mapping as model": (lambda: create_agent(model={"model": "gpt-4o"}), r'model="gpt-4o".*connect\('),
    "a model without an endpoint": (lambda: create_agent(model="gpt-4o"), r"model\.base_url"),
    "a number as stage's model": (lambda: agent(stage_models={"response": 3}), r'model="gpt-4o"'),
    "text as stages' models": (lambda: agent(stage_models="gpt-4o"), "give a mapping: stage_models="),
    "a number as graph": (lambda: agent("dcrag", graph=42), "give a path, or an open source"),
    "no such graph": (lambda: agent("dcrag", graph="nope.graph"), "no such graph: nope.graph"),
    "text as sources": (lambda: agent("edit", sources="handbook"), "give a mapping: sources="),
    "a source's name": (lambda: agent("edit", sources={"docs": "handbook"}), "did you mean documents"),
    "a number as source": (lambda: agent("edit", sources={"documents": 42}), r"InMemoryPassages\(texts\)"),
    "a class as source": (lambda: agent("edit", sources={"documents": InMemoryPassages}), r"InMemoryPassages\(texts\)"),
    "nothing as source": (lambda: agent("edit", sources={"documents": []}), r"InMemoryPassages\(texts\)"),
    "a persona as documents": (
        lambda: agent("edit", sources={"documents": {"I sail.": []}}),
        r"InMemoryPassages\(texts\)",
    ),
    "a source that is no graph": (lambda: agent("dcrag", graph=CAFE), "give a path, or an open source"),
    "text as index": (lambda: agent("edit", sources={"documents": ["We open at nine."]}), "no such document index"),
    "an unread source": (lambda: agent(sources={"documents": CAFE}), "no use for the source documents"),
    "citing without": (lambda: agent("msdp", cite=True), r"no use for citations \(cite\)"),
    "citing in words": (lambda: agent(cite="no"), "cite=True or cite=False"),
    "text as options": (lambda: agent(options="limit=5"), "give a mapping: options="),
    "an option's name": (lambda: agent("dcrag", options={"limt": 5}), "did you mean limit"),
    "an option's value": (lambda: agent("dcrag", options={"limit": "many"}), "'many' is not a whole number"),
    "no such prompts": (lambda: agent(prompts="nope"), "no such prompt folder"),
    "a number as prompts": (lambda: agent(prompts=42), "create_agent: prompts"),
    "a number to answer": (lambda: answer(42), r"Dialogue\(\["),
    "nothing to answer": (answer, r'respond\("I have a cold\."\)'),
    "an empty turn": (lambda: answer(""), "must not be empty"),
    "no turn": (lambda: answer([]), "field turns"),
    "a field's name": (lambda: answer({"turn": ["Hi!"]}), "did you mean turns"),
    "numbers as turns": (lambda: answer([1, 2]), r"field turns\[0\]"),
    "bytes": (lambda: answer(b"Hi!"), r"Dialogue\(\["),
    "two things to answer": (lambda: answer("Hi!", messages=MESSAGES), "a dialogue and messages"),
    "text as messages": (lambda: answer(messages="Hi!"), r'messages=\[\{"role": "user"'),
    "texts as messages": (lambda: answer(messages=["Hi!"]), r'message 1 .*messages=\[\{"role": "user"'),
    "no messages": (lambda: answer(messages=[]), "field turns"),
    "a message without content": (lambda: answer(messages=[{"role": "user"}]), r"field turns\[0\].text"),
    "a message without role": (lambda: answer(messages=[{"content": "Hi!"}]), 'turns are of "user" and "assistant"'),
    "a system prompt": (lambda: answer(messages=[{"role": "system", "content": "Be brief."}]), "persona="),
    "the assistant's turn": (lambda: answer(messages=MESSAGES[:2]), "end with the user's message"),
    "a number as content": (lambda: answer(messages=[{"role": "user", "content": 3}]), r"field turns\[0\].text"),
    "an empty dialogue": (Dialogue, "field turns: Field required"),
    "a number as dialogue": (lambda: Dialogue(42), r"Dialogue\(turns=\[\.\.\.\]"),
    "a keyword's name": (lambda: Dialogue("Hi!", languge="zh"), "did you mean language"),
    "a language": (lambda: Dialogue("Salut !", language="xx"), "'en' or 'zh'"),
    "a turn without text": (lambda: Dialogue(turns=[{"speaker": "user"}]), r"field turns\[0\].text"),
    "text as many": (lambda: answer_all("Hi!"), r"respond_all\(\[dialogue\]\)"),
    "one as many": (lambda: answer_all(Dialogue("Hi!")), r"respond_all\(\[dialogue\]\)"),
    "a mapping as many": (lambda: answer_all({"turns": ["Hi!"]}), r"respond_all\(\[dialogue\]\)"),
    "a number among many": (lambda: answer_all(["Hi!", 3]), r"Dialogue\(\["),
    "none at a time": (lambda: answer_all(["Hi!"], concurrency=0), "concurrency=8"),
    "words at a time": (lambda: answer_all(["Hi!"], concurrency="8"), "concurrency=8"),
    "a number to stream": (lambda: list(agent().stream_sync(4)), r"Dialogue\(\["),
    "text as shelf": (lambda: InMemoryPassages("We open at nine."), r"InMemoryPassages\(\["),
    "numbers on a shelf": (lambda: InMemoryPassages([42]), r"InMemoryPassages\(\["),
    "a number as passage": (lambda: InMemoryPassages([Passage(42)]), r"InMemoryPassages\(\["),
    "nothing as shelf": (lambda: InMemoryPassages(None), r"InMemoryPassages\(\["),
    "a shelf's kind": (lambda: InMemoryPassages(["We open."], kind="docs"), "did you mean documents"),
    "a shelf's retriever": (lambda: InMemoryPassages(["We open."], retriever="bm"), "did you mean bm25"),
    "a number to connect": (lambda: connect(42), r"connect\(model=\.\.\.\): "),
    "an address without http": (lambda: connect("m", base_url="localhost:8000"), "give a full URL"),
    "a number as address": (lambda: connect("m", base_url=8000), r"connect\(base_url=\.\.\.\): "),
    "a field of no utterance": (
        lambda: Utterance(speaker="user", txt="x"),
        r"Utterance\(\.\.\.\): field text: Field required",
    ),
    "a field of no setting": (
        lambda: Settings(modl="m"),
        r"Settings\(\.\.\.\): unknown setting: 'modl' \(did you mean model",
    ),
    "a setting that cannot be": (lambda: ModelSettings(temperature=-1), r"ModelSettings\(\.\.\.\): temperature: "),
    "a word as time": (lambda: connect("m", timeout="soon"), r"connect\(timeout=\.\.\.\): "),
    "an unknown setting": (lambda: connect("m", temprature=1), "model.temprature"),
    "retries below none": (lambda: connect("m", retries=-1), r"connect\(retries=\.\.\.\): "),
    "sources of a session": (lambda: Session("handbook"), "sources: "),
    "a key of a session": (lambda: Session({"docs": "handbook"}), "did you mean documents"),
    "no such run": (lambda: load_run("nope"), r"no run in nope \(make one with `dialore run`\)"),
    "a number as run": (lambda: load_run(42), "give a path"),
    "no such experiment": (lambda: run("nope.yaml"), "no such file: nope.yaml"),
    "a number as experiment": (lambda: run(42), r'run_experiment\("experiment.yaml"'),
    "an empty experiment": (lambda: run({}), "dataset: Field required; systems: Field required"),
    "a system's name": (lambda: run({"systems": ["vanila"], "dataset": DATA}), "did you mean vanilla"),
    "text as systems": (lambda: run({"systems": "vanilla", "dataset": DATA}), "systems: "),
    "no such data": (lambda: run({"systems": ["vanilla"], "dataset": DATA}), "no such file: no such.jsonl"),
    "a number as folder": (lambda: run({"systems": ["vanilla"], "dataset": DATA}, 42), "give a path"),
    "no such dialogues": (lambda: read_dialogues("nope.jsonl"), "no such file: nope.jsonl"),
    "a number as dialogues": (lambda: read_dialogues(42), "give a path"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_that_speaks_python(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, said = MISTAKES[name]
    with pytest.raises(DialoreError, match=said) as caught:
        make()
    line = str(caught.value)
    assert "\n" not in line
    assert not re.search(r"(^|\s)--[a-z]", re.sub(r"`[^`]*`", "", line)), line


# --- what is taken


def test_a_dialogue_makes_its_id_and_takes_texts():
    one, same = Dialogue("I have a cold."), Dialogue(turns=["I have a cold."])
    assert one == same
    assert re.fullmatch(r"dialogue-[0-9a-f]{12}", one.id)
    assert one.id != Dialogue("I have a flu.").id
    assert Dialogue(["Hi!", "Hello."]).turns[0].speaker == "system"
    assert Dialogue("Hi!", id="mine", note="kept").extra == {"note": "kept"}
    assert Dialogue.model_validate_json(one.model_dump_json()) == one


async def test_whatever_says_a_dialogue_is_answered():
    async with agent() as made:
        by_messages = await made.respond(messages=MESSAGES)
        for given in (
            Dialogue(["Hi!", "Hello.", "I have a cold."]),
            ["Hi!", "Hello.", "I have a cold."],
            {"turns": ["Hi!", "Hello.", "I have a cold."]},
        ):
            assert (await made.respond(given)).text == by_messages.text
        assert (await made.respond("I have a cold.")).status == "ok"
        assert (await made.ground("I have a cold.")).status == "ok"


def test_sources_are_paths_or_open_and_a_method_may_be_made(tmp_path):
    (tmp_path / "me.txt").write_text("I sail.\n", "utf-8")
    with agent("safari", sources={"persona": str(tmp_path / "me.txt"), "documents": CAFE}) as made:
        assert made.method.documents is CAFE
        assert made.respond_sync("Do you sail?").status == "ok"
    with agent("safari", sources={"persona": tmp_path / "me.txt"}) as made:
        assert made.method.persona is not None
    with agent(Edit(documents=CAFE, questions=2)) as made:
        assert made.respond_sync("When do you open?").method == "edit"


async def test_python_has_the_model_of_the_environment(faulty_server, monkeypatch):
    monkeypatch.setenv("DIALORE_BASE_URL", faulty_server.url)
    monkeypatch.setenv("DIALORE_MODEL", "theirs")
    monkeypatch.setenv("DIALORE_TEMPERATURE", "0.1")
    async with create_agent("vanilla") as made:
        assert (await made.respond("Hi!")).model == "theirs"
    async with create_agent("vanilla", model="mine", stage_models={"response-generation": "other"}) as made:
        assert made.stage_runner.name == "mine"
        assert made.stage_runner.stages["response-generation"].name == "other"
    assert faulty_server.requests[0].body["temperature"] == 0.1


def test_without_any_model_it_is_said(caplog, monkeypatch):
    monkeypatch.setattr("dialore.llm.connection.ollama_models", list)
    with create_agent("vanilla") as made:
        assert made.method.name == "lexical"
    assert "no model: what was found is shown" in caplog.text
    caplog.clear()
    with create_agent("vanilla", model=None) as made:
        assert made.method.name == "lexical"
    assert not caplog.text


# --- without await


async def test_the_synchronous_forms_work_inside_a_running_loop(faulty_server):
    here = threading.get_ident()
    async with create_agent("vanilla", model=connect("m", base_url=faulty_server.url)) as made:
        first = made.respond_sync("Hi!")
        second = made.respond_sync(messages=MESSAGES)  # on the connections of the first
        *pieces, whole = made.stream_sync("Hi!")
        mixed = await made.respond("Hi!")
    assert [first.status, second.status, whole.status, mixed.status] == ["ok"] * 4, first.error
    assert "".join(pieces) == whole.text
    assert threading.get_ident() == here


def test_a_stream_may_be_left_and_an_error_passes():
    class Breaks(FakeModel):
        async def complete(self, request, on_token=None):
            raise KeyError("a fault of ours")

    with agent() as made:
        assert next(iter(made.stream_sync("Hi!")))
    with pytest.raises(KeyError, match="a fault of ours"):
        create_agent("vanilla", model=Breaks()).respond_sync("Hi!")


async def test_many_come_in_order_and_say_how_far_they_are(capsys):
    class Backwards(FakeModel):
        async def complete(self, request, on_token=None):
            await asyncio.sleep(0.01 * (5 - int(request.label.partition("/")[0])))
            return await super().complete(request, on_token)

    dialogues = [Dialogue("Hi!", id=str(number)) for number in range(5)]
    told = []

    def tell(*at):
        told.append(at)

    async with create_agent("vanilla", model=Backwards()) as made:
        loose = [each.id async for each in made.respond_all(dialogues)]
        kept = [each.id async for each in made.respond_all(dialogues, ordered=True, progress=tell)]
        shown = [each.id async for each in made.respond_all(iter(dialogues), ordered=True, progress=True)]
    assert sorted(loose) == kept == shown == [each.id for each in dialogues]
    assert loose != kept
    assert told == [(number, 5) for number in range(1, 6)]
    assert "\r5 answered" in capsys.readouterr().err


# --- what is shown


def test_what_a_notebook_shows_is_short_and_whole():
    with create_agent("edit", model=None, sources={"documents": CAFE}) as made:
        response = made.respond_sync("When <b>do</b> you open?")
        sources = "persona='persona', memory='memory', documents='documents'"
        assert repr(made) == f"Agent(method='lexical', model='no model', {sources})"
        assert "<td" in made._repr_html_()
    assert len(repr(response)) < 300
    assert response.used[0].text == "We open at nine."
    page = response._repr_html_()
    assert "We open at nine.<sup>1</sup>" in page
    assert "<details><summary>2 pieces of knowledge</summary>" in page
    assert "documents-search" in page
    failed = Response(id="x", status="failed", error="<script>")
    assert "&lt;script&gt;" in failed._repr_html_()
    assert "<script>" not in failed._repr_html_()
    assert "failed" in repr(failed) or "error" in repr(failed)
    assert isinstance(made, Agent)


@pytest.fixture
def made_run(tmp_path):
    pytest.importorskip("pandas", reason="the evaluation extra is not installed")
    lines = [{"id": f"d{n}", "turns": ["Hi!", f"I have {n} cats."], "reference": f"{n} cats!"} for n in range(6)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", "utf-8")
    said = {
        "dataset": {"name": "jsonl", "path": str(tmp_path / "d.jsonl")},
        "systems": ["vanilla", {"method": "vanilla", "name": "paper", "options": {"prompt_variant": "paper"}}],
    }
    ended = run(said, str(tmp_path / "run"), changes={"model.model": "rehearsal"})
    assert (ended.ok, ended.failed) == (12, 0)
    return load_run(str(tmp_path / "run"))


def test_a_run_gives_data_frames(made_run):
    with pytest.raises(InputError, match=r"nothing is scored.*run\.score"):
        made_run.scores()
    assert "distinct-2" not in made_run.responses()
    scores = asyncio.run(made_run.score("bleu-1", "distinct-2", "f1"))
    assert scores.groupby("metric").size().to_dict() == {"bleu-1": 2, "distinct-2": 2, "f1": 2}
    assert scores[scores.metric == "f1"].n.tolist() == [6, 6]
    responses = made_run.responses()
    assert len(responses) == 12
    assert responses.dialogue.nunique() == 6
    assert "distinct-2" not in responses  # single responses have none
    means = responses.groupby("system").f1.mean()
    for row in scores[scores.metric == "f1"].itertuples():
        assert means[row.system] == pytest.approx(row.value)
    compared = made_run.compare("paper", "vanilla").set_index("metric")
    f1 = compared.loc["f1"]
    assert f1.difference == pytest.approx(f1.paper - f1.vanilla)
    assert f1.pairs == 6
    assert repr(made_run).endswith("systems=vanilla, paper, dialogues=6, responses=12, metrics=bleu-1, distinct-2, f1)")
    assert "bleu-1" in made_run._repr_html_()


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda run: run.compare("papr", "vanilla"), "did you mean paper"),
        (lambda run: run.compare("paper", 3), "unknown system"),
        (lambda run: asyncio.run(run.score("bleuu")), "did you mean bleu"),
        (lambda run: asyncio.run(run.score(["f1"])), r'run\.score\("bleu-1"'),
        (lambda run: asyncio.run(run.score("f1", grap="starter")), "did you mean graph"),
        (lambda run: asyncio.run(run.score("meep", judge=3)), 'model="gpt-4o"'),
    ],
)
def test_a_mistake_with_a_run_is_one_line(made_run, work, said):
    asyncio.run(made_run.score("f1"))
    with pytest.raises(DialoreError, match=said):
        work(made_run)


def test_without_pandas_the_extra_is_named(made_run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"a DataFrame needs an optional dependency \(pip install .*\[evaluation\]'\)"):
        made_run.responses()


def test_the_import_stays_light_and_names_are_completed():
    assert dir(dialore) == dialore.__all__
    assert all(getattr(dialore, name) is not None for name in dialore.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dialore.nothing
    script = "import sys, dialore; print([m for m in ('numpy', 'pydantic', 'asyncio', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
