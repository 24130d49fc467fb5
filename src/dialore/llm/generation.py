"""Prompts, stop strings and streaming for a language model that runs in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dialore.errors import ModelError
from dialore.llm.thinking import ThinkFilter

if TYPE_CHECKING:
    import asyncio

    from dialore.llm.chat_template import ChatTemplates
    from dialore.llm.model import OnText, Request

_ROLES = {"system": "System", "user": "User", "assistant": "Assistant"}


def prompt_text(tokenizer: Any, request: Request, templates: ChatTemplates) -> str:  # noqa: ANN401 - transformers ships no types
    """The prompt as text, ending where the answer begins.

    By the tokenizer's chat template, in a form that it takes; where it has none, the request's own continuation, else
    a transcript.
    """
    if is_continued(tokenizer, request):
        return plain_text(request)
    return templates.render(tokenizer, request.messages)


def is_continued(tokenizer: Any, request: Request) -> bool:  # noqa: ANN401
    """Whether the prompt is plain text to be continued: no chat template, or steering, which was published so."""
    return not tokenizer.chat_template or (request.steering is not None and request.continuation is not None)


def plain_text(request: Request) -> str:
    """A request as text to be continued: its own continuation, else a transcript of its messages."""
    return transcript(request) if request.continuation is None else request.continuation


def transcript(request: Request) -> str:
    """The messages as plain text, ending where the answer begins."""
    lines = [f"{_ROLES[message.role]}: {message.content}" for message in request.messages]
    return "\n".join([*lines, "Assistant:"])


def continued_stops(request: Request) -> tuple[str, ...]:
    """Where text to be continued ends; a transcript also where the other side would speak."""
    further = request.continuation_stop if request.continuation is not None else (f"\n{_ROLES['user']}:",)
    return tuple(dict.fromkeys((*request.sampling.stop, *further)))


def room_for(most: object, prompt: int, wanted: int) -> int:
    """How many tokens may be generated.

    Args:
        most: tokens that the model takes in all; anything but a number for no limit.
        prompt: tokens of the prompt.
        wanted: tokens asked for.

    Raises:
        ModelError: the prompt leaves no room.
    """
    if not isinstance(most, int):
        return wanted
    if prompt >= most:
        raise ModelError(f"the prompt has {prompt} tokens, the model takes {most} in all", mend="shorten the prompt")
    return min(wanted, most - prompt)


def cut_at(text: str, stop: tuple[str, ...]) -> int | None:
    """Where the first stop string begins, if there is one."""
    return min((place for word in stop if (place := text.find(word)) >= 0), default=None)


class TextStream:
    """Passes text on from the generating thread to the event loop, without thoughts and stop strings.

    It has the two methods that transformers wants of a streamer; what `on_text` raises is kept in `error`.
    """

    def __init__(self, tokenizer: Any, loop: asyncio.AbstractEventLoop, on_text: OnText, stop: tuple[str, ...]) -> None:  # noqa: ANN401
        self._tokenizer, self._loop, self._on_text, self._stop = tokenizer, loop, on_text, stop
        self._thoughts = ThinkFilter()
        self._longest = max((len(word) for word in stop), default=1)
        self._tokens: list[int] = []
        self._raw = ""
        self._fed = 0
        self._prompt_seen = False
        self.error: Exception | None = None

    def put(self, tokens: Any) -> None:  # noqa: ANN401
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
        """The generation has ended."""
        self._feed(len(self._raw))
        self._pass_on(self._thoughts.finish())

    def _feed(self, upto: int) -> None:
        cut = cut_at(self._raw, self._stop)
        upto = upto if cut is None else min(upto, cut)
        if upto > self._fed:
            piece, self._fed = self._raw[self._fed : upto], upto
            self._pass_on(self._thoughts.feed(piece))

    def _pass_on(self, piece: str) -> None:
        if piece:
            self._loop.call_soon_threadsafe(self._call, piece)

    def _call(self, piece: str) -> None:
        if self.error is None:
            try:
                self._on_text(piece)
            except Exception as error:  # noqa: BLE001 - raised again where the call is awaited
                self.error = error
