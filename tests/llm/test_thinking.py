from __future__ import annotations

import pytest

from dialore.llm.model import ThinkFilter, strip_thoughts

CASES = {
    "<think>a</think>b": "b",
    "  <think>\na <b> </thin </think>\n\nb  c": "b  c",
    "plain <think>x</think>": "plain <think>x</think>",
    "<thin air": "<thin air",
    "<thi": "<thi",
    "<think>": "",
    "<think>never ends": "",
    "<think></think>": "",
    "": "",
}


@pytest.mark.parametrize("text", CASES)
def test_whole(text):
    assert strip_thoughts(text) == CASES[text]


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_in_pieces(text, size):
    thinking = ThinkFilter()
    pieces = [thinking.feed(text[place : place + size]) for place in range(0, len(text), size)]
    assert "".join([*pieces, thinking.finish()]) == CASES[text]


def test_pieces_are_passed_on_at_once():
    thinking = ThinkFilter()
    assert thinking.feed("<think>x</think>") == ""
    assert thinking.feed("\n") == ""
    assert thinking.feed("\nHel") == "Hel"
    assert thinking.feed("lo") == "lo"
