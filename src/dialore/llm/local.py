"""Hugging Face language models run in this process (the `local` extra): causal, or sequence-to-sequence."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dialore.errors import DialoreError, InputError, ModelError, WindowError, first_line, import_optional
from dialore.llm.capabilities import strict_schema
from dialore.llm.model import Api, ChatForm, Completion, Message, OnToken, Request, Role, Usage
from dialore.llm.thoughts import ThoughtFilter, strip_thoughts

log = logging.getLogger(__name__)

_STOP_WINDOW = 32  # tokens at the end of the text in which a stop string is looked for after each step
_LOADING = threading.Lock()
"""transformers loads one model at a time: it sets the device that new weights are on for all threads."""
_Loaded = tuple[Any, Any]
"""Tokenizer and model; transformers ships no types."""


def load(name: str, *, is_causal: bool = False) -> _Loaded:
    """Return tokenizer and model of a name at the hub, a folder or a GGUF file, on the GPU if there is one.

    The model is of the kind that its configuration says, or causal whatever that says. Raises InputError where there is
    no such model, or the extra is not installed.
    """
    torch, transformers = (import_optional(name, "a local model", "local") for name in ("torch", "transformers"))
    transformers.utils.logging.disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    location = pretrained_arguments(name)
    try:
        kind: Any = transformers.AutoModelForCausalLM
        if not is_causal and transformers.AutoConfig.from_pretrained(**location).is_encoder_decoder:
            kind = transformers.AutoModelForSeq2SeqLM
        model = kind.from_pretrained(**location, dtype="auto").to(device).eval()
        side = "right" if model.config.is_encoder_decoder else "left"
        tokenizer = transformers.AutoTokenizer.from_pretrained(**location, padding_side=side)
    except (OSError, ValueError, AttributeError, RuntimeError, ImportError) as error:
        why = f"cannot load the model {name}: {first_line(error)}"
        raise InputError(why, hint="check its name") from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    return tokenizer, model


def pretrained_arguments(name: str) -> dict[str, str]:
    """Return the arguments of transformers' `from_pretrained` for a name, a folder or a GGUF file (extra `local`)."""
    if not name.endswith(".gguf"):
        return {"pretrained_model_name_or_path": name}
    import_optional("gguf", "a GGUF file's weights in transformers", "local")
    file = Path(name)
    return {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}


@dataclass(eq=False)
class _Job:
    """A request waiting for its turn."""

    request: Request
    on_token: OnToken | None
    done: asyncio.Future[Completion]

    def goes_with(self, other: _Job) -> bool:
        """Return whether two requests may share a batch: a seed or a stream wants the model for itself."""
        mine, theirs = self.request, other.request
        alone = self.on_token or other.on_token or mine.sampling.seed is not None or mine.steering or theirs.steering
        settings = [(request.sampling, request.continuation_stop, request.output_schema) for request in (mine, theirs)]
        return not alone and settings[0] == settings[1]


