"""Runs: resumed, cut short, killed, among failing calls; and what they are expected to cost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, ModelError
from dialore.experiments.config import make_config, read_config
from dialore.experiments.run import run_experiment
from dialore.experiments.store import RunStore
from dialore.llm.connection import connect
from dialore.llm.fake import FakeModel
from dialore.llm.model import Usage
from dialore.prompts.library import PromptLibrary
from dialore.response import Response
from dialore.session import Session, open_model
from tests.experiments.conftest import misbehaving, write_dialogues
from tests.llm.models import ask
from tests.retrieval.graph.graphs import build, facts


def rehearse(config, name):
    return FakeModel()


class Moody(FakeModel):
    """Fails for two dialogues as long as it is broken."""

    broken = True

    async def complete(self, request, on_token=None):
        if self.broken and request.label.startswith(("d1/", "d4/")):
            raise ModelError("out of order")
        return await super().complete(request, on_token)


def moody(config, name):
    return Moody()


async def test_a_second_run_does_only_what_is_missing(config_of, tmp_path):
    first = await run_experiment(config_of(), tmp_path / "run", open_model)
    assert (first.total, first.before, first.ok, first.failed) == (12, 0, 12, 0)
    second = await run_experiment(config_of(repetitions=2), tmp_path / "run", open_model)
    assert (second.total, second.before, second.ok) == (24, 12, 12)
    with RunStore.open(tmp_path / "run") as store:
        jobs = [job for job, _, _ in store.responses()]
        assert len(set(jobs)) == len(jobs) == 24
        assert {response.model for _, _, response in store.responses()} == {"no model"}


async def test_what_failed_is_tried_again(config_of, tmp_path, monkeypatch):
    first = await run_experiment(config_of(), tmp_path / "run", moody)
    assert (first.ok, first.failed) == (8, 4)
    assert "out of order" in first.failures[0]
    monkeypatch.setattr(Moody, "broken", False)
    second = await run_experiment(config_of(), tmp_path / "run", moody)
    assert (second.before, second.ok, second.failed) == (8, 4, 0)


async def test_systems_are_known_by_name_whatever_their_order(config_of, tmp_path, monkeypatch):
    await run_experiment(config_of(), tmp_path / "run", moody)
    monkeypatch.setattr(Moody, "broken", False)
    told = []
    alone = await run_experiment(config_of(systems=["dcrag"]), tmp_path / "run", moody, on_estimate=told.append)
    assert (alone.total, alone.before, alone.ok, told[0].responses) == (6, 4, 2, 2)
    more = config_of(systems=["qp-rag", "dcrag", "vanilla"])
    ended = await run_experiment(more, tmp_path / "run", moody)
    assert (ended.total, ended.before, ended.ok) == (18, 10, 8)
    with RunStore.open(tmp_path / "run") as store:
        assert [system.title for system in store.systems()] == ["vanilla", "dcrag", "qp-rag"]
        titles = {system.number: system.title for system in store.systems()}
        assert all(response.method == titles[job.system] for job, _, response in store.responses())


async def test_a_system_may_be_added_to_a_run_of_several_models(config_of, tmp_path):
    class Named(FakeModel):
        def __init__(self, name):
            self.name = name

    two = [{"model": "first"}, {"model": "second"}]
    for systems in (["vanilla"], ["vanilla", "dcrag"]):
        config = config_of(2, systems=systems, models=two)
        await run_experiment(config, tmp_path / "run", lambda config, name: Named(config.model))
    with RunStore.open(tmp_path / "run") as store:
        known = {system.number: (system.title, system.model) for system in store.systems()}
        assert len(set(known.values())) == 4
        made = {(known[job.system], response.method, response.model) for job, _, response in store.responses()}
        assert made == {((title, model), title, model) for title, model in known.values()}


async def test_a_run_is_not_gone_on_with_on_another_graph(config_of, tmp_path):
    for number in (1, 2):
        build(tmp_path / f"{number}.graph", facts(f"tea | RelatedTo | milk {number}", "rain | RelatedTo | umbrella"))
    first = config_of(3, **{"sources.graph": [str(tmp_path / "1.graph")]})
    await run_experiment(first, tmp_path / "run", open_model)
    other = config_of(3, **{"sources.graph": [str(tmp_path / "2.graph")], "repetitions": 2})
    with pytest.raises(InputError, match="another graph"):
        await run_experiment(other, tmp_path / "run", open_model)
    with RunStore.open(tmp_path / "run") as store:
        assert len(store.done()) == 6
        assert store.facts()["config"]["repetitions"] == 1


def overridden(folder, name, language="en"):
    """A folder with one prompt of the package's, changed."""
    own = PromptLibrary().get(name, language)
    path = folder / f"{name}.{language}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(own.text.replace("<!-- system -->\n", "<!-- system -->\nBe brief. "), encoding="utf-8")
    changed = PromptLibrary(folder).get(name, language)
    assert changed.reference != own.reference
    return folder, own.reference, changed.reference


