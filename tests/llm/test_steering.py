"""PPLM's steering on a tiny random model: what it raises, what it keeps, and what the settings do."""

from __future__ import annotations

import pytest

from dialore.llm.local import LocalModel
from dialore.llm.model import Message, Request, Sampling, Steering
from tests.llm.tiny_causal import make_tiny_causal, needs_torch

pytestmark = [pytest.mark.filterwarnings("ignore"), needs_torch]
BAG = ("tea", "river", "books")
STRONG = Steering(words=BAG, iterations=5, step_size=0.3, gamma=1.0, kl_scale=0.0, gm_scale=1.0, window=0)


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def loaded(request, tmp_path_factory):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = tmp_path_factory.mktemp(request.param)
    make_tiny_causal(path, kind=request.param)
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path).eval()
    prompt = tokenizer("the sea is warm and people talk", return_tensors="pt")["input_ids"]
    torch.manual_seed(0)
    return path, tokenizer, model, prompt


def next_token(loaded, steering):
    """The plain and the steered probabilities of the token after the prompt."""
    import torch

    from dialore.llm.steering import SteeredLogits, bag_tokens

    _, tokenizer, model, prompt = loaded
    with torch.no_grad():
        logits = model(prompt).logits[:, -1]
    steered = SteeredLogits(tokenizer, model, steering)(prompt, logits)
    return torch.softmax(logits[0], dim=-1), steered[0].exp(), bag_tokens(tokenizer, steering.words)


def test_steering_raises_the_bags_probability(loaded):
    plain, steered, bag = next_token(loaded, STRONG)
    assert float(steered.sum()) == pytest.approx(1, abs=1e-5)
    assert float(steered[bag].sum()) > 1.2 * float(plain[bag].sum())
    _, harder, _ = next_token(loaded, STRONG.model_copy(update={"iterations": 15}))
    assert float(harder[bag].sum()) > float(steered[bag].sum())


def test_what_holds_it_to_the_plain_distribution(loaded):
    plain, steered, _ = next_token(loaded, STRONG)

    def distance(**changes):
        _, other, _ = next_token(loaded, STRONG.model_copy(update=changes))
        return float((other - plain).abs().sum())

    free = float((steered - plain).abs().sum())
    assert distance(gm_scale=0.0) == pytest.approx(0, abs=1e-5)  # the plain one alone
    assert distance(gm_scale=0.5) < free
    assert distance(kl_scale=50.0) < free
    assert distance(window=1) < free
    assert distance(iterations=0) == pytest.approx(0, abs=1e-4)


def test_fusion_is_the_normalised_geometric_mean(loaded):
    plain, steered, _ = next_token(loaded, STRONG)
    _, fused, _ = next_token(loaded, STRONG.model_copy(update={"gm_scale": 0.7}))
    wanted = steered**0.7 * plain**0.3
    assert fused.tolist() == pytest.approx((wanted / wanted.sum()).tolist(), rel=1e-3, abs=1e-7)


def test_the_bag_holds_words_that_are_one_token(loaded):
    from dialore.llm.steering import bag_tokens

    _, tokenizer, _, _ = loaded
    found = bag_tokens(tokenizer, ["tea", "books", "unspeakable"])
    assert {tokenizer.decode([token]).strip() for token in found} == {"tea", "books"}
    assert bag_tokens(tokenizer, []) == []


def ask(steering, **sampling):
    return Request(
        messages=(Message(role="user", content="Hi"),),
        sampling=Sampling(**{"temperature": 0, "max_tokens": 12, **sampling}),
        continuation="the sea is warm and people talk",
        steering=steering,
    )


def count(text: str) -> int:
    return sum(text.count(word) for word in BAG)


async def test_a_local_model_follows_the_steering_of_a_request(loaded):
    model = LocalModel(str(loaded[0]))
    plain = await model.complete(ask(None))
    hard = STRONG.model_copy(update={"iterations": 20, "step_size": 1.0})
    steered = await model.complete(ask(hard))
    assert count(steered.text) > count(plain.text)
    assert steered.usage.completion_tokens <= 12
    assert steered.usage.prompt_tokens == plain.usage.prompt_tokens
    unmoved = await model.complete(ask(STRONG.model_copy(update={"gm_scale": 0.0})))
    nothing = await model.complete(ask(STRONG.model_copy(update={"words": ()})))
    assert unmoved.text == nothing.text == plain.text  # with nothing to steer by it is plain greedy decoding
    await model.close()


