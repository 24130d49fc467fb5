"""What there is to say of a method: read from its class, docstring and prompts, for the command and the docs."""

from __future__ import annotations

import dataclasses
import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dialore.methods.registry import method_options
from dialore.prompts.library import PromptLibrary

if TYPE_CHECKING:
    from dialore.methods.base import Method
    from dialore.text import Language

_ATTRIBUTES = "Attributes:\n"


@dataclass(frozen=True, slots=True)
class OptionDescription:
    """A hyper-parameter or switch: its name, its default, and what it does."""

    name: str
    default: Any
    help: str


@dataclass(frozen=True, slots=True)
class StageDescription:
    """A stage that asks a language model.

    Attributes:
        name: the stage, as `--stage-model` takes it: `query-production`.
        prompt: its prompt, as `dialore prompts show` takes it: `dcrag/query-production`.
        languages: those that there is a prompt file for.
        version: the version of the English file, else of the first.
        output: what is asked for: the name of a shape, or `text`.
    """

    name: str
    prompt: str
    languages: tuple[Language, ...]
    version: int
    output: str


@dataclass(frozen=True, slots=True)
class MethodDescription:
    """A method in words.

    Attributes:
        name: its name.
        paper: where it is from.
        summary: what it does, in a line.
        about: what it does and where it differs from its paper, in paragraphs.
        needs: sources that it must have.
        takes: sources that it can do without.
        calls: how many model calls it makes, and how many in a row.
        options: its hyper-parameters and switches.
        stages: its stages that ask a language model, in order.
    """

    name: str
    paper: str
    summary: str
    about: str
    needs: tuple[str, ...]
    takes: tuple[str, ...]
    calls: str
    options: tuple[OptionDescription, ...]
    stages: tuple[StageDescription, ...]


def describe_method(cls: type[Method], prompts: PromptLibrary | None = None) -> MethodDescription:
    """A method in words.

    Args:
        cls: its class.
        prompts: where its prompts are looked up; None for the package's own.

    Raises:
        UnknownNameError: it names a prompt that there is none of.
    """
    about, _, attributes = (inspect.getdoc(cls) or "").partition(_ATTRIBUTES)
    helps = _helps(attributes)
    options = [
        OptionDescription(field.name, _default(field), helps.get(field.name, ""))
        for field in method_options(cls).values()
    ]
    return MethodDescription(
        name=cls.name,
        paper=cls.paper,
        summary=cls.summary,
        about="\n\n".join(" ".join(paragraph.split()) for paragraph in about.strip().split("\n\n")),
        needs=tuple(cls.needs),
        takes=tuple(getattr(cls, "takes", ())),
        calls=cls.calls,
        options=tuple(options),
        stages=_stages(cls, prompts or PromptLibrary()),
    )


def _stages(cls: type[Method], prompts: PromptLibrary) -> tuple[StageDescription, ...]:
    """The stages that the class names, else those of its folder of prompts."""
    everything = [(prompt.name, prompt.language) for prompt in prompts]
    named: tuple[str, ...] | None = getattr(cls, "stages", None)
    if named is None:
        named = tuple(dict.fromkeys(name for name, _ in everything if name.startswith(f"{cls.name}/")))
    found = []
    for name in named:
        languages = tuple(language for other, language in everything if other == name)
        front = prompts.get(name, languages[0] if languages else "en").front
        found.append(StageDescription(name.rpartition("/")[2], name, languages, front.version, front.output))
    return tuple(found)


def _default(field: dataclasses.Field[Any]) -> object:
    return None if field.default is dataclasses.MISSING else field.default


def _helps(attributes: str) -> dict[str, str]:
    """The lines of a docstring's Attributes by name."""
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}