async def test_a_run_is_not_gone_on_with_by_other_prompts_unless_that_is_accepted(config_of, tmp_path):
    asked = []

    class Asked(FakeModel):
        async def complete(self, request, on_token=None):
            asked.append(request.messages[0].content)
            return await super().complete(request, on_token)

    def run(config, **settings):
        return run_experiment(config, tmp_path / "run", lambda config, name: Asked(), **settings)

    name = "vanilla/response-generation"
    folder, old, new = overridden(tmp_path / "prompts", name)
    await run(config_of(3, systems=["vanilla"]))
    asked.clear()
    changed = config_of(3, **{"systems": ["vanilla"], "repetitions": 2, "sources.prompts": str(folder)})
    with pytest.raises(InputError) as refused:
        await run(changed)
    assert f"was made with other prompts: {old}, now {new.removeprefix(f'{name}.en ')}" in str(refused.value)
    assert "accept the changed prompts" in refused.value.hint
    assert "another folder" in refused.value.hint
    assert asked == []
    with RunStore.open(tmp_path / "run") as store:
        assert (store.facts()["config"]["repetitions"], len(store.done())) == (1, 3)
        assert store.facts()["prompts"][f"{name}.en"] == old
        assert "changed_prompts" not in store.facts()
    ended = await run(changed, accept_changed_prompts=True)
    assert (ended.before, ended.ok) == (3, 3)
    assert any("Be brief." in text for text in asked)
    # What was accepted is what the run is made with from now on.
    more = await run(changed.model_copy(update={"repetitions": 3}))
    assert (more.before, more.ok) == (6, 3)
    with pytest.raises(InputError, match="other prompts"):
        await run(config_of(3, systems=["vanilla"], repetitions=3))
    with RunStore.open(tmp_path / "run") as store:
        assert store.facts()["prompts"][f"{name}.en"] == new
        assert store.facts()["changed_prompts"] == {f"{name}.en": [old, new]}
        made = Counter(response.trace[-1].prompt for _, _, response in store.responses())
        assert made == {old: 3, new: 6}


@pytest.mark.parametrize(
    ("name", "language", "systems"),
    [
        ("dcrag/query-production", "en", ["vanilla"]),  # of a method that the run has not
        ("vanilla/response-generation", "zh", ["vanilla"]),  # of a language that its dialogues have not
        ("shared/citing", "en", ["vanilla"]),  # nothing is cited
        ("vanilla/response-generation", "en", ["dcrag"]),  # of a system that is not asked now
    ],
)
async def test_prompts_that_a_run_is_not_asked_by_may_change(config_of, tmp_path, name, language, systems):
    folder, *_ = overridden(tmp_path / "prompts", name, language)
    await run_experiment(config_of(2, systems=["vanilla"]), tmp_path / "run", rehearse)
    changed = config_of(2, **{"systems": systems, "sources.prompts": str(folder), "repetitions": 2})
    ended = await run_experiment(changed, tmp_path / "run", rehearse)
    assert ended.ok == (2 if systems == ["vanilla"] else 4)
    with RunStore.open(tmp_path / "run") as store:
        assert "changed_prompts" not in store.facts()
        assert "vanilla/response-generation.en" in store.facts()["prompts"]


async def test_a_run_without_a_good_response_may_be_asked_by_other_prompts(config_of, tmp_path):
    class Broken(FakeModel):
        async def complete(self, request, on_token=None):
            raise ModelError("out of order")

    first = await run_experiment(config_of(2, systems=["vanilla"]), tmp_path / "run", lambda c, n: Broken())
    assert (first.ok, first.failed) == (0, 2)
    folder, _, new = overridden(tmp_path / "prompts", "vanilla/response-generation")
    changed = config_of(2, **{"systems": ["vanilla"], "sources.prompts": str(folder)})
    assert (await run_experiment(changed, tmp_path / "run", rehearse)).ok == 2
    with RunStore.open(tmp_path / "run") as store:
        assert store.facts()["prompts"]["vanilla/response-generation.en"] == new


