"""Planning, retrieval and consistency by hand-worked figures."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from dialore.dialogue import Dialogue
from dialore.evaluation.base import Sample
from dialore.evaluation.consistency import Consistency
from dialore.evaluation.registry import Context, load_metric
from dialore.experiments.scoring import score_of
from dialore.knowledge import Knowledge
from dialore.response import Response


def sample(plan=None, gold=None, knowledge=(), given=(), text="I am from Shenzhen.", kinds=None):
    fields = {} if gold is None else {"sources": gold}
    dialogue = Dialogue(id="d", turns=["Where are you from?"], language="en", knowledge=knowledge, **fields)
    pieces = [Knowledge(id=f"p:{n}", kind="passage", text=t, source="documents") for n, t in enumerate(given)]
    return Sample(dialogue, Response(id="d", method="safari", text=text, plan=plan, kinds=kinds, knowledge=pieces))


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


@pytest.mark.parametrize(("decision", "count"), [("both", 2), ("persona", 2), ("null", 2)])
async def test_how_often_each_decision_was_made(decision, count):
    found = await figure(f"decisions-{decision}", [sample(*pair) for pair in PLANS])
    assert (found.value, found.n) == (count, 6)


KINDS = {"me": "persona", "Handbook": "documents", "news": "web"}


@pytest.mark.parametrize(
    ("plan", "gold", "right"),
    [
        (["me", "Handbook"], ["persona", "documents"], 1),  # a data set names kinds
        (["me", "Handbook"], ["me", "handbook"], 1),  # or the sources themselves, whatever their case
        (["me"], ["handbook"], 0),
        (["Handbook"], [], 1),  # footnote 14
        (["Handbook"], ["documents"], 1),  # but not where that is the gold plan
        (["news"], ["documents"], 0),
    ],
)
async def test_sources_of_other_names_count_by_their_kind(plan, gold, right):
    assert (await figure("planning-accuracy", [sample(plan, gold, kinds=KINDS)])).value == right
    if plan == ["me", "Handbook"]:
        assert (await figure("planning-f1-both", [sample(plan, gold, kinds=KINDS)])).value == 1
        knowledge = ({"text": "I live in Shenzhen.", "source": gold[0]},)
        metric = Consistency("persona-consistency", Context())
        metric._model = Agrees()
        assert (await metric.measure(sample(plan, gold, knowledge, kinds=KINDS))).values == (1.0,)


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


@pytest.mark.parametrize(
    ("gold", "alone", "both"), [(["persona"], 1.0, None), (["persona", "documents"], None, 1.0), ([], None, None)]
)
async def test_the_persona_is_found_alone_or_with_documents(gold, alone, both):
    """Table 5 has a column for each, by the gold plan."""
    found = sample(gold, gold, PERSONA)
    wanted = Knowledge(id="p", kind="persona", text="I live in Shenzhen.", source="persona")
    response = found.response.model_copy(update={"knowledge": [wanted]})
    for name, expected in (("alone", alone), ("both", both)):
        score = await figure(f"recall-1-persona-{name}", [Sample(found.dialogue, response)])
        assert score.value == expected
        assert expected is not None or score.reason.startswith("the gold plan is not to use persona")


REJECTIONS = {
    "As an AI language model, I do not have a persona.": True,
    "I'm just a language model, so I do not eat.": True,
    "I am an AI assistant developed by a company.": True,
    "Sorry, but I cannot answer that.": True,
    "I don't have personal preferences.": True,
    "作为一个人工智能语言模型，我没有个人喜好。": True,
    "我是人工智能助手，无法回答。": True,
    "对不起，我无法提供这方面的信息。": True,
    "I am an AI researcher and love tea.": False,
    "As an artist, I paint.": False,
    "I don't have any pets.": False,
    "我是一个机器人工程师，住在海边。": False,
    "我不会游泳，但喜欢海。": False,
    "我没有宠物": False,
}


async def test_responses_that_step_out_of_their_part_are_counted():
    for text, expected in REJECTIONS.items():
        assert (await figure("rejection-rate", [sample(text=text)])).value == expected, text
    found = await figure("rejection-rate", [sample(text=text) for text in REJECTIONS])
    assert found.value == pytest.approx(8 / 14)


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
    metric = Consistency("persona-consistency", Context())
    metric._model = Agrees()
    assert (await metric.measure(sample(plan, gold, knowledge, text=text))).values == (expected,)


async def test_without_an_nli_model_there_is_no_figure_of_the_cases_that_need_none():
    samples = [sample([], [], ()), sample([], ["persona"], PERSONA), sample(["persona"], ["persona"], PERSONA)]
    found = await figure("persona-consistency", samples)
    assert (found.value, found.reason) == (None, "no NLI model was given (3)")


def test_an_nli_model_reads_no_spaces_between_words():
    """The authors take them out of KBP's sentences before they train and ask (the release's `replace(" ", "")`)."""
    from dialore.evaluation.consistency import TransformerEntailment

    class Asked(list):
        model = SimpleNamespace(config=SimpleNamespace(id2label={0: "neutral", 1: "entailment"}))

        def __call__(self, given, **_):
            self += [tuple(one.values()) for one in given]
            return [{"label": "entailment"}] * len(given)

    nli = TransformerEntailment("none")
    nli._classify = Asked()
    assert nli.entails([("我的星座是 天蝎座", "我是 天蝎座 。"), ("I live in Trier.", "In Trier.")]) == [True, True]
    assert nli._classify == [("我的星座是天蝎座", "我是天蝎座。"), ("I live in Trier.", "In Trier.")]


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
