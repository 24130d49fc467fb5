"""The handbook test: its data are well formed, and its scorer agrees with people."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dialore.evaluation.handbook import (
    SMALL_TALK,
    UNANSWERABLE,
    _flat,
    _says,
    is_right,
    judge,
    read_items,
    read_passages,
    recall,
    refuses,
    written_alike,
)
from dialore.knowledge import Knowledge, Passage
from dialore.response import Citation, Response

ITEMS = {item.id: item for item in read_items()}
TEXTS = {
    language: {
        passage.id: _flat(written_alike(f"{passage.title}\n{passage.text}")) for passage in read_passages(language)
    }
    for language in ("en", "zh")
}
ANSWERS = [
    line.split("\t")
    for line in (Path(__file__).parents[1] / "data" / "handbook_answers.tsv").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_set_is_whole(language):
    own = [item for item in ITEMS.values() if item.language == language]
    assert len({passage.title for passage in read_passages(language)}) == len(TEXTS[language]) == 100
    kinds = Counter("answerable" if item.gold else item.category for item in own)
    assert kinds == {"answerable": 60, "near-miss": 12, "false-premise": 8, SMALL_TALK: 20}
    assert Counter(item.half for item in own) == {"a": 50, "b": 50}
    for half in "ab":
        assert sum(bool(item.gold) for item in own if item.half == half) == 30
    assert {len(item.turns) for item in own} == {1, 3, 5, 7}
    for item in own:
        assert item.dialogue.last.speaker == "user"
        assert set(item.gold) | set(item.also) <= TEXTS[language].keys()
        assert bool(item.gold) == bool(item.answer)
        assert bool(item.absent) == (item.category in UNANSWERABLE)


def test_gold_passages_hold_the_facts_and_other_passages_the_wrong_ones():
    for item in ITEMS.values():
        texts = TEXTS[item.language]
        for forms in item.answer:
            assert any(_says(texts[each], forms) for each in item.gold), (item.id, forms)
        for form, *_ in item.wrong:
            assert any(_says(text, [form]) for text in texts.values()), (item.id, form)
        for form in item.absent:
            assert not any(_says(text, [form]) for text in texts.values()), (item.id, form)


def test_the_scorer_agrees_with_people():
    assert len(ANSWERS) == 166
    for good, score in (("right", is_right), ("refused", refuses)):
        mine = [row for row in ANSWERS if bool(ITEMS[row[0]].answer) == (good == "right")]
        pairs = Counter((label == good, score(ITEMS[name], text)) for name, label, text in mine)
        precision = pairs[True, True] / (pairs[True, True] + pairs[False, True])
        recalled = pairs[True, True] / (pairs[True, True] + pairs[True, False])
        print(f"{good}: precision {precision:.3f}, recall {recalled:.3f}, {len(mine)} answers")
        assert precision >= 0.95
        assert recalled >= 0.95


@pytest.mark.parametrize(
    ("text", "alike"),
    [
        ("half past six in the evening", "18:30"),
        ("at 6.35 pm, or 9 a.m.", "at 18:35, or 09:00"),
        ("one hundred and twenty-one days", "121 day"),
        ("€5.80 and 1,340 euros", "5.8 euro and 1340 euro"),
        ("from 4-7 pm", "from 16:00 - 19:00"),
        ("15 per cent", "15%"),
        ("晚上七点半，一周要二十块", "19:30,1周要20元"),
        ("周三10点到十二点一刻", "周三10:00到12:15"),
        ("二〇二五年三百六十元", "2025年360元"),
    ],
)
def test_one_way_of_writing(text, alike):
    assert written_alike(text) == alike


def test_a_number_in_another_number_is_not_found():
    item = ITEMS["en-newer-1"]  # 19 euros, no longer 17
    assert is_right(item, "It is 19 euros.")
    for wrong in ("It is 190 euros.", "It leaves at 19:30.", "It is 1.19 euros.", "It is 19%."):
        assert not is_right(item, wrong)


def test_citations_are_of_the_passages_that_are_needed():
    gold, other = [
        Knowledge.of_passage(Passage("...", title), "documents")
        for title in ("Ferry fares from 1 April 2025", "Colours")
    ]
    spans = [Citation(start=0, end=3, knowledge=piece.id) for piece in (gold, other)]
    found = judge(ITEMS["en-newer-1"], Response(text="19 euros.", knowledge=[gold, other], citations=spans))
    assert (found.right, found.cited, found.cited_right, found.gold_cited, found.gold) == (True, 2, 1, 1, 1)


def test_small_talk_and_refusals_are_judged_by_themselves():
    assert judge(ITEMS["en-small-talk-1"], Response(text="Hello!")).model_dump(exclude_defaults=True) == {}
    for draft, alone in (("Hello!", True), ("Hello, I am here.", False)):
        assert judge(ITEMS["en-small-talk-1"], Response(text="Hello!", draft=draft)).alone is alone
    assert judge(ITEMS["en-near-miss-3"], Response(text="I don't know.")).refused
    assert not judge(ITEMS["en-near-miss-3"], Response(status="failed")).refused


def test_recall_of_the_needed_passages():
    items = [ITEMS["en-newer-1"], ITEMS["en-two-passages-2"], ITEMS["en-small-talk-1"]]
    rows = recall(lambda _: ["Ferry fares from 1 April 2025"], items, whole=True)
    assert rows == [(1.0, 1.0), (1.0, 2.0)]


def test_a_limit_spreads_over_the_categories():
    few = read_items(half="b", limit=10)
    assert len(few) == 20
    assert {"follow-up", "newer", SMALL_TALK} <= {item.category for item in few}
    assert {item.half for item in few} == {"b"}