class LocalModel:
    """A language model of Hugging Face transformers, loaded when first called.

    One generation runs at a time, in a thread; requests with the same sampling settings that wait meanwhile are
    batched, `batch` at most. Output schemas are enforced where messages go through a chat template, or always where it
    is `constrained`.

    Messages go through the tokenizer's chat template, rearranged where it does not take them (see `ChatForm`); where it
    has none, or with `api="completions"`, the request's plain text is continued. A sequence-to-sequence model's encoder
    always reads plain text; its decoder samples as the request says, never by beams.
    """

    def __init__(self, name_or_path: str, *, batch: int = 8, api: Api = "chat", constrained: bool = False) -> None:
        self.name, self._constrained = name_or_path, constrained
        self._batch, self._api = max(1, batch), api
        self._forms: dict[tuple[str, tuple[Role, ...]], ChatForm] = {}
        self._waiting: list[_Job] = []
        self._worker: asyncio.Task[None] | None = None
        self._loaded: _Loaded | None = None
        self._vocabulary: Any = None

    async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
        """See `LanguageModel.complete`; raises InputError where the model cannot be loaded (see `load`)."""
        job = _Job(request, on_token, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await job.done

    async def close(self) -> None:
        """Let the model's memory go."""
        self._loaded = self._vocabulary = None

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while waiting := [job for job in self._waiting if not job.done.done()]:
            first = waiting[0]
            jobs = [first, *(job for job in waiting[1:] if job.goes_with(first))][: self._batch]
            self._waiting = [job for job in waiting if job not in jobs]
            outcomes: Sequence[Completion | Exception]
            try:
                outcomes = await asyncio.to_thread(self._generate, jobs, loop)
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who wait
                outcomes = [error] * len(jobs)
            for job, outcome in zip(jobs, outcomes, strict=True):
                if job.done.done():
                    continue
                if isinstance(outcome, Exception):
                    job.done.set_exception(outcome)
                else:
                    job.done.set_result(outcome)

    def _load(self) -> _Loaded:
        if self._loaded is None:
            with _LOADING:
                self._loaded = load(self.name)
            if self._api == "completions":
                self._loaded[0].chat_template = None
        return self._loaded

    def _generate(self, jobs: list[_Job], loop: asyncio.AbstractEventLoop) -> list[Completion | ModelError]:
        """Generate a batch; runs in a thread."""
        tokenizer, model = self._load()
        import torch

        started = time.perf_counter()
        first, on_token = jobs[0].request, jobs[0].on_token
        is_plain, seed = self._reads_plain(first), first.sampling.seed
        stop = first.plain_stop if is_plain and first.continuation is not None else first.sampling.stop
        stream = None if on_token is None else TextStream(tokenizer, loop, on_token, stop)
        try:
            prompts = [job.request.plain_text if is_plain else self._render(job.request.messages) for job in jobs]
            inputs = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=is_plain).to(model.device)
            given, most = self._bounds(inputs["input_ids"].shape[1], first.sampling.max_tokens)
            with torch.random.fork_rng(enabled=seed is not None), torch.inference_mode():
                if seed is not None:
                    torch.manual_seed(seed)
                output = model.generate(
                    input_ids=inputs["input_ids"],
                    attention_mask=inputs["attention_mask"],
                    pad_token_id=tokenizer.pad_token_id,
                    max_new_tokens=most,
                    streamer=stream,
                    stopping_criteria=[_stopper(tokenizer, jobs, given, stop)],
                    num_beams=1,
                    **self._choice(first, given, is_plain=is_plain),
                )
        except DialoreError:
            raise
        except Exception as error:
            # A tokenizer's template or a model's own code may raise anything.
            why = f"{self.name} failed to generate: {first_line(error)}"
            raise ModelError(why, hint="shorten the prompt or lower the batch") from error
        if stream is not None:
            # Queued behind the last piece: by then on_text has seen everything.
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
            if stream.error is not None:
                raise stream.error
        seconds = time.perf_counter() - started
        rows = zip(output, inputs["attention_mask"].sum(dim=1).tolist(), strict=True)
        return [self._completion(row[given:].tolist(), length, stop, seconds) for row, length in rows]

    def _render(self, messages: Sequence[Message]) -> str:
        """Return messages as the chat template has them, in the first form that it takes for their roles."""
        tokenizer, _ = self._load()
        roles = tuple(message.role for message in messages)
        if (form := self._forms.get((tokenizer.chat_template, roles))) is None:
            form = self._forms[tokenizer.chat_template, roles] = _chat_form(tokenizer, roles)
        return _apply(tokenizer, form.arrange(messages))

    def _reads_plain(self, request: Request) -> bool:
        """Return whether a request's text is continued; else its messages go through the chat template."""
        tokenizer, model = self._load()
        # Steering was published for text that is continued.
        is_steered = request.steering is not None and request.continuation is not None
        return bool(model.config.is_encoder_decoder or not tokenizer.chat_template or is_steered)

    def _bounds(self, width: int, wanted: int) -> tuple[int, int]:
        """Return how many tokens stand before the answer in the model's output, and how many the answer may have."""
        config = self._load()[1].config
        # An encoder and a decoder have this many places each; models of relative positions (T5) name no number.
        most = getattr(config, "max_position_embeddings", None)
        given = 1 if config.is_encoder_decoder else width
        if not isinstance(most, int):
            return given, wanted
        if max(width, given + 1) > most:
            raise WindowError(f"the prompt has {width} tokens, {self.name} takes {most}", hint="shorten the prompt")
        return given, min(wanted, most - given)

    def _choice(self, request: Request, given: int, *, is_plain: bool) -> dict[str, Any]:
        """Return how the next token is chosen, as arguments of `generate`."""
        tokenizer, model = self._load()
        sampling, steering = request.sampling, request.steering
        choice: dict[str, Any] = {"do_sample": False}
        if sampling.temperature:
            choice = {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p or 1.0}
            choice["top_k"] = steering.top_k if steering is not None else 0
        if steering is not None:
            if model.config.is_encoder_decoder:
                why = f"{self.name} is a sequence-to-sequence model, whose decoding cannot be steered"
                raise ModelError(why, hint="name a causal model: hf:NAME", configuration=True)
            from dialore.llm.steering import SteeredLogits

            choice["logits_processor"] = [SteeredLogits(tokenizer, model, steering)]
        is_enforced = self._constrained or (steering is None and not is_plain)
        if is_enforced and request.output_schema is not None:
            if self._vocabulary is None:
                adapter = import_optional("llguidance.hf", "constrained decoding", "local")
                size = model.get_output_embeddings().out_features  # models score more tokens than there are
                self._vocabulary = adapter.from_tokenizer(tokenizer, n_vocab=size, eos_token=_ends(model))
            schema = strict_schema(request.output_schema)
            choice["logits_processor"] = [Constrained(self._vocabulary, schema, given)]
        return choice

    def _completion(
        self, tokens: list[int], prompt_tokens: int, stop: tuple[str, ...], seconds: float
    ) -> Completion | ModelError:
        """Return the completion in one row of a batch; rows that end early are filled up with padding."""
        tokenizer, model = self._load()
        ends = _ends(model)
        end = next((position for position, token in enumerate(tokens) if token in ends), None)
        spent = len(tokens) if end is None else end + 1
        text = tokenizer.decode(tokens[:end], skip_special_tokens=True)
        if is_stopped := find_stop(text, stop) < len(text):
            text = text[: find_stop(text, stop)]
            padding = itertools.takewhile(lambda token: token == tokenizer.pad_token_id, reversed(tokens))
            spent = len(tokens) - len(list(padding))
        answer = strip_thoughts(text)
        if not answer.strip():
            return ModelError(f"{self.name} answered with an empty text", hint="try again", retryable=True)
        usage = Usage(calls=1, prompt_tokens=prompt_tokens, completion_tokens=spent)
        reason = "length" if end is None and not is_stopped else "stop"
        return Completion(text=answer, model=self.name, usage=usage, seconds=seconds, finish_reason=reason)