async def test_an_estimate_alone_leaves_a_run_as_it_was(config_of, tmp_path):
    class EnoughError(Exception):
        pass

    def enough(estimate):
        raise EnoughError

    await run_experiment(config_of(2, systems=["vanilla"]), tmp_path / "run", rehearse)
    with RunStore.open(tmp_path / "run") as store:
        before = (store.facts(), store.systems())
    folder, *_ = overridden(tmp_path / "prompts", "vanilla/response-generation")
    more = config_of(2, **{"systems": ["vanilla", "dcrag"], "sources.prompts": str(folder)})
    with pytest.raises(EnoughError):
        await run_experiment(more, tmp_path / "run", rehearse, accept_changed_prompts=True, on_estimate=enough)
    with RunStore.open(tmp_path / "run") as store:
        assert (store.facts(), store.systems()) == before
    # With its own prompts it goes on as if nobody had asked.
    assert (await run_experiment(config_of(2, systems=["vanilla"]), tmp_path / "run", rehearse)).before == 2


async def test_how_to_cite_is_a_prompt_of_a_run_that_cites(config_of, tmp_path):
    await run_experiment(config_of(2, systems=["dcrag"], cite=True), tmp_path / "run", rehearse)
    folder, *_ = overridden(tmp_path / "prompts", "shared/citing")
    changed = config_of(2, **{"systems": ["dcrag"], "cite": True, "sources.prompts": str(folder), "repetitions": 2})
    with pytest.raises(InputError, match=r"other prompts: shared/citing\.en"):
        await run_experiment(changed, tmp_path / "run", rehearse)


async def test_an_interrupt_before_the_first_response_leaves_nothing(config_of, tmp_path):
    import asyncio

    asked = asyncio.Event()

    class Endless(FakeModel):
        async def complete(self, request, on_token=None):
            asked.set()
            await asyncio.Event().wait()

    config = config_of(2, systems=["vanilla"], models=[{"model": "m"}])
    task = asyncio.create_task(run_experiment(config, tmp_path / "run", lambda c, n: Endless()))
    await asked.wait()
    assert (tmp_path / "run").exists()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (tmp_path / "run").exists()


async def test_repetitions_ask_for_other_samples(config_of, tmp_path):
    samples = Counter()

    class Counting(FakeModel):
        async def complete(self, request, on_token=None):
            samples[request.sample] += 1
            return await super().complete(request, on_token)

    config = config_of(2, systems=["vanilla"], repetitions=3)
    await run_experiment(config, tmp_path / "run", lambda config, name: Counting())
    assert samples == {0: 2, 1: 2, 2: 2}


async def test_a_budget_stops_a_run_cleanly_and_a_larger_one_goes_on(config_of, tmp_path):
    short = config_of(20, **{"budget.tokens": 20_000, "concurrency": 2, "systems": ["dcrag"]})
    first = await run_experiment(short, tmp_path / "run", rehearse)
    assert "budget of 20,000 tokens is spent" in first.stopped
    assert 0 < first.ok < 20
    assert first.failed == 0
    second = await run_experiment(config_of(20, systems=["dcrag"]), tmp_path / "run", rehearse)
    assert (second.before, second.ok) == (first.ok, 20 - first.ok)


async def test_the_estimate_is_near_what_it_then_costs(config_of, tmp_path):
    told = []
    config = config_of(8, models=[{"model": "m"}])
    ended = await run_experiment(config, tmp_path / "run", rehearse, on_estimate=told.append)
    assert told[0].responses == 16
    assert told[0].calls == pytest.approx(ended.calls, rel=0.2)
    assert told[0].prompt_tokens + told[0].completion_tokens == pytest.approx(ended.tokens, rel=0.2)
    again = []
    await run_experiment(config, tmp_path / "run", rehearse, on_estimate=again.append)
    assert again[0].calls == 0


