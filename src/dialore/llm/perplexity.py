"""How likely a model finds a text, given what stands before it: log-likelihood and perplexity, exact to the token."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dialore.errors import InputError, ModelError
from dialore.llm.local import load

_BATCH = 16  # texts that are scored together
_AHEAD = 16  # batches whose texts are sorted by length together, so that little is padded


class Scored(NamedTuple):
    """A text to be scored, and the context that it continues: joined as they stand, so the text brings its space."""

    context: str
    text: str


@dataclass(frozen=True, slots=True)
class Likelihood:
    """A model's likelihood of a text: the natural logarithm, summed over the tokens that have a probability.

    Without a context the first has one only where the model has a token for the beginning of a text.
    """

    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """Base e to the mean negative log-likelihood a token; infinite where no token could be scored."""
        if not self.tokens:
            return math.inf
        mean = -self.log_probability / self.tokens
        return math.exp(mean) if mean < 700 else math.inf


class LocalLikelihood:
    """Exact log-likelihoods of a causal model of transformers, loaded when first asked, in batches, in a thread.

    Context and text are tokenised as one string; a token that begins in the context and ends in the text counts
    as the text's. A context that is too long for the model loses its beginning.
    """

    def __init__(self, name_or_path: str) -> None:
        self.name = name_or_path
        self._loaded: tuple[Any, Any] | None = None
        self._lock = threading.Lock()

    async def score(
        self, pairs: Sequence[Scored], on_step: Callable[[int, int], None] | None = None
    ) -> list[Likelihood]:
        """Return the likelihood of each text given its context, in order; tell `on_step` how many are done.

        Raises InputError for an empty text or a model that cannot be loaded, ModelError for a text that is too long.
        """
        for number, pair in enumerate(pairs, start=1):
            if not pair.text:
                raise InputError(f"text {number} to be scored is empty", hint="leave it out")
        likelihoods: list[Likelihood] = []
        size = _BATCH * _AHEAD
        for start in range(0, len(pairs), size):
            likelihoods += await asyncio.to_thread(self._score, pairs[start : start + size])
            if on_step is not None:
                on_step(len(likelihoods), len(pairs))
        return likelihoods

    async def close(self) -> None:
        """Let the model's memory go."""
        self._loaded = None

    def _score(self, pairs: Sequence[Scored]) -> list[Likelihood]:
        # One at a time: they would load a model each, and fast tokenizers cannot be used by two threads at once.
        with self._lock:
            if self._loaded is None:
                self._loaded = load(self.name, is_causal=True)
            encoded = [self._encode(pair, *self._loaded) for pair in pairs]
            order = sorted(range(len(encoded)), key=lambda row: len(encoded[row][0]))
            likelihoods: dict[int, Likelihood] = {}
            for start in range(0, len(order), _BATCH):
                places = order[start : start + _BATCH]
                scores = self._batch_scores([encoded[row] for row in places], self._loaded[1])
                likelihoods.update(zip(places, scores, strict=True))
            return [likelihoods[row] for row in range(len(pairs))]

    def _encode(self, pair: Scored, tokenizer: Any, model: Any) -> tuple[list[int], int]:
        """Return the tokens of a pair, and the place of the text's first one that has a probability."""
        whole, border = f"{pair.context}{pair.text}", len(pair.context)
        if tokenizer.is_fast:
            encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
            tokens = list(encoded["input_ids"])
            first = next((token for token, (_, end) in enumerate(encoded["offset_mapping"]) if end > border), 0)
        else:
            tokens = tokenizer.encode(whole, add_special_tokens=False)
            first = len(tokenizer.encode(pair.context, add_special_tokens=False)) if pair.context else 0
        if tokenizer.bos_token_id is not None:
            tokens, first = [tokenizer.bos_token_id, *tokens], first + 1
        most = getattr(model.config, "max_position_embeddings", None)
        dropped = len(tokens) - most if isinstance(most, int) else 0
        if dropped > 0:
            if dropped >= first:
                long = f"a text of {len(tokens) - first} tokens is too long: {self.name} takes {most}"
                raise ModelError(long, hint="score shorter texts")
            tokens, first = tokens[dropped:], first - dropped
        return tokens, max(first, 1)

    def _batch_scores(self, texts: Sequence[tuple[list[int], int]], model: Any) -> list[Likelihood]:
        import torch

        width = max(len(tokens) for tokens, _ in texts)
        # Padding comes after a text, where a causal model cannot see it.
        ids = torch.tensor([tokens + [0] * (width - len(tokens)) for tokens, _ in texts], device=model.device)
        mask = torch.arange(width) < torch.tensor([[len(tokens)] for tokens, _ in texts])
        try:
            with torch.inference_mode():
                logits = model(input_ids=ids, attention_mask=mask.long().to(model.device)).logits[:, :-1].float()
                chosen = logits.gather(2, ids[:, 1:, None])[..., 0] - logits.logsumexp(dim=-1)
        except RuntimeError as error:
            raise ModelError(f"{self.name} failed to score: {error}"[:300], hint="lower the batch") from error
        return [
            Likelihood(float(row[first - 1 : len(tokens) - 1].sum()), max(0, len(tokens) - first))
            for row, (tokens, first) in zip(chosen.double().cpu(), texts, strict=True)
        ]
