"""Perplexity: how likely a causal language model finds the responses, given their histories."""

from __future__ import annotations

import asyncio
import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dialore.errors import ModelError
from dialore.evaluation.base import Sample, SampleScore, Summed, unavailable
from dialore.evaluation.registry import Context, OwnMetric
from dialore.llm.connection import LOCAL
from dialore.llm.perplexity import Likelihood, LocalLikelihood, Scored

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue

_model = functools.cache(LocalLikelihood)  # one model of a name is shared by all
_LARGEST = 700.0


class Perplexity(OwnMetric, Summed):
    """Perplexity a token of all responses together, each given its history, a turn a line.

    The measure of a response is its summed negative log-likelihood and its tokens. Figures of models with different
    tokens do not compare.
    """

    def __init__(self, name: str, context: Context) -> None:
        super().__init__(name, context)
        model = (context.language_model or "").removeprefix(LOCAL)
        self.identity = f"{model}, a turn a line"
        self._batches = _MicroBatches(_model(model)) if model else None
        if model:
            definition = self.about.definition.replace("a causal language model", model)
            self.about = replace(self.about, definition=definition)

    async def measure(self, sample: Sample) -> SampleScore:
        """Return summed negative log-likelihood in nats, and tokens."""
        if self._batches is None:
            return unavailable("no language model was given")
        text = sample.response.text.strip()
        if not text:
            return unavailable("the response is empty")
        likelihood = await self._batches.score(Scored(context_of(sample.dialogue), text))
        if not likelihood.tokens:
            return unavailable("the model gives no token of the response a probability")
        return SampleScore((-likelihood.log_probability, float(likelihood.tokens)))

    def of_sums(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Perplexity from summed negative log-likelihoods and tokens; NaN where it is too large for a number."""
        mean = sums[..., 0] / sums[..., 1]
        figure: NDArray[np.float64] = np.where(mean < _LARGEST, np.exp(np.minimum(mean, _LARGEST)), math.nan)
        return figure


def context_of(dialogue: Dialogue) -> str:
    """Return a history as a text that a response continues: a turn a line, without the speakers' names."""
    return "".join(f"{text}\n" for text in dialogue.texts)


class _MicroBatches:
    """Scores in batches what many ask for one by one: while a batch is scored, the next gathers."""

    def __init__(self, model: LocalLikelihood) -> None:
        self._model = model
        self._waiting: list[tuple[Scored, asyncio.Future[Likelihood]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def score(self, pair: Scored) -> Likelihood:
        """Return the likelihood of one text; raise as `LocalLikelihood.score`."""
        future: asyncio.Future[Likelihood] = asyncio.get_running_loop().create_future()
        self._waiting.append((pair, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting, []
            results = await self._score([pair for pair, _ in some])
            for (_, future), result in zip(some, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    async def _score(self, pairs: list[Scored]) -> list[Likelihood | Exception]:
        try:
            return list(await self._model.score(pairs))
        except ModelError as error:
            # One text of a batch may be too long: the others are not to suffer for it.
            if len(pairs) == 1:
                return [error]
            return [likelihood for pair in pairs for likelihood in await self._score([pair])]
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who wait
            return [error] * len(pairs)
