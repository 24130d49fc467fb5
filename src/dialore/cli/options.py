"""Options that commands share. `takes_settings` makes them of the fields of settings, each described once."""

# No deferred annotations here: typer reads them.
import functools
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import typer
import typer.main
from typer.core import TyperGroup

from dialore.cli.output import note
from dialore.errors import UnknownNameError

if TYPE_CHECKING:
    from dialore.llm.model import LanguageModel
    from dialore.session import Connect
    from dialore.settings import ModelSettings, Option, Settings, Strict

TYPER: dict[str, Any] = {
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["--help", "-h"], "max_content_width": 120},
    "pretty_exceptions_enable": False,
}
"""How every part of the command tree is set up."""
WITHOUT_MODEL = "what was found is shown"
_Name = TypeVar("_Name", bound=str)

Json = Annotated[
    bool, typer.Option("--json", help="Print JSON (one object a line where there are many), nothing else.")
]
AcceptPrompts = Annotated[
    bool,
    typer.Option(
        "--accept-changed-prompts", help="Go on where prompts or a method's file changed since; the report will say so."
    ),
]
AcceptServer = Annotated[
    bool,
    typer.Option(
        "--accept-changed-server", help="Go on where a model answers at another address now; the report will say so."
    ),
]
JudgePrompts = Annotated[
    Path | None, typer.Option("--prompts", metavar="FOLDER", help="Judges' prompts that override ours.")
]


def _completing(names: str) -> Callable[[str], list[str]]:
    """Completes by the names that a function, `module:function`, gives; it is imported when a shell asks."""
    return lambda incomplete: [name for name in pkgutil.resolve_name(names)() if name.startswith(incomplete)]


METHODS = _completing("dialore.methods.registry:method_names")
DATA_SETS = _completing("dialore.datasets.registry:data_set_names")
_COMPLETED = {"--method": METHODS, "--dataset": DATA_SETS}
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        "-x",
        metavar="NAME",
        help="Only this metric; may be given several times. See `dialore score - --list`.",
        autocompletion=_completing("dialore.evaluation.registry:metric_names"),
    ),
]
LogTo = Annotated[
    str | None,
    typer.Option(
        "--log-to", metavar="mlflow|wandb", help="Tell a tracker, too. (default: the one that the run was told to)"
    ),
]
_FILE = inspect.Parameter(
    "settings_file",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None,
        typer.Option(
            "--settings",
            metavar="FILE",
            help="Settings in TOML or YAML; options and DIALORE_... variables win. Else DIALORE_SETTINGS.",
        ),
    ],
)


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """Options of what metrics measure with, beside the judge."""

    graph: Annotated[
        str | None, typer.Option("--graph", "-g", metavar="PATH|starter", help="For CDP and CDF. (default: starter)")
    ] = None
    nli: Annotated[
        str | None, typer.Option("--nli", metavar="NAME", help="An NLI model, or trained:FOLDER, for consistency.")
    ] = None
    language_model: Annotated[
        str | None, typer.Option("--language-model", metavar="NAME", help="A causal model, for perplexity.")
    ] = None
    embedder: Annotated[
        str | None,
        typer.Option("--embedder", metavar="SPEC", help="For ragas-answer-relevance: static, st:NAME, endpoint:MODEL."),
    ] = None
    tokens: Annotated[str, typer.Option("--tokens", metavar="character|word", help="How Chinese is counted.")] = (
        "character"
    )
    prompts: JudgePrompts = None


@dataclass(frozen=True, slots=True)
class Spread:
    """Marks a parameter that stands for the options of settings; `takes_settings` makes these.

    The class is named as `module:name`: it is imported when the command is used, not for a list of commands. The
    parameter gets the settings; what the options say, by dotted name; or settings read of these, of a file and of the
    environment.
    """

    settings: str
    gets: Literal["settings", "said", "read"]


AgentSettings = Annotated["Settings", Spread("dialore.settings:Settings", "read")]
DatasetOptions = Annotated[Mapping[str, object], Spread("dialore.experiments.config:DatasetConfig", "said")]
RunOptions = Annotated[Mapping[str, object], Spread("dialore.experiments.config:RunConfig", "said")]
JudgeModel = Annotated["ModelSettings", Spread("dialore.settings:ModelSettings", "settings")]