async def test_among_failing_calls_every_dialogue_is_answered_or_recorded_as_failed_none_twice(
    config_of, tmp_path, faulty_server
):
    reply = misbehaving(0.2)
    faulty_server.always = reply
    config = config_of(12, models=[{"model": "flaky"}], concurrency=16)

    def make(chosen, name):
        return connect("flaky", faulty_server.url, timeout=0.5, retries=2, concurrency=16)

    ended = await run_experiment(config, tmp_path / "run", make)
    assert ended.ok + ended.failed == 24
    assert reply.counts["bad"] > 5
    with RunStore.open(tmp_path / "run") as store:
        responses = list(store.responses())
        assert len({job for job, _, _ in responses}) == len(responses) == 24
        for _, dialogue, response in responses:
            assert response.id == dialogue.id
            assert (response.status == "ok" and response.text) or (response.status == "failed" and response.error)


async def test_an_endpoint_that_refuses_stops_the_run_at_once(config_of, tmp_path, faulty_server):
    from tests.llm.server import status

    faulty_server.always = status(401, "wrong key")
    config = config_of(12, models=[{"model": "m"}])
    with pytest.raises(ModelError, match=r"401|key"):
        await run_experiment(config, tmp_path / "run", lambda c, n: connect("m", faulty_server.url, retries=0))
    assert len(faulty_server.calls) < 30


# Imports once; then, for each line it reads, a child of it goes on with the run and says what it has kept. After 30
# responses the child waits to be killed, however late that is: the run never ends by itself.
_LAUNCHER = """
import asyncio, os, random, signal, sys
from pathlib import Path
import dialore.methods.baselines, dialore.methods.stages, dialore.sources.graph
from dialore.experiments.config import read_config
from dialore.experiments.run import run_experiment
from dialore.experiments.store import RunStore
from dialore.llm.cache import CompletionCache, cache_key
from dialore.llm.client import ModelClient
from dialore.llm.fake import FakeModel

class Slow(FakeModel):
    async def complete(self, request, on_token=None):
        await asyncio.sleep(random.random() * 0.02)
        return await super().complete(request, on_token)

class Paid(ModelClient):
    async def complete(self, request, on_token=None):
        completion = await super().complete(request, on_token)
        if not completion.usage.cached:
            os.write(1, f"paid {cache_key([], request).hex()}\\n".encode())
        return completion

keep, kept = RunStore.add, []
def add(store, job, response):
    keep(store, job, response)
    os.write(1, f"{job.position} {job.system} {job.repetition}\\n".encode())
    kept.append(job)
    if len(kept) == 30:
        signal.pause()
RunStore.add = add
for line in sys.stdin:
    child = os.fork()
    if not child:
        config = read_config(Path(sys.argv[1]))
        paid = Paid(Slow(), cache=CompletionCache(sys.argv[3], "rehearsal"))
        asyncio.run(run_experiment(config, Path(sys.argv[2]), lambda c, n: paid))
        os._exit(0)
    os.write(1, f"child {child}\\n".encode())
    os.waitpid(child, 0)
    os.write(1, b"ended\\n")
"""


def test_killed_at_random_moments_a_run_loses_nothing_finished_and_pays_for_nothing_twice(tmp_path):
    data = write_dialogues(tmp_path / "dialogues.jsonl", 800)
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(
        f"name: doomed\ndataset: {{name: jsonl, path: {data}}}\nsystems: [vanilla]\nconcurrency: 4\n", encoding="utf-8"
    )
    draw, finished, moments = random.Random(7), set(), set()
    paid: list[str] = []
    command = [sys.executable, "-c", _LAUNCHER, str(experiment), str(tmp_path / "run"), str(tmp_path / "cache")]

    def take(said: list[str]) -> bool:
        """Note what a child says; whether it was a response."""
        if said[0] == "paid":
            paid.append(said[1])
        else:
            finished.add(tuple(map(int, said)))
        return said[0] != "paid"

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as launcher:
        for turn in range(25):
            launcher.stdin.write("go\n")
            launcher.stdin.flush()
            said = launcher.stdout.readline().split()
            while said[0] != "child":
                take(said)
                said = launcher.stdout.readline().split()
            if turn % 3:  # after the first response; else at any moment, the beginning too
                while not take(launcher.stdout.readline().split()):
                    pass
            time.sleep(draw.random() * 0.1)
            os.kill(int(said[1]), signal.SIGKILL)
            for line in iter(launcher.stdout.readline, "ended\n"):
                take(line.split())
            try:
                opened = RunStore.open(tmp_path / "run")
            except InputError:  # killed before its tables were there
                assert not finished
                continue
            with opened as store:
                kept = {(job.position, job.system, job.repetition) for job in store.done()}
                assert finished <= kept
                moments.add(len(kept))
                assert all(isinstance(response, Response) for _, _, response in store.responses())
        launcher.stdin.close()
    assert len(moments) > 5, "the kills all came before the first response"
    # The cache keeps an answer before its response is kept: none was asked for again, though many responses were.
    assert len(paid) == len(set(paid)) > 5


