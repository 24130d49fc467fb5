"""Options that commands share. `takes_settings` makes them of the fields of settings, each described once."""

# No deferred annotations here: typer reads them.
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from dialore.settings import Option, Strict, changed, validated

Json = Annotated[
    bool, typer.Option("--json", help="Print JSON (one object a line where there are many), nothing else.")
]
JudgePrompts = Annotated[
    Path | None, typer.Option("--prompts", metavar="FOLDER", help="Judges' prompts that override ours.")
]
SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="Settings in TOML or YAML; options and DIALORE_... variables win. Else DIALORE_SETTINGS.",
    ),
]


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


@dataclass(frozen=True, slots=True)
class Said:
    """Marks a parameter that gets what the options of settings say, by dotted name, and only what they say."""

    settings: type[Strict]


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Spread the parameters of a command that are settings into one option a field.

    A parameter may be a dataclass or settings (`ModelSettings`), which are made of the options, or be annotated with
    `Said(...)`, and gets a mapping.
    """
    hints: dict[str, Any] = get_type_hints(command, include_extras=True)
    makers: dict[str, Callable[[dict[str, Any]], object]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        said = next((mark for mark in get_args(hint)[1:] if isinstance(mark, Said)), None)
        if is_dataclass(hint):
            parameters += _fields(hint)
            makers[parameter.name] = functools.partial(_make, hint)
        elif said is not None:
            parameters += _options(said.settings)
            makers[parameter.name] = functools.partial(_said, said.settings)
        elif isinstance(hint, type) and issubclass(hint, Strict):
            parameters += _options(hint)
            makers[parameter.name] = functools.partial(_validated, hint)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def spread(**values: Any) -> None:  # noqa: ANN401 - whatever the options hold
        made = {name: make(values) for name, make in makers.items()}
        own = {name: value for name, value in values.items() if name in hints and name not in makers}
        command(**own, **made)

    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return spread


def _fields(kind: Any) -> list[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(kind, include_extras=True)
    defaults = inspect.signature(kind).parameters
    return [
        defaults[field.name].replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name])
        for field in fields(kind)
    ]


def _make(kind: Any, values: dict[str, Any]) -> object:  # noqa: ANN401 - a dataclass
    return kind(**{field.name: values[field.name] for field in fields(kind)})


def _offered(settings: type[Strict]) -> Iterator[Option]:
    """The options of settings; where two have one name, the outer one."""
    taken: set[str] = set()
    for option in sorted(settings.options(), key=lambda option: option.path.count(".")):
        if not taken & set(option.flag.names):
            taken.update(option.flag.names)
            yield option


def _parameter_name(option: Option) -> str:
    return option.path.replace(".", "__")


def _options(settings: type[Strict]) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            _parameter_name(option),
            inspect.Parameter.KEYWORD_ONLY,
            default=False if option.kind is bool else None,
            annotation=Annotated[_kind(option), _typer_option(option)],
        )
        for option in _offered(settings)
    ]


def _kind(option: Option) -> Any:  # noqa: ANN401 - a type
    """The type as the command line reads it: what is not plain is text, which the settings read."""
    if option.several:
        return list[str] | None
    plain = next((kind for kind in (option.kind, *get_args(option.kind)) if kind in {bool, int, float, Path}), str)
    return plain if plain is bool else plain | None


def _typer_option(option: Option) -> Any:  # noqa: ANN401 - typer's
    field = option.field
    least = next((bound.ge for bound in field.metadata if hasattr(bound, "ge")), None)
    usual = field.default
    shown = str(usual) if isinstance(usual, int | float | str) and usual not in {False, ""} else False
    return typer.Option(
        *option.flag.names,
        metavar=option.flag.metavar,
        help=field.description,
        rich_help_panel=option.flag.panel,
        min=least,
        show_default=shown,
    )


def _said(settings: type[Strict], values: dict[str, Any]) -> dict[str, object]:
    found = {option.path: values[_parameter_name(option)] for option in _offered(settings)}
    return {path: value for path, value in found.items() if value is not None and value is not False and value != []}


def _validated(settings: type[Strict], values: dict[str, Any]) -> Strict:
    return validated(settings, changed({}, _said(settings, values)), where="options")
