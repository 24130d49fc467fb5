from __future__ import annotations

import pytest

from dialore.llm.thoughts import ThoughtFilter, strip_thoughts

CASES = {
    "<think>a</think>b": "b",
    "  <think>\na <b> </thin </think>\n\nb  c": "b  c",
    "plain <think>x</think>": "plain <think>x</think>",
    "<thin air": "<thin air",
    "<thi": "<thi",
    "a < b and b > c": "a < b and b > c",
    "<think>": "",
    "<think>never ends": "",
    "<think></think>": "",
    "": "",
    "[THINK]hm[/THINK]So.": "So.",
    "[1] says so": "[1] says so",
    "<Thinking>\nhm\n</Thinking>\n\nSo.": "So.",
    "<thought>hm</thought>So.": "So.",
    "<reasoning>hm</reasoning>\nSo.": "So.",
    "<think>a</think>\n<think>b</think>\nSo.": "So.",
    "◁think▷嗯◁/think▷好。": "好。",
    "<|START_THINKING|>hm<|END_THINKING|>So.": "So.",
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>So.<|return|>": "So.",
    "<|start|>assistant<|channel|>commentary to=x <|constrain|>json<|message|>{}<|call|>": "",
    "<|channel|>analysis<|message|>never ends": "",
    "<|channel|>anal": "",
    "analysisWe need to be brief.assistantfinalSo.": "So.",
    "analysis of the question": "analysis of the question",
    "analysisWhatever": "analysisWhatever",
    "So.<|im_end|>": "So.",
    "So.</s>\n": "So.",
}


@pytest.mark.parametrize("text", CASES)
def test_whole(text):
    assert strip_thoughts(text) == CASES[text]


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("unopened", [False, True])
def test_in_pieces(text, size, unopened):
    thinking = ThoughtFilter(unopened=unopened)
    pieces = [thinking.feed(text[place : place + size]) for place in range(0, len(text), size)]
    assert "".join([*pieces, thinking.finish()]) == CASES[text]


@pytest.mark.parametrize("close", ["</think>", "[/THINK]", "</thinking>", "</thought>", "</reasoning>"])
@pytest.mark.parametrize("size", [1, 100])
def test_without_an_opening_tag(close, size):
    text = f"Okay, the user asks.\n{close}\n\nAt eight."
    thinking = ThoughtFilter(unopened=True)
    pieces = [thinking.feed(text[place : place + size]) for place in range(0, len(text), size)]
    assert "".join([*pieces, thinking.finish()]) == "At eight." == strip_thoughts(text)
    assert thinking.seen
    assert thinking.was_unopened


def test_pieces_are_passed_on_at_once():
    thinking = ThoughtFilter()
    assert thinking.feed("<think>x</think>") == ""
    assert thinking.feed("\n") == ""
    assert thinking.feed("\nHel") == "Hel"
    assert thinking.feed("lo") == "lo"
