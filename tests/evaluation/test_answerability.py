"""Saying "I do not know" where it should be said: by wording, by a judge, and metrics that hang on it."""

from __future__ import annotations

import gzip
import json

import pytest

from dialore.datasets import data_set, split_dialogues
from dialore.dialogue import Dialogue
from dialore.errors import ModelError
from dialore.evaluation.answerability import asks_back, says_unknown
from dialore.evaluation.base import Sample
from dialore.evaluation.registry import Context, load_metric
from dialore.experiments.scoring import default_metrics
from dialore.knowledge import Knowledge
from dialore.response import Response
from tests.data_folder import real_file
from tests.llm.models import Scripted

UNKNOWN, ANSWER = "I do not have specific information.", "The Tarn holds a pint."
PIECE = Knowledge(id="p", kind="passage", text=ANSWER, source="documents")


def sample(text, label="ANSWERABLE", language="en"):
    extra = {"answerability": label} if label else {}
    turn = {"en": "How much does the Tarn hold?", "zh": "这个杯子能装多少？"}[language]
    dialogue = Dialogue(id="d", turns=[turn], reference=ANSWER, language=language, extra=extra)
    return Sample(dialogue, Response(text=text, knowledge=[PIECE]))


async def value(name, text, label="ANSWERABLE", judge=None):
    return await load_metric(name, Context(judge=judge)).measure(sample(text, label))


@pytest.mark.parametrize(
    "text",
    [
        UNKNOWN,
        "Sorry, but I don't know who made it. Is there anything else I can help with?",
        "Unfortunately, I don’t have any details on that, but the shop may be able to tell you.",
        "The price isn't mentioned anywhere.",
        "There is no information about Sunday opening hours.",
        "I'm not sure what you mean. Which mug?",
        "抱歉，我没有这方面的信息。",
        "这个我不太清楚，要不你问问店里？",
        "资料里没有提到它的价格。",
    ],
)
def test_what_says_that_it_does_not_know(text):
    assert says_unknown(text)


@pytest.mark.parametrize(
    "text",
    [
        ANSWER,
        "It holds a pint. I don't know who made it.",
        "I have no information on the price of the Tarn. However, the shop's list says that mugs of its size cost "
        "fourteen to twenty crowns, the Lowen is fourteen, and large ones are sold with a lid for another three.",
        "No, the shop is closed on Sunday.",
        "能装一品脱。",
        "你好，有什么可以帮你？",
        "",
    ],
)
def test_what_answers(text):
    assert not says_unknown(text)


async def test_the_wording_agrees_with_the_labels_of_mtrag():
    path = real_file("mtrag/human_evaluations.json.gz")
    labels = {
        each.extra["task_id"]: each.extra["answerability"]
        for each in split_dialogues(data_set("mtrag").read(path), cut="all")
    }
    found = {True: [0, 0], False: [0, 0]}
    for each in json.loads(gzip.decompress(path.read_bytes()))["evaluations"]:
        label = labels[each["task_id"]]
        if label != "CONVERSATIONAL":
            right = each["annotations"]["conditional_idk"]["composite"]["value"] == 1
            found[right == (label == "UNANSWERABLE")][says_unknown(each["model_response"])] += 1
    assert found == {True: [0, 15], False: [454, 2]}


@pytest.mark.parametrize(
    ("label", "unknown", "answer"), [("UNANSWERABLE", 1.0, 0.0), ("ANSWERABLE", 0.0, 1.0), ("PARTIAL", 0.0, 1.0)]
)
async def test_by_wording(label, unknown, answer):
    assert (await value("idk-lexical", UNKNOWN, label)).values == (unknown,)
    assert (await value("idk-lexical", ANSWER, label)).values == (answer,)
    assert (await value("idk-rouge-l", UNKNOWN, label)).values == (unknown,)
    assert (await value("idk-rouge-l", ANSWER, label)).values == (answer,)


