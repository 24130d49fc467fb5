"""Finding, parsing, rendering and hashing prompt files."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import jinja2
import yaml
from jinja2.meta import find_undeclared_variables
from pydantic import BaseModel, ConfigDict, ValidationError

from dialore.errors import InputError, UnknownNameError
from dialore.llm.model import Message, Role, Sampling, Steering
from dialore.text import LANGUAGES, check_language

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dialore.text import Language

_FRONT = re.compile(r"\A---\n(.*?)\n---\n(.*)\Z", re.DOTALL)
_ROLE = re.compile(r"^<!-- (system|user|assistant|continuation|steering) -->\n", re.MULTILINE)
_ROLES = frozenset(get_args(Role))
_CONTINUATION = "continuation"
_STEERING = "steering"
_NAME = re.compile(r"^[a-z0-9-]+/[a-z0-9-]+(\.[a-z]+)?$")
_ENVIRONMENT = jinja2.Environment(
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=False,
    autoescape=False,  # noqa: S701 - prompts are plain text, not HTML
)


class FrontMatter(BaseModel):
    """The head of a prompt file: its version, what it asks the model to output, and how to sample.

    `stop` holds further stop strings for where the prompt's continuation is sent in place of its messages.
    """

    model_config = ConfigDict(extra="forbid")

    version: int
    output: str
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt with its variables filled in.

    Attributes:
        messages: the chat form.
        sampling: how to sample.
        reference: name, language, version and hash.
        continuation: the same as plain text to be continued, where the file has a `<!-- continuation -->` section.
        stop: where the continued text ends, beside the sampling's own stop strings.
        steering: what decoding is steered towards: the `<!-- steering -->` section, whose rendered text is YAML.
    """

    messages: tuple[Message, ...]
    sampling: Sampling
    reference: str
    continuation: str | None = None
    stop: tuple[str, ...] = ()
    steering: Steering | None = None


class _Section:
    """One section of a prompt file. A system message, the same for thousands of calls, is filled in once."""

    def __init__(self, role: str, body: str) -> None:
        self.role = role
        self._template = _ENVIRONMENT.from_string(body)
        # Jinja chains two mappings, which costs more to read at each rendering than all else in most templates.
        self._template.globals = dict(self._template.globals)
        self._names = sorted(find_undeclared_variables(_ENVIRONMENT.parse(body))) if role == "system" else []
        self._filled: tuple[list[object], str] | None = None
        self._message: Message | None = None

    def render(self, variables: Mapping[str, object]) -> str:
        """The section's text."""
        if self.role != "system":
            return self._template.render(variables)
        # Values that cannot change in place, told apart by type too: True is 1, but is not written so.
        values = [variables.get(name, _MISSING) for name in self._names]
        if any(type(value) not in _PLAIN for value in values):
            return self._template.render(variables)
        marked = [*values, *map(type, values)]
        filled = self._filled  # read once: another thread may fill it in with other values meanwhile
        if filled is None or filled[0] != marked:
            filled = self._filled = (marked, self._template.render(variables))
        return filled[1]

    def message(self, text: str) -> Message:
        """The section's message with this text."""
        content = text.strip()
        message = self._message
        if message is None or message.content != content:
            message = self._message = Message(role=cast("Role", self.role), content=content)
        return message


_PLAIN = frozenset({str, int, float, bool, type(None)})
_MISSING = object()


