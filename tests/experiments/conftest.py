"""A small run: dialogues of our own, in Dialore's own form."""

from __future__ import annotations

import json
import random
import threading
import time

import pytest

from dialore.experiments.config import make_config
from dialore.llm.fake import plausible_answer
from tests.llm import server as replies

TOPICS = ["tea", "rain", "a train ride", "my garden", "an exam", "old films", "a sore throat", "bread"]


def write_dialogues(path, count):
    lines = []
    for number in range(count):
        topic = TOPICS[number % len(TOPICS)]
        turns = [f"I keep thinking about {topic}.", "Why is that?", f"Number {number} of my list is {topic}."]
        lines.append(json.dumps({"id": f"d{number}", "turns": turns, "reference": f"Tell me about {topic}."}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def config_of(tmp_path):
    """A run's configuration over so many dialogues."""

    def make(count=6, **changes):
        given = {
            "name": "small",
            "dataset": {"name": "jsonl", "path": str(write_dialogues(tmp_path / f"dialogues-{count}.jsonl", count))},
            "systems": ["vanilla", "dcrag"],
            "models": [{"model": "lexical"}],
            "concurrency": 8,
        }
        return make_config(given, changes)

    return make


def misbehaving(share: float, seed: int = 0):
    """A reply that is good but for a share of calls, which get 429, 500, silence, or broken JSON, in equal parts."""
    draw, lock, counts = random.Random(seed), threading.Lock(), {"good": 0, "bad": 0}

    def reply(handler):
        with lock:
            lot = draw.random()
            counts["good" if lot >= share else "bad"] += 1
        if lot >= share:
            wanted = (handler.asked.body.get("response_format") or {}).get("json_schema") or {}
            text = plausible_answer(handler.asked.body["messages"][-1]["content"], wanted.get("schema"))
            return replies.say(text)(handler)
        faults = [
            replies.status(429, "slow down", retry_after="0"),
            replies.status(500, "oops"),
            replies.hang(2.0),
            replies.say('{"explicit": ["tea", '),
        ]
        return faults[int(lot / share * len(faults))](handler)

    reply.counts = counts
    return reply


def wait_until(condition, seconds=20.0):
    """Wait for a condition; fail where it does not come."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come"
        time.sleep(0.005)