def _ends(model: Any) -> list[int]:
    ends = model.generation_config.eos_token_id
    return ends if isinstance(ends, list) else [ends]


def _stopper(tokenizer: Any, jobs: list[_Job], given: int, stop: tuple[str, ...]) -> Callable[..., Any]:
    """Return the stopping criterion: a row is done once a stop string was written, or its caller has given up."""
    import torch

    def done(tokens: Any, _scores: Any, **_: Any) -> Any:
        flags = [job.done.cancelled() for job in jobs]
        if stop:
            tails = tokenizer.batch_decode(tokens[:, max(given, tokens.shape[1] - _STOP_WINDOW) :])
            flags = [flag or find_stop(tail, stop) < len(tail) for flag, tail in zip(flags, tails, strict=True)]
        return torch.tensor(flags, dtype=torch.bool, device=tokens.device)

    return done


# --- decoding that can end in nothing but JSON of a schema (llguidance)


class Constrained:
    """A logits processor of transformers: only what a schema allows may follow the `given` tokens of a row.

    `vocabulary` is the tokenizer as llguidance reads it. Raises ModelError for an odd schema.
    """

    def __init__(self, vocabulary: Any, schema: Mapping[str, Any], given: int) -> None:
        made = import_optional("llguidance", "constrained decoding", "local").LLMatcher
        grammar = made.grammar_from_json_schema(json.dumps(schema), defaults={"whitespace_pattern": " ?"})
        self._given, self._matchers = given, [made(vocabulary, grammar, log_level=0)]
        if self._matchers[0].is_error():
            why = f"the schema cannot be decoded by: {self._matchers[0].get_error()}"
            raise ModelError(why, hint="ask without a schema", configuration=True)

    def __call__(self, tokens: Any, scores: Any) -> Any:
        """Return the scores, those of tokens that may not come next at minus infinity."""
        import torch

        answers = tokens[:, self._given :].tolist()
        while len(self._matchers) < len(answers):  # at the first token
            self._matchers.append(self._matchers[0].deep_copy())
        masks = []
        for matcher, answer in zip(self._matchers, answers, strict=True):
            if answer and not matcher.is_stopped():
                matcher.consume_token(answer[-1])
            # After its end a row is filled up with padding by transformers, whatever its scores are.
            masks.append(matcher.compute_bitmask())
        bits = np.frombuffer(b"".join(masks), np.uint8).reshape(len(masks), -1)
        allowed = np.unpackbits(bits, axis=1, bitorder="little", count=scores.shape[1]).astype(bool)
        return scores.masked_fill(~torch.from_numpy(allowed).to(scores.device), -torch.inf)


