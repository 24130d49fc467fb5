"""Asking back: once for a question, and a courtesy is no question."""

from __future__ import annotations

import pytest

from dialore.dialogue import Dialogue
from dialore.methods.selection import has_asked_back


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("We open at eight. Is there anything else I can help you with?", False),
        ("At eight. Do you have any other questions?", False),
        ("八点开门。还有什么可以帮您的吗？", False),
        ("Which ship do you mean, the Anna or the Berta?", True),
        ("您是指哪一艘船？", True),
        ("We open at eight.", False),
    ],
)
def test_only_a_clarifying_question_counts(reply, expected):
    dialogue = Dialogue.model_validate({"turns": ["When do you open?", reply, "What does the ship cost?"]})
    assert has_asked_back(dialogue) is expected
