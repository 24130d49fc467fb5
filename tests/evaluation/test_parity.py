"""Parity with the reference implementations, to 1e-6, on real response pairs; the largest difference is recorded.

English pairs: two people's answers to one history of DailyDialog++. Chinese pairs: a response of KBP and the gold
knowledge that it was written from.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import re
import string
from collections import Counter

import jieba
import pytest

from dialore.datasets import data_set, gold_text, split_dialogues
from dialore.dialogue import Dialogue
from dialore.evaluation.base import Sample
from dialore.evaluation.overlap import tokens_of
from dialore.evaluation.registry import Context, load_metric
from dialore.evaluation.statistics import cohen_kappa
from dialore.experiments.scoring import table_of
from dialore.response import Response
from tests.data_folder import real_file

sacrebleu = pytest.importorskip("sacrebleu")
rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
nltk = pytest.importorskip("nltk.translate.meteor_score")

COUNT = 1200
LATIN = "abcdefghijklmnopqrstuvwxyz0123456789"
CUTS = [("en", "character"), ("zh", "character"), ("zh", "word")]
_pairs: dict[str, list[tuple[str, str]]] = {}


def pairs_of(language):
    """Responses and references."""
    if language not in _pairs:
        _pairs[language] = _english() if language == "en" else _chinese()
    return _pairs[language]


def _english():
    with gzip.open(real_file("dailydialog_plusplus/dev.json.gz"), "rt", encoding="utf-8") as lines:
        answers = [json.loads(line)["positive_responses"] for line in lines]
    both = [(some[place], some[place + 1]) for some in answers for place in (0, 2)]
    return random.Random(1).sample(both, COUNT)


def _chinese():
    whole = data_set("kbp").read(real_file("kbp/train.json.gz"))
    turns = [turn for turn in split_dialogues(whole, cut="all", limit=3 * COUNT) if turn.knowledge]
    return [(turn.reference, " ".join(gold_text(piece) for piece in turn.knowledge)) for turn in turns][:COUNT]


def subsets():
    """All pairs, and some of every size."""
    draw = random.Random(2)
    return [range(COUNT), *(draw.sample(range(COUNT), size) for size in (1, 1, 1, 1, 2, 3, 5, 10, 40, 200, 600))]


def samples_of(pairs, language):
    return [
        Sample(
            Dialogue(id=f"d{place}", turns=["?"], language=language, reference=reference),
            Response(id=f"d{place}", method="m", text=response),
        )
        for place, (response, reference) in enumerate(pairs)
    ]


async def measured(name, language, cut):
    """A metric with its values of all pairs."""
    metric = load_metric(name, Context(tokens=cut))
    measures = [await metric.measure(sample) for sample in samples_of(pairs_of(language), language)]
    assert all(measure.problem is None for measure in measures)
    return metric, table_of(measures)


def record(record_testsuite_property, name, differences):
    largest = max(differences)
    record_testsuite_property(name, f"{largest:.1e}")
    assert largest <= 1e-6, f"{name} is off by {largest}"


def chinese_words(text):
    """Runs of Chinese characters cut by jieba, runs of Latin letters and of digits as they are; the rest dropped."""
    runs = re.findall(r"[\u3400-\u4dbf\u4e00-\u9fff]+|[a-z0-9']+", text.lower())
    return [word for run in runs for word in ([run] if run.isascii() else jieba.lcut(run))]


def test_there_are_enough_pairs_and_they_overlap():
    for language in ("en", "zh"):
        assert len(pairs_of(language)) == COUNT >= 1000
        assert sum(set(a) & set(b) != set() for a, b in pairs_of(language)) > COUNT * 0.9


@pytest.mark.parametrize(("language", "cut"), CUTS)
async def test_bleu_is_sacrebleus_for_the_corpus_and_any_part_of_it(language, cut, record_testsuite_property):
    from sacrebleu.metrics import BLEU

    pairs = pairs_of(language)
    tokenize = {"en": "13a", "zh": "zh"}[language]
    if (language, cut) == ("zh", "word"):
        tokenize = "none"
        pairs = [tuple(" ".join(tokens_of(text, "zh", "word")) for text in pair) for pair in pairs]
    mean, mean_values = await measured("bleu", language, cut)
    figures = {}
    for order in (1, 2, 3, 4):
        reference = BLEU(max_ngram_order=order, tokenize=tokenize, force=True)
        metric, values = await measured(f"bleu-{order}", language, cut)
        differences = []
        for number, places in enumerate(subsets()):
            some = [pairs[place] for place in places]
            theirs = reference.corpus_score([r for r, _ in some], [[g for _, g in some]]).score
            figures.setdefault(number, []).append(theirs)
            differences.append(abs(metric.combine(values[list(places)]) - theirs))
        assert figures[0][-1] > 1, "the pairs share n-grams"
        record(record_testsuite_property, f"bleu-{order} {language} {cut}", differences)
    differences = [
        abs(mean.combine(mean_values[list(places)]) - sum(figures[number]) / 4)
        for number, places in enumerate(subsets())
    ]
    record(record_testsuite_property, f"bleu {language} {cut}", differences)


def chinese_tokens(text, cut):
    """What BLEU counts: sacrebleu's tokens of Chinese, punctuation too, or words."""
    from sacrebleu.tokenizers.tokenizer_zh import TokenizerZh

    return TokenizerZh()(text).split() if cut == "character" else tokens_of(text, "zh", cut)