# --- the text: chat templates for the prompt, stop strings and streaming


_FORMS = (
    *(ChatForm(folds, merges) for folds in (False, True) for merges in (False, True)),
    ChatForm(folds=True, merges=True, opens=""),
)
"""In the order in which they are tried: the fewer changes the better."""


def _chat_form(tokenizer: Any, roles: Sequence[Role]) -> ChatForm:
    """Return the first form in which a tokenizer's chat template takes messages of these roles; the plain one for none.

    It takes a form if it raises nothing and every message is in its text: some leave a system message out without a
    word. That is tried with words of no meaning.
    """
    trial = [Message(role=role, content=f"kept{number}kept") for number, role in enumerate(roles)]
    for form in _FORMS:
        with suppress(Exception):  # a template may raise anything
            text = _apply(tokenizer, form.arrange(trial))
            if all(message.content in text for message in trial):
                if form != _FORMS[0]:
                    log.info("the chat template does not take %s as they are: rearranged by %s", " ".join(roles), form)
                return form
    return _FORMS[0]


def _apply(tokenizer: Any, messages: Sequence[Message]) -> str:
    plain = [message.model_dump() for message in messages]
    return str(tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True))


def find_stop(text: str, stop: tuple[str, ...]) -> int:
    """Return where the first stop string begins; the end of the text where there is none."""
    return min((position for word in stop if (position := text.find(word)) >= 0), default=len(text))


class TextStream:
    """Passes text on from the generating thread to the event loop, without thoughts and stop strings.

    It has the two methods that transformers wants of a streamer; what `on_token` raises is kept in `error`.
    """

    def __init__(
        self, tokenizer: Any, loop: asyncio.AbstractEventLoop, on_token: OnToken, stop: tuple[str, ...]
    ) -> None:
        self._tokenizer, self._loop, self._on_token, self._stop = tokenizer, loop, on_token, stop
        self._thoughts = ThoughtFilter()
        self._longest = max((len(word) for word in stop), default=1)
        self._tokens: list[int] = []
        self._raw, self._fed, self._prompt_seen = "", 0, False
        self.error: Exception | None = None

    def put(self, tokens: Any) -> None:
        """Take the next tokens; the first are the prompt's."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        self._tokens += tokens.reshape(-1).tolist()
        self._raw = self._tokenizer.decode(self._tokens, skip_special_tokens=True)
        # The end may still change: half a character, or the first letters of a stop string.
        if not self._raw.endswith("\ufffd"):
            self._feed(len(self._raw) - self._longest + 1 if self._stop else len(self._raw))

    def end(self) -> None:
        """Tell that the generation has ended."""
        self._feed(len(self._raw))
        self._pass_on(self._thoughts.finish())

    def _feed(self, upto: int) -> None:
        upto = min(upto, find_stop(self._raw, self._stop))
        if upto > self._fed:
            piece, self._fed = self._raw[self._fed : upto], upto
            self._pass_on(self._thoughts.feed(piece))

    def _pass_on(self, piece: str) -> None:
        if piece:
            self._loop.call_soon_threadsafe(self._call, piece)

    def _call(self, piece: str) -> None:
        if self.error is None:
            try:
                self._on_token(piece)
            except Exception as error:  # noqa: BLE001 - raised again where the call is awaited
                self.error = error
