"""Planning, retrieval and consistency by hand-worked figures."""

from __future__ import annotations

import math

import pytest

from dialore.dialogue import Dialogue
from dialore.evaluation.base import Sample
from dialore.evaluation.consistency import Consistency
from dialore.evaluation.registry import Context, load_metric
from dialore.experiments.scoring import score_of
from dialore.knowledge import Knowledge
from dialore.response import Response


def sample(plan=None, gold=None, knowledge=(), given=(), text="I am from Shenzhen."):
    fields = {} if gold is None else {"sources": gold}
    dialogue = Dialogue(id="d", turns=["Where are you from?"], language="en", knowledge=knowledge, **fields)
    pieces = [Knowledge(id=f"p:{n}", kind="passage", text=t, source="documents") for n, t in enumerate(given)]
    return Sample(dialogue, Response(id="d", method="safari", text=text, plan=plan, knowledge=pieces))


async def figure(name, samples):
    metric = load_metric(name, Context())
    return score_of(metric, [await metric.measure(each) for each in samples])


PERSONA = ({"text": "I live in Shenzhen.", "source": "persona"},)
PLANS = [
    (["persona", "documents"], ["persona", "documents"]),
    (["documents", "persona"], ["persona", "documents"]),  # the order is mended before
    (["persona"], ["persona", "documents"]),
    (["persona"], ["persona"]),
    ([], ["persona"]),
    (["documents"], []),  # footnote 14: counts as no source
]


@pytest.mark.parametrize(
    ("decision", "expected"),
    [("both", 2 * 2 / (2 + 3)), ("persona", 2 * 1 / (2 + 2)), ("null", 2 * 1 / (2 + 1))],
)
async def test_f1_of_each_decision(decision, expected):
    found = await figure(f"planning-f1-{decision}", [sample(*pair) for pair in PLANS])
    assert found.value == pytest.approx(expected)
    assert found.n == 6


async def test_planning_without_a_gold_plan_or_a_plan_is_not_available():
    found = await figure("planning-accuracy", [sample(["persona"], None), sample(None, ["persona"])])
    assert found.value is None
    assert "no gold plan (1)" in found.reason
    assert "makes no plan (1)" in found.reason
    # Documents alone count as no source in every figure of plans (footnote 14).
    assert (await figure("planning-accuracy", [sample(["documents"], [])])).value == 1.0
    assert (await figure("planning-accuracy", [sample(["documents"], ["persona"])])).value == 0.0
    # A gold plan of no source is a gold plan.
    assert (await figure("planning-accuracy", [sample([], [])])).value == 1.0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("recall-1", 0.0),
        ("recall-5", 1.0),
        ("mrr", 0.5),
        ("ndcg-10", (1 / math.log2(3) + 1 / math.log2(4)) / (1 + 1 / math.log2(3))),
    ],
)
async def test_retrieval(name, expected):
    given = ["It rains.", "shenzhen  is in Guangdong.", "I live in Shenzhen."]
    gold = ({"text": "I live in Shenzhen.", "source": "persona"}, "Shenzhen is in Guangdong.")
    assert (await figure(name, [sample(knowledge=gold, given=given)])).value == pytest.approx(expected)
    assert (await figure(name, [sample(given=given)])).value is None


@pytest.mark.parametrize("name", ["recall-5", "ndcg-10"])
async def test_gold_knowledge_that_is_found_twice_counts_once(name):
    given = ["I live in Shenzhen.", "It rains.", "I live in Shenzhen."]
    assert (await figure(name, [sample(knowledge=PERSONA, given=given)])).value == 1.0
    two = (*PERSONA, "I drink tea.")
    assert (await figure("recall-5", [sample(knowledge=two, given=given)])).value == 0.5


@pytest.mark.parametrize(("name", "expected"), [("recall-1-documents", 1.0), ("recall-1-persona", 0.0)])
async def test_retrieval_from_one_source(name, expected):
    gold = (*PERSONA, {"text": "Shenzhen is in Guangdong.", "source": "documents"})
    found = sample(knowledge=gold, given=["Shenzhen is in Guangdong."])
    wrong = Knowledge(id="p", kind="persona", text="I drink tea.", source="persona")
    response = found.response.model_copy(update={"knowledge": [wrong, *found.response.knowledge]})
    assert (await figure(name, [Sample(found.dialogue, response)])).value == expected
    # What a dialogue has no gold of, it is not scored by.
    other = sample(knowledge=("It rains.",), given=["It rains."])
    assert (await figure(name, [other])).reason.startswith(f"the dialogue has no gold {name.split('-')[-1]}")


class Agrees:
    """Says that a response follows from what it repeats."""

    def entails(self, pairs):
        return [first.split()[-1] in second for first, second in pairs]


@pytest.mark.parametrize(
    ("plan", "gold", "knowledge", "text", "expected"),
    [
        (["persona"], ["persona"], PERSONA, "I am from Shenzhen.", 1.0),
        (["persona"], ["persona"], PERSONA, "I am from Beijing.", 0.0),
        ([], ["persona"], PERSONA, "I am from Shenzhen.", 0.0),  # it should have been asked
        (["persona"], [], (), "I am from Shenzhen.", 0.0),  # it should not
        ([], [], (), "Hello.", 1.0),
    ],
)
async def test_the_four_cases_of_equation_4(plan, gold, knowledge, text, expected):
    metric = Consistency("persona", Agrees(), "toy")
    assert (await metric.measure(sample(plan, gold, knowledge, text=text))).values == (expected,)


async def test_without_an_nli_model_there_is_no_figure_of_the_cases_that_need_none():
    samples = [sample([], [], ()), sample([], ["persona"], PERSONA), sample(["persona"], ["persona"], PERSONA)]
    found = await figure("persona-consistency", samples)
    assert (found.value, found.reason) == (None, "no NLI model was given (3)")


def test_a_real_nli_model_of_random_weights_answers_for_each_pair(tmp_path):
    pytest.importorskip("torch", reason="the local extra is not installed")
    transformers = pytest.importorskip("transformers", reason="the local extra is not installed")
    from dialore.evaluation.consistency import TransformerEntailment

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "i", "live", "in", "shenzhen", "hello", "."]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    transformers.BertTokenizerFast(vocab_file=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    config.id2label = {0: "entailment", 1: "neutral"}
    config.label2id = {"entailment": 0, "neutral": 1}
    model = transformers.BertForSequenceClassification(config)
    model.classifier.weight.data.zero_()
    model.classifier.bias.data = model.classifier.bias.data.new_tensor([1.0, 0.0])
    model.save_pretrained(tmp_path)
    found = TransformerEntailment(str(tmp_path), batch=2).entails([("I live in Shenzhen.", "Hello.")] * 3)
    assert found == [True, True, True]
