"""How likely a model finds a text, given what stands before it: log-likelihood and perplexity, exact to the token."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from dialore.errors import InputError, ModelError
from dialore.llm.connection import LOCAL, find
from dialore.llm.http import AdaptiveLimiter, HttpClient, Retry, error_detail, one_line
from dialore.llm.local import load
from dialore.parallel import bounded_map

_MEND = "take a server whose /completions knows echo and logprobs, such as vLLM, or a local model: hf:NAME"
_AHEAD = 16
"""Batches whose texts are sorted by length together, so that little is padded."""


class Scored(NamedTuple):
    """A text to be scored, and the context that it continues: joined as they stand, so the text brings its space."""

    context: str
    text: str


@dataclass(frozen=True, slots=True)
class Likelihood:
    """What a model makes of a text.

    Attributes:
        log_probability: natural logarithm, summed over the text's tokens.
        tokens: how many of the text's tokens have a probability. Without a context the first has one only where the
            model has a token for the beginning of a text.
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


def _check(pairs: Sequence[Scored]) -> None:
    for number, pair in enumerate(pairs, start=1):
        if not pair.text:
            raise InputError(f"text {number} to be scored is empty", mend="leave it out")


class EndpointLikelihood:
    """Log-likelihoods by the completions API, as vLLM and OpenAI's base models have it; a call a text.

    The text's tokens are those that end after its beginning, by the server's own `text_offset`.

    The arguments are those of `Endpoint`.
    """

    def __init__(
        self, model: str, base_url: str, api_key: str | None = None, *, retries: int = 4, concurrency: int = 16
    ) -> None:
        self.name = model
        self._http = HttpClient(base_url, api_key)
        self._retry, self._limiter = Retry(retries), AdaptiveLimiter(concurrency)

    async def score(
        self, pairs: Sequence[Scored], on_step: Callable[[int, int], None] | None = None
    ) -> list[Likelihood]:
        """The likelihood of each text given its context, in order; `on_step` is told how many are done, of how many.

        Raises:
            InputError: a text is empty.
            ModelError: the endpoint failed, or gives no log-probabilities.
        """
        _check(pairs)
        found: dict[int, Likelihood] = {}

        async def one(place: int) -> None:
            found[place] = await self._retry.run(lambda _: self._score(pairs[place]))
            if on_step is not None:
                on_step(len(found), len(pairs))

        # The limiter lets fewer through where the server is slow; more than it ever does need not wait at it.
        await bounded_map(range(len(pairs)), one, limit=self._limiter.maximum)
        return [found[place] for place in range(len(pairs))]

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _score(self, pair: Scored) -> Likelihood:
        # One token is asked for: some servers take no zero. Its place tells it from the echo.
        prompt = f"{pair.context}{pair.text}"
        body = {"model": self.name, "prompt": prompt, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        async with self._limiter.slot():
            answer = await self._http.json("/completions", body)
        choices = answer.get("choices") if isinstance(answer, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        logs = choice.get("logprobs") if isinstance(choice, dict) else None
        echoed = _echoed(logs, prompt) if isinstance(logs, dict) else None
        if echoed is None:
            why = one_line(error_detail(answer)[0], self._http.key)
            lacking = f"{self._http.where} gives no log-probabilities of a prompt" + (f": {why}" if why else "")
            raise ModelError(lacking, mend=_MEND, configuration=True)
        numbers = [number for end, number in echoed if end > len(pair.context) and number is not None]
        return Likelihood(float(sum(numbers)), len(numbers))


def _echoed(logs: dict[str, Any], prompt: str) -> list[tuple[int, float | None]] | None:
    """The end and the log-probability of each token of a prompt; None where the server does not say."""
    tokens, numbers, begins = logs.get("tokens"), logs.get("token_logprobs"), logs.get("text_offset")
    # A server without echo tells of the one token of its answer alone.
    if not isinstance(tokens, list) or not isinstance(numbers, list) or not 2 <= len(tokens) == len(numbers):
        return None
    if not isinstance(begins, list) or len(begins) != len(tokens):
        begins = [0, *itertools.accumulate(len(str(token)) for token in tokens[:-1])]
    # A token for the beginning of the text stands in the offsets though not in the prompt.
    first = begins[0] if prompt.startswith(str(tokens[0])) else begins[1]
    ends = [*begins[1:], len(prompt) + first]
    spans = zip(begins, ends, numbers, strict=True)
    return [(min(end - first, len(prompt)), number) for begin, end, number in spans if begin - first < len(prompt)]


class LocalLikelihood:
    """Exact log-likelihoods of a causal model of transformers, loaded when first asked, in batches, in a thread.

    Context and text are tokenised as one string; a token that begins in the context and ends in the text counts
    as the text's. A context that is too long for the model loses its beginning.

    The arguments are those of `LocalModel`; `batch` texts are scored together.
    """

    def __init__(self, name_or_path: str, *, device: str = "auto", dtype: str = "auto", batch: int = 16) -> None:
        self.name = name_or_path
        self._device, self._dtype, self._batch = device, dtype, max(1, batch)
        self._loaded: tuple[Any, Any] | None = None
        self._lock = threading.Lock()

    async def score(
        self, pairs: Sequence[Scored], on_step: Callable[[int, int], None] | None = None
    ) -> list[Likelihood]:
        """The likelihood of each text given its context; see `EndpointLikelihood.score`.

        Raises:
            InputError: a text is empty, or the model cannot be loaded.
            ModelError: a text is longer than the model takes.
        """
        _check(pairs)
        found: list[Likelihood] = []
        size = self._batch * _AHEAD
        for start in range(0, len(pairs), size):
            found += await asyncio.to_thread(self._score, pairs[start : start + size])
            if on_step is not None:
                on_step(len(found), len(pairs))
        return found

    async def close(self) -> None:
        """Let the model's memory go."""
        self._loaded = None

    def _score(self, pairs: Sequence[Scored]) -> list[Likelihood]:
        # One at a time: they would load a model each, and fast tokenizers cannot be used by two threads at once.
        with self._lock:
            if self._loaded is None:
                self._loaded = load(self.name, self._device, self._dtype, is_causal=True)
            encoded = [self._encode(pair, *self._loaded) for pair in pairs]
            order = sorted(range(len(encoded)), key=lambda place: len(encoded[place][0]))
            found: dict[int, Likelihood] = {}
            for start in range(0, len(order), self._batch):
                places = order[start : start + self._batch]
                scores = self._batch_scores([encoded[place] for place in places], self._loaded[1])
                found.update(zip(places, scores, strict=True))
            return [found[place] for place in range(len(pairs))]

    def _encode(self, pair: Scored, tokenizer: Any, model: Any) -> tuple[list[int], int]:
        """The tokens of a pair, and the place of the text's first one that has a probability."""
        whole, border = f"{pair.context}{pair.text}", len(pair.context)
        if tokenizer.is_fast:
            encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
            tokens = list(encoded["input_ids"])
            first = next((place for place, (_, end) in enumerate(encoded["offset_mapping"]) if end > border), 0)
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
                raise ModelError(long, mend="score shorter texts")
            tokens, first = tokens[dropped:], first - dropped
        return tokens, max(first, 1)

    def _batch_scores(self, texts: Sequence[tuple[list[int], int]], model: Any) -> list[Likelihood]:
        import torch

        width = max(len(tokens) for tokens, _ in texts)
        # Padding comes after a text, where a causal model cannot see it.
        ids = torch.tensor([tokens + [0] * (width - len(tokens)) for tokens, _ in texts], device=model.device)
        mask = torch.tensor([[place < len(tokens) for place in range(width)] for tokens, _ in texts]).long()
        try:
            with torch.inference_mode():
                logits = model(input_ids=ids, attention_mask=mask.to(model.device)).logits[:, :-1].float()
                chosen = logits.gather(2, ids[:, 1:, None])[..., 0] - logits.logsumexp(dim=-1)
        except RuntimeError as error:
            raise ModelError(f"{self.name} failed to score: {error}"[:300], mend="lower the batch") from error
        rows = chosen.double().cpu()
        return [
            Likelihood(float(rows[row, first - 1 : len(tokens) - 1].sum()), max(0, len(tokens) - first))
            for row, (tokens, first) in enumerate(texts)
        ]


LikelihoodModel: TypeAlias = EndpointLikelihood | LocalLikelihood
"""Says how likely texts are."""


def likelihood_model(model: str, base_url: str | None = None, api_key: str | None = None) -> LikelihoodModel:
    """The model of that name: `hf:NAME_OR_PATH` run here, else one of a completions endpoint, as `connect` finds it.

    Raises:
        InputError: no endpoint is known, or its address is wrong.
    """
    if model.startswith(LOCAL):
        return LocalLikelihood(model.removeprefix(LOCAL))
    found = find(model, base_url, api_key)
    if found.base_url is None:
        raise InputError(
            f"no endpoint is known for the model {model!r}", mend="set --base-url, or name hf:NAME to run it here"
        )
    return EndpointLikelihood(model, found.base_url, found.api_key)
