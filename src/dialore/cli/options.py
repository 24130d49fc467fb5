"""Options that commands share, each described once, as fields of dataclasses that `takes_settings` spreads out."""

# No deferred annotations here: typer reads them.
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from dialore.errors import UnknownNameError

_Name = TypeVar("_Name", bound=str)
_MODEL = "Language model"
_KNOWLEDGE = "Knowledge and method"

Json = Annotated[
    bool, typer.Option("--json", help="Print JSON (one object a line where there are many), nothing else.")
]
JudgePrompts = Annotated[
    Path | None, typer.Option("--prompts", metavar="FOLDER", help="Judges' prompts that override ours.")
]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which language model is asked, and how."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            rich_help_panel=_MODEL,
            help="Model name, or hf:NAME for one run here. Else DIALORE_MODEL, OPENAI_MODEL.",
        ),
    ] = None
    base_url: Annotated[
        str | None,
        typer.Option(
            "--base-url",
            "-u",
            metavar="URL",
            rich_help_panel=_MODEL,
            help="OpenAI-compatible endpoint. Else DIALORE_BASE_URL, OPENAI_BASE_URL, an Ollama on this machine.",
        ),
    ] = None
    api: Annotated[
        str,
        typer.Option(
            "--api",
            metavar="chat|completions",
            rich_help_panel=_MODEL,
            help="Speak to it by messages, or, as base models want it, by plain text to be continued.",
        ),
    ] = "chat"
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            rich_help_panel=_MODEL,
            help="Its key. Better in the environment: DIALORE_API_KEY, OPENAI_API_KEY.",
        ),
    ] = None
    stage_model: Annotated[
        list[str] | None,
        typer.Option(
            "--stage-model",
            metavar="STAGE=NAME",
            rich_help_panel=_MODEL,
            help="Another model for one stage, e.g. commonsense-directive=hf:allenai/cosmo-xl.",
        ),
    ] = None
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="FILE",
            rich_help_panel=_MODEL,
            help="Keep completions here, so that an equal call is paid for once. Default: in the user's cache folder.",
        ),
    ] = None
    no_cache: Annotated[
        bool, typer.Option("--no-cache", rich_help_panel=_MODEL, help="Ask anew, and keep nothing.")
    ] = False
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=0.1, rich_help_panel=_MODEL, help="For one whole answer."),
    ] = 120.0
    retries: Annotated[
        int, typer.Option("--retries", min=0, rich_help_panel=_MODEL, help="How often a failed call is tried again.")
    ] = 4
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, rich_help_panel=_MODEL, help="The most calls at once.")
    ] = 64


@dataclass(frozen=True, slots=True)
class KnowledgeSettings:
    """What a method works with."""

    graph: Annotated[
        list[str] | None,
        typer.Option(
            "--graph",
            "-g",
            metavar="PATH|URL|starter",
            rich_help_panel=_KNOWLEDGE,
            help="The commonsense graph; several are asked as one. Default: starter.",
        ),
    ] = None
    ranking: Annotated[
        str,
        typer.Option(
            "--ranking",
            metavar="NAME",
            rich_help_panel=_KNOWLEDGE,
            help="How facts are ranked: default, or paper for DCRAG's plain cosine.",
        ),
    ] = "default"
    documents: Annotated[
        list[Path] | None,
        typer.Option(
            "--documents",
            "-d",
            metavar="PATH",
            rich_help_panel=_KNOWLEDGE,
            help="A document index of `dialore documents build`; several are asked as one.",
        ),
    ] = None
    persona: Annotated[
        Path | None,
        typer.Option(
            "--persona",
            metavar="FILE",
            rich_help_panel=_KNOWLEDGE,
            help="The responder's persona, for dialogues that bring none: text, YAML or JSON.",
        ),
    ] = None
    search: Annotated[
        str | None,
        typer.Option(
            "--search",
            metavar="ENGINE",
            rich_help_panel=_KNOWLEDGE,
            help="Web search: searxng:URL, brave: (key in BRAVE_API_KEY), or corpus:PATH for a document index.",
        ),
    ] = None
    samples: Annotated[
        Path | None,
        typer.Option(
            "--samples",
            metavar="PATH",
            rich_help_panel=_KNOWLEDGE,
            help="A sample database of `dialore samples build`, for msdp.",
        ),
    ] = None
    sources: Annotated[
        Path | None,
        typer.Option(
            "--sources",
            metavar="FILE",
            rich_help_panel=_KNOWLEDGE,
            help="A YAML file that declares sources, what they hold and how they depend on each other, for safari.",
        ),
    ] = None
    cite: Annotated[
        bool,
        typer.Option(
            "--cite",
            rich_help_panel=_KNOWLEDGE,
            help="Have the model cite its knowledge by number; the numbers are shown, and kept as spans of the text.",
        ),
    ] = False
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            metavar="FOLDER",
            rich_help_panel=_KNOWLEDGE,
            help="Prompts that override ours; start from `dialore prompts export`.",
        ),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            rich_help_panel=_KNOWLEDGE,
            help="A hyper-parameter or switch of the method, e.g. -o limit=10; see `dialore methods`.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """What metrics measure with, beside the judge."""

    graph: Annotated[
        str | None, typer.Option("--graph", "-g", metavar="PATH|starter", help="For CDP and CDF. [default: starter]")
    ] = None
    nli: Annotated[str | None, typer.Option("--nli", metavar="NAME", help="An NLI model, for consistency.")] = None
    language_model: Annotated[
        str | None, typer.Option("--language-model", metavar="NAME", help="A causal model, for perplexity.")
    ] = None
    tokens: Annotated[str, typer.Option("--tokens", metavar="character|word", help="How Chinese is counted.")] = (
        "character"
    )
    prompts: JudgePrompts = None


def one_of(kind: str, name: str, known: Sequence[_Name]) -> _Name:
    """The known name that was given; raises UnknownNameError, with what a `kind` may be called, where it is none."""
    for each in known:
        if each == name:
            return each
    raise UnknownNameError(kind, name, known)


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Spread every parameter whose type is a settings dataclass into one option a field."""
    hints: dict[str, Any] = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            parameters += _options(groups[parameter.name])
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def spread(**values: Any) -> None:  # noqa: ANN401 - whatever the options hold
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        command(**values)

    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return spread


def _options(kind: Any) -> list[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(kind, include_extras=True)
    defaults = inspect.signature(kind).parameters
    return [
        defaults[field.name].replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name])
        for field in fields(kind)
    ]
