"""What language models that run in this process share: a queue of requests, batches, and generation in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dialore.errors import DialoreError, InputError, MissingExtraError, ModelError
from dialore.llm.generation import TextStream, cut_at
from dialore.llm.model import Completion, Usage
from dialore.llm.thinking import strip_thoughts

if TYPE_CHECKING:
    from collections.abc import Callable

    from dialore.llm.model import OnText, Request

_STOP_WINDOW = 32
"""Tokens at the end of the text in which a stop string is looked for after each step."""


@dataclass(eq=False)
class Job:
    """A request waiting for its turn."""

    request: Request
    on_text: OnText | None
    done: asyncio.Future[Completion]
    given_up: threading.Event = field(default_factory=threading.Event)

    def goes_with(self, other: Job) -> bool:
        """Whether two requests may share a batch: a seed or a stream wants the model for itself."""
        mine, theirs = self.request, other.request
        alone = self.on_text or other.on_text or mine.sampling.seed is not None or mine.steering or theirs.steering
        return not alone and (mine.sampling, mine.continuation_stop) == (theirs.sampling, theirs.continuation_stop)


class BatchedModel(ABC):
    """A language model of Hugging Face transformers, loaded when first called.

    One generation runs at a time, in a thread; requests with the same sampling settings that wait meanwhile are
    batched. Token counts are exact. Output schemas are not enforced.

    Args:
        name_or_path: a model of the hub, or a folder.
        device: `auto` for a GPU if there is one, else `cpu`, `cuda`, `cuda:1`, `mps`.
        dtype: `auto` for the model's own, else `float32`, `bfloat16`, `float16`.
        batch: the most requests generated together.
    """

    _loader: ClassVar[str]
    """The class of transformers that loads the model."""
    _padding: ClassVar[Literal["left", "right"]]

    def __init__(self, name_or_path: str, *, device: str = "auto", dtype: str = "auto", batch: int = 8) -> None:
        self.name = name_or_path
        self._device, self._dtype, self._batch = device, dtype, max(1, batch)
        self._waiting: list[Job] = []
        self._worker: asyncio.Task[None] | None = None
        self._loaded: tuple[Any, Any] | None = None

    @abstractmethod
    def _encode(self, tokenizer: Any, requests: list[Request]) -> tuple[Any, tuple[str, ...]]:  # noqa: ANN401
        """The requests' prompts as a padded batch of tokens, and the stop strings of all of them."""

    @abstractmethod
    def _bounds(self, config: Any, width: int, wanted: int) -> tuple[int, int]:  # noqa: ANN401
        """How many tokens stand before the answer in what the model gives back, and how many the answer may have.

        Args:
            config: the model's configuration.
            width: tokens of the longest prompt.
            wanted: tokens asked for.

        Raises:
            ModelError: the prompt is too long.
        """

    def _continue(self, loaded: tuple[Any, Any], inputs: Any, request: Request, **settings: Any) -> Any:  # noqa: ANN401
        """Have the model write: a batch of rows of tokens.

        Args:
            loaded: tokenizer and model.
            inputs: the prompts.
            request: the first of those that are answered; all have its sampling.
            settings: `max_new_tokens`, `streamer` and `stopping_criteria`, as transformers' `generate` takes them.
        """
        tokenizer, model = loaded
        sampling = request.sampling
        return model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            pad_token_id=tokenizer.pad_token_id,
            **settings,
            **_sampling_settings(sampling.temperature, sampling.top_p),
        )

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """Answer a request.

        Raises:
            MissingExtraError: torch or transformers is not installed.
            InputError: there is no such model.
            ModelError: the prompt is too long, or the generation failed.
        """
        job = Job(request, on_text, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        try:
            return await job.done
        except asyncio.CancelledError:
            job.given_up.set()
            raise

    async def close(self) -> None:
        """Let the model's memory go."""
        self._loaded = None

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            first = self._waiting[0]
            jobs = [first, *(job for job in self._waiting[1:] if job.goes_with(first))][: self._batch]
            self._waiting = [job for job in self._waiting if job not in jobs]
            jobs = [job for job in jobs if not job.done.done()]
            if not jobs:
                continue
            try:
                completions = await asyncio.to_thread(self._generate, jobs, loop)
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who wait
                for job in jobs:
                    if not job.done.done():
                        job.done.set_exception(error)
                continue
            for job, completion in zip(jobs, completions, strict=True):
                if job.done.done():
                    continue
                if isinstance(completion, ModelError):
                    job.done.set_exception(completion)
                else:
                    job.done.set_result(completion)

    def _load(self) -> tuple[Any, Any]:
        """The tokenizer and the model."""
        if self._loaded is not None:
            return self._loaded
        try:
            import torch
            import transformers
        except ImportError:
            raise MissingExtraError("a local model", "local") from None
        device = self._device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        try:
            dtype = "auto" if self._dtype == "auto" else getattr(torch, self._dtype)
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.name, padding_side=self._padding)
            model: Any = getattr(transformers, self._loader).from_pretrained(self.name, dtype=dtype)
            model = model.to(device).eval()
        except (OSError, ValueError, AttributeError, RuntimeError, ImportError) as error:
            raise InputError(
                f"cannot load the model {self.name}: {first_line(error)}", mend="check its name, device and dtype"
            ) from error
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
        self._loaded = tokenizer, model
        return self._loaded

    def _generate(self, jobs: list[Job], loop: asyncio.AbstractEventLoop) -> list[Completion | ModelError]:
        """Generate a batch; runs in a thread."""
        tokenizer, model = self._load()
        import torch

        started = time.perf_counter()
        first, on_text = jobs[0].request, jobs[0].on_text
        sampling = first.sampling
        try:
            inputs, stop = self._encode(tokenizer, [job.request for job in jobs])
            inputs = inputs.to(model.device)
            given, room = self._bounds(model.config, inputs["input_ids"].shape[1], sampling.max_tokens)
            stream = TextStream(tokenizer, loop, on_text, stop) if on_text is not None else None
            with torch.random.fork_rng(enabled=sampling.seed is not None), torch.inference_mode():
                if sampling.seed is not None:
                    torch.manual_seed(sampling.seed)
                output = self._continue(
                    (tokenizer, model),
                    inputs,
                    first,
                    max_new_tokens=room,
                    streamer=stream,
                    stopping_criteria=[_stopper(tokenizer, jobs, given, stop)],
                )
        except DialoreError:
            raise
        except Exception as error:
            # A tokenizer's template or a model's own code may raise anything.
            raise ModelError(
                f"{self.name} failed to generate: {first_line(error)}", mend="shorten the prompt or lower the batch"
            ) from error
        if stream is not None:
            # Queued behind the last piece: by then on_text has seen everything.
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
            if stream.error is not None:
                raise stream.error
        seconds = time.perf_counter() - started
        lengths = inputs["attention_mask"].sum(dim=1).tolist()
        return [
            self._completion((tokenizer, model), row[given:].tolist(), length, stop, seconds)
            for row, length in zip(output, lengths, strict=True)
        ]

    def _completion(
        self, loaded: tuple[Any, Any], tokens: list[int], prompt_tokens: int, stop: tuple[str, ...], seconds: float
    ) -> Completion | ModelError:
        """The completion in one row of a batch; rows that end early are filled up with padding."""
        tokenizer, model = loaded
        ends = model.generation_config.eos_token_id
        ends = set(ends) if isinstance(ends, list) else {ends}
        end = next((place for place, token in enumerate(tokens) if token in ends), None)
        spent = len(tokens) if end is None else end + 1
        text = tokenizer.decode(tokens[:end], skip_special_tokens=True)
        cut = cut_at(text, stop)
        if cut is not None:
            text = text[:cut]
            spent = next(
                (place for place in range(len(tokens), 0, -1) if tokens[place - 1] != tokenizer.pad_token_id), 0
            )
        answer = strip_thoughts(text)
        if not answer.strip():
            return ModelError(f"{self.name} answered with an empty text", mend="try again", retryable=True)
        return Completion(
            text=answer,
            model=self.name,
            usage=Usage(calls=1, prompt_tokens=prompt_tokens, completion_tokens=spent),
            seconds=seconds,
            finish_reason="length" if end is None and cut is None else "stop",
        )


def _sampling_settings(temperature: float, top_p: float | None) -> dict[str, Any]:
    if temperature == 0:
        return {"do_sample": False, "num_beams": 1}
    return {"do_sample": True, "num_beams": 1, "temperature": temperature, "top_p": top_p or 1.0, "top_k": 0}


def _stopper(tokenizer: Any, jobs: list[Job], given: int, stop: tuple[str, ...]) -> Callable[..., Any]:  # noqa: ANN401
    """Says after each step which rows are done: a stop string was written, or nobody waits any more."""
    import torch

    def done(tokens: Any, _scores: Any, **_: Any) -> Any:  # noqa: ANN401
        flags = [job.given_up.is_set() for job in jobs]
        if stop:
            tails = tokenizer.batch_decode(tokens[:, max(given, tokens.shape[1] - _STOP_WINDOW) :])
            flags = [flag or cut_at(tail, stop) is not None for flag, tail in zip(flags, tails, strict=True)]
        return torch.tensor(flags, dtype=torch.bool, device=tokens.device)

    return done


def first_line(error: Exception) -> str:
    """The first line of an error, its type where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
