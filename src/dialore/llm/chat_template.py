"""Messages as a local model's chat template takes them: some know no system message, some want roles to alternate."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dialore.llm.model import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.llm.model import Role

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


FORMS = (
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

    def render(self, tokenizer: Any, messages: Sequence[Message]) -> str:  # noqa: ANN401 - transformers ships no types
        """The prompt as text, ending where the answer begins; raises what the template raises where no form fits."""
        key = str(tokenizer.chat_template), tuple(message.role for message in messages)
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = _form_for(tokenizer, key[1])
        return _applied(tokenizer, form.arrange(messages))


def _form_for(tokenizer: Any, roles: Sequence[Role]) -> ChatForm:  # noqa: ANN401
    trial = [Message(role=role, content=f"kept{place}kept") for place, role in enumerate(roles)]
    for form in FORMS:
        try:
            text = _applied(tokenizer, form.arrange(trial))
        except Exception as error:  # noqa: BLE001 - a template may raise anything
            log.debug("the chat template refuses %s as %s: %s", " ".join(roles), form, error)
            continue
        if all(message.content in text for message in trial):
            if form != FORMS[0]:
                log.info("the chat template does not take %s as they are: rearranged by %s", " ".join(roles), form)
            return form
    return FORMS[0]


def _applied(tokenizer: Any, messages: Sequence[Message]) -> str:  # noqa: ANN401
    plain = [message.model_dump() for message in messages]
    return str(tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True))
