"""A conversation of fifty turns over three days in Chromium: what held when, in the replies and on the page Memory."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from tests.server.browsing import checked
from tests.server.conftest import Scripted, wait_until

expect = pytest.importorskip("playwright.sync_api", reason="the clients extra is not installed").expect
CLOCKS = ("sources.memory", "methods.memory_extraction", "server.store", "server.service")
SMALL_TALK = ("Good to hear.", "Tell me more.", "Really?", "That sounds nice.", "Let us go on.", "Fair enough.")
# What is said, as the model notes it, and what that ends or, where it begins with "?", may end.
FRIDAY = (
    ("My name is Ann.", "My name is Ann.", ""),
    ("These days I live in Leeds.", "I live in Leeds.", ""),
    ("I work as a nurse.", "I work as a nurse.", ""),
    ("I have two cats.", "I have two cats.", ""),
    ("I love steak.", "I love steak.", ""),
    ("I have a dog called Bello.", "I have a dog called Bello.", ""),
    ("The museum was closed because of a flood.", "", ""),
    ("My favourite colour is green.", "My favourite colour is green.", ""),
)
MONDAY = (
    ("Guess what, I moved to York.", "I moved to York.", "I live in Leeds."),
    ("I work as a teacher now.", "I work as a teacher.", "I work as a nurse."),
    ("I have three cats now.", "I have three cats.", "I have two cats."),
    ("I am a vegan.", "I am a vegan.", "?I love steak."),
    ("My dog Bello has died.", "My dog Bello has died.", "I have a dog called Bello."),
    ("As I said, my favourite colour is green.", "My favourite colour is green.", ""),
    ("I ski.", "I ski.", ""),
)
# What is asked, what the reply is given, and what it is not.
WEDNESDAY = (
    ("Where do I live?", "I moved to York.", "Leeds"),
    ("Where did I live last week?", '"Me", 2026-11-20, held until 2026-11-23', "York"),
    ("What did I work as on 20 November?", "I work as a nurse.", "museum"),
    ("What do I work as?", "I work as a teacher.", "nurse"),
    ("How many cats do I have?", "I have three cats.", "two cats"),
    ("How many cats did I have last week?", "I have two cats.", "three cats"),
    ("Am I a vegan?", 'may contradict "I love steak.": ask which holds', "Leeds"),
    ("Why was the museum closed?", "because of a flood", "Leeds"),
)


class Attentive(Scripted):
    """Notes what the script says, looks questions up, and replies with the likeliest line that it is given."""

    given = ""

    async def complete(self, request, on_token=None):
        prompt = "\n".join(message.content for message in request.messages)
        turn = re.findall(r'^The latest turn, of "Me": "(.*)"$', prompt, re.MULTILINE)
        last = request.messages[-1].content
        query = max((asked for asked, *_ in WEDNESDAY), key=last.rfind)
        query = query if query in last else ""
        output = None
        if request.label.endswith("/extraction"):
            earlier = {text: int(number) for number, text in re.findall(r"^(\d+)\. (.*)$", prompt, re.MULTILINE)}
            statements = []
            for said, text, ended in (*FRIDAY, *MONDAY):
                if turn[-1] == said and text:
                    number = [earlier[ended.lstrip("?")]] if ended else []
                    statements.append({"text": text, "unsure" if ended[:1] == "?" else "replaces": number})
            output = {"statements": statements}
        elif request.output_schema:
            output = {"needs": [{"what": query, "source": "memory", "query": query, "asked": True}] if query else []}
        else:
            given = re.findall(r"<knowledge>(.*?)</knowledge>", prompt, re.DOTALL)
            lines = given[-1].strip().splitlines() if given else ["I see."]
            asked = set(re.findall(r"\w+", query.lower()))
            self.text = max(lines, key=lambda line: len(asked & set(re.findall(r"\w+", line.lower()))))
            self.given = " ".join(lines)
        if output is None:
            return await super().complete(request, on_token)
        made = await Scripted("x").complete(request)
        return made.model_copy(update={"text": json.dumps(output)})


@pytest.fixture
def today(monkeypatch):
    """Sets what day it is for the service."""

    def is_now(day):
        class Clock(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime(2026, 11, day, 12, tzinfo=UTC).astimezone(tz)

        for module in CLOCKS:
            monkeypatch.setattr(f"dialore.{module}.datetime", Clock)

    return is_now


def test_memory_is_right_about_what_held_when(serving, page, today):
    today(20)
    running = serving(Attentive())
    running.http.put("/v1/memory/consent", json={"user": "page", "consents": True})

    def say(text):
        turns = page.get_by_role("article", name="Response")
        number = turns.count()
        page.get_by_role("textbox", name="Your message").fill(text)
        page.keyboard.press("Enter")
        expect(turns).to_have_count(number + 1)
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        expect(page.locator(".draft, .stage")).to_have_count(0)
        wait_until(lambda: not running.service._tasks)
        return turns.last.locator(".written").inner_text()

    turns = 0
    for day, told in ((20, FRIDAY), (23, MONDAY), (25, WEDNESDAY)):
        today(day)
        page.goto(running.url)
        if day == 25:
            page.get_by_role("button", name="New conversation").click()
        for number, (text, first, second) in enumerate(told):
            reply = say(text)
            turns += 1
            if day == 25:
                assert first in reply, (text, reply, running.model.given)
                assert second not in running.model.given, (text, running.model.given)
            else:
                for small in SMALL_TALK[number % 2 :: 3]:
                    say(small)
                    turns += 1
    assert turns >= 50, turns

    history = running.http.get("/v1/memory?user=page&history=true").json()["data"]
    assert len(history) == 13, "of what was said twice one is kept"
    page.goto(f"{running.url}/#/knowledge")
    page.get_by_role("button", name="Memory").click()
    pieces = page.locator(".pieces .piece .quoted")
    now = ["I ski.", "My dog Bello has died.", "I am a vegan.", "I have three cats.", "I work as a teacher."]
    now += ["I moved to York.", "My favourite colour is green.", "I love steak.", "My name is Ann."]
    expect(pieces).to_have_count(len(now))
    assert set(pieces.all_inner_texts()) == set(now)
    vegan = page.locator(".piece", has_text="I am a vegan.")
    expect(vegan).to_contain_text("May contradict “I love steak.”: you will be asked which holds.")
    page.get_by_label("As it was on").fill("2026-11-21")
    expect(page.locator(".piece", has_text="I live in Leeds.")).to_contain_text(
        "Held from Nov 20, 2026 to Nov 23, 2026"
    )
    assert set(pieces.all_inner_texts()) == {text for _, text, _ in FRIDAY if text}
    page.get_by_label("Also what held before").check()
    leeds = page.locator(".piece.past", has_text="I live in Leeds.")
    expect(leeds).to_contain_text("Held from Nov 20, 2026 to Nov 23, 2026, then: “I moved to York.”")
    expect(pieces).to_have_count(13)
    checked(page, "memory-history")
    page.get_by_role("button", name="Edit: I live in Leeds.").click()
    checked(page, "memory-edit")
    page.get_by_label("Statement").fill("I lived in Leeds, near the river.")
    page.get_by_label("Holds since").fill("2020-03-01")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".piece.past", has_text="near the river")).to_contain_text("Held from Mar 1, 2020")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as a file").click()
    lines = [json.loads(line) for line in saved.value.path().read_text("utf-8").splitlines()]
    assert len(lines) == 13
    assert "near the river" in json.dumps(lines)
