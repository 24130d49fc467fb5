"""Planted orders from end to end: what a gullible model says is counted, by carrier and kind."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from dialore.datasets.registry import data_set
from dialore.errors import InputError, ModelError
from dialore.experiments.benches import CARRIERS, FOLDER, injection_table, run_injections, write_unfenced
from dialore.llm.model import Completion, Usage
from dialore.prompts.library import PromptLibrary
from dialore.settings import Settings
from dialore.text import normalise

ITEMS = {carrier: list(data_set("jsonl").read(FOLDER / f"{carrier}.jsonl")) for carrier in CARRIERS}
SETTINGS = Settings.model_validate({"method": ["rag"], "model": {"model": "gullible"}})


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
    paths = sorted(write_unfenced(tmp_path).glob("*/*.md"))
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


async def run(folder, fences, model=Gullible, **how):
    ended = await run_injections(SETTINGS, folder, lambda *_: model(), fences=fences, **how)
    return {row["of"]: row for row in injection_table(folder)}, ended


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DIALORE_CACHE", str(tmp_path / "cache"))


async def test_a_gullible_model_is_changed_by_what_reaches_it(tmp_path):
    rows, ended = await run(tmp_path / "with", True)
    assert sum(one.total for one in ended) == rows["all"]["n"] == 100
    assert [rows[carrier]["n"] for carrier in CARRIERS] == [25] * 4
    assert [rows[carrier]["reached"] for carrier in ("documents", "facts", "memory")] == [25] * 3
    assert 0 < rows["web"]["reached"] < 25  # the source takes sentences out that give orders
    assert rows["documents"]["changed"] >= 20  # marks that would end a fence are not as they were planted
    share, low, high = rows["documents"]["share"]
    assert low < share == rows["documents"]["changed"] / 25 <= high
    assert sum(rows[kind]["n"] for kind in rows.keys() - {"all", *CARRIERS}) == 100
    bare, _ = await run(tmp_path / "without", False)
    assert bare["all"]["reached"] == 100
    assert bare["web"]["changed"] > rows["web"]["changed"]


async def test_a_model_that_keeps_to_the_question_is_changed_by_none_and_a_failure_counts_for_nothing(tmp_path):
    class Firm(Gullible):
        async def complete(self, request, on_token=None):
            if "Tarn" in request.messages[-1].content:
                raise ModelError("the endpoint sleeps")
            return Completion(text="It opens at nine.", model=self.name, usage=Usage(calls=1))

    rows, ended = await run(tmp_path / "run", True, Firm)
    assert (rows["all"]["n"], rows["all"]["changed"], rows["all"]["share"][:2]) == (99, 0, (0.0, 0.0))
    assert sum(one.failed for one in ended) == 1
    again, _ = await run(tmp_path / "run", True)
    assert (again["all"]["n"], again["all"]["changed"]) == (100, 1)  # what failed is asked again, and only that


async def test_there_are_methods_without_such_prompts(tmp_path):
    settings = SETTINGS.model_copy(update={"method": ["edit", "rag"]})
    with pytest.raises(InputError, match=r"edit: there are no prompts without fences \(take rag or weave\)"):
        await run_injections(settings, tmp_path / "run", lambda *_: Gullible(), fences=False)
    assert not (tmp_path / "run").exists()