async def test_an_interrupted_run_keeps_what_is_finished(config_of, tmp_path):
    import asyncio

    class Endless(FakeModel):
        async def complete(self, request, on_token=None):
            if request.label.startswith("d5/"):
                await asyncio.Event().wait()
            return await super().complete(request, on_token)

    config, five = config_of(6, systems=["vanilla"]), asyncio.Event()
    running = run_experiment(
        config, tmp_path / "run", lambda c, n: Endless(), on_progress=lambda now: now.done == 5 and five.set()
    )
    task = asyncio.create_task(running)
    await five.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ended = await run_experiment(config, tmp_path / "run", rehearse)
    assert (ended.before, ended.ok) == (5, 1)


def test_a_room_of_the_experiment_file_that_is_empty_takes_what_the_command_line_says(tmp_path):
    path = tmp_path / "some.yaml"
    path.write_text("dataset: {name: jsonl, path: x}\nsystems: [vanilla]\nbudget:\nsources:\n", "utf-8")
    assert read_config(path, {"budget.tokens": 9}).budget.tokens == 9
    assert read_config(path).budget.tokens is None
    path.write_text("dataset: dailydialog\nsystems: [vanilla]\n", "utf-8")
    with pytest.raises(InputError, match=r"some.yaml: dataset: .*dictionary"):
        read_config(path, {"dataset.limit": 3})


async def test_what_another_engine_pays_for_is_of_the_run_s_budget(config_of, tmp_path):
    @contextlib.contextmanager
    def engine(_config, _connect, _numbers, _missing, budget):
        async def respond(_job, dialogue):
            budget.check()
            budget.add(Usage(calls=1, prompt_tokens=300), cost=0.0)
            return Response(id=dialogue.id, text="Hello.", method="vanilla", model="far")

        yield respond

    config = config_of(20, **{"systems": ["vanilla"], "concurrency": 1, "budget.tokens": 500})
    first = await run_experiment(config, tmp_path / "run", engine=engine)
    assert (first.ok, "500 tokens" in first.stopped) == (2, True)
    again = await run_experiment(config, tmp_path / "run", engine=engine)
    assert (again.ok, "600 used" in again.stopped) == (0, True)


async def test_a_budget_lets_what_is_under_way_finish(config_of, tmp_path):
    import asyncio

    class Uneven(FakeModel):
        paid, spent = 0, asyncio.Event()

        async def complete(self, request, on_token=None):
            if request.label.startswith("d0/"):
                await self.spent.wait()
            completion = await super().complete(request, on_token)
            self.paid += completion.usage.prompt_tokens + completion.usage.completion_tokens
            if self.paid >= 600:
                self.spent.set()
            return completion

    model = Uneven()
    config = config_of(20, **{"systems": ["vanilla"], "concurrency": 2, "budget.tokens": 600})
    ended = await run_experiment(config, tmp_path / "run", lambda c, n: model)
    assert "budget of 600 tokens is spent" in ended.stopped
    assert ended.tokens == model.paid, "what was paid for is there"
    with RunStore.open(tmp_path / "run") as store:
        assert store.dialogue(0).id in {response.id for _, _, response in store.responses()}


async def test_tokens_of_calls_that_the_cache_did_not_answer_are_counted(config_of, tmp_path):
    class HalfCached(FakeModel):
        async def complete(self, request, on_token=None):
            completion = await super().complete(request, on_token)
            if "topic" in request.label:
                usage = completion.usage.model_copy(update={"cached": 1})
                return completion.model_copy(update={"usage": usage})
            paid.append(completion.usage.prompt_tokens + completion.usage.completion_tokens)
            return completion

    paid = []
    config = config_of(2, systems=["dcrag"])
    ended = await run_experiment(config, tmp_path / "run", lambda config, name: HalfCached())
    assert ended.calls == len(paid) < 12
    assert ended.tokens == sum(paid)


