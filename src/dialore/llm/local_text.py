"""The text of a model that runs in this process: chat templates for its prompt, stop strings and streaming."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dialore.llm.model import Message, OnText, Role, ThinkFilter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChatForm:
    """How messages are arranged for a template.

    Attributes:
        folds: a system message goes in front of the user message that follows it, or becomes one.
        merges: messages of one role that follow each other become one.
        opens: where the assistant would speak first, an empty user message stands before it.
    """

    folds: bool = False
    merges: bool = False
    opens: bool = False

    def arrange(self, messages: Sequence[Message]) -> list[Message]:
        """The messages in this form; their texts are kept, joined by an empty line."""
        arranged: list[Message] = []
        follows_system = False
        for message in messages:
            is_folded = self.folds and message.role == "system"
            role: Role = "user" if is_folded else message.role
            if arranged and role == arranged[-1].role and (self.merges or follows_system):
                arranged[-1] = Message(role=role, content=f"{arranged[-1].content}\n\n{message.content}")
            else:
                arranged.append(Message(role=role, content=message.content))
            follows_system = is_folded
        if self.opens and arranged and arranged[0].role == "assistant":
            arranged.insert(0, Message(role="user", content=""))
        return arranged


_FORMS = (
    ChatForm(),
    ChatForm(merges=True),
    ChatForm(folds=True),
    ChatForm(folds=True, merges=True),
    ChatForm(folds=True, merges=True, opens=True),
)
"""In the order in which they are tried: the fewer changes the better."""


class ChatTemplates:
    """Renders messages by a tokenizer's chat template, in the first form that it takes.

    A template takes a form if it raises nothing and every message is in its text: some leave a system message out
    without a word. That is tried with words of no meaning, once for each template and sequence of roles.
    """

    def __init__(self) -> None:
        self._forms: dict[tuple[str, tuple[Role, ...]], ChatForm] = {}

    def render(self, tokenizer: Any, messages: Sequence[Message]) -> str:
        """The prompt as text, ending where the answer begins; raises what the template raises where no form fits."""
        key = str(tokenizer.chat_template), tuple(message.role for message in messages)
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = _form_for(tokenizer, key[1])
        return _apply(tokenizer, form.arrange(messages))


def _form_for(tokenizer: Any, roles: Sequence[Role]) -> ChatForm:
    trial = [Message(role=role, content=f"kept{place}kept") for place, role in enumerate(roles)]
    for form in _FORMS:
        try:
            text = _apply(tokenizer, form.arrange(trial))
        except Exception as error:  # noqa: BLE001 - a template may raise anything
            log.debug("the chat template refuses %s as %s: %s", " ".join(roles), form, error)
            continue
        if all(message.content in text for message in trial):
            if form != _FORMS[0]:
                log.info("the chat template does not take %s as they are: rearranged by %s", " ".join(roles), form)
            return form
    return _FORMS[0]


def _apply(tokenizer: Any, messages: Sequence[Message]) -> str:
    plain = [message.model_dump() for message in messages]
    return str(tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True))


def find_stop(text: str, stop: tuple[str, ...]) -> int | None:
    """Where the first stop string begins, if there is one."""
    return min((place for word in stop if (place := text.find(word)) >= 0), default=None)


class TextStream:
    """Passes text on from the generating thread to the event loop, without thoughts and stop strings.

    It has the two methods that transformers wants of a streamer; what `on_text` raises is kept in `error`.
    """

    def __init__(self, tokenizer: Any, loop: asyncio.AbstractEventLoop, on_text: OnText, stop: tuple[str, ...]) -> None:
        self._tokenizer, self._loop, self._on_text, self._stop = tokenizer, loop, on_text, stop
        self._thoughts = ThinkFilter()
        self._longest = max((len(word) for word in stop), default=1)
        self._tokens: list[int] = []
        self._raw = ""
        self._fed = 0
        self._prompt_seen = False
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
        """The generation has ended."""
        self._feed(len(self._raw))
        self._pass_on(self._thoughts.finish())

    def _feed(self, upto: int) -> None:
        stopped = find_stop(self._raw, self._stop)
        upto = upto if stopped is None else min(upto, stopped)
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