@pytest.mark.parametrize(("language", "cut"), CUTS)
async def test_rouge_l_is_rouge_scores(language, cut, record_testsuite_property):
    _, values = await measured("rouge-l", language, cut)
    scorer = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)
    differences = []
    for row, pair in zip(values, pairs_of(language), strict=True):
        response, reference = pair
        if language == "zh":
            # rouge-score drops what is not Latin: each token stands as a Latin word of its own.
            numbers: dict[str, str] = {}
            response, reference = (
                " ".join(numbers.setdefault(token, f"w{len(numbers)}") for token in chinese_tokens(text, cut))
                for text in pair
            )
        differences.append(abs(row[0] - scorer.score(reference, response)["rougeL"].fmeasure))
    assert values[:, 0].mean() > 0.05
    record(record_testsuite_property, f"rouge-l {language} {cut}", differences)


class NoWordNet:
    """WordNet without an entry: no synonyms."""

    def synsets(self, word):
        return []


@pytest.mark.parametrize(("language", "cut"), CUTS)
async def test_meteor_is_nltks(language, cut, record_testsuite_property):
    _, values = await measured("meteor-exact-stem", language, cut)
    differences = []
    for row, (response, reference) in zip(values, pairs_of(language), strict=True):
        theirs, ours = list(tokens_of(reference, language, cut)), list(tokens_of(response, language, cut))
        figure = nltk.single_meteor_score(theirs, ours, wordnet=NoWordNet()) if theirs and ours else 0.0
        differences.append(abs(row[0] - figure))
    assert values[:, 0].mean() > 0.05
    record(record_testsuite_property, f"meteor-exact-stem {language} {cut}", differences)


def parlai_tokens(text):
    """ParlAI's normalisation of an answer: lower case, each punctuation mark a space, articles dropped, spaces cut."""
    text = text.lower()
    text = "".join(" " if character in string.punctuation else character for character in text)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def parlai_f1(response, reference):
    """Unigram F1 from its definition: P = shared / |response|, R = shared / |reference|, F1 = 2PR / (P + R)."""
    left, shared = list(reference), 0
    for token in response:
        if token in left:
            left.remove(token)
            shared += 1
    if not shared:
        return 0.0
    precision, recall = shared / len(response), shared / len(reference)
    return 2 * precision * recall / (precision + recall)


def plain_tokens(text, language, cut):
    """Tokens by plain rules of their own; Chinese characters one by one, Latin letters and digits in runs."""
    if language == "en":
        return parlai_tokens(text)
    if cut == "word":
        return chinese_words(text)
    return [token for token in re.findall(r"[a-z0-9]+|\w", text.lower()) if token != "_"]


@pytest.mark.parametrize(("language", "cut"), CUTS)
async def test_f1_is_parlais(language, cut, record_testsuite_property):
    _, values = await measured("f1", language, cut)
    differences = [
        abs(row[0] - parlai_f1(*(plain_tokens(text, language, cut) for text in pair)))
        for row, pair in zip(values, pairs_of(language), strict=True)
    ]
    assert values[:, 0].mean() > 0.1
    record(record_testsuite_property, f"f1 {language} {cut}", differences)


def whole_tokens(text, language, cut):
    """Words and each mark between them, character by character."""
    if (language, cut) == ("zh", "word"):
        return chinese_words(text)
    found = [""]
    for character in text.lower():
        is_in_word = character.isalnum() or character == "_" if language == "en" else character in LATIN
        found[-1:] = [found[-1] + character] if is_in_word else [found[-1], character, ""]
    return [token for token in found if token.strip()]


@pytest.mark.parametrize("kind", ["", "-words"])
@pytest.mark.parametrize(("language", "cut"), CUTS)
async def test_distinct_is_that_of_plain_sets(language, cut, kind, record_testsuite_property):
    for order in (1, 2):
        metric, values = await measured(f"distinct-{order}{kind}", language, cut)
        split = plain_tokens if kind else whole_tokens
        texts = [split(response, language, cut) for response, _ in pairs_of(language)]
        differences = []
        for places in subsets():
            grams = [
                tuple(texts[place][begin : begin + order])
                for place in places
                for begin in range(len(texts[place]) - order + 1)
            ]
            ours = metric.combine(values[list(places)])
            if grams:
                differences.append(abs(ours - 100 * len(set(grams)) / len(grams)))
            else:
                assert math.isnan(ours)
        record(record_testsuite_property, f"distinct-{order}{kind} {language} {cut}", differences)


def test_cohens_kappa_is_scikit_learns(record_testsuite_property):
    metrics = pytest.importorskip("sklearn.metrics")
    labels = []
    with gzip.open(real_file("xdailydialog/en_dev.txt.gz"), "rt", encoding="utf-8") as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            if len(fields) == 4:
                labels += list(zip(fields[2].split(), fields[3].split(), strict=False))
    acts, emotions = [act for act, _ in labels], [emotion for _, emotion in labels]
    assert len(labels) >= 1000
    noise = random.Random(3)
    near = [act if noise.random() < 0.7 else noise.choice("1234") for act in acts]
    differences = [
        abs(cohen_kappa(first[:size], second[:size]) - metrics.cohen_kappa_score(first[:size], second[:size]))
        for first, second in ((acts, emotions), (acts, acts[1:] + acts[:1]), (acts, near))
        for size in (50, 1000, len(labels))
    ]
    assert metrics.cohen_kappa_score(acts, near) > 0.4
    record(record_testsuite_property, "cohen kappa", differences)


def test_a_token_counts_as_often_as_it_is_there():
    assert parlai_f1(["b", "b"], ["b", "c"]) == 0.5
    assert sum((Counter("bb") & Counter("bc")).values()) == 1
