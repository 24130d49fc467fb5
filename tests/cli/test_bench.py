"""`dialore bench pipeline` and the endpoint it brings."""

from __future__ import annotations

import json
import math
import statistics
import urllib.request

import pytest

from dialore.agent import open_graph
from dialore.cli.bench.dialogues import made_up
from dialore.cli.bench.endpoint import Waits, answer
from dialore.cli.bench.measures import cacheable_share, percentile
from dialore.llm.structured import output_schema
from dialore.llm.wire import Dialect
from dialore.methods.demands import SelectedFacts, ThoughtRevision
from dialore.response import Response, StageTrace


def asked(model, content):
    from dialore.llm.model import Message, Request

    request = Request(messages=(Message(role="user", content=content),), output_schema=output_schema(model))
    return Dialect().body("wait-0", request, stream=False)


def test_the_endpoint_answers_in_the_wanted_form():
    revision = ThoughtRevision.model_validate_json(answer(asked(ThoughtRevision, "Me: honey helps my throat")))
    assert "honey" in revision.explicit
    facts = answer(asked(SelectedFacts, "Facts found:\n[1] (a, IsA, b)\n[2] (c, IsA, d)"))
    assert SelectedFacts.model_validate_json(facts).selected == [1, 2]


def test_the_endpoint_waits_as_its_models_name_says(url):
    import time

    body = {"model": "wait-120", "messages": [{"role": "user", "content": "Me: hello"}]}
    sent = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode())
    begun = time.perf_counter()
    with urllib.request.urlopen(sent) as response:
        assert json.load(response)["choices"][0]["message"]["content"]
    assert time.perf_counter() - begun >= 0.12


def test_the_cacheable_share_is_that_of_common_prefixes():
    def response(*prompts):
        messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
        return Response(id="x", method="m", trace=[StageTrace(stage="s", messages=each) for each in messages])

    one = "user\n" + "a" * 95
    assert cacheable_share([response("a" * 95)]) == 0
    assert cacheable_share([response("a" * 95, "a" * 95)]) == pytest.approx(0.5)
    shared = cacheable_share([response("a" * 95), response("a" * 45 + "b" * 50)])
    assert shared == pytest.approx(50 / (2 * len(one)))


def test_percentiles():
    assert percentile([3.0], 95) == 3.0
    assert percentile([float(value) for value in range(101)], 95) == pytest.approx(95)


def test_made_up_dialogues_hit_the_graph_and_stay_the_same():
    graph = open_graph(None)
    try:
        dialogues = made_up(graph, 5)
        assert dialogues == made_up(graph, 5)
        assert len({dialogue.history for dialogue in dialogues}) == 5
        assert all(len(graph.mentions(dialogue)) >= 2 for dialogue in dialogues)
    finally:
        graph.close()


def test_the_pipeline(call):
    settings = ("bench", "pipeline", "--dialogues", 3, "--latency", 60, "--batch", 4, "--batch-latency", 20)
    figures = json.loads(call(*settings, "--connections", 4, "--json").out)
    assert figures["calls_per_response"] == 6
    assert figures["sequential_steps"] == 4
    assert figures["wall_over_latency"] >= 4
    assert figures["batch"]["calls"] >= 20
    assert 0 < figures["batch"]["over_ideal"] <= 1
    assert 0 < figures["cacheable_prefix_share"] < 1
    assert figures["cpu_per_call_ms"]["median"] > 0
    assert figures["peak_memory_mb"] > 10


def test_the_pipeline_in_words(call):
    done = call("bench", "pipeline", "-M", "t-rag", "--dialogues", 1, "--latency", 0, "--batch", 0)
    assert done.code == 0
    for words in ("our CPU a model call", "sequential steps", "prompt in a cacheable prefix", "peak memory"):
        assert words in done.out
    assert "did you mean t-rag" in call("bench", "pipeline", "-M", "trag").complaint


def test_lognormal_latencies_are_as_their_name_says_and_the_same_again():
    waits, again = Waits(), Waits()
    times = [waits.next("lognormal-200-0.6-7") for _ in range(4000)]
    assert times[:50] == [again.next("lognormal-200-0.6-7") for _ in range(50)]
    assert times[:50] != [again.next("lognormal-200-0.6-8") for _ in range(50)]
    assert statistics.median(times) == pytest.approx(0.2, rel=0.05)
    assert statistics.stdev([math.log(each) for each in times]) == pytest.approx(0.6, rel=0.05)
    assert waits.waited["lognormal-200-0.6-7"] == [4000, pytest.approx(sum(times))]
    assert [waits.next(name) for name in ("wait-50", "wait-0", "other")] == [0.05, 0.0, 0.0]


def test_the_run_bench(call):
    settings = ("bench", "run", "--dialogues", 12, "--connections", 4, "--median", 30)
    figures = json.loads(call(*settings, "--memory", 2, "--responses", 8, "--json").out)
    ours, batch, stages, bare = figures["loops"]
    assert ours["way"] == "dialore run"
    assert (ours["dialogues"], batch["dialogues"], stages["dialogues"], bare["dialogues"]) == (12, 12, 12, 0)
    assert ours["calls"] == stages["calls"] == bare["calls"] >= 60
    for loop in figures["loops"]:
        assert loop["over_ideal"] == pytest.approx(loop["ideal"] / loop["seconds"])
        assert loop["ideal"] == pytest.approx(0.036 * loop["calls"] / 4, rel=0.4)
        assert loop["cpu"] > 0
        assert 0 < loop["endpoint_cpu"] <= loop["seconds"]
    assert ours["half"] < ours["seconds"]
    assert list(figures["memory"]) == ["2", "8"]
    assert all(peak > 20 for peak in figures["memory"].values())
    assert figures["scoring"]["responses"] == 8
    assert set(figures["scoring"]["unavailable"]) <= {"meteor"}


def test_the_run_bench_in_words(call):
    settings = ("--dialogues", 4, "--connections", 2, "--median", 5, "--memory", 0, "--responses", 0)
    done = call("bench", "run", *settings)
    assert done.code == 0
    for words in ("gather per batch", "of the ideal", "95%", "bare HTTP calls", "CPU a call of the endpoint"):
        assert words in " ".join(done.out.split())


def test_the_graph_bench_asks_every_store_alike(call):
    figures = json.loads(call("bench", "graph", "--facts", "2000", "--questions", "3", "--json").out)
    assert figures["build"]["facts"] == figures["graph"]["facts"] == pytest.approx(2000, rel=0.05)
    assert {"dialore", "sqlite"} <= set(figures["stores"])
    assert all(store["equal"] for store in figures["stores"].values())
    for name in ("plain", "hub"):
        assert 0 < figures["demands"][name]["again"]["p50"] <= figures["demands"][name]["again"]["p99"]
