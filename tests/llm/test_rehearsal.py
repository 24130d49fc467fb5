"""Rehearsed answers fit whatever schema is wanted, so that every part of a method has work to do."""

from __future__ import annotations

from enum import Enum
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from dialore.llm.fake import FakeModel, plausible_answer
from dialore.llm.model import Message, Request
from dialore.llm.structured import complete_structured


class Kind(Enum):
    FACT = "fact"
    PASSAGE = "passage"


class Inner(BaseModel):
    text: str
    kind: Kind


class Wanted(BaseModel):
    better: Literal["A", "B", "same"]
    chosen: list[int]
    topics: list[str] = Field(min_length=1)
    verdicts: list[bool]
    inner: Inner
    several: list[Inner]
    score: int = Field(ge=1, le=10)
    share: float
    optional: str | None
    sure: bool


@pytest.mark.parametrize(
    "asked", ["Me: I love hiking in autumn.\n[1] (a, b, c)\n[2] (d, e, f)", "我：我喜欢爬山和喝茶。"]
)
async def test_every_kind_of_schema_is_answered_at_the_first_try(asked):
    request = Request(messages=(Message(role="user", content=asked),))
    structured = await complete_structured(FakeModel(), request, Wanted)
    assert structured.outcome == "parsed"
    assert len(structured.completions) == 1
    assert structured.value.topics
    if "[1]" in asked:
        assert structured.value.chosen == [1, 2]
        assert "hiking" in structured.value.topics


@pytest.mark.parametrize(("least", "most"), [(0, 2), (2, 2), (3, 3), (8, 9)])
async def test_lists_keep_to_their_bounds(least, most):
    class Bounded(BaseModel):
        queries: list[str] = Field(min_length=least, max_length=most)

    request = Request(
        messages=(Message(role="user", content="Me: May I bring my dog to the terrace on Sunday morning?"),)
    )
    structured = await complete_structured(FakeModel(), request, Bounded)
    assert (structured.outcome, len(structured.completions)) == ("parsed", 1)
    assert least <= len(structured.value.queries) <= most


def test_plain_text_speaks_of_the_prompt_and_is_counted():
    assert "hiking" in plausible_answer("Me: I love hiking and hiking.", None)


async def test_tokens_are_estimated():
    completion = await FakeModel().complete(Request(messages=(Message(role="user", content="word " * 400),)))
    assert completion.estimated
    assert completion.usage.calls == 1
    assert 300 < completion.usage.prompt_tokens < 700
