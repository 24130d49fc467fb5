"""Likelihoods of texts in their context: a local model against sums by hand."""

from __future__ import annotations

import asyncio
import math
import sys
import time

import pytest

from dialore.errors import InputError, MissingExtraError, ModelError
from dialore.llm.perplexity import Likelihood, LocalLikelihood, Scored
from tests.llm.tiny_causal import make_tiny_causal, needs_torch

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("scorer")
    make_tiny_causal(path, positions=48)
    return path


@pytest.fixture(scope="module")
def beginning(tmp_path_factory):
    path = tmp_path_factory.mktemp("beginning")
    make_tiny_causal(path, positions=48, begins=True)
    return path


def by_hand(folder, text: str, context: str, *, begin: bool = False) -> tuple[float, int]:
    """One forward pass a prefix, one probability a token."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    whole = tokenizer(context + text, add_special_tokens=False, return_offsets_mapping=True)
    tokens = ([tokenizer.bos_token_id] if begin else []) + whole["input_ids"]
    ends = ([0] if begin else []) + [end for _, end in whole["offset_mapping"]]
    total, count = 0.0, 0
    for place in range(1, len(tokens)):
        if ends[place] > len(context):
            with torch.no_grad():
                logits = model(torch.tensor([tokens[:place]])).logits[0, -1].double()
            total += float(torch.log_softmax(logits, -1)[tokens[place]])
            count += 1
    return total, count


PAIRS = [
    Scored("green tea", " is warm"),
    Scored("", "the river runs to the sea"),
    Scored("people talk about ", "books, 茶 and é"),
    Scored("green t", "ea"),
]


@needs_torch
async def test_it_is_the_sum_of_its_tokens_log_probabilities(folder, monkeypatch):
    monkeypatch.setattr("dialore.llm.perplexity._BATCH", 3)
    model = LocalLikelihood(str(folder))
    steps: list[tuple[int, int]] = []
    found = await model.score(PAIRS, lambda done, total: steps.append((done, total)))
    for pair, likelihood in zip(PAIRS, found, strict=True):
        total, count = by_hand(folder, pair.text, pair.context)
        assert likelihood.tokens == count
        assert likelihood.log_probability == pytest.approx(total, abs=1e-3)
        assert likelihood.perplexity == pytest.approx(math.exp(-total / count), rel=1e-3)
    assert steps[-1] == (4, 4)
    alone = [(await model.score([pair]))[0].log_probability for pair in PAIRS]
    assert alone == pytest.approx([likelihood.log_probability for likelihood in found], abs=1e-4)
    await model.close()


@needs_torch
async def test_a_token_for_the_beginning_gives_the_first_one_a_probability(beginning, folder):
    model = LocalLikelihood(str(beginning))
    (found,) = await model.score([Scored("", "green tea")])
    total, count = by_hand(beginning, "green tea", "", begin=True)
    assert (found.tokens, found.log_probability) == (count, pytest.approx(total, abs=1e-3))
    without = LocalLikelihood(str(folder))
    assert (await without.score([Scored("", "green tea")]))[0].tokens == count - 1


@needs_torch
async def test_a_long_context_loses_its_beginning_and_a_long_text_is_refused(folder):
    model = LocalLikelihood(str(folder))
    long, kept = await model.score(
        [Scored("sea " * 200 + "the river runs", " to the sea"), Scored("sea " * 100 + "the river runs", " to the sea")]
    )
    assert long == kept
    with pytest.raises(ModelError, match="takes 48"):
        await model.score([Scored("tea", " sea river" * 60)])
    with pytest.raises(InputError, match="text 2 to be scored is empty"):
        await model.score([Scored("tea", "x"), Scored("tea", "")])


@needs_torch
async def test_scoring_at_once_loads_one_model(folder, monkeypatch):
    import transformers

    loaded: list[str] = []
    load = transformers.AutoModelForCausalLM.from_pretrained
    monkeypatch.setattr(
        transformers.AutoModelForCausalLM,
        "from_pretrained",
        lambda *names, **options: (loaded.append("model"), time.sleep(0.05), load(*names, **options))[-1],
    )
    model = LocalLikelihood(str(folder))
    found = await asyncio.gather(*(model.score(PAIRS) for _ in range(4)))
    assert loaded == ["model"]
    assert all(each == found[0] for each in found)
    await model.close()


@needs_torch
async def test_a_model_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot load the model"):
        await LocalLikelihood(f"{tmp_path}/none").score([Scored("", "x y")])


async def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"\[local\]"):
        await LocalLikelihood("some/model").score([Scored("", "x y")])


def test_perplexity():
    assert Likelihood(-2.0, 2).perplexity == pytest.approx(math.e)
    assert Likelihood(0.0, 0).perplexity == math.inf
    assert Likelihood(-1e6, 1).perplexity == math.inf
