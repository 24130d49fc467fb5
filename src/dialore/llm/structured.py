"""Structured output: an answer parsed into a pydantic model, tolerantly, with one turn for the model to repair it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from dialore.errors import DialoreError
from dialore.llm.model import Completion, LanguageModel, Message, OutputSchema, Request
from dialore.text import storable

T = TypeVar("T", bound=BaseModel)
Outcome = Literal["parsed", "repaired_locally", "repaired_by_model", "unparsed"]
_SHOWN_ANSWER = 6000


class UnparsedError(DialoreError):
    """An answer in which there is no value of the wanted shape."""


@dataclass(frozen=True)
class Structured(Generic[T]):
    """The outcome of a call for structured output: the value, how it was got, by which calls, or why there is none."""

    value: T | None
    outcome: Outcome
    completions: list[Completion] = field(default_factory=list)
    error: str = ""


@functools.lru_cache(maxsize=256)
def output_schema(model_type: type[BaseModel]) -> OutputSchema:
    """Return the JSON schema of a pydantic model, to be sent with a request."""
    return OutputSchema(name=model_type.__name__, definition=model_type.model_json_schema())


def parse(text: str, model_type: type[T]) -> T:
    """Return the value that an answer holds, tolerant of everything that models do to JSON.

    Valid JSON is taken as it is; else JSON is looked for in fences and prose and repaired: quotes, full-width
    punctuation, trailing commas, Python's words, cut-off ends, names of keys, scalars for lists. Prose never becomes
    a value. Raises UnparsedError where there is no such value; the message says why in a few words.
    """
    return parse_answer(text, model_type)[0]


class StructuredReader(Generic[T]):
    """Reads the answers to one request. If the first cannot be parsed, the model is asked once to repair it.

    Args:
        model_type: The type of the value.
        parser: Reads an answer that need not be JSON. If it returns None, the answer is read as JSON.
    """

    def __init__(self, model_type: type[T], parser: Callable[[str], T | None] | None = None) -> None:
        self._model_type, self._parser = model_type, parser
        self._has_retried = False
        self.value: T | None = None
        self.outcome: Outcome = "unparsed"
        self.error = ""

    def read(self, completion: Completion, request: Request) -> Request | None:
        """Read an answer, or return the request by which the model repairs it."""
        try:
            self.value, is_valid = parse_answer(completion.text, self._model_type, self._parser)
        except UnparsedError as error:
            if not self._has_retried:
                self._has_retried = True
                return repair_request(request, completion, error.message)
            self.error = error.message
            return None
        if self._has_retried:
            self.outcome = "repaired_by_model"
        else:
            self.outcome = "parsed" if is_valid else "repaired_locally"
        return None


async def complete_structured(
    model: LanguageModel, request: Request, model_type: type[T], *, parser: Callable[[str], T | None] | None = None
) -> Structured[T]:
    """Ask for a value of a type; see `StructuredReader`.

    The schema of `model_type` is sent unless the request has another one. The repair turn is labelled
    `<label>/repair`. `unparsed` is an outcome, not an error; a failed call raises ModelError.
    """
    if request.output_schema is None:
        request = request.model_copy(update={"output_schema": output_schema(model_type)})
    reader = StructuredReader(model_type, parser)
    completions: list[Completion] = []
    next_request: Request | None = request
    while next_request is not None:
        completion = await model.complete(next_request)
        completions.append(completion)
        next_request = reader.read(completion, next_request)
    return Structured(reader.value, reader.outcome, completions, reader.error)


def parse_answer(text: str, model_type: type[T], parser: Callable[[str], T | None] | None = None) -> tuple[T, bool]:
    """Return the value of an answer, and whether the answer was valid as it stood.

    A `parser` reads answers that need not be JSON. If it returns None, the answer is read as JSON.

    Raises:
        UnparsedError: The answer holds no such value.
    """
    if parser is not None and (read := parser(text)) is not None:
        return read, True
    text = storable(text)
    try:
        value = from_json(text)
    except ValueError:
        value = None
    if isinstance(value, dict) and value and value.keys() <= model_type.model_fields.keys():
        # What nearly every answer is: nothing to fit.
        with suppress(ValidationError):
            return model_type.model_validate(value), True
    from dialore.llm.loose_json import candidates, field_keys, fit

    reason = "there is no JSON in the answer" if text.strip() else "the answer is empty"
    is_first = True
    for candidate in candidates(text):
        fitted, keys = fit(candidate, model_type), field_keys(model_type).values()
        if isinstance(fitted, dict) and (not fitted or not keys or any(name in keys for name in fitted)):
            try:
                return model_type.model_validate(fitted), fitted == value
            except ValidationError as error:
                reason, is_first = _reason(error) if is_first else reason, False
        elif is_first:
            reason = f"the JSON in the answer has none of the keys {', '.join(model_type.model_fields)}"
    raise UnparsedError(reason)


def _reason(error: ValidationError) -> str:
    details = error.errors(include_url=False, include_input=False, include_context=False)
    shown = [f"{'.'.join(map(str, detail['loc'])) or 'the answer'}: {detail['msg']}" for detail in details[:3]]
    return "; ".join(shown) + (f"; and {len(details) - 3} more" if len(details) > 3 else "")


def repair_request(request: Request, answer: Completion, error: str) -> Request:
    """Return the request that shows the model its answer and the error. Its label is `<label>/repair`."""
    definition = request.output_schema.definition if request.output_schema else {}
    short = " It was cut off at the limit of tokens: be brief." if answer.finish_reason == "length" else ""
    wanted = (
        f"Your answer could not be used: {error}.{short} Answer again with nothing but one JSON value that follows "
        f"this JSON schema, keeping the language of the content:\n{json.dumps(definition, ensure_ascii=False)}"
    )
    turn = (Message(role="assistant", content=answer.text[:_SHOWN_ANSWER]), Message(role="user", content=wanted))
    label = f"{request.label}/repair" if request.label else ""
    continuation = request.continuation
    if continuation is not None:
        # Models that continue plain text get the same as lines.
        continuation = f"{continuation}{turn[0].content}\n\n{wanted}\n"
    changes = {"messages": (*request.messages, *turn), "continuation": continuation, "label": label}
    return request.model_copy(update=changes)
