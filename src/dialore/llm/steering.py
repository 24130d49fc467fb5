"""Decoding steered towards a bag of words: PPLM (Dathathri et al., ICLR 2020, Section 3).

For each token the keys and values of the past are moved by a few gradient steps that raise the likelihood of the bag
under the next token's distribution, while a Kullback-Leibler term holds it to the plain one (Section 3.3); the token is
then sampled from the normalised geometric mean of the steered and the plain distribution.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dialore.llm.local_text import TextStream
    from dialore.llm.model import Sampling, Steering

log = logging.getLogger(__name__)

_SMALL = 1e-15
Past = list[tuple[Any, Any]]
"""Keys and values of each layer: (1, heads, positions, width) each."""


def bag_tokens(tokenizer: Any, words: Sequence[str]) -> list[int]:
    """The tokens of a bag: of each word, as it stands after a space and at a line's start, where that is one token."""
    found: dict[int, None] = {}
    for word in words:
        for form in (f" {word.strip()}", word.strip()):
            tokens = tokenizer.encode(form, add_special_tokens=False)
            if len(tokens) == 1 and tokens[0] != tokenizer.unk_token_id:
                found[tokens[0]] = None
    return list(found)


def generate_steered(
    loaded: tuple[Any, Any],
    prompt: Any,
    steering: Steering,
    sampling: Sampling,
    most: int,
    stream: TextStream | None,
    is_done: Callable[..., Any],
) -> Any:
    """Continue a prompt, (1, positions) token ids, by `most` tokens at most, each steered; gives (1, positions + new).

    Where no word of the bag is a token, the text comes out unsteered. `is_done` says of token ids whether the text is
    complete.
    """
    import torch

    tokenizer, model = loaded
    numbers = bag_tokens(tokenizer, steering.words)
    if not numbers:
        log.warning("no word of the bag is a single token of %s: the text is not steered", model.name_or_path)
    ends = model.generation_config.eos_token_id
    ends = set(ends) if isinstance(ends, list) else {ends}
    if stream is not None:
        stream.put(prompt)
    # The caller may be in inference mode, in which nothing can be differentiated.
    with torch.inference_mode(mode=False):
        tokens = prompt.clone()
        decoder = Decoder(model, tokens, steering, numbers)
        for _ in range(most):
            following = _choose(decoder.step(tokens[:, -1:]), steering, sampling)
            tokens = torch.cat([tokens, following.view(1, 1)], dim=1)
            if stream is not None:
                stream.put(following)
            if int(following) in ends or bool(is_done(tokens, None).all()):
                break
    if stream is not None:
        stream.end()
    return tokens


class Decoder:
    """Steered decoding of one text, a token a step. It keeps two pasts: the plain one, and the one that was moved.

    The first step is given the last of the prompt's (1, positions) token ids; an empty bag leaves the text as it is.
    """

    def __init__(self, model: Any, prompt: Any, steering: Steering, bag: Sequence[int]) -> None:
        import torch
        from transformers import DynamicCache

        self._model, self._steering = model, steering
        self._bag = torch.tensor(list(bag), dtype=torch.long, device=prompt.device)
        self._plain = DynamicCache()
        if prompt.shape[1] > 1:
            with torch.no_grad():
                model(prompt[:, :-1], past_key_values=self._plain, use_cache=True)
        self._past = _layers(self._plain)

    def step(self, last: Any) -> Any:
        """The probabilities (vocabulary,) of the token after `last` (1, 1)."""
        import torch

        with torch.no_grad():
            answer = self._model(last, past_key_values=self._plain, use_cache=True)
        plain = torch.softmax(answer.logits[0, -1].float(), dim=-1)
        if not len(self._bag):
            return plain
        if not self._past:
            self._past = _layers(self._plain)
            return plain
        moved = _perturb(self._model, last, self._past, plain, self._steering, self._bag)
        with torch.no_grad():
            answer = self._model(last, past_key_values=_cache(moved), use_cache=True)
        # The next step goes on from the moved past, as published.
        self._past = _layers(answer.past_key_values)
        steered = torch.softmax(answer.logits[0, -1].float(), dim=-1)
        fused = steered**self._steering.gm_scale * plain ** (1 - self._steering.gm_scale)
        return fused / fused.sum()


def _perturb(model: Any, last: Any, past: Past, plain: Any, steering: Steering, bag: Any) -> Past:
    """The past after its gradient steps (Section 3.2 and Equation 3)."""
    import torch

    flat = [part for pair in past for part in pair]
    change = [torch.zeros_like(part) for part in flat]
    mask = _window(flat[0], steering.window)
    for _ in range(steering.iterations):
        leaves = [part.detach().requires_grad_() for part in change]
        moved = [part + leaf for part, leaf in zip(flat, leaves, strict=True)]
        logits = model(last, past_key_values=_cache(_paired(moved)), use_cache=True).logits[0, -1].float()
        steered = torch.softmax(logits, dim=-1)
        loss = -torch.log(steered[bag].sum())
        if steering.kl_scale:
            kept = steered.clamp_min(_SMALL)
            loss = loss + steering.kl_scale * (kept * (kept / plain.clamp_min(_SMALL)).log()).sum()
        gradients = [gradient * mask for gradient in torch.autograd.grad(loss, leaves)]
        # One norm a layer, its keys and values together.
        norms = [torch.stack([keys, values]).norm() + _SMALL for keys, values in _paired(gradients)]
        steps = [steering.step_size / norm**steering.gamma for norm in norms for _ in range(2)]
        change = [part - step * gradient for part, step, gradient in zip(change, steps, gradients, strict=True)]
    return _paired([part + moved for part, moved in zip(flat, change, strict=True)])


def _window(part: Any, window: int) -> Any:
    """(1, 1, positions, 1): one where a position may be moved."""
    import torch

    positions = part.shape[-2]
    mask = torch.ones(positions, device=part.device, dtype=part.dtype)
    if window and positions > window:
        mask[: positions - window] = 0
    return mask.view(1, 1, -1, 1)


def _choose(probabilities: Any, steering: Steering, sampling: Sampling) -> Any:
    """The next token (1,)."""
    import torch

    if sampling.temperature == 0:
        return probabilities.argmax().view(1)
    scaled = torch.log(probabilities.clamp_min(_SMALL)) / sampling.temperature
    if steering.top_k:
        edge = torch.topk(scaled, min(steering.top_k, len(scaled))).values[-1]
        scaled = scaled.masked_fill(scaled < edge, float("-inf"))
    left = torch.softmax(scaled, dim=-1)
    if sampling.top_p is not None:
        ordered, order = left.sort(descending=True)
        # A token goes where those before it already hold the share; the likeliest always stays.
        left = left.index_fill(0, order[(ordered.cumsum(0) - ordered) > sampling.top_p], 0.0)
    return torch.multinomial(left, 1)


def _layers(cache: Any) -> Past:
    return [(layer.keys.detach(), layer.values.detach()) for layer in cache.layers]


def _cache(past: Past) -> Any:
    from transformers import DynamicCache

    cache = DynamicCache()
    for number, (keys, values) in enumerate(past):
        cache.update(keys, values, number)
    return cache


def _paired(flat: list[Any]) -> Past:
    return list(zip(flat[::2], flat[1::2], strict=True))