async def test_the_metric_counts_where_an_answer_is_called_for_and_given():
    assert 0 < (await value("idk-rouge-l", "The Tarn is blue.")).values[0] < 1
    assert (await value("idk-rouge-l", "The Tarn is blue.", "UNANSWERABLE")).values == (0.0,)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("verdict", "known"), [("answers", 1.0), ("partly", 1.0), ("does not know", 0.0)])
async def test_by_a_judge(language, verdict, known):
    judge = Scripted(json.dumps({"verdict": verdict}))
    metric = load_metric("idk", Context(judge=judge))
    assert (await metric.measure(sample("Well.", language=language))).values == (known,)
    assert (await metric.measure(sample("Well.", "UNANSWERABLE", language))).values == (1 - known,)
    assert "Well." in judge.asked[0].messages[1].content
    assert metric.identity.startswith("scripted, judge/idk.en v1")


async def test_faithfulness_is_asked_only_of_answers():
    verdicts = [
        '{"verdict": "answers"}',
        '{"statements": ["It holds a pint.", "It is red."]}',
        '{"verdicts": [true, false]}',
    ]
    judge = Scripted(*verdicts)
    assert (await value("idk-faithfulness", "It holds a pint and is red.", judge=judge)).values == (0.5,)
    judge = Scripted('{"verdict": "does not know"}')
    measured = await value("idk-faithfulness", UNKNOWN, "UNANSWERABLE", judge)
    assert (measured.values, measured.detail, len(judge.asked)) == ((1.0,), "says it does not know", 1)


async def test_what_cannot_be_told_has_no_figure():
    assert (await value("idk", ANSWER)).reason == "no judge was given"
    assert "nobody labelled it" in (await value("idk-lexical", ANSWER, "")).reason
    assert "it is conversational" in (await value("idk-lexical", ANSWER, "CONVERSATIONAL")).reason
    assert (await value("idk", ANSWER, judge=Scripted("It does."))).problem == "unparsed"
    refused = Scripted("I'm sorry, but I can't assist with that request.")
    assert (await value("idk", ANSWER, judge=refused)).problem == "refused"
    with pytest.raises(ModelError):
        await value("idk", ANSWER, judge=Scripted(ModelError("down")))


def test_no_report_has_them_unless_they_are_named():
    assert not [name for name in default_metrics(["judge"]) if name.startswith("idk")]


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Which model do you have, the Solo or the Duo?", True),
        ("The lamps differ. Which drum is yours?", True),
        ("您说的是小号还是中号？", True),
        ("It holds a pint. Anything else?", True),  # short: a judge tells it apart
        (f"{'It holds a pint of whatever you may pour into it, ' * 3}as a rule. Anything else?", False),
        ("It holds a pint.", False),
        ("", False),
    ],
)
def test_what_only_asks(text, asks):
    assert asks_back(text) == asks


async def test_asking_back_counts_where_it_is_called_for_and_where_it_is_not():
    question, answer = "Which one, the Tarn or the Beck?", ANSWER
    assert (await value("clarifies-lexical", question, "UNDERSPECIFIED")).values == (1.0,)
    assert (await value("clarifies-lexical", answer, "UNDERSPECIFIED")).values == (0.0,)
    assert (await value("clarifies-wrongly-lexical", question)).values == (1.0,)
    assert (await value("clarifies-wrongly-lexical", answer)).values == (0.0,)
    for name, label in (("clarifies-lexical", "ANSWERABLE"), ("clarifies-wrongly-lexical", "UNDERSPECIFIED")):
        assert "not labelled" in (await value(name, question, label)).reason


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("verdict", "asked"), [("asks back", 1.0), ("answers", 0.0), ("neither", 0.0)])
async def test_asking_back_by_a_judge(language, verdict, asked):
    judge = Scripted(json.dumps({"verdict": verdict}))
    metric = load_metric("clarifies", Context(judge=judge))
    assert (await metric.measure(sample("...", "UNDERSPECIFIED", language))).values == (asked,)
    assert "no judge was given" in (await value("clarifies", "...", "UNDERSPECIFIED")).reason