def one_of(kind: str, name: str, known: Sequence[_Name]) -> _Name:
    """Return the known name that was given; raise UnknownNameError, which says what a `kind` may be, for others."""
    for candidate in known:
        if candidate == name:
            return candidate
    raise UnknownNameError(kind, name, known)


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes settings, or dataclasses of options: `SettingsGroup` makes options of their fields.

    Until it is used it has its other parameters alone.
    """

    @functools.wraps(command)
    def listed() -> None:
        raise NotImplementedError

    listed.takes_settings = command  # type: ignore[attr-defined] # travels with what typer wraps around it
    parameters = inspect.signature(command).parameters.values()
    return _with_parameters(
        listed,
        [parameter for parameter in parameters if not (_spread_of(parameter) or is_dataclass(parameter.annotation))],
    )


class SettingsGroup(TyperGroup):
    """Commands; one that is used gets the options of its settings, whose import a list of commands need not pay."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's own click has no public names
        """Return the command that arguments name, whole."""
        name, command, rest = super().resolve_command(ctx, args)
        taking = getattr(getattr(command, "callback", None), "takes_settings", None)
        if taking is None:
            return name, command, rest
        alone = typer.Typer(add_completion=False, **TYPER)
        alone.command(name)(_spread_out(taking))
        return name, typer.main.get_command(alone), rest


def _spread_out(command: Callable[..., None]) -> Callable[..., None]:
    own: list[inspect.Parameter] = []
    added: list[inspect.Parameter] = []
    groups: dict[str, tuple[list[str], Callable[..., object]]] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind, spread = parameter.annotation, _spread_of(parameter)
        if spread is not None:
            settings = pkgutil.resolve_name(spread.settings)
            added += (new := [_parameter(option) for option in _offered(settings)])
            if spread.gets == "read":
                own.append(_FILE)
                new = [*new, _FILE]
            groups[parameter.name] = [field.name for field in new], functools.partial(_made, settings, spread.gets)
        elif isinstance(kind, type) and is_dataclass(kind):
            hints, defaults = get_type_hints(kind, include_extras=True), inspect.signature(kind).parameters
            own += [field.replace(kind=field.KEYWORD_ONLY, annotation=hints[name]) for name, field in defaults.items()]
            groups[parameter.name] = list(defaults), kind
        else:
            own.append(parameter.replace(kind=parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def grouped(**values: Any) -> None:  # noqa: ANN401 - whatever the options hold
        for name, (names, make) in groups.items():
            values[name] = make(**{option_name: values.pop(option_name) for option_name in names})
        command(**values)

    return _with_parameters(grouped, own + added)


def _made(settings: "type[Strict]", gets: str, settings_file: Path | None = None, **given: object) -> object:
    """Return what a parameter gets of what options say, those that say nothing left out."""
    from dialore.settings import changed, flags, read_settings, validated

    told = {name: value for name, value in given.items() if not (value is None or value is False or value == [])}
    by_path = {name.replace("__", "."): value for name, value in told.items()}
    if gets == "settings":
        return validated(settings, changed({}, by_path), where="options", named=flags(settings, by_path))
    return read_settings(settings_file, by_path) if gets == "read" else by_path


def _with_parameters(command: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _spread_of(parameter: inspect.Parameter) -> Spread | None:
    return next((mark for mark in get_args(parameter.annotation)[1:] if isinstance(mark, Spread)), None)


def _offered(settings: "type[Strict]") -> "list[Option]":
    """Return the options of settings; where two have one name, the outer one."""
    offered: list[Option] = []
    taken: set[str] = set()
    for option in sorted(settings.flagged(), key=lambda option: option.path.count(".")):
        if not taken & set(option.flag.names):
            taken.update(option.flag.names)
            offered.append(option)
    return offered


def _parameter(option: "Option") -> inspect.Parameter:
    """Return an option as a parameter of a command; what is not plain is text, which the settings read."""
    types = (option.kind, *get_args(option.kind))
    plain: Any = (
        list[str] if option.several else next((kind for kind in types if kind in {bool, int, float, Path}), str)
    )
    usual = option.default
    marked = typer.Option(
        *option.flag.names,
        metavar=option.flag.metavar,
        help=option.help,
        rich_help_panel=option.flag.panel,
        autocompletion=_COMPLETED.get(option.flag.names[0]),
        min=option.least,
        show_default=str(usual) if isinstance(usual, int | float | str) and usual not in {False, ""} else False,
    )
    return inspect.Parameter(
        option.path.replace(".", "__"),
        inspect.Parameter.KEYWORD_ONLY,
        default=False if plain is bool else None,
        annotation=Annotated[plain if plain is bool else plain | None, marked],
    )


def connecting() -> "tuple[Connect, Callable[[str], None]]":
    """Return a `connect_model`, and what tells on standard error, once all is open, that it found no model."""
    from dialore.session import LEXICAL, connect_model

    lacking = False

    def connect(settings: "ModelSettings", name: str | None) -> "LanguageModel | None":
        nonlocal lacking
        model = connect_model(settings, name)
        lacking = lacking or (model is None and name is None and settings.model != LEXICAL)
        return model

    def say(otherwise: str) -> None:
        if lacking:
            note(f"no model: {otherwise}; add one: --base-url URL --model NAME")

    return connect, say