@dataclass(frozen=True)
class Prompt:
    """A prompt file: its name, `<method>/<stage>`, its language, its whole text, and where it lies."""

    name: str
    language: Language
    text: str
    path: Path

    @cached_property
    def _split(self) -> tuple[FrontMatter, list[tuple[str, str]]]:
        """The front matter, and each section's role and text."""
        match = _FRONT.match(self.text.replace("\r\n", "\n"))
        if match is None:
            lacking = f"prompt {self.path}: no front matter"
            raise InputError(lacking, mend="begin the file with ---, version, output, ---")
        try:
            front = FrontMatter.model_validate(yaml.safe_load(match[1]))
        except (yaml.YAMLError, ValidationError) as error:
            raise InputError(f"prompt {self.path}: {' '.join(str(error).split())}") from error
        pieces = _ROLE.split(match[2])
        if not set(pieces[1::2]) - {_CONTINUATION, _STEERING} or pieces[0].strip():
            lacking = f"prompt {self.path}: no message"
            raise InputError(lacking, mend="start each with a line <!-- system --> or <!-- user -->")
        return front, list(zip(pieces[1::2], pieces[2::2], strict=True))

    @cached_property
    def _sections(self) -> list[_Section]:
        try:
            return [_Section(role, body.strip("\n")) for role, body in self._split[1]]
        except jinja2.TemplateSyntaxError as error:
            raise InputError(f"prompt {self.path}: {' '.join(str(error).split())}") from error

    @property
    def front(self) -> FrontMatter:
        """The front matter; raises InputError where it is malformed."""
        return self._split[0]

    @cached_property
    def hash(self) -> str:
        """A hash of the whole file, kept in traces and runs."""
        return hashlib.blake2b(self.text.encode(), digest_size=6).hexdigest()

    @cached_property
    def reference(self) -> str:
        """Name, language, version and hash: `dcrag/query-production.en v1 1a2b3c4d5e6f`."""
        return f"{self.name}.{self.language} v{self.front.version} {self.hash}"

    def render(self, variables: Mapping[str, object]) -> RenderedPrompt:
        """Fill in the variables; raises InputError where one is missing, or the template fails."""
        front = self.front
        try:
            filled = [(section, section.render(variables)) for section in self._sections]
        except jinja2.UndefinedError as error:
            known = ", ".join(sorted(variables))
            raise InputError(f"prompt {self.path}: {error.message}", mend=f"it is given: {known}") from error
        except jinja2.TemplateError as error:
            raise InputError(f"prompt {self.path}: {error.message}") from error
        # Text to be continued keeps its last space or line break: some formats end in one.
        continuation = next((text for section, text in filled if section.role == _CONTINUATION), None)
        steering = next((self._steering(text) for section, text in filled if section.role == _STEERING), None)
        messages = tuple(section.message(text) for section, text in filled if section.role in _ROLES)
        return RenderedPrompt(messages, front.sampling, self.reference, continuation, front.stop, steering)

    def _steering(self, text: str) -> Steering:
        try:
            return Steering.model_validate(yaml.safe_load(text))
        except (yaml.YAMLError, ValidationError) as error:
            raise InputError(f"prompt {self.path}: steering: {' '.join(str(error).split())}") from error


class PromptLibrary:
    """The package's prompts, each of which a file of the same name in a folder of the user's overrides.

    The folder is laid out as the package's, `<method>/<stage>.<language>.md`; one that does not exist is an InputError.
    A file is read once: what is changed in it afterwards is seen by a library made anew.
    """

    def __init__(self, overrides: Path | None = None) -> None:
        if overrides is not None and not overrides.is_dir():
            raise InputError(f"no such prompt folder: {overrides}", mend="export one with `dialore prompts export`")
        own = Path(str(resources.files("dialore") / "prompts"))
        self._folders = [own] if overrides is None else [overrides, own]
        self._read: dict[tuple[str, Language], Prompt | None] = {}

    def get(self, name: str, language: Language, form: str = "") -> Prompt:
        """The prompt of that name and language, in a form of its own where there is a file of it.

        Args:
            name: `<method>/<stage>`, or `<method>/<stage>.<form>`.
            language: its language.
            form: as `paper` of `<method>/<stage>.paper.<language>.md`; where no such file is, the plain one is meant.

        Raises:
            UnknownNameError: there is none.
        """
        found = (self._find(f"{name}.{form}", language) if form else None) or self._find(name, language)
        if found is None:
            raise UnknownNameError("prompt", f"{name}.{language}", [f"{p.name}.{p.language}" for p in self])
        return found

    def _find(self, name: str, language: Language) -> Prompt | None:
        if (name, language) not in self._read:
            paths = [folder / f"{name}.{language}.md" for folder in self._folders if _NAME.match(name)]
            path = next((path for path in paths if path.is_file()), None)
            self._read[name, language] = Prompt(name, language, path.read_text("utf-8"), path) if path else None
        return self._read[name, language]

    def __iter__(self) -> Iterator[Prompt]:
        """Every prompt by name and language, overridden ones as they are overridden."""
        found: dict[tuple[str, str], Path] = {}
        for folder in reversed(self._folders):
            for path in folder.glob("*/*.md"):
                stage, _, language = path.stem.rpartition(".")
                if language in LANGUAGES:
                    found[f"{path.parent.name}/{stage}", language] = path
        for name, language in sorted(found):
            yield self.get(name, check_language(language))
