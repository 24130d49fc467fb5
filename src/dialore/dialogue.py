"""Utterances and dialogues, and how JSON is one."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dialore.errors import InputError, UnknownNameError, as_path, check_type, describe
from dialore.files import json_document, json_lines, read_text, storable
from dialore.text import LANGUAGES, Language, spoken_in

_LONGEST = 1_000_000  # characters of an utterance: more is a document, whose linking would take minutes


class Checked(BaseModel):
    """A model that, called in Python, raises InputError naming every field that is wrong, in one line.

    What is read from JSON does not pass here, as pydantic marks its own constructor, and keeps its own errors.
    """

    if not TYPE_CHECKING:  # else checkers of types forget the fields

        def __init__(self, /, **fields: Any) -> None:  # noqa: ANN401 - checked here
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise self._wrong(error) from None

        __init__.__pydantic_base_init__ = True

    @classmethod
    def _wrong(cls, error: ValidationError) -> InputError:
        return InputError(f"{cls.__name__}(...): {describe(error)}", hint=f"its fields: {', '.join(cls.model_fields)}")


class Utterance(Checked):
    """One speaker's turn."""

    model_config = ConfigDict(frozen=True)

    speaker: str = Field(min_length=1)
    text: str

    @field_validator("text")
    @classmethod
    def _not_blank(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("an utterance must not be empty")
        if len(text) > _LONGEST:
            raise ValueError(f"an utterance of {len(text):,} characters is too long: at most {_LONGEST:,} are taken")
        return text.strip()


class Dialogue(BaseModel):
    """A dialogue history and what goes with it. The response answers the last turn, from the other side.

    `Dialogue("I have a cold.")` and `Dialogue(["Hi!", "Hello.", "I have a cold."])` give the turns alone. Raises
    InputError naming every field that is wrong.

    Attributes:
        id: the dialogue's name, unique in its file; derived from the turns' texts if it is not given (`content_id`).
        turns: the history, oldest first; at least one. In JSON a turn may also be a bare string, or an object without
            a speaker: speakers then alternate so that the last turn is the user's. Instead of `turns` there may be
            chat messages, as `messages`. If the last one is the assistant's, it is the reference.
        language: `en` or `zh`, that of prompts and graph; found from the last turn where it is not given. The English
            name of another language may be given, too.
        spoken: the user's language by its English name, where that is another: the response is asked for in it.
        topic: what the dialogue is about, if known.
        persona: the responder's persona sentences.
        reference: the response that a person gave, in data sets.
        references: all accepted responses, `reference` first, if there are several; otherwise empty.
        knowledge: gold knowledge, in data sets: texts or objects. In JSON also `[head, relation, tail]`.
        sources: gold plan of sources, in data sets.
        extra: every other key of the file.
    """

    id: str = Field(min_length=1)
    turns: tuple[Utterance, ...] = Field(min_length=1)
    language: Language
    spoken: str = ""
    topic: str | None = None
    persona: tuple[str, ...] = ()
    reference: str | None = None
    references: tuple[str, ...] = ()
    knowledge: tuple[str | dict[str, Any], ...] = ()
    sources: tuple[str, ...] = ()
    extra: dict[str, Any] = Field(default_factory=dict)

    def __init__(self, turns: object = None, /, **fields: Any) -> None:  # noqa: ANN401 - checked below
        fields |= {} if turns is None else {"turns": turns}
        if isinstance(fields.get("turns"), str):
            fields["turns"] = [fields["turns"]]
        known = [*type(self).model_fields]
        for name in fields.keys() - {*known}:
            if difflib.get_close_matches(name, known, cutoff=0.75):
                raise UnknownNameError("field of a dialogue", name, known)
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise InputError(f"not a dialogue: {describe(error)}", hint=_CALL) from None

    # As pydantic marks its own: what is read from JSON does not pass here, and keeps its own errors.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        data = with_turns(data)
        known = set(cls.model_fields)
        fields = {key: value for key, value in data.items() if key in known and value is not None}
        unknown = {key: value for key, value in data.items() if key not in known}
        for name in _SEVERAL & fields.keys():
            fields[name] = as_several(fields[name])
        if isinstance(knowledge := fields.get("knowledge"), list):
            fields["knowledge"] = [_knowledge_item(item, number) for number, item in enumerate(knowledge)]
        _set_references(fields)
        if unknown and isinstance(extra := fields.get("extra") or {}, dict):
            fields["extra"] = {**extra, **unknown}
        texts: list[str] = []
        if isinstance(turns := fields.get("turns"), list | tuple):
            fields["turns"] = turns = _with_speakers(turns)
            parts = (turn.get("text") if isinstance(turn, dict) else getattr(turn, "text", "") for turn in turns)
            texts = [text for text in parts if isinstance(text, str)]
        named = fields.get("language")
        if named is None or (isinstance(named, str) and named not in LANGUAGES):
            with suppress(UnknownNameError):  # what it may be is said below
                fields["language"], spoken = spoken_in(texts, named or "")
                fields |= {"spoken": spoken} if spoken else {}
        fields["id"] = as_name(fields["id"]) if "id" in fields else content_id(texts)
        return fields

    @property
    def accepted_responses(self) -> tuple[str, ...]:
        """All references, the first one first; empty without a reference."""
        if not self.reference:
            return ()
        return self.references or (self.reference,)

    @property
    def last(self) -> Utterance:
        """The turn to be answered."""
        return self.turns[-1]

    @property
    def texts(self) -> tuple[str, ...]:
        """The utterances' texts, oldest first."""
        return tuple(turn.text for turn in self.turns)

    @property
    def history(self) -> str:
        """The utterances' texts, one a line."""
        return "\n".join(self.texts)

    @property
    def responder(self) -> str:
        """The speaker who is to answer: the latest who is not the last turn's, else `system` or `user`."""
        last = self.last.speaker
        others = (turn.speaker for turn in reversed(self.turns) if turn.speaker != last)
        return next(others, "user" if last == "system" else "system")


# --- ids


def content_id(texts: Iterable[str]) -> str:
    """Return the id of a dialogue that has none: a hash of its turns' texts.

    So it does not depend on the file's name or on the position in the file, and dialogues of two files have the same id
    only if they have the same turns.
    """
    digest = hashlib.blake2b("\n".join(texts).encode("utf-8", "replace"), digest_size=6)
    return f"dialogue-{digest.hexdigest()}"


_CONTENT_ID = re.compile(r"dialogue-[0-9a-f]{12}")


def unique_id(identifier: str, used: Container[str]) -> str | None:
    """Return the id under which a dialogue can stand beside those already `used`; None if there is none.

    Derived ids that recur get a number (`dialogue-...-2`); ids that a file states must be unique.
    """
    if identifier not in used:
        return identifier
    if not _CONTENT_ID.fullmatch(identifier):
        return None
    numbered = (f"{identifier}-{number}" for number in itertools.count(2))
    return next(name for name in numbered if name not in used)


def conversation_of(identifier: str) -> str:
    """Return the id of the whole dialogue that a history was cut from: `x` for `x@3`, otherwise the id itself.

    Histories cut from one dialogue, `x@3` and `x@5`, are not independent.
    """
    name, _, turn = identifier.rpartition("@")
    return name if name and turn.isdecimal() else identifier


# --- dialogues in Python and as chat messages

Given: TypeAlias = Dialogue | str | Sequence[str] | Mapping[str, Any]
"""A dialogue as Python users have it: made, the last turn's text, the turns' texts, or the fields as in a file."""
Messages: TypeAlias = Sequence[Mapping[str, Any]]
"""A dialogue as chat messages, `{"role": "user" | "assistant", "content": ...}`."""
_SIDES = {"user": "user", "assistant": "system"}
_CALL = 'Dialogue(["Hi!", "Hello.", "I have a cold."]), or with fields: Dialogue(turns=[...], persona=["..."])'
_MESSAGES = 'messages=[{"role": "user", "content": "I have a cold."}]'


def dialogue_of(given: Given | None = None, messages: Messages | None = None) -> Dialogue:
    """Return the dialogue that is given, or that chat messages make; raise InputError where that is none, or two."""
    if isinstance(given, Dialogue) and messages is None:
        return given
    if (given is None) == (messages is None):
        few = "nothing to answer" if given is None else "a dialogue and messages"
        raise InputError(f"{few} was given", hint=f'respond("I have a cold.") or respond({_MESSAGES})')
    if messages is None:
        check_type("a dialogue", given, (str, Mapping, list, tuple), _CALL)
        return Dialogue(**given) if isinstance(given, Mapping) else Dialogue(given)
    check_type("messages", messages, (list, tuple), _MESSAGES)
    turns = []
    for number, message in enumerate(messages, start=1):
        check_type(f"message {number}", message, Mapping, _MESSAGES)
        role, content = message.get("role"), message.get("content")
        if role not in _SIDES:
            hint = 'turns are of "user" and "assistant"; say who answers by Dialogue(turns, persona=[...])'
            raise InputError(f"message {number} is of role {role!r}", hint=hint)
        turns.append({"speaker": _SIDES[role], "text": message_text(content)})
    if turns and turns[-1]["speaker"] != "user":
        raise InputError("the last message is the assistant's", hint="end with the user's message to be answered")
    return Dialogue(turns)


_BLANK: tuple[object, ...] = (None, "", {})
_SEVERAL = {"persona", "knowledge", "sources", "references"}


def as_several(value: object) -> object:
    """Return a list where a file may have a single text or object in place of one; blank ones are left out."""
    items = value if isinstance(value, list | tuple) else [value] if isinstance(value, str | dict) else None
    return value if items is None else [item for item in items if item not in _BLANK]


def as_name(value: object) -> object:
    """Return an id that a file has as a number, as text: 7, and 7.0 as tables write it, are "7"."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


# --- dialogues of files

_USER_ROLES = {"user", "human"}
_ASSISTANT_ROLES = {"assistant", "bot", "gpt", "model"}
_INSTRUCTION_ROLES = {"system", "developer"}


def with_turns(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dialogue with `turns` in place of chat messages, if it has these.

    System messages are no turns: they are kept as `extra["instructions"]`. A last message of the assistant is the
    reference, unless there is one. Raises ValueError for a message that has no role or text, or another role.
    """
    if not has_messages(data):
        return dict(data)
    fields = {key: value for key, value in data.items() if key != "messages"}
    turns: list[dict[str, object]] = []
    instructions: list[str] = []
    for number, message in enumerate(data["messages"]):
        role = str(message.get("role")).strip().casefold()
        text = message_text(message.get("content"))
        if role in _INSTRUCTION_ROLES:
            instructions.append(str(text))
        elif role in _USER_ROLES | _ASSISTANT_ROLES:
            turns.append({"speaker": "user" if role in _USER_ROLES else "system", "text": text})
        else:
            raise ValueError(f"field messages[{number}].role: {message.get('role')!r} is not user, assistant or system")
    has_reference = fields.get("reference") is not None or fields.get("references")
    if len(turns) > 1 and turns[-1]["speaker"] == "system" and not has_reference:
        fields["reference"] = turns.pop()["text"]
    if instructions:
        fields.setdefault("instructions", "\n".join(instructions))
    return {**fields, "turns": turns}


def has_messages(data: Mapping[str, Any]) -> bool:
    """Return whether a dialogue comes as chat messages; data sets have other things under `messages`."""
    messages = data.get("messages")
    if "turns" in data or not isinstance(messages, list | tuple) or not messages:
        return False
    return all(isinstance(message, Mapping) and "role" in message for message in messages)


def message_text(content: object) -> object:
    """Return the text of a chat message, which may come in parts, as OpenAI's endpoints take it."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content


def _with_speakers(turns: Sequence[Any]) -> list[Any]:
    """Return turns with speakers. If none of them has one, they alternate, so that the last turn is the user's."""
    are_unnamed = all(isinstance(turn, dict) and turn.get("speaker") is None and turn.get("text") for turn in turns)
    sides = ("user", "system") if len(turns) % 2 else ("system", "user")
    complete: list[Any] = []
    for number, turn in enumerate(turns):
        side = sides[number % 2]
        if isinstance(turn, str):
            complete.append({"speaker": side, "text": turn})
        elif are_unnamed:
            complete.append({**turn, "speaker": side})
        else:
            complete.append(turn)
    return complete


def _knowledge_item(item: object, number: int) -> object:
    """Return a piece of gold knowledge, a triple as an object; raise ValueError for anything else."""
    if isinstance(item, str):
        return item
    if isinstance(item, dict):
        return {key: value for key, value in item.items() if value is not None}
    if isinstance(item, list | tuple) and len(item) == 3 and all(isinstance(part, str) for part in item):
        return dict(zip(("head", "relation", "tail"), item, strict=True))
    raise ValueError(
        f"field knowledge[{number}]: expected a text, an object or [head, relation, tail], not {item!r:.60}"
    )


def _set_references(fields: dict[str, Any]) -> None:
    """Make `reference` the first of several references, which may be given under either name; blank ones are left out.

    A single blank `reference` stays: its reader leaves the dialogue out, or answers it without one.
    """
    single = fields.get("reference")
    several = fields.pop("references", None) or ()
    candidates = list(single) if isinstance(single, list | tuple) else [single]
    candidates += list(several) if isinstance(several, list | tuple) else [several]
    accepted: list[str] = []
    for candidate in candidates:
        if candidate is not None and not isinstance(candidate, str):
            raise ValueError(f"field reference: expected a text, not {candidate!r:.60}")
        if candidate and candidate.strip() and candidate not in accepted:
            accepted.append(candidate)
    if isinstance(single, list | tuple) or several:
        fields["reference"] = accepted[0] if accepted else ""
    if len(accepted) > 1:
        fields["references"] = accepted


def dialogue_from(data: object, *, place: str, default_id: str | None = None) -> Dialogue:
    """Return a dialogue from decoded JSON; raise InputError naming its place and every field at fault.

    Args:
        data: The decoded object.
        place: Where it stands, for errors ("valid.jsonl, line 3").
        default_id: The id of a dialogue that has none; by default it is derived from the turns (`content_id`).
    """
    if not isinstance(data, dict):
        names = {list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
        kind = names.get(type(data), "null")
        raise InputError(f"{place}: expected a dialogue object, found {kind}", hint=_SHAPE)
    defaults = {} if default_id is None else {"id": default_id}
    try:
        return Dialogue.model_validate({**defaults, **storable(data)})
    except ValidationError as error:
        raise InputError(f"{place}: {describe(error)}", hint=_SHAPE) from error


_SHAPE = 'a dialogue is {"id": ..., "turns": [{"speaker": "user", "text": "..."}, ...]}'


def parse_dialogues(text: str, *, name: str) -> Iterator[Dialogue | InputError]:
    """Dialogues from a JSON object, a JSON list or JSONL; a bad entry is yielded as its error, not raised.

    The file's name is for errors. Raises InputError where nothing in the text could be a dialogue
    (empty, or JSON that is neither).
    """
    if not text.strip():
        raise InputError(f"{name}: the file is empty", hint=_SHAPE)
    whole = json_document(text, name)
    if whole == []:
        raise InputError(f"{name}: the list is empty", hint=_SHAPE)
    if isinstance(whole, list):
        entries: Iterable[tuple[object, str]] = (
            (entry, f"{name}, entry {number}") for number, entry in enumerate(whole, start=1)
        )
    else:
        entries = json_lines(text, name) if whole is None else [(whole, name)]
    seen: dict[str, str] = {}
    for entry, location in entries:
        try:
            dialogue = dialogue_from(entry, place=location)
        except InputError as error:
            yield entry if isinstance(entry, InputError) else error
            continue
        identifier = unique_id(dialogue.id, seen)
        if identifier is None:
            problem = f"{location}: field id: {dialogue.id!r} was already used at {seen[dialogue.id]}"
            yield InputError(problem, hint="ids must be unique in a file")
        else:
            seen[identifier] = location
            yield dialogue if identifier == dialogue.id else dialogue.model_copy(update={"id": identifier})


def read_dialogues(path: str | Path) -> list[Dialogue]:
    """Return every dialogue of a JSON or JSONL file, gzipped or not.

    Raises:
        InputError: the file cannot be read, or an entry is malformed (the first is named, and how many there are).
    """
    path = as_path("a file of dialogues", path)
    entries = list(parse_dialogues(read_text(path), name=path.name))
    errors = [entry for entry in entries if isinstance(entry, InputError)]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise InputError(errors[0].message + more, hint=errors[0].hint)
    return [entry for entry in entries if isinstance(entry, Dialogue)]
