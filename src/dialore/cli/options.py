"""Options that commands share. `takes_settings` makes them of the fields of settings, each described once."""

# No deferred annotations here: typer reads them.
import functools
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints

from typer import Option

from dialore.cli.output import note
from dialore.errors import UnknownNameError
from dialore.settings import ModelSettings, Settings, Strict, check_settings, flags, read_settings, with_changes
from dialore.settings import Option as Field

if TYPE_CHECKING:
    from dialore.llm.model import LanguageModel
    from dialore.session import Connect

WITHOUT_MODEL = "what was found is shown"
_Name = TypeVar("_Name", bound=str)

Json = Annotated[bool, Option("--json", help="Print JSON (one object a line where there are many), nothing else.")]
JudgePrompts = Annotated[Path | None, Option("--prompts", metavar="FOLDER", help="Judges' prompts that override ours.")]


def _completing(names: str) -> Callable[[str], list[str]]:
    """Completes by the names that a function, `module:function`, gives; it is imported when a shell asks."""
    return lambda incomplete: [name for name in pkgutil.resolve_name(names)() if name.startswith(incomplete)]


METHODS = _completing("dialore.methods.registry:method_names")
DATA_SETS = _completing("dialore.datasets.registry:data_set_names")
_METRICS = _completing("dialore.evaluation.registry:metric_names")
_COMPLETED = {"--method": METHODS, "--dataset": DATA_SETS}
Metrics = Annotated[
    list[str] | None,
    Option(
        "--metric", "-x", metavar="NAME", help="Only this one; several; see `score - --list`.", autocompletion=_METRICS
    ),
]
_FILE_HELP = "Settings in TOML or YAML; options and DIALORE_... variables win. Else DIALORE_SETTINGS."
_FILE = inspect.Parameter(
    "settings_file",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[Path | None, Option("--settings", metavar="FILE", help=_FILE_HELP)],
)


MethodOptions = Annotated[
    list[str] | None, Option("--option", "-o", metavar="NAME=VALUE", help="Of a method; see `dialore methods`.")
]


@dataclass(frozen=True, slots=True)
class Accepted:
    """Options of what a run may differ in from when it began."""

    accept_changed_prompts: Annotated[
        bool, Option("--accept-changed-prompts", help="Go on where prompts or a method's file changed; it is reported.")
    ] = False
    accept_changed_server: Annotated[
        bool, Option("--accept-changed-server", help="Go on where a model has another address; it is reported.")
    ] = False


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """Options of what metrics measure with, beside the judge."""

    graph: Annotated[
        str | None, Option("--graph", "-g", metavar="PATH|starter", help="For CDP and CDF. (default: starter)")
    ] = None
    nli: Annotated[str | None, Option(metavar="NAME", help="An NLI model, or trained:FOLDER, for consistency.")] = None
    language_model: Annotated[str | None, Option(metavar="NAME", help="A causal model, for perplexity.")] = None
    embedder: Annotated[
        str | None, Option(metavar="SPEC", help="For ragas-answer-relevance: static, st:NAME, endpoint:MODEL.")
    ] = None
    tokens: Annotated[str, Option(metavar="character|word", help="How Chinese is counted.")] = "character"
    prompts: JudgePrompts = None


@dataclass(frozen=True, slots=True)
class Spread:
    """Marks a parameter that stands for the options of settings; `takes_settings` makes these.

    It gets the settings; what the options say, by dotted name; or settings read of these, a file and the environment.
    """

    settings: type[Strict]
    gets: Literal["settings", "said", "read"]


AgentSettings = Annotated[Settings, Spread(Settings, "read")]
JudgeModel = Annotated[ModelSettings, Spread(ModelSettings, "settings")]


def one_of(kind: str, name: str, known: Sequence[_Name]) -> _Name:
    """Return the known name that was given; raise UnknownNameError, which says what a `kind` may be, for others."""
    for candidate in known:
        if candidate == name:
            return candidate
    raise UnknownNameError(kind, name, known)


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of its settings, and of its dataclasses of options, in place of these."""
    own: list[inspect.Parameter] = []
    added: list[inspect.Parameter] = []
    groups: dict[str, tuple[list[str], Callable[..., object]]] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind = parameter.annotation
        spread = next((mark for mark in get_args(kind)[1:] if isinstance(mark, Spread)), None)
        if spread is not None:
            added += (new := [_parameter(option) for option in _collect_options(spread.settings)])
            if spread.gets == "read":
                own.append(_FILE)
                new = [*new, _FILE]
            groups[parameter.name] = [field.name for field in new], functools.partial(_argument_value, spread)
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

    grouped.__signature__ = inspect.Signature(own + added)  # type: ignore[attr-defined]
    grouped.__annotations__ = {parameter.name: parameter.annotation for parameter in own + added}
    return grouped


def _argument_value(spread: Spread, settings_file: Path | None = None, **given: object) -> object:
    """Return what a parameter gets of what options say, those that say nothing left out."""
    told = {name: value for name, value in given.items() if not (value is None or value is False or value == [])}
    by_path = {name.replace("__", "."): value for name, value in told.items()}
    if spread.gets == "settings":
        named = flags(spread.settings, by_path)
        return check_settings(spread.settings, with_changes({}, by_path), where="options", named=named)
    return read_settings(settings_file, by_path) if spread.gets == "read" else by_path


def _collect_options(settings: type[Strict]) -> list[Field]:
    """Return the options of settings; where two have one name, the outer one."""
    offered: list[Field] = []
    taken: set[str] = set()
    for option in sorted(settings.flagged(), key=lambda option: option.path.count(".")):
        if not taken & set(option.flag.names):
            taken.update(option.flag.names)
            offered.append(option)
    return offered


def _parameter(option: Field) -> inspect.Parameter:
    """Return an option as a parameter of a command; what is not plain is text, which the settings read."""
    types = (option.kind, *get_args(option.kind))
    plain: Any = (
        list[str] if option.several else next((kind for kind in types if kind in {bool, int, float, Path}), str)
    )
    usual = option.default
    marked = Option(
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

    def connect(settings: ModelSettings, name: str | None) -> "LanguageModel | None":
        nonlocal lacking
        model = connect_model(settings, name)
        lacking = lacking or (model is None and name is None and settings.model != LEXICAL)
        return model

    def say(otherwise: str) -> None:
        if lacking:
            note(f"no model: {otherwise}; add one: --base-url URL --model NAME")

    return connect, say
