"""The handbook test: its data are well formed, and its scorer agrees with people."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dialore.datasets import data_set
from dialore.datasets.handbook import HALVES, SMALL_TALK, UNANSWERABLE, item_of, read_items, read_passages
from dialore.datasets.published import data_file
from dialore.errors import InputError
from dialore.evaluation.base import Proportion, Sample, own_metrics
from dialore.evaluation.handbook import _flat, _says, is_right, normalise_numbers, refuses
from dialore.evaluation.registry import Context, load_metric
from dialore.evaluation.statistics import bootstrap
from dialore.experiments.config import DatasetConfig
from dialore.experiments.systems import load_dialogues
from dialore.knowledge import Knowledge, Passage
from dialore.response import Citation, Response

ITEMS = {item.id: item for item in read_items()}
TEXTS = {
    language: {
        passage.id: _flat(normalise_numbers(f"{passage.title}\n{passage.text}")) for passage in read_passages(language)
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
    assert normalise_numbers(text) == alike


def test_a_number_in_another_number_is_not_found():
    item = ITEMS["en-newer-1"]  # 19 euros, no longer 17
    assert is_right(item, "It is 19 euros.")
    for wrong in ("It is 190 euros.", "It leaves at 19:30.", "It is 1.19 euros.", "It is 19%."):
        assert not is_right(item, wrong)


@pytest.fixture(scope="module")
def dialogues():
    return {
        dialogue.id: dialogue
        for language in ("en", "zh")
        for half in HALVES
        for dialogue in load_dialogues(DatasetConfig(name=f"handbook-{language}", split=half))
    }


async def score(dialogue, response):
    """The values of every metric that the dialogue has a measure of."""
    names = [name for name in own_metrics() if name.startswith("handbook-")]
    measures = {name: await load_metric(name, Context()).measure(Sample(dialogue, response)) for name in names}
    return {name.removeprefix("handbook-"): measure.values for name, measure in measures.items() if measure.values}


def test_the_data_set_has_the_needed_passages_and_what_is_labelled(dialogues):
    assert len(dialogues) == 200
    for name, dialogue in dialogues.items():
        titles = {passage.title: passage.id for passage in read_passages(dialogue.language)}
        assert [titles[gold["title"]] for gold in dialogue.knowledge] == ITEMS[name].gold
        assert dialogue.extra["answerability"] == ITEMS[name].answerability
        assert dialogue.last.speaker == "user"
    assert len([*data_set("handbook-zh").knowledge(data_file("handbook-zh", "a"))]) == 100


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("half", HALVES)
async def test_unclear_questions_have_what_they_may_mean(language, half):
    dialogues = list(load_dialogues(DatasetConfig(name=f"handbook-{language}", split=f"{half}-unclear")))
    items = [item_of(dialogue) for dialogue in dialogues]
    passages = {passage.id: passage.text.lower() for passage in read_passages(language)}
    assert len(items) == len(dialogues) == 15
    for item, dialogue in zip(items, dialogues, strict=True):
        assert dialogue.extra["answerability"] == "UNDERSPECIFIED"
        assert set(item.gold) <= passages.keys()
        assert len(item.candidates) > 1
        assert item.about
        name, what = item.candidates[0][0], item.about[0]
        metric = load_metric("clarifies-lexical", Context())
        for text, value in ((f"{what}?", 1.0), ("And then?", 0.0), (f"{name}.", 0.0)):
            assert (await metric.measure(Sample(dialogue, Response(text=text)))).values == (value,)


def test_a_half_is_to_be_named():
    with pytest.raises(InputError, match=r"handbook-en .*one of a, b, a-unclear, b-unclear"):
        data_file("handbook-en")


async def test_citations_are_of_the_passages_that_are_needed(dialogues):
    gold, other = [
        Knowledge.of_passage(Passage("...", title), "documents")
        for title in ("Ferry fares from 1 April 2025", "Colours")
    ]
    spans = [Citation(start=0, end=3, knowledge=passage.id) for passage in (gold, other)]
    response = Response(text="19 euros.", knowledge=[gold, other], citations=spans)
    found = await score(dialogues["en-newer-1"], response)
    assert found == {"right": (1.0,), "citation-precision": (1.0, 2.0), "citation-recall": (1.0, 1.0)}


async def test_small_talk_and_refusals_are_judged_by_themselves(dialogues):
    talk, miss = dialogues["en-small-talk-1"], dialogues["en-near-miss-3"]
    assert await score(talk, Response(text="Hello!")) == {}
    for draft, kept in (("Hello!", 1.0), ("Hello, I am here.", 0.0)):
        assert await score(talk, Response(text="Hello!", draft=draft)) == {"draft-kept": (kept,)}
    assert await score(miss, Response(text="I don't know.")) == {"refused": (1.0,)}
    assert await score(miss, Response(status="failed")) == {"refused": (0.0,)}


def test_the_interval_of_a_share_is_wilsons():
    figure = bootstrap(Proportion(), np.zeros((20, 1)))
    assert (figure.value, figure.low) == (0, 0)
    assert figure.high == pytest.approx(0.161, abs=0.001)
    whole = bootstrap(Proportion(), np.array([[1.0], [1.0], [0.0]]), dialogues=["a", "a", "b"])
    assert whole.high == 1
