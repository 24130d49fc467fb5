"""Decoding steered towards a bag of words: PPLM (Dathathri et al., ICLR 2020, Section 3).

For each token the keys and values of the past are moved by a few gradient steps that raise the likelihood of the bag
under the next token's distribution, while a Kullback-Leibler term holds it to the plain one (Section 3.3); the token is
then sampled from the normalised geometric mean of the steered and the plain distribution.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dialore.llm.model import Steering

log = logging.getLogger(__name__)

_SMALL = 1e-15
Past = list[tuple[Any, Any]]
"""Keys and values of each layer: (1, heads, positions, width) each."""


def bag_tokens(tokenizer: Any, words: Sequence[str]) -> list[int]:
    """Return the tokens of a bag: each word after a space and at a line's start, where it is one token."""
    bag: dict[int, None] = {}
    for word in words:
        for form in (f" {word.strip()}", word.strip()):
            tokens = tokenizer.encode(form, add_special_tokens=False)
            if len(tokens) == 1 and tokens[0] != tokenizer.unk_token_id:
                bag[tokens[0]] = None
    return list(bag)


class SteeredLogits:
    """A processor of logits for transformers' `generate`: those of the plain distribution become the fused one's.

    It serves one text, (1, positions) token ids, and keeps its moved past. Where no word of the bag is a token, the
    logits stay as they are; so do those behind a prompt of one token, which has no past.
    """

    def __init__(self, tokenizer: Any, model: Any, steering: Steering) -> None:
        self._model, self._steering = model, steering
        self._bag = bag_tokens(tokenizer, steering.words)
        if not self._bag:
            log.warning("no word of the bag is a single token of %s: the text is not steered", model.name_or_path)
        self._past: Past | None = None
        self._norms: list[Any] = []

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """Return the logarithm of the distribution, (1, vocabulary), of the token after `tokens`."""
        import torch

        if not self._bag or tokens.shape[1] == 1:
            return logits
        # The caller may be in inference mode, in which nothing can be differentiated.
        with torch.inference_mode(mode=False), torch.no_grad():
            tokens, plain = tokens.clone(), torch.softmax(logits[0].float().clone(), dim=-1)
            if self._past is None:
                self._past = _layers(self._model(tokens[:, :-1], use_cache=True).past_key_values)
            last = tokens[:, -1:]
            with torch.enable_grad():
                moved = _perturb(self._model, last, self._past, plain, self._steering, self._bag, self._norms)
            answer = self._model(last, past_key_values=_cache(moved), use_cache=True)
            # The next step goes on from the moved past, as published.
            self._past = _layers(answer.past_key_values)
            steered = torch.softmax(answer.logits[0, -1].float(), dim=-1)
            fused = steered**self._steering.gm_scale * plain ** (1 - self._steering.gm_scale)
            return (fused / fused.sum()).clamp_min(_SMALL).log()[None]


def _perturb(
    model: Any, last: Any, past: Past, plain: Any, steering: Steering, bag: list[int], greatest: list[Any]
) -> Past:
    """Return the past after its gradient steps (Section 3.2 and Equation 3).

    Of a bag of words the authors' code divides each step by the greatest norm that the layer's gradient has had in the
    whole text so far: `greatest`, one norm a layer, its keys and values together, is kept up to date.
    """
    import torch

    flat = [part for pair in past for part in pair]
    change = [torch.zeros_like(part) for part in flat]
    back = torch.arange(flat[0].shape[-2], 0, -1, device=flat[0].device)
    # (1, 1, positions, 1): one where a position may be moved.
    mask = (back <= (steering.window or len(back))).to(flat[0].dtype).view(1, 1, -1, 1)
    for _ in range(steering.iterations):
        leaves = [part.detach().requires_grad_() for part in change]
        moved = [part + leaf for part, leaf in zip(flat, leaves, strict=True)]
        logits = model(last, past_key_values=_cache(_pair_up(moved)), use_cache=True).logits[0, -1].float()
        steered = torch.softmax(logits, dim=-1)
        loss = -torch.log(steered[bag].sum())
        if steering.kl_scale:
            kept = steered.clamp_min(_SMALL)
            loss = loss + steering.kl_scale * (kept * (kept / plain.clamp_min(_SMALL)).log()).sum()
        gradients = [gradient * mask for gradient in torch.autograd.grad(loss, leaves)]
        norms = [torch.stack([keys, values]).norm() + _SMALL for keys, values in _pair_up(gradients)]
        greatest[:] = map(torch.maximum, greatest or norms, norms)
        steps = [steering.step_size / norm**steering.gamma for norm in greatest for _ in range(2)]
        change = [part - step * gradient for part, step, gradient in zip(change, steps, gradients, strict=True)]
    return _pair_up([part + moved for part, moved in zip(flat, change, strict=True)])


def _layers(cache: Any) -> Past:
    return [(layer.keys.detach(), layer.values.detach()) for layer in cache.layers]


def _cache(past: Past) -> Any:
    from transformers import DynamicCache

    return DynamicCache(past)


def _pair_up(flat: list[Any]) -> Past:
    return list(zip(flat[::2], flat[1::2], strict=True))
