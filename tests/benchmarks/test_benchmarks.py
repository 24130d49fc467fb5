"""The benchmarks, on sizes that take seconds: what they measure is there, and of the right order."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
import urllib.request

import pytest
from benchmarks.__main__ import app
from benchmarks.endpoint import Waits, answer, endpoint
from benchmarks.made_up import made_up
from benchmarks.measure import ROOT, percentile
from benchmarks.pipeline import cacheable_share

from dialore import load_run, run_experiment
from dialore.errors import InputError, UnknownNameError
from dialore.llm.capabilities import ServerCapabilities
from dialore.llm.model import Message, Request
from dialore.llm.structured import output_schema
from dialore.methods.dcrag import SelectedFacts, ThoughtRevision
from dialore.methods.registry import method_names
from dialore.response import Response, StageTrace
from dialore.sources.graph import open_graph

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cache(new_cache):
    return new_cache()


@pytest.fixture(autouse=True)
def at_home(cache, monkeypatch):
    monkeypatch.setenv("DIALORE_CACHE", cache)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))


@pytest.fixture(scope="module")
def url():
    with endpoint() as base_url:
        yield base_url


@pytest.fixture
def bench(capsys):
    """Run `python -m benchmarks` in this process; its JSON."""

    def run(*arguments):
        app([*map(str, arguments), "--json"], standalone_mode=False)
        return json.loads(capsys.readouterr().out)

    return run


def asked(model, content):
    request = Request(messages=(Message(role="user", content=content),), output_schema=output_schema(model))
    return ServerCapabilities().body("wait-0", request, stream=False)


def test_the_endpoint_answers_in_the_wanted_form():
    revision = ThoughtRevision.model_validate_json(answer(asked(ThoughtRevision, "Me: honey helps my throat")))
    assert "honey" in revision.explicit
    facts = answer(asked(SelectedFacts, "Facts found:\n[1] (a, IsA, b)\n[2] (c, IsA, d)"))
    assert SelectedFacts.model_validate_json(facts).selected == [1, 2]


def test_the_endpoint_waits_as_its_models_name_says(url):
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
        assert all(len(graph.mentions(dialogue.texts)) >= 2 for dialogue in dialogues)
    finally:
        graph.close()


def test_lognormal_latencies_are_as_their_name_says_and_the_same_again():
    waits, again = Waits(), Waits()
    times = [waits.next("lognormal-200-0.6-7") for _ in range(4000)]
    assert times[:50] == [again.next("lognormal-200-0.6-7") for _ in range(50)]
    assert times[:50] != [again.next("lognormal-200-0.6-8") for _ in range(50)]
    assert statistics.median(times) == pytest.approx(0.2, rel=0.05)
    assert statistics.stdev([math.log(each) for each in times]) == pytest.approx(0.6, rel=0.05)
    assert waits.waited["lognormal-200-0.6-7"] == [4000, pytest.approx(sum(times))]
    assert [waits.next(name) for name in ("wait-50", "wait-0", "other")] == [0.05, 0.0, 0.0]


def test_pipeline(bench):
    figures = bench("pipeline", "--dialogues", 1, "--latency", 0, "--passages", 200)
    found = {cost["method"].rstrip("*"): cost for cost in figures["methods"]}
    assert sorted(found) == method_names()
    dcrag = found["dcrag"]
    assert (dcrag["calls"], dcrag["steps"], dcrag["sources"], found["edit"]["calls"]) == (6, 4, "graph", 17)
    assert all(cost["cpu_ms"] > 0 for cost in found.values())
    asking = [cost for cost in found.values() if cost["calls"]]
    assert all(0 < cost["cacheable"] <= cost["cacheable_in_talk"] <= 1 for cost in asking)
    assert found["pplm"]["method"] == "pplm*"
    assert figures["plan"]["passages"] == 200
    assert figures["peak_memory_mb"] > 10
    assert figures["import_ms"] > 1


def test_one_method_and_a_name_that_is_none(bench):
    (cost,) = bench("pipeline", "--dialogues", 1, "--latency", 0, "--passages", 20, "-M", "t-rag")["methods"]
    assert cost["method"] == "t-rag"
    with pytest.raises(UnknownNameError, match="did you mean t-rag"):
        bench("pipeline", "-M", "trag")


def test_run(bench):
    figures = bench("run", "--dialogues", 12, "--connections", 4, "--median", 30, "--memory", 2)
    ours, batch, stages, bare = figures["loops"]
    assert ours["way"] == "dialore run"
    assert [loop["dialogues"] for loop in figures["loops"]] == [12, 12, 12, 0]
    assert batch["calls"] >= 60
    assert ours["calls"] == stages["calls"] == bare["calls"] >= 60
    for loop in figures["loops"]:
        # The ideal: latencies of 36 ms on average, four at a time.
        assert loop["over_ideal"] * loop["seconds"] == pytest.approx(0.036 * loop["calls"] / 4, rel=0.4)
        assert loop["cpu_ms"] > 0
        assert loop["endpoint_cpu_ms"] > 0
    assert ours["half"] < ours["seconds"]
    assert [run["dialogues"] for run in figures["memory"]] == [2, 8]
    assert all(run["peak_memory_mb"] > 20 and run["disk_mb"] > 0 for run in figures["memory"])


def test_scoring(bench):
    pytest.importorskip("sacrebleu", reason="the evaluation extra is not installed")
    figures = bench("scoring", "--responses", 8)
    assert figures["responses"] == 8
    assert figures["metrics"] > 20
    labelled = ("handbook-", "clarifies", "conversation-", "injection-")
    unavailable = {name for name in figures["unavailable"] if not name.startswith(labelled)}
    assert unavailable <= {"meteor", "meteor-nlgeval", "idk-lexical", "idk-rouge-l"}


def test_graph_asks_every_store_alike(bench):
    figures = bench("graph", "--facts", 2000, "--questions", 3)
    assert figures["build"]["facts"] == figures["graph"]["facts"] == pytest.approx(2000, rel=0.05)
    assert {"dialore", "sqlite"} <= {store["store"] for store in figures["stores"]}
    assert all(store["answers"] == "equal" for store in figures["stores"])
    for name in ("plain", "hub"):
        assert 0 < figures["asked"][name]["asked again"]["p50"] <= figures["asked"][name]["asked again"]["p99"]


def test_figures_as_tables(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    app(["graph", "--facts", "1000", "--questions", "1", "--no-rivals"], standalone_mode=False)
    out = capsys.readouterr().out
    for words in ("with a hub, never asked before", "p95", "build_s", "wanted under"):
        assert words in out


def test_documents(bench):
    figures = bench("documents", "--passages", 300, "--questions", 3, "--kills", 2, "--writing", 0.5)
    assert figures["build"]["passages"] == 300
    assert figures["build"]["size_mb"] > 0
    asked = [figures["asked"][name] for name in ("bm25", "dense", "fused")]
    assert all(0 < each["p50"] <= each["p95"] for each in asked)
    assert figures["killed"]["index_whole_after"] == figures["killed"]["writers"] == 2
    assert figures["while_writing"]["questions"] > 0


def test_growth_measures_what_is_missing_and_draws(tmp_path):
    pytest.importorskip("matplotlib", reason="the report extra is not installed")

    def grow(*arguments):
        app(["growth", str(tmp_path), *map(str, arguments)], standalone_mode=False)
        return json.loads((tmp_path / "growth.json").read_text(encoding="utf-8"))

    first = grow("--graph", 1000, "--documents", 100, "--runs", 2, "-M", "vanilla")
    assert [(kind, list(sizes)) for kind, sizes in first.items()] == [
        ("graph", ["1000"]),
        ("documents", ["100"]),
        ("runs", ["2"]),
    ]
    again = grow("--graph", 2000, "--graph", 1000)
    assert list(again["graph"]) == ["1000", "2000"]
    assert again["graph"]["1000"] == first["graph"]["1000"]
    for kind in ("graph", "documents", "runs"):
        assert "</svg>" in (tmp_path / f"growth-{kind}.svg").read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="memory and CPU are read from /proc")
def test_serve(bench):
    pytest.importorskip("fastapi", reason="the serve extra is not installed")
    small = ("--conversations", 4, "--seconds", 0.2, "--latency", 50, "--requests", 20, "--passages", 20)
    small += ("--steady", 2, "--thinking", 0.5, "--idle", 0)
    figures = bench("serve", *small)
    rows = {(row["target"], row["arriving"]): row for row in figures["streams"]}
    assert len(rows) == 15
    assert all(row["streams"] > 0 for row in rows.values())
    assert all(row["after_idle"] <= row["before"] + 20 for row in figures["files"])
    assert all(row["errors"] == 0 and 0 < row["added_ms_p50"] <= row["added_ms_p95"] for row in rows.values())
    assert all(row["cpu_ms"] > 0 for (target, _), row in rows.items() if target != "endpoint alone")
    overload = figures["overload"]
    assert overload["errors"] == 0
    assert 0 < overload["refused"] == overload["with_retry_after"] == 12 - overload["answered"]
    (memory,) = figures["memory"]
    assert memory["errors"] == 0
    assert 20 < memory["mb_at_20"] < 2 * memory["mb_at_2"]


@pytest.mark.skipif(sys.platform != "linux", reason="files and sockets are counted in /proc")
def test_faults(bench):
    pytest.importorskip("fastapi", reason="the serve extra is not installed")
    rows = {row["fault"]: row for row in bench("faults", "--requests", 4, "--idle", 1)["faults"]}
    assert len(rows) == 6
    assert {row["lost"] for row in rows.values()} == {0}
    assert rows["down before"]["errors"] == "4 stage_failed"
    assert all(
        rows[name]["answered"] == 4 for name in rows if name not in {"down before", "down in mid stream", "client gone"}
    )


async def test_a_run_is_compared_with_the_scores_that_are_kept_of_it(bench, tmp_path, capsys):
    config = {
        "name": "tried",
        "dataset": {"name": "everyday", "limit": 4},
        "systems": ["vanilla"],
        "models": [{"model": "rehearsal"}],
    }
    await run_experiment(config, tmp_path / "run")
    await load_run(tmp_path / "run").score("f1", "rouge-l")
    with pytest.raises(InputError, match="no scores are kept for tried"):
        bench("expected", tmp_path / "run", "--folder", tmp_path)
    app(["expected", str(tmp_path / "run"), "--folder", str(tmp_path), "--write"], standalone_mode=False)
    found = bench("expected", tmp_path / "run", "--folder", tmp_path)
    assert {row["verdict"] for row in found["scores"]} == {"as expected"}
    assert {row["score"] for row in found["scores"]} >= {"f1", "rouge-l", "responses", "failed", "calls"}
    (path,) = tmp_path.glob("*.json")
    kept = json.loads(path.read_text("utf-8"))
    kept["vanilla"]["rouge-l"] = [0.9, 0.8, 1.0]
    kept["vanilla"]["f1"] = [-1.0, -2.0, -0.5]
    kept["vanilla"]["bleu"] = [1.0, 0.5, 2.0]
    del kept["vanilla"]["failed"]
    path.write_text(json.dumps(kept), "utf-8")
    asked = ["expected", str(tmp_path / "run"), "--folder", str(tmp_path), "--json"]
    capsys.readouterr()
    assert app(asked, standalone_mode=False) == 1
    verdicts = {row["score"]: row["verdict"] for row in json.loads(capsys.readouterr().out)["scores"]}
    wanted = {"rouge-l": "worse", "f1": "better", "bleu": "missing", "failed": "new", "calls": "as expected"}
    assert wanted.items() <= verdicts.items()
    kept["vanilla"]["responses"] = [50, None, None]
    path.write_text(json.dumps(kept), "utf-8")
    with pytest.raises(InputError, match="has 4 responses here and 50 there"):
        app(asked, standalone_mode=False)
