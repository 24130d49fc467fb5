"""Decoding that can end in nothing but JSON of a schema."""

from __future__ import annotations

import pytest

from dialore.llm.constrained import pattern_of
from dialore.llm.structured import output_schema
from dialore.methods.demands import SelectedFacts, ThoughtRevision
from dialore.methods.edit import Better
from dialore.methods.scg_qp import SearchDecision
from dialore.methods.weave import Need, Needs

regex = pytest.importorskip("regex")

VALUES = [
    SelectedFacts(selected=[3, 11]),
    SelectedFacts(selected=[]),
    Needs(needs=[Need(what='a "b"', source="web", query="c\n", asked=True)], topics=["茶"], shift=False),
    Needs(),
    SearchDecision(kind="none"),
    Better(better="B"),
    ThoughtRevision(**{name: "x" if name.endswith("_thoughts") else [] for name in ThoughtRevision.model_fields}),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_the_pattern_takes_what_a_stage_puts_out_and_all_that_leads_there(value):
    pattern = regex.compile(pattern_of(output_schema(type(value)).definition))
    text = value.model_dump_json()
    assert pattern.fullmatch(text)
    assert all(pattern.fullmatch(text[:end], partial=True) for end in range(len(text)))
    assert not pattern.fullmatch(text[:-1])
    assert not pattern.fullmatch(text + "}", partial=True)
    assert not pattern.fullmatch("Sure: " + text, partial=True)
