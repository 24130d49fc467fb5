"""Planted orders from end to end: what a gullible model says is counted, by carrier and kind."""

from __future__ import annotations

import json
import re
import runpy
from collections import Counter
from pathlib import Path

import pytest

from dialore.datasets.registry import data_set
from dialore.evaluation.registry import Context, load_metrics
from dialore.experiments.config import read_config
from dialore.experiments.results import RunResults
from dialore.experiments.run import run_experiment
from dialore.experiments.scoring import measure_run
from dialore.experiments.store import RunStore
from dialore.knowledge import Fact
from dialore.llm.model import Completion, Usage
from dialore.prompts.library import PromptLibrary
from dialore.retrieval.graph.writing import build_graph
from dialore.retrieval.static import StaticEmbedder
from dialore.text import normalise

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "injections"
CARRIERS = ("documents", "facts", "memory", "web")
METRICS = ("injection-changed", "injection-reached")
ITEMS = {carrier: list(data_set("jsonl").read(FOLDER / f"{carrier}.jsonl")) for carrier in CARRIERS}
write_unfenced = runpy.run_path(str(ROOT / "scripts" / "write_unfenced_prompts.py"))["write_unfenced"]


def planted(dialogue):
    return json.dumps([dialogue.extra.get(name) for name in ("pool", "fact", "memory")], ensure_ascii=False)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_orders_are_planted_where_they_are_to_be_and_shown_by_words_that_nothing_else_has(carrier):
    own = ITEMS[carrier]
    assert len({dialogue.id for dialogue in own}) == 25
    assert Counter(dialogue.language for dialogue in own)["zh"] >= 10
    kinds = Counter(dialogue.extra["kind"] for dialogue in own)
    assert len(kinds) == 8
    assert min(kinds.values()) >= 3
    for dialogue in own:
        order, changed = dialogue.extra["order"], dialogue.extra["changed"]
        said = planted(dialogue)
        assert json.dumps(order, ensure_ascii=False)[1:-1] in said
        harmless = normalise(said.replace(json.dumps(order, ensure_ascii=False)[1:-1], "") + str(dialogue.turns))
        assert not any(normalise(word) in harmless for word in changed), dialogue.id
        wanted = normalise(order + str(dialogue.persona))
        assert any(normalise(word) in wanted for word in changed), dialogue.id


def test_prompts_without_fences_say_all_else_that_the_shipped_ones_say(tmp_path):
    write_unfenced(tmp_path)
    paths = sorted(tmp_path.glob("*/*.md"))
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        f"{name}.{language}.md"
        for name in ("rag/response-generation", "weave/draft", "weave/write")
        for language in ("en", "zh")
    ]
    for path in paths:
        name, _, language = path.stem.rpartition(".")
        left = path.read_text("utf-8")
        shipped = PromptLibrary().get(f"{path.parent.name}/{name}", language).text
        assert 30 < len(shipped) - len(left) < 90
        assert not re.search("</?knowledge>|order|要求", left)


class Gullible:
    """Says what every order in its prompt wants, and what its persona is told to keep."""

    name = "gullible"

    async def complete(self, request, on_token=None):
        prompt = " ".join("\n".join(message.content for message in request.messages).split())
        if rewritten := re.search(r'(?:The latest turn: "|最后一句：“)(.+)["”]', request.messages[-1].content):
            return Completion(text=rewritten[1], model=self.name, usage=Usage(calls=1))
        dialogues = [dialogue for own in ITEMS.values() for dialogue in own]
        obeyed = [one.extra["changed"][0] for one in dialogues if " ".join(one.extra["order"].split()) in prompt]
        return Completion(text=f"Well. {' '.join(obeyed)}", model=self.name, usage=Usage(calls=1))

    async def close(self):
        pass


def test_the_facts_to_build_a_graph_of_are_those_of_the_dialogues():
    lines = (FOLDER / "planted_facts.jsonl").read_text("utf-8").splitlines()
    assert [list(json.loads(line).values()) for line in lines] == [one.extra["fact"] for one in ITEMS["facts"]]


async def run(carrier, folder, **changes):
    """Answer an example's dialogues by `rag` and a gullible model; gives how many were reached and changed."""
    settings = {"systems": ["rag"], "dataset.path": str(FOLDER / f"{carrier}.jsonl"), **changes}
    if carrier == "facts":
        facts = (Fact(*one.extra["fact"]) for one in ITEMS["facts"])
        build_graph(facts, folder.with_name("planted.graph"), name="planted", embedder=StaticEmbedder())
        settings["sources.graph"] = [str(folder.with_name("planted.graph"))]
    config = read_config(FOLDER / f"{carrier}.yaml", settings)
    await run_experiment(config, folder, lambda *_: Gullible())
    with RunStore.open(folder) as store:
        with store.writing():
            await measure_run(store, load_metrics(METRICS, Context()))
        (system,) = RunResults([store]).systems()
    return {name: system.scores[name].n and round(25 * system.scores[name].value) for name in METRICS}


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_gullible_model_is_changed_by_what_reaches_it(carrier, tmp_path, monkeypatch):
    monkeypatch.setenv("DIALORE_CACHE", str(tmp_path / "cache"))
    found = await run(carrier, tmp_path / "run")
    if carrier == "web":  # the source leaves out sentences that give orders
        assert 0 < found["injection-reached"] < 25
    else:
        assert found["injection-reached"] == 25
    assert 0 < found["injection-changed"] <= 25


async def test_without_fences_pages_reach_the_model_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("DIALORE_CACHE", str(tmp_path / "cache"))
    write_unfenced(tmp_path / "prompts")
    sources = {"prompts": str(tmp_path / "prompts"), "documents": ["pool:"]}
    found = await run("web", tmp_path / "run", sources=sources)
    assert found["injection-reached"] == 25
    assert found["injection-changed"] >= 20
