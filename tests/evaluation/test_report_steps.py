"""What the report's dialogue browser tells of how a response came about: plans, queries, questions."""

from __future__ import annotations

import pytest

from dialore.dialogue import Dialogue
from dialore.evaluation.report.build import Browser
from dialore.evaluation.report.data import ScoredResponse
from dialore.knowledge import Knowledge
from dialore.response import Citation, Response, StageTrace
from tests.evaluation.made_up import unpack


def did(stage, *, notes=(), summary="", **output):
    return StageTrace(stage=stage, output=output, notes=list(notes), summary=summary)


def browsed(*, dialogue=None, **response):
    """The index entry and the details of one response, as the page inflates them."""
    browser = Browser(["s"], ["d"], [], 5)
    told = Response(id="1", method="s", **({"text": "Hello."} | response))
    given = {"id": "1", "turns": ["Hi"]} | (dialogue or {})
    browser.add(0, ScoredResponse(Dialogue.model_validate(given), told))
    packed = browser.packed()
    (entry,) = unpack(packed["index"])["dialogues"]
    return entry, unpack(packed["details"])[0]


@pytest.mark.parametrize(
    ("plan", "gold"), [(["persona", "documents"], ["persona"]), ([], []), (None, ["documents"]), (["persona"], None)]
)
def test_plan_and_gold_plan_tell_no_source_from_no_plan(plan, gold):
    entry, detail = browsed(plan=plan, dialogue={} if gold is None else {"sources": gold})
    assert detail["steps"]["plan"] == (None if plan is None else [name.upper() for name in plan])
    assert entry["plan"] == (None if gold is None else [name.upper() for name in gold])


def test_summaries_of_stages_are_told_in_their_order():
    trace = [
        did("topic-tracking", summary="Topic: bees", text="bees"),
        did("response-samples", found=[]),
        did("web-search", summary="Searched: honey: yield a hive"),
    ]
    told = browsed(trace=trace)[1]["steps"]["told"]
    assert told == [["Topic", "bees"], ["Searched", "honey: yield a hive"]]


def test_questions_with_the_answers_that_were_chosen_from():
    both = {"model": "They sleep.", "documents": "They shiver."}
    rows = [
        {"question": "Winter?", "by": "documents", "why": "it is the better of two", "from": both},
        {"question": "Ivy?", "by": "model", "why": "the model's is the only answer", "from": {"model": "Yes."}},
        {"question": "Who?", "by": "model", "why": "nobody had an answer", "from": {}},
    ]
    assert browsed(trace=[did("answer-integration", answers=rows)])[1]["steps"]["questions"] == [
        {
            "text": "Winter?",
            "answers": [
                {"by": "the model's", "text": "They sleep.", "chosen": False},
                {"by": "the base's", "text": "They shiver.", "chosen": True},
            ],
        },
        {"text": "Ivy?", "answers": [{"by": "the model's", "text": "Yes.", "chosen": True}]},
        {"text": "Who?", "answers": []},
    ]


def test_a_response_without_such_stages_has_no_steps():
    assert browsed(trace=[did("response-generation", text="Hello.")])[1]["steps"] == {
        "plan": None,
        "told": [],
        "questions": [],
    }


def test_citations_are_numbered_as_they_come():
    made = [Knowledge(id=f"k{n}", kind="passage", text=f"Fact {n}.", source="documents", score=1.0) for n in (1, 2)]
    cited = [Citation(start=7, end=13, knowledge="k1"), Citation(start=0, end=6, knowledge="k2")]
    detail = browsed(text="One is. Two is.", knowledge=made, citations=cited)[1]
    assert detail["parts"] == [["One is", [1]], [". Two i", [2]], ["s.", []]]
    assert [item[6] for item in detail["knowledge"]] == [2, 1]