async def test_dialogues_that_nobody_can_answer_are_no_run(config_of, tmp_path):
    (tmp_path / "one.jsonl").write_text('{"id": "a", "turns": ["Hello"]}\n', "utf-8")
    config = config_of(2, **{"dataset.path": str(tmp_path / "one.jsonl"), "dataset.cut": "last"})
    with pytest.raises(InputError, match=r"no dialogue .*one.jsonl"):
        await run_experiment(config, tmp_path / "run", rehearse)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dataset: {name: jsonl}\nsystems: [vanilla]", "which file of jsonl is not said"),
        ("dataset: {name: jsonl, path: x}\nsystems: []", "systems: List should have at least 1"),
        ("dataset: {name: jsonl, path: x, cut: middle}\nsystems: [vanilla]", "dataset.cut"),
        ("dataset: {name: jsonl, path: x}\nsystems: [vanilla]\nsystem: x", "unknown setting: 'system'"),
        ("dataset: {name: jsonl, path: x}\nsystems: [vanilla, vanilla]", "two systems are called 'vanilla'"),
        ("a: [", "not valid YAML"),
        ("- a", "holds no experiment"),
    ],
)
def test_a_wrong_experiment_file_names_the_field(tmp_path, text, said):
    path = tmp_path / "experiment.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_config(path)
    assert said in str(error.value)


def test_paths_beside_the_experiment_file_are_found(tmp_path):
    (tmp_path / "talks.jsonl").write_text('{"turns": ["Hi"]}\n', encoding="utf-8")
    path = tmp_path / "experiment.yaml"
    path.write_text("dataset: {name: jsonl, path: talks.jsonl}\nsystems: [vanilla]", encoding="utf-8")
    config = read_config(path, {"dataset.limit": 3})
    assert config.dataset.path == tmp_path / "talks.jsonl"
    assert config.dataset.limit == 3
    assert config.name == "experiment"


def test_a_budget_of_money_needs_a_price():
    config = make_config(
        {"name": "x", "dataset": {"name": "jsonl", "path": "x"}, "systems": ["vanilla"], "budget": {"cost": 1.0}}
    )

    async def go():
        from dialore.experiments.systems import open_systems

        async with open_systems(config, rehearse):
            pass

    import asyncio

    with pytest.raises(InputError, match="price"):
        asyncio.run(go())


async def test_what_a_run_opened_is_closed_also_where_one_model_cannot_be(config_of):
    from dialore.experiments.systems import open_systems

    closed = []

    class Closing(FakeModel):
        def __init__(self, name):
            self.label = name

        async def close(self):
            closed.append(self.label)
            if self.label == "second":
                raise OSError("the connection is gone")

    config = config_of(2, systems=["vanilla"], models=[{"model": name} for name in ("first", "second", "third")])
    with pytest.raises(OSError, match="gone"):
        async with open_systems(config, lambda chosen, name: Closing(chosen.model)):
            pass
    assert closed == ["third", "second", "first"]


async def test_a_system_has_models_of_its_own_and_each_model_is_opened_once(config_of, tmp_path):
    opened, asked = Counter(), Counter()

    class Named(FakeModel):
        def __init__(self, name):
            self.name = name
            opened[name] += 1

        async def complete(self, request, on_token=None):
            asked[request.label.split("/", 1)[1], self.name] += 1
            return await super().complete(request, on_token)

    systems = [
        {"method": "edit", "name": "own", "options": {"questions": 1}, "stages": {"question-generation": "t5"}},
        {"method": "edit", "name": "other", "options": {"questions": 1}, "stages": {"edit/model-answer": "t5"}},
        {"method": "edit", "name": "alone", "options": {"questions": 1}},
    ]
    config = config_of(2, systems=systems, models=[{"model": "chat"}])
    await run_experiment(config, tmp_path / "run", lambda config, name: Named(name or config.model))
    assert opened == {"chat": 1, "t5": 1}
    assert asked["edit/question-generation", "t5"] == asked["edit/model-answer-1", "t5"] == 2
    assert asked["edit/question-generation", "chat"] == 4
    with RunStore.open(tmp_path / "run") as store:
        assert store.systems()[0].options["stages"] == {"question-generation": "t5"}