async def test_seeds_streams_stops_and_top_k(loaded):
    model = LocalModel(str(loaded[0]))
    soft = Steering(words=BAG)
    drawn = [(await model.complete(ask(soft, temperature=1.0, seed=seed))).text for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    pieces: list[str] = []
    streamed = await model.complete(ask(soft, temperature=1.0, seed=1), pieces.append)
    assert "".join(pieces) == streamed.text == drawn[0]
    one = await model.complete(ask(soft.model_copy(update={"top_k": 1}), temperature=1.0, seed=5))
    assert one.text == (await model.complete(ask(soft))).text
    nucleus = await model.complete(ask(soft, temperature=1.0, top_p=1e-6, seed=5))
    assert nucleus.text == one.text
    stop = drawn[0][4:6]
    stopped = await model.complete(ask(soft, temperature=1.0, seed=1, stop=(stop,)))
    assert stopped.text == drawn[0][: drawn[0].find(stop)]
    await model.close()


def test_many_steps_are_those_of_the_published_loop(loaded):
    """Each token once more with the plain distribution over the whole text, and the moved past handed on by hand."""
    import torch

    from dialore.llm.steering import SteeredLogits, _cache, _layers, _perturb, bag_tokens

    _, tokenizer, model, prompt = loaded
    steering = Steering(words=BAG, step_size=0.5, window=3, gm_scale=0.8)
    bag = bag_tokens(tokenizer, BAG)
    processor, tokens = SteeredLogits(tokenizer, model, steering), prompt
    greatest: list = []
    with torch.no_grad():
        past = _layers(model(prompt[:, :-1], use_cache=True).past_key_values)
    for _ in range(4):
        with torch.no_grad():
            logits = model(tokens).logits[:, -1]
        found, plain = processor(tokens, logits)[0].exp(), torch.softmax(logits[0], dim=-1)
        moved = _perturb(model, tokens[:, -1:], past, plain, steering, bag, greatest)
        with torch.no_grad():
            answer = model(tokens[:, -1:], past_key_values=_cache(moved), use_cache=True)
        past = _layers(answer.past_key_values)
        fused = torch.softmax(answer.logits[0, -1], dim=-1) ** 0.8 * plain**0.2
        assert found.tolist() == pytest.approx((fused / fused.sum()).tolist(), rel=2e-2, abs=1e-5)
        tokens = torch.cat([tokens, found.argmax().view(1, 1)], dim=1)


def test_steps_are_divided_by_the_greatest_norm_of_the_text_so_far(loaded):
    """As PPLM's code does it for bags of words: a step's length is size * norm / greatest ** gamma."""
    import torch

    from dialore.llm.steering import _layers, _perturb, bag_tokens

    _, tokenizer, model, prompt = loaded
    steering = Steering(words=BAG, iterations=1, step_size=0.5, gamma=1.5, window=0)
    with torch.no_grad():
        past = _layers(model(prompt[:, :-1], use_cache=True).past_key_values)
        plain = torch.softmax(model(prompt).logits[0, -1], dim=-1)

    def moves(greatest):
        moved = _perturb(model, prompt[:, -1:], past, plain, steering, bag_tokens(tokenizer, BAG), greatest)
        parts = [
            torch.stack([new - old for new, old in zip(*pairs, strict=True)]) for pairs in zip(moved, past, strict=True)
        ]
        return [float(part.norm()) for part in parts]

    own: list = []
    first = moves(own)
    assert first == pytest.approx([0.5 * float(norm) ** -0.5 for norm in own], rel=1e-2)
    seen = [norm * 4 for norm in own]  # a token before had steeper gradients
    assert moves(seen) == pytest.approx([move / 8 for move in first], rel=1e-2)
    assert [float(norm) for norm in seen] == pytest.approx([4 * float(norm) for norm in own])
    low = [norm / 4 for norm in own]
    assert moves(low) == pytest.approx(first, rel=1e-2)


async def test_a_prompt_of_one_token_is_steered_from_the_second_on(loaded):
    model = LocalModel(str(loaded[0]))
    short = ask(STRONG).model_copy(update={"continuation": "t"})
    assert (await model.complete(short)).usage.completion_tokens > 1
    await model.close()
