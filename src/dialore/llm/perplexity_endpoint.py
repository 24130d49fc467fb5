"""Likelihoods from a completions endpoint that gives a prompt back with its log-probabilities (`echo`, `logprobs`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dialore.errors import ModelError
from dialore.llm.client import ChatClient
from dialore.llm.concurrency import AdaptiveLimiter, Limited
from dialore.llm.model import Completion, Message, Request, Sampling, Usage
from dialore.llm.perplexity import Likelihood, check_pairs
from dialore.llm.retry import Retrying
from dialore.llm.wire import Dialect
from dialore.parallel import bounded_map

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dialore.llm.model import OnText
    from dialore.llm.perplexity import Scored
    from dialore.llm.wire import JsonMode

_MEND = "take a server whose /completions knows echo and logprobs, such as vLLM, or a local model: hf:NAME"


class EndpointLikelihood:
    """Log-likelihoods by the completions API, as vLLM and OpenAI's base models have it; a call a text.

    The text's tokens are those that end after its beginning, by the server's own `text_offset`. Retries and adaptive
    concurrency are `Endpoint`'s.

    Args:
        model: the model's name at the server.
        base_url: the endpoint, e.g. `http://localhost:8000/v1`.
        api_key: the key, or None where none is wanted.
        timeout: seconds for one try of a call.
        retries: how often a failed call is tried again.
        concurrency: the most calls at once.

    Raises:
        InputError: the address is not a URL, or the key cannot be one.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout: float = 120.0,
        retries: int = 4,
        concurrency: int = 16,
    ) -> None:
        self.name = model
        self._concurrency = concurrency
        self._client = _EchoClient(model, base_url, api_key, timeout=timeout)
        self._model = Retrying(Limited(self._client, AdaptiveLimiter(concurrency)), retries=retries)

    async def score(
        self, pairs: Sequence[Scored], on_step: Callable[[int, int], None] | None = None
    ) -> list[Likelihood]:
        """The likelihood of each text given its context; see `LikelihoodModel.score`."""
        check_pairs(pairs)
        found: dict[int, Likelihood] = {}

        async def one(place: int) -> None:
            pair = pairs[place]
            request = Request(
                messages=(Message(role="user", content=pair.text),),
                sampling=Sampling(temperature=0, max_tokens=1),
                continuation=f"{pair.context}{pair.text}",
            )
            answer = await self._model.complete(request)
            if not isinstance(answer, _Echoed):
                raise ModelError(f"{self.name}'s endpoint tells no log-probabilities", mend=_MEND, configuration=True)
            found[place] = _likelihood(answer.log_probabilities, pair)
            if on_step is not None:
                on_step(len(found), len(pairs))

        # The limiter lets fewer through where the server is slow; more than it ever does need not wait at it.
        await bounded_map(range(len(pairs)), one, limit=self._concurrency)
        return [found[place] for place in range(len(pairs))]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


class _Echoed(Completion):
    """An echo: each token's beginning in the prompt and its log-probability, None where there is none."""

    log_probabilities: tuple[tuple[int, int, float | None], ...]


class _EchoDialect(Dialect):
    def body(self, model: str, request: Request, *, stream: bool) -> dict[str, Any]:
        """One token is asked for: some servers take no zero. It is told from the echo by where it stands."""
        del stream
        return {
            "model": model,
            "prompt": request.continuation,
            "max_tokens": 1,
            "temperature": 0,
            "echo": True,
            "logprobs": 1,
        }


class _EchoClient(ChatClient):
    """A client whose completions hold the log-probabilities of the prompt's tokens."""

    path = "/completions"

    @staticmethod
    def _dialect(structured: JsonMode) -> Dialect:
        return _EchoDialect(structured)

    def _completion(self, payload: object, request: Request) -> Completion:
        choices = payload.get("choices") if isinstance(payload, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        told = choice.get("logprobs") if isinstance(choice, dict) else None
        echoed = _echoed(told, request.continuation or "") if isinstance(told, dict) else None
        if echoed is None:
            super()._completion(payload, request)  # raises what the server reports
            raise ModelError(f"{self._where} gives no log-probabilities of a prompt", mend=_MEND, configuration=True)
        return _Echoed(text=request.continuation or "", usage=Usage(calls=1), log_probabilities=echoed)

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """Have a prompt echoed; never streamed."""
        del on_text
        return await super().complete(request)


def _echoed(told: dict[str, Any], prompt: str) -> tuple[tuple[int, int, float | None], ...] | None:
    """(begin, end, log-probability) of each token of a prompt, by characters; None where they are not told."""
    tokens, numbers, begins = told.get("tokens"), told.get("token_logprobs"), told.get("text_offset")
    if not isinstance(tokens, list) or not isinstance(numbers, list) or len(tokens) != len(numbers):
        return None
    if not isinstance(begins, list) or len(begins) != len(tokens):
        begins, place = [], 0
        for token in tokens:
            begins.append(place)
            place += len(str(token))
    # A server without echo tells of the one token of its answer alone.
    if len(tokens) < 2:
        return None
    # A token for the beginning of the text stands in the offsets though not in the prompt.
    first = begins[0] if prompt.startswith(str(tokens[0])) else begins[1]
    ends = [*begins[1:], len(prompt) + first]
    spans = [(begin - first, min(end - first, len(prompt))) for begin, end in zip(begins, ends, strict=True)]
    return tuple((*span, number) for span, number in zip(spans, numbers, strict=True) if span[0] < len(prompt))


def _likelihood(echoed: Sequence[tuple[int, int, float | None]], pair: Scored) -> Likelihood:
    border = len(pair.context)
    numbers = [number for _, end, number in echoed if end > border and number is not None]
    return Likelihood(float(sum(numbers)), len(numbers))
