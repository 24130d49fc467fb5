"""Decisions: learned from what people looked up, the same twice, used by scg-qp without a call, bad input refused."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from dialore.errors import InputError
from dialore.methods.registry import create_method
from dialore.methods.stages import StageContext
from dialore.trained import open_trained

pytest.importorskip("lightgbm")

from dialore.learned.decision import read_decisions, train_decision


def pairs(count, seed, searched=lambda asks: asks):
    """Dialogues in the few-shot benchmark's form: questions about things are searched, small talk is not."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        turns, queries = [], []
        for _ in range(4):
            asks = draw.random() < 0.5
            thing = draw.choice(["jazz", "hiking", "chess", "bread", "the moon"])
            said = draw.choice([f"Who first wrote about {thing}?", f"What is the history of {thing}?"])
            chat = draw.choice(["Ha, that is so nice of you!", "Same here, I love it.", "Thank you, have a good day."])
            turns.append([f"{said if asks else chat} {100 * seed + number}", "I see."])
            queries.append([f"history of {thing}"] if searched(asks) else [])
        empty = [[] for _ in turns]
        made.append({"id": f"{seed}-{number}", "meta": [], "dialogue": turns, "query": queries, "KB": empty})
    return made


def write(path, entries):
    path.write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decision")
    examples = read_decisions("wizard-of-internet", write(folder / "train.json", pairs(40, 1)))
    for name in ("one", "two"):
        train_decision(examples, lambda *_: None).save(folder / name, examples)
    return folder


def test_it_decides_dialogues_that_it_has_not_seen_and_is_the_same_twice(made, tmp_path):
    held = read_decisions("wizard-of-internet", write(tmp_path / "held.json", pairs(20, 2)))
    decision = open_trained(str(made / "one"), "decision")
    found = [decision.decide(one) for one in held.dialogues]
    right = [yes == bool(label) for (yes, _), label in zip(found, held.labels, strict=True)]
    assert sum(right) / len(right) > 0.9
    assert all(0 < chance < 1 for _, chance in found)
    for name in ("arrays.npz", "classes.txt", "model.json"):
        assert (made / "one" / name).read_bytes() == (made / "two" / name).read_bytes()


class Nobody:
    """A responder that is not to be asked, and a web that holds nothing."""

    name = "web"
    kind = "web"

    async def answer(self, call, *_):
        assert call.prompt != "scg-qp/search-decision"
        return call.output(text="jazz")

    async def search(self, *_):
        return []


def test_scg_qp_decides_without_a_call(made, tmp_path):
    option = f"trained:{made / 'one'}"
    method = create_method("scg-qp", {"web": Nobody()}, {"decision": option})
    held = read_decisions("wizard-of-internet", write(tmp_path / "held.json", pairs(10, 3)))
    for label in (0, 1):
        dialogue = held.dialogues[held.labels.tolist().index(label)]
        stages = StageContext(Nobody(), "scg-qp", dialogue)
        grounding = asyncio.run(method.ground(dialogue, stages))
        assert bool(grounding.demands.queries) == bool(label)
        assert stages.trace[0].output["kind"] == ("none", "passive")[label]
    assert create_method("scg-qp", {"web": Nobody()}, {"decision": "false"}).decision is False
    with pytest.raises(InputError, match="holds no trained model"):
        create_method("scg-qp", {"web": Nobody()}, {"decision": "trained:nowhere"})


def test_a_shift_is_knowledge_about_another_thing_than_before(tmp_path):
    def said(*names):
        attrs = [[{"name": name, "attrname": "is", "attrvalue": "so"}] if name else [] for name in names]
        return {
            "name": names[0],
            "messages": [{"message": f"{name}呀", "attrs": each} for name, each in zip(names, attrs, strict=True)],
        }

    path = write(tmp_path / "kd.json", [said("甲", "甲", "乙", "", "乙", "丙", "丙")] * 10)
    examples = read_decisions("kdconv", path, label="shift")
    assert examples.labels.tolist() == [1, 0, 1, 0] * 10


@pytest.mark.parametrize(
    ("name", "label", "entries", "message"),
    [
        ("kbp", "search", [], "kbp has no query to learn from"),
        ("wizard-of-internet", "sarch", [], "did you mean search"),
        ("wizard-of-internet", "search", pairs(20, 1, lambda _: True), "no 0 times"),
        ("wizard-of-internet", "search", pairs(3, 1), "3 dialogues cannot be divided"),
    ],
)
def test_bad_input_is_refused(tmp_path, name, label, entries, message):
    with pytest.raises(InputError, match=message):
        read_decisions(name, write(tmp_path / "train.json", entries), label=label)
