"""Reading a server's answer: a whole JSON body or a stream of server-sent events."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from dialore.errors import ModelError
from dialore.llm.faults import error_detail, one_line
from dialore.llm.model import Completion, Usage, estimate_tokens
from dialore.llm.thinking import ThinkFilter, strip_thoughts

if TYPE_CHECKING:
    from dialore.llm.model import OnText, Request


def load_json(data: bytes | str, where: str) -> object:
    """JSON as a server sent it.

    Raises:
        ModelError: there is none, or half of it.
    """
    if not data.strip():
        raise ModelError(f"{where} answered with an empty body", mend="try again", retryable=True)
    with suppress(ValueError):
        # Five times as fast as the standard library, which takes some things more: half a surrogate pair, UTF-16.
        return from_json(data)
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ModelError(f"{where} answered with broken JSON", mend="try again", retryable=True) from None


def read_body(payload: object, request: Request, *, where: str, key: str) -> Completion:
    """The completion in a whole JSON body.

    Raises:
        ModelError: there is none: an error, no choices, a refusal, an empty text.
    """
    answer, choice = _first_choice(payload, where, key)
    if choice is None:
        raise ModelError(f"{where} answered without choices", mend="try again", retryable=True)
    message = _part(choice, "message")
    if not isinstance(message, dict):
        raise ModelError(
            f"{where} answered with a choice without a message", mend="is it a chat endpoint?", retryable=True
        )
    _check_refusal(message, choice.get("finish_reason"), where, key)
    text = strip_thoughts(mend_surrogates(_content(message)))
    reason = _word(choice.get("finish_reason")) or "stop"
    check_text(text, reason, where)
    return _completion(text, request, model=answer.get("model"), reason=reason, usage=answer.get("usage"))


class StreamReader:
    """Collects a streamed completion from the `data` of its server-sent events.

    Args:
        request: the request being answered.
        on_text: called with each new piece of the answer.
        where: the endpoint's address, for errors.
        key: the API key, kept out of errors.
    """

    def __init__(self, request: Request, on_text: OnText, *, where: str, key: str) -> None:
        self._request, self._on_text, self._where, self._key = request, on_text, where, key
        self._filter = ThinkFilter()
        self._pieces: list[str] = []
        self._model: Any = None
        self._usage: Any = None
        self.reason = ""

    def event(self, data: str) -> None:
        """Take one event's data.

        Raises:
            ModelError: it is broken, an error, or a refusal.
        """
        payload, choice = _first_choice(load_json(data, self._where), self._where, self._key)
        self._model = payload.get("model") or self._model
        self._usage = payload.get("usage") or self._usage
        if choice is None:
            return
        delta = _part(choice, "delta")
        if isinstance(delta, dict):
            _check_refusal(delta, choice.get("finish_reason"), self._where, self._key)
            self._pass_on(self._filter.feed(mend_surrogates(_content(delta))))
        self.reason = _word(choice.get("finish_reason")) or self.reason

    def completion(self, *, whole: bool) -> Completion:
        """The completion, once the stream has ended.

        Args:
            whole: whether the server said that the stream is done.

        Raises:
            ModelError: the stream broke off midway, or held no text.
        """
        if not whole and not self.reason:
            raise ModelError(f"{self._where} broke off in the middle of its answer", mend="try again", retryable=True)
        self._pass_on(self._filter.finish())
        text, reason = "".join(self._pieces), self.reason or "stop"
        check_text(text, reason, self._where)
        return _completion(text, self._request, model=self._model, reason=reason, usage=self._usage)

    def _pass_on(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            self._on_text(piece)


def check_text(text: str, reason: str, where: str) -> None:
    """See that an answer holds any text.

    Raises:
        ModelError: it does not.
    """
    if text.strip():
        return
    if reason == "length":
        raise ModelError(
            f"{where} spent all its tokens before the answer began", mend="raise max_tokens: the model thinks first"
        )
    raise ModelError(f"{where} answered with an empty text", mend="try again", retryable=True)


def model_names(payload: object) -> list[str]:
    """The names in a server's list of models; empty where there is no such list."""
    rows = payload.get("data") if isinstance(payload, dict) else None
    if not isinstance(rows, list):
        return []
    return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]


def _first_choice(payload: object, where: str, key: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    if not isinstance(payload, dict):
        raise ModelError(f"{where} answered with JSON of another kind", mend="is it a chat endpoint?", retryable=True)
    if payload.get("error"):
        message = one_line(error_detail(payload)[0], key) or "no reason given"
        raise ModelError(f"{where} reports an error: {message}", mend="see the server's log", retryable=True)
    choices = payload.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return payload, first if isinstance(first, dict) else None


def _part(choice: dict[str, Any], name: str) -> object:
    """A choice's message or delta; a completions endpoint has the bare text in its place."""
    text = choice.get("text")
    return {"content": text} if isinstance(text, str) and name not in choice else choice.get(name)


def _check_refusal(message: dict[str, Any], reason: object, where: str, key: str) -> None:
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        declined = f"{where} refuses to answer: {one_line(refusal, key)}"
        raise ModelError(declined, mend="change the prompt", refused=True)
    if reason == "content_filter":
        raise ModelError(f"{where} held its answer back (content filter)", mend="change the prompt", refused=True)


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def mend_surrogates(text: str) -> str:
    """The text with replacement characters for halves of characters (lone surrogates).

    JSON may carry them by escapes, but no file could take them afterwards. Two that belong together become one.
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _completion(text: str, request: Request, *, model: object, reason: str, usage: object) -> Completion:
    counts = usage if isinstance(usage, dict) else {}
    prompt, answer = _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens"))
    estimated = prompt is None or answer is None
    if prompt is None or answer is None:
        prompt = sum(estimate_tokens(message.content) for message in request.messages)
        answer = estimate_tokens(text)
    return Completion(
        text=text,
        model=_word(model),
        usage=Usage(calls=1, prompt_tokens=prompt, completion_tokens=answer),
        finish_reason=reason,
        estimated=estimated,
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
