"""Structured output: an answer parsed into a pydantic model, tolerantly, with one turn for the model to repair it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from dialore.errors import DialoreError
from dialore.llm.fitting import fit, is_about
from dialore.llm.model import Message, OutputSchema
from dialore.llm.salvage import candidates, whole_json

if TYPE_CHECKING:
    from dialore.llm.model import Completion, LanguageModel, OnText, Request

T = TypeVar("T", bound=BaseModel)
Outcome = Literal["parsed", "repaired_locally", "repaired_by_model", "unparsed"]
_SHOWN_ANSWER = 6000


class UnparsedError(DialoreError):
    """An answer in which there is no value of the wanted shape."""


@dataclass(frozen=True)
class Structured(Generic[T]):
    """What came of a call for structured output.

    Attributes:
        value: the value, or None.
        outcome: how it was got: as it stood, after repair by us, by the model's own repair, or not at all.
        completions: the calls made, the repair turn included.
        error: why there is no value; empty if there is one.
    """

    value: T | None
    outcome: Outcome
    completions: list[Completion] = field(default_factory=list)
    error: str = ""


@lru_cache(maxsize=256)
def output_schema(model_type: type[BaseModel]) -> OutputSchema:
    """The JSON schema of a pydantic model, to be sent with a request."""
    return OutputSchema(name=model_type.__name__, definition=model_type.model_json_schema())


def parse(text: str, model_type: type[T]) -> T:
    """The value that an answer holds, tolerant of everything that models do to JSON.

    Valid JSON is taken as it is; else JSON is looked for in fences and prose and repaired: quotes, full-width
    punctuation, trailing commas, Python's words, cut-off ends, names of keys, scalars for lists. Prose never becomes
    a value.

    Args:
        text: what the model wrote.
        model_type: the shape wanted.

    Raises:
        UnparsedError: there is no such value in the text; the message says why in a few words.
    """
    return _parse(text, model_type)[0]


async def complete_structured(
    model: LanguageModel,
    request: Request,
    model_type: type[T],
    *,
    repair: bool = True,
    on_text: OnText | None = None,
) -> Structured[T]:
    """Ask for a value of a shape; if the answer holds none, show the model its answer and the error once.

    Args:
        model: the language model.
        request: the prompt; the schema of `model_type` is sent along unless it names another.
        model_type: the shape wanted.
        repair: whether the model gets its repair turn, labelled `<label>/repair`.
        on_text: called with the pieces of the first answer; the repair is not streamed.

    Returns:
        The value and how it was got; `unparsed` is an outcome, not an error.

    Raises:
        ModelError: a call failed.
    """
    if request.output_schema is None:
        request = request.model_copy(update={"output_schema": output_schema(model_type)})
    first = await model.complete(request, on_text)
    try:
        value, clean = _parse(first.text, model_type)
    except UnparsedError as failure:
        error = failure.message
    else:
        return Structured(value, "parsed" if clean else "repaired_locally", [first])
    if not repair:
        return Structured(None, "unparsed", [first], error)
    second = await model.complete(_repair_request(request, first, error))
    try:
        return Structured(parse(second.text, model_type), "repaired_by_model", [first, second])
    except UnparsedError as failure:
        return Structured(None, "unparsed", [first, second], failure.message)


def _parse(text: str, model_type: type[T]) -> tuple[T, bool]:
    """The value, and whether the text was valid as it stood."""
    reason = ""
    try:
        value = whole_json(text)
    except ValueError:
        value = None
    if isinstance(value, dict) and value and value.keys() <= model_type.model_fields.keys():
        # What nearly every answer is: nothing to fit.
        with suppress(ValidationError):
            return model_type.model_validate(value), True
    if isinstance(value, (dict, list)):
        fitted = fit(value, model_type)
        if is_about(fitted, model_type):
            try:
                return model_type.model_validate(fitted), fitted == value
            except ValidationError as error:
                reason = _reason(error)
    for candidate in candidates(text):
        fitted = fit(candidate, model_type)
        if not is_about(fitted, model_type):
            continue
        try:
            return model_type.model_validate(fitted), False
        except ValidationError as error:
            reason = reason or _reason(error)
    raise UnparsedError(reason or _nothing(text, model_type))


def _nothing(text: str, model_type: type[BaseModel]) -> str:
    if not text.strip():
        return "the answer is empty"
    if not any(True for _ in candidates(text)):
        return "there is no JSON in the answer"
    return f"the JSON in the answer has none of the keys {', '.join(model_type.model_fields)}"


def _reason(error: ValidationError) -> str:
    details = error.errors(include_url=False, include_input=False, include_context=False)
    shown = [
        f"{'.'.join(str(part) for part in detail['loc']) or 'the answer'}: {detail['msg']}" for detail in details[:3]
    ]
    return "; ".join(shown) + (f"; and {len(details) - 3} more" if len(details) > 3 else "")


def _repair_request(request: Request, answer: Completion, error: str) -> Request:
    definition = request.output_schema.definition if request.output_schema else {}
    cut = " It was cut off at the limit of tokens: be brief." if answer.finish_reason == "length" else ""
    told = (
        f"Your answer could not be used: {error}.{cut} Answer again with nothing but one JSON value that follows this "
        f"JSON schema, keeping the language of the content:\n{json.dumps(definition, ensure_ascii=False)}"
    )
    turn = (
        Message(role="assistant", content=answer.text[:_SHOWN_ANSWER]),
        Message(role="user", content=told),
    )
    label = f"{request.label}/repair" if request.label else ""
    continuation = request.continuation
    if continuation is not None:
        # Whoever continues plain text gets the same as lines of it.
        continuation = f"{continuation}{turn[0].content}\n\n{told}\n"
    changes = {"messages": (*request.messages, *turn), "continuation": continuation, "label": label}
    return request.model_copy(update=changes)
