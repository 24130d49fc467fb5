"""CDP and CDF by hand: which facts hard matching finds, and what they weigh."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from dialore.dialogue import Dialogue
from dialore.evaluation.base import Sample
from dialore.evaluation.registry import Context, load_metric
from dialore.knowledge import Fact
from dialore.response import Response
from dialore.retrieval.graph.matching import HardMatcher, concept_key


class Store:
    """Facts in memory."""

    def __init__(self, *facts):
        self._facts = [Fact(*fact) for fact in facts]

    def facts(self):
        return iter(self._facts)


ENGLISH = (
    ("sore throat", "CausesDesire", "drink warm tea"),
    ("honey", "UsedFor", "sore throat"),
    ("honey", "RelatedTo", "sore throat"),
    ("tea", "IsA", "drink"),
    ("wedding ring", "MadeOf", "gold"),
    ("tea", "RelatedTo", "teas"),
    ("the", "RelatedTo", "honey"),
)


@pytest.fixture(scope="module")
def matcher():
    return HardMatcher([Store(*ENGLISH), Store(("喝茶", "用于", "解渴"), ("花园", "有", "花"))])


@pytest.mark.parametrize(
    ("history", "response", "facts"),
    [
        (["My throat is sore."], "Have some honey.", 0),  # the words stand in another order
        (["I have got a sore throat."], "Have some honey.", 2),  # two relations of one pair are two facts
        (["Have some honey."], "For a sore throat?", 2),  # whichever comes first
        (["My sore throat!", "Oh dear."], "Drink warm tea.", 1),  # any turn of the history
        (["Sore throats are bad."], "Try drinking warm tea.", 1),  # whatever their inflection
        (["Hello."], "Honey for the sore throat.", 0),  # both in the response, none before
        (["Honey for the sore throat."], "Hello.", 0),
        (["Her wedding rings?"], "They are gold.", 1),
        (["Her wedding was fine, the ring too."], "They are gold.", 0),  # not beside each other
        (["Tea?"], "Teas!", 0),  # one concept with itself
        ([], "Honey", 0),
    ],
)
def test_what_lies_between_history_and_response(matcher, history, response, facts):
    assert len(matcher.match(history, response, "en")) == facts


def test_chinese(matcher):
    assert len(matcher.match(["我想去喝茶。"], "那可以解渴。", "zh")) == 1
    assert len(matcher.match(["你好。"], "那可以解渴。", "zh")) == 0
    assert concept_key("喝 茶") == "喝茶"
    # Whichever script graph and dialogue are in.
    assert len(matcher.match(["花園很大。"], "花很好看。", "zh")) == 1
    traditional = HardMatcher([Store(("麵條", "用於", "煮麵"), ("頭髮", "有", "顏色"))])
    assert len(traditional.match(["我想吃面条。"], "那就煮面吧。", "zh")) == 1
    assert len(traditional.match(["我的頭髮很長。"], "什么颜色？", "zh")) == 1


@pytest.fixture(scope="module")
def corpus():
    texts = ["I have a sore throat and honey.", "Honey is sweet.", "A sore throat.", "Nothing.", "Nothing."]
    return [Dialogue(id=str(n), turns=[text]) for n, text in enumerate(texts)]


def sample(history, response):
    return Sample(Dialogue(id="d", turns=[history], language="en"), Response(id="d", method="m", text=response))


class Named:
    """A graph of facts in memory."""

    def __init__(self, name, fingerprint, *facts):
        self.name, self.store = name, Store(*facts)
        self.store.meta = SimpleNamespace(fingerprint=fingerprint)


def metrics(**context):
    """CDP and CDF with the English facts."""
    given = Context(**{"graph": Named("own", "0", *ENGLISH)} | context)
    return load_metric("cdp", given), load_metric("cdf", given)


async def test_cdp_is_a_hundred_or_nothing_and_cdf_sums_what_is_rare(corpus):
    cdp, cdf = metrics(idf_corpus=lambda: corpus)
    both = sample("I have got a sore throat.", "Have honey, or drink warm tea.")
    assert (await cdp.measure(both)).values == (100.0,)  # Table 1 prints 68.67
    # Honey and sore throat: two facts, one of five dialogues says both; the third fact's pair is in none.
    expected = 2 * math.log(6 / 2) + math.log(6 / 1)
    assert (await cdf.measure(both)).values == pytest.approx((expected,))
    nothing = sample("Hello.", "Hello.")
    assert (await cdp.measure(nothing)).values == (0.0,)
    assert (await cdf.measure(nothing)).values == (0.0,)


async def test_without_a_graph_or_a_corpus_there_is_no_figure():
    some = sample("Tea", "Honey")
    assert (await metrics(graph=None)[0].measure(some)).reason == "no graph was given"
    assert (await metrics()[1].measure(some)).reason == "no corpus was given for the IDF"


def test_the_corpus_is_named(corpus):
    assert "ours (5 dialogues)" in metrics(idf_corpus=lambda: corpus, idf_corpus_name="ours")[1].about.definition


async def test_each_graph_is_matched_by_its_own_facts_and_is_known_by_them():
    said = Sample(Dialogue(id="d", turns=["I like tea."], language="en"), Response(id="d", method="m", text="Honey?"))
    marks = set()
    # A graph that is gone leaves its place in memory, and so its id, to the next.
    for number in range(20):
        facts = [("tea", "RelatedTo", "honey")] if number % 2 else [("tea", "RelatedTo", "milk")]
        metric = load_metric("cdp", Context(graph=Named("own", f"{number % 2}", *facts)))
        assert (await metric.measure(said)).values == (100.0 * (number % 2),)
        marks.add(metric.identity)
    assert len(marks) == 2
