"""What models put around a response is taken off, and a reader of the stream gets exactly the final text."""

from __future__ import annotations

import random
import re

import pytest

from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.llm.model import Completion, Usage
from dialore.llm.streams import FilteredStream
from dialore.methods.baselines import Vanilla
from dialore.methods.cleaning import CleanFilter, clean_response
from dialore.methods.stage_runner import LLMRunner
from dialore.prompts.history import friend_labels
from dialore.prompts.library import PromptLibrary
from dialore.response import Response

EN, ZH = friend_labels("en"), friend_labels("zh")
LEADS = ("System replies:", "System:", "系统：", "=>")
FENCED = "```text\nHi.\n```"


@pytest.mark.parametrize(
    ("said", "cleaned"),
    [
        ("  Hi. \n", "Hi."),
        ("Friend: Hi.", "Hi."),
        ("friend-2 ： Hi.", "Hi."),
        ("**Friend:** Hi.", "Hi."),
        ("**Friend**: Hi.", "Hi."),
        ("_Friend_ : Hi.", "Hi."),
        ("***Friend: *** **Hi** there.", "**Hi** there."),
        ("朋友：你好。", "你好。"),
        ("**朋友：**你好。", "你好。"),
        ('Friend:\n"Hi."', "Hi."),
        ("“你好。”", "你好。"),
        ('"Hi," she said, "there."', '"Hi," she said, "there."'),
        (FENCED, "Hi."),
        ("```\nFriend: Hi.\n```\n", "Hi."),
        ("```py\na\n```\nor\n```py\nb\n```", "```py\na\n```\nor\n```py\nb\n```"),
        ("Friends: a sitcom.", "Friends: a sitcom."),
        ("**Friend: Hi.", "**Friend: Hi."),
        ("**Friend_: Hi.", "**Friend_: Hi."),
        ("*Me* too", "*Me* too"),
        ('""', '""'),
        ("Friend:", ""),
    ],
)
def test_what_stands_around_a_response_is_taken_off(said, cleaned):
    assert clean_response(said, EN if re.search("[a-z]", said) else ZH) == cleaned
    assert streamed(list(said), EN if re.search("[a-z]", said) else ZH) == cleaned


@pytest.mark.parametrize("leads", [("We", "We reply:"), ("We reply:", "We")])
@pytest.mark.parametrize(
    ("said", "cleaned"),
    [("We reply: Hi.", "Hi."), ("We rep", "rep"), ("We: Hi.", ": Hi."), ("Friend: We reply:Hi", "Hi")],
)
def test_of_leads_that_begin_alike_the_longest_goes(said, cleaned, leads):
    assert clean_response(said, EN, leads) == cleaned
    assert streamed(list(said), EN, leads) == cleaned


def streamed(pieces, labels, leads=()):
    passed = []
    stream = FilteredStream([CleanFilter(labels, leads)], passed.append)
    for piece in pieces:
        stream.feed(piece)
    stream.finish()
    assert all(passed), "an empty piece says nothing"
    return "".join(passed)


PARTS = (
    *("Friend", "Me", "Response", "friend", "朋友", "我", "回复", "Fri", "M"),
    *("System", "System replies:", "系统", "=>"),
    *(":", "：", " :", "-1", "-", "*", "**", "***", "_", "__", " ", "\n", "\t", "\u3000", "  \n"),
    *('"', "“", "”", "「", "」", "`", "```", "```json\n", "```\n"),
    *("Hello", "there.", "你好", "。", "don't", "{}", "1"),
)
OPENINGS = ("Friend: ", "**Friend:** ", "朋友：", "**朋友**：", "Friend", "=> ", '"', "“", "```\n", "\n ")
ENDINGS = ('"', "”", "\n```", "```", " ", "\n\n", "\u3000 ", '" ', "")


def said_at_random(chance):
    """A model's output: often an opening and an ending that cleaning looks at, and anything between and around."""
    words = "".join(chance.choices(PARTS, k=chance.randint(0, 12)))
    opening = "".join(chance.choices(OPENINGS, k=chance.randint(0, 3)))
    return opening + words + "".join(chance.choices(ENDINGS, k=chance.randint(0, 2)))


def cut_at_random(chance, text):
    while text:
        size = chance.choice([1, 1, 2, 3, 7, 30])
        yield text[:size]
        text = text[size:]


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize(("labels", "leads"), [(EN, ()), (ZH, ()), (EN, LEADS), (ZH, LEADS)])
def test_streamed_in_any_pieces_it_comes_out_the_same(seed, labels, leads):
    chance = random.Random(seed)
    for _ in range(40):
        text = said_at_random(chance)
        whole = clean_response(text, labels, leads)
        assert streamed(cut_at_random(chance, text), labels, leads) == whole, text
        assert streamed([text], labels, leads) == whole, text


@pytest.mark.parametrize("labels", [EN, ZH])
@pytest.mark.parametrize(
    "text",
    [
        "Honey helps a sore throat, and so does sleep.",
        "Maybe honey helps.",
        "Friendly advice: sleep.",
        "My friend: he knows.",
        "**Honey** helps.",
        "* Honey\n* Sleep",
        "`honey` helps.",
        "我觉得蜂蜜有用。",
        "朋友们都说蜂蜜有用。",
        "回答你：蜂蜜。",
    ],
)
def test_an_ordinary_answer_waits_no_longer_than_a_label_is(text, labels):
    passed, longest = [], max(map(len, labels))
    stream = FilteredStream([CleanFilter(labels)], passed.append)
    for place, letter in enumerate(text):
        stream.feed(letter)
        late = place + 1 - len("".join(passed))
        assert late <= (longest if not passed else len(text[: place + 1]) - len(text[: place + 1].rstrip()))


def test_a_quotation_waits_for_its_end_and_no_longer():
    passed = []
    stream = FilteredStream([CleanFilter(EN)], passed.append)
    for letter in '"Yes," she':
        stream.feed(letter)
    assert "".join(passed) == '"Yes," she'


class Says:
    name = "says"

    def __init__(self, pieces):
        self.pieces = pieces

    async def complete(self, request, on_token=None):
        for piece in self.pieces if on_token is not None else ():
            on_token(piece)
        return Completion(text="".join(self.pieces), usage=Usage(calls=1))

    async def close(self):
        pass


@pytest.mark.parametrize("cite", [False, True])
@pytest.mark.parametrize(
    ("turn", "pieces", "text"),
    [
        ("Hi!", ["Fri", "end", ": Hel", "lo ", "[1]", " there", " \n"], "Hello [1] there"),
        ("Hi!", ["**", "Friend:*", "* ", '"Hello', ' there"'], "Hello there"),
        ("你好！", ["朋", "友", "：", "你好", "呀。", "\n"], "你好呀。"),
    ],
)
async def test_a_reader_of_the_stream_gets_the_response(turn, pieces, text, cite):
    agent = Agent(Vanilla(), LLMRunner(Says(pieces), PromptLibrary()), cite=cite)
    *passed, response = [item async for item in agent.stream(Dialogue(id="d", turns=[turn]))]
    assert isinstance(response, Response)
    assert "".join(passed) == response.text == text