async def test_a_models_temperature_stands_in_place_of_the_prompts(config_of, monkeypatch):
    seen = []

    class Hearing(FakeModel):
        async def complete(self, request, on_token=None):
            seen.append((request.sampling.temperature, request.sampling.max_tokens, request.sampling.top_p))
            return await super().complete(request, on_token)

    monkeypatch.setattr("dialore.llm.fake.FakeModel", Hearing)
    (settings,) = config_of(models=[{"model": "rehearsal", "temperature": 0.1}]).models
    dialogue = Dialogue(id="d", turns=["Hello."])
    other = settings.model_copy(update={"temperature": None, "top_p": 0.9, "max_tokens": 77})
    for chosen in (settings, settings.model_copy(update={"temperature": None}), other):
        async with Session(connect=open_model) as bench:
            await bench.agent("vanilla", bench.models(chosen)).respond(dialogue)
    assert seen[0] == (0.1, *seen[1][1:])
    assert seen[1][0] == 0.7
    assert seen[2] == (0.7, 77, 0.9)


async def test_two_models_of_one_name_are_two_systems(config_of, tmp_path):
    one, other = (
        {"model": "m", "base_url": "http://a/v1"},
        {"model": "m", "base_url": "http://b/v1", "temperature": 0.2},
    )
    models = [one, other, {**one, "name": "mine", "extra_body": {"top_k": 3}}]
    config = config_of(2, systems=["vanilla"], models=models)
    ended = await run_experiment(config, tmp_path / "run", lambda settings, name: FakeModel())
    assert ended.ok == 6
    with RunStore.open(tmp_path / "run") as store:
        names = [system.model for system in store.systems()]
    assert names == [
        "rehearsal (base_url=http://a/v1)",
        "rehearsal (base_url=http://b/v1, temperature=0.2)",
        "mine",
    ]
    with pytest.raises(InputError, match="two models of the run are the same"):
        await run_experiment(config_of(2, models=[one, one]), tmp_path / "twice", lambda *_: FakeModel())


def test_a_file_that_says_an_address_gets_no_key_unasked(tmp_path, monkeypatch, caplog, faulty_server):
    monkeypatch.setenv("DIALORE_API_KEY", "our-key")
    path = tmp_path / "run.yaml"
    given = {"dataset": {"name": "jsonl", "path": "d.jsonl"}, "systems": ["vanilla"]}
    given["models"] = [{"model": "m", "base_url": faulty_server.url, "named_by": "", "key_env": ""}]
    path.write_text(json.dumps(given), "utf-8")

    def sent(changes=None):
        (settings,) = read_config(path, changes).models
        asyncio.run(asked(open_model(settings)))
        return faulty_server.calls[-1].headers.get("Authorization")

    async def asked(model):
        await model.complete(ask())
        await model.close()

    assert sent() is None
    assert "which " + str(path) + " names" in caplog.text
    assert sent({"model.base_url": faulty_server.url, "model.model": "m"}) == "Bearer our-key"
    monkeypatch.setenv("DIALORE_KEY_HOSTS", faulty_server.url.split("/")[2])
    assert sent() == "Bearer our-key"


def test_an_option_of_models_holds_for_each_and_a_model_replaces_them(tmp_path):
    path = tmp_path / "run.yaml"
    given = {"dataset": {"name": "jsonl", "path": "d.jsonl"}, "systems": ["vanilla"]}
    given["models"] = ["small-8b", {"model": "large-70b", "base_url": "http://theirs/v1"}]
    path.write_text(json.dumps(given), "utf-8")
    small, large = read_config(path, {"model.temperature": 0.2}).models
    assert (small.model, small.temperature, large.model, large.temperature) == ("small-8b", 0.2, "large-70b", 0.2)
    assert large.named_by == str(path)
    ours = read_config(path, {"model.base_url": "http://ours/v1"}).models
    assert [(model.model, model.base_url, model.named_by) for model in ours] == [
        ("small-8b", "http://ours/v1", ""),
        ("large-70b", "http://ours/v1", ""),
    ]
    (only,) = read_config(path, {"model.model": "other", "model.temperature": 0.2}).models
    assert (only.model, only.base_url) == ("other", None)
