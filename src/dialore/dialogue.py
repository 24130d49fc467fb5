"""Utterances and dialogues, and how JSON is one."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        id: the dialogue's name, unique in its file; made of the turns' texts where it is not given.
        turns: the history, oldest first; at least one. In JSON a turn may also be a bare string: speakers then
            alternate so that the last turn is the user's.
        language: `en` or `zh`, that of prompts and graph; found from the last turn where it is not given. The English
            name of another language may be given, too.
        spoken: the user's language by its English name, where that is another: the response is asked for in it.
        topic: what the dialogue is about, if known.
        persona: the responder's persona sentences.
        reference: the response that a person gave, in data sets.
        knowledge: gold knowledge, in data sets: texts or objects.
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
        known = set(cls.model_fields)
        fields = {key: value for key, value in data.items() if key in known and value is not None}
        unknown = {key: value for key, value in data.items() if key not in known}
        for name in _SEVERAL & fields.keys():
            fields[name] = as_several(fields[name])
        if unknown and isinstance(extra := fields.get("extra") or {}, dict):
            fields["extra"] = {**extra, **unknown}
        turns, texts = fields.get("turns"), []
        if isinstance(turns, list | tuple):
            sides = ("user", "system") if len(turns) % 2 else ("system", "user")  # the last turn is the user's
            made = [{"speaker": sides[number % 2], "text": turn} for number, turn in enumerate(turns)]
            turns = [new if isinstance(turn, str) else turn for new, turn in zip(made, turns, strict=True)]
            fields["turns"] = turns
            parts = (turn.get("text") if isinstance(turn, dict) else getattr(turn, "text", "") for turn in turns)
            texts = [text for text in parts if isinstance(text, str)]
        named = fields.get("language")
        if named is None or (isinstance(named, str) and named not in LANGUAGES):
            with suppress(UnknownNameError):  # what it may be is said below
                fields["language"], spoken = spoken_in(texts, named or "")
                fields |= {"spoken": spoken} if spoken else {}
        if "id" in fields:
            fields["id"] = as_name(fields["id"])
        else:
            mark = hashlib.blake2b("\n".join(texts).encode("utf-8", "replace"), digest_size=6)
            fields["id"] = f"dialogue-{mark.hexdigest()}"
        return fields

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
        if isinstance(content, list):  # in parts, as OpenAI's endpoints take it
            content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
        turns.append({"speaker": _SIDES[role], "text": content})
    if turns and turns[-1]["speaker"] != "user":
        raise InputError("the last message is the assistant's", hint="end with the user's message to be answered")
    return Dialogue(turns)


_BLANK: tuple[object, ...] = (None, "", {})
_SEVERAL = {"persona", "knowledge", "sources"}


def as_several(value: object) -> object:
    """Return a list where a file may have a single text or object in place of one; blank ones are left out."""
    items = value if isinstance(value, list | tuple) else [value] if isinstance(value, str | dict) else None
    return value if items is None else [item for item in items if item not in _BLANK]


def as_name(value: object) -> object:
    """Return an id that a file has as a number, as text: 7, and 7.0 as tables write it, are "7"."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def dialogue_from(data: object, *, place: str, default_id: str) -> Dialogue:
    """Return a dialogue from decoded JSON; raise InputError naming its place and every field at fault.

    `place` is where it stands, for errors ("valid.jsonl, line 3"), `default_id` the id of a dialogue that has none.
    """
    if not isinstance(data, dict):
        names = {list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
        kind = names.get(type(data), "null")
        raise InputError(f"{place}: expected a dialogue object, found {kind}", hint=_SHAPE)
    try:
        return Dialogue.model_validate({"id": default_id, **storable(data)})
    except ValidationError as error:
        raise InputError(f"{place}: {describe(error)}", hint=_SHAPE) from error


_SHAPE = 'a dialogue is {"id": ..., "turns": [{"speaker": "user", "text": "..."}, ...]}'


def parse_dialogues(text: str, *, name: str) -> Iterator[Dialogue | InputError]:
    """Dialogues from a JSON object, a JSON list or JSONL; a bad entry is yielded as its error, not raised.

    The file's name is for errors and default ids. Raises InputError where nothing in the text could be a dialogue
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
    stem = name.rsplit("/", 1)[-1].split(".", maxsplit=1)[0] or "dialogue"
    seen: dict[str, str] = {}
    for number, (entry, location) in enumerate(entries, start=1):
        try:
            dialogue = dialogue_from(entry, place=location, default_id=f"{stem}-{number}")
        except InputError as error:
            yield entry if isinstance(entry, InputError) else error
            continue
        if dialogue.id in seen:
            problem = f"{location}: field id: {dialogue.id!r} was already used at {seen[dialogue.id]}"
            yield InputError(problem, hint="ids must be unique in a file")
        else:
            seen[dialogue.id] = location
            yield dialogue


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
