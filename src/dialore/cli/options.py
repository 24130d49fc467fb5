"""Options that commands share, each defined once, and the settings that they make.

A command declares everyday options by the annotated types below and calls `agent_settings(context)`. Every other
setting is reached by `--set section.field=value`; its help is the description of the field.
"""

# No deferred annotations here: typer reads them.
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from pydantic import Field
from typer import Context, Option

from dialore.cli.output import note
from dialore.errors import DialoreError, InputError, UnknownNameError
from dialore.settings import (
    ModelSettings,
    Setting,
    Settings,
    Strict,
    check_settings,
    parse_pairs,
    parse_value,
    read_settings,
    with_changes,
)

if TYPE_CHECKING:
    from dialore.llm.model import LanguageModel
    from dialore.session import Connect

WITHOUT_MODEL = "what was found is shown"
_Name = TypeVar("_Name", bound=str)
S = TypeVar("S", bound=Strict)

EVERYDAY = {
    "method": "method",
    "option": "options",
    "model": "model.model",
    "base_url": "model.base_url",
    "documents": "sources.documents",
    "graph": "sources.graph",
    "sources": "sources.declared",
    "dataset": "dataset.name",
    "data": "dataset.path",
    "limit": "dataset.limit",
    "host": "server.host",
    "port": "server.port",
}
"""The settings that have an option of their own, by the name of the parameter."""


class Changes(NamedTuple):
    """Settings that options change.

    Attributes:
        values: The values by dotted name.
        labels: The option that set each value, for error messages.
    """

    values: dict[str, object]
    labels: dict[str, str]


# --- definitions


def complete(names: str) -> Callable[[str], list[str]]:
    """Return a shell completion by the names that a function, `module:function`, returns."""
    return lambda incomplete: [name for name in pkgutil.resolve_name(names)() if name.startswith(incomplete)]


def set_option(settings: str, listed_by: str = "dialore settings") -> Any:  # noqa: ANN401 - typer's
    """Return the option `--set`, whose names are completed from settings, `module:class`."""

    def complete_setting(incomplete: str) -> list[tuple[str, str]]:
        listed = pkgutil.resolve_name(settings).list_settings()
        return [(f"{setting.path}=", setting.help) for setting in listed if setting.path.startswith(incomplete)]

    text = f"Any other setting, repeatable. `{listed_by}` lists them."
    return Option("--set", "-s", metavar="NAME=VALUE", help=text, autocompletion=complete_setting)


METHODS = complete("dialore.methods.registry:method_names")
DATA_SETS = complete("dialore.datasets.registry:data_set_names")
_METRICS = complete("dialore.evaluation.registry:metric_names")
_HELP = {setting.path: setting.help for setting in Settings.list_settings()}
_FILE_HELP = "Settings in TOML or YAML; options and DIALORE_... variables win. Else DIALORE_SETTINGS."
_LOCATION = "PATH|URL"

Method = Annotated[
    list[str] | None,
    Option("--method", "-M", metavar="NAME", help=_HELP["method"], autocompletion=METHODS),
]
MethodOption = Annotated[
    list[str] | None, Option("--option", "-o", metavar="NAME=VALUE", help="Of a method; see `dialore methods NAME`.")
]
Model = Annotated[str | None, Option("--model", "-m", metavar="NAME", help=_HELP["model.model"])]
BaseUrl = Annotated[str | None, Option("--base-url", "-u", metavar="URL", help=_HELP["model.base_url"])]
Documents = Annotated[list[str] | None, Option("--documents", "-d", metavar=_LOCATION, help=_HELP["sources.documents"])]
Graph = Annotated[
    list[str] | None, Option("--graph", "-g", metavar=f"{_LOCATION}|starter", help=_HELP["sources.graph"])
]
Sources = Annotated[str | None, Option("--sources", metavar="FILE", help=_HELP["sources.declared"])]
SettingsFile = Annotated[Path | None, Option("--settings", metavar="FILE", help=_FILE_HELP)]
JudgeSet = Annotated[list[str] | None, set_option("dialore.cli.options:JudgeSettings", "dialore settings judge")]
AgentSet = Annotated[list[str] | None, set_option("dialore.settings:Settings")]
RunSet = Annotated[list[str] | None, set_option("dialore.experiments.config:RunConfig", "dialore settings run")]
Json = Annotated[bool, Option("--json", help="Print JSON (one object a line where there are many), nothing else.")]
Metrics = Annotated[
    list[str] | None,
    Option(
        "--metric", "-x", metavar="NAME", help="Only this one; several; see `score - --list`.", autocompletion=_METRICS
    ),
]
DataSet = Annotated[
    str | None,
    Option("--dataset", "-D", metavar="NAME", help="A data set; see `dialore data show`.", autocompletion=DATA_SETS),
]
Limit = Annotated[
    int | None, Option("--limit", "-n", min=1, help="Maximum number of dialogues, sampled by dataset.seed.")
]
Data = Annotated[
    Path | None, Option("--data", metavar="FILE", help="The data set's file. (default: the package's, or the fetched)")
]
Accept = Annotated[
    list[str] | None,
    Option(
        "--accept-changed",
        metavar="prompts|server",
        help="Go on although prompts, or a model's address, changed since the run began; it is reported.",
    ),
]


# --- what they say


def read_changes(context: Context, settings: Iterable[Setting]) -> Changes:
    """Return the settings that a command's options set.

    Raises:
        InputError: `--set` does not have the form NAME=VALUE.
        UnknownNameError: `--set` names no setting.
    """
    known = {setting.path: setting for setting in settings}
    values: dict[str, object] = {}
    labels: dict[str, str] = {}
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params.get(str(parameter.name))
        path = EVERYDAY.get(name, name)
        if path not in known:
            path = name
        is_missing = value is None or (isinstance(value, list | tuple) and not value)
        if path in known and not is_missing:
            labels[path] = parameter.opts[0]
            values[path] = _read_pairs(value or ()) if name == "option" else value
    repeated: dict[str, list[object]] = {}
    for text in context.params.get("changes") or ():
        path, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text}: not NAME=VALUE", hint="write --set section.field=value")
        _check_path(path, known)
        repeated.setdefault(path, []).append(parse_value(value))
    for path, items in repeated.items():
        labels[path] = f"--set {path}"
        values[path] = items[0] if len(items) == 1 else items
    return Changes(values, labels)


def _read_pairs(texts: Sequence[str]) -> dict[str, str]:
    try:
        return parse_pairs(texts)
    except InputError as error:
        raise InputError(f"--option: {error.message}") from error


def settings_for_option(context: Context, option: str) -> list[str]:
    """Return the settings with the name of an unknown option, for a command that has `--set`."""
    has_set = any("--set" in parameter.opts for parameter in context.command.params)
    if not has_set or not option.startswith("--"):
        return []
    from dialore.experiments.config import RunConfig

    field = option.removeprefix("--").replace("-", "_")
    listed = [*Settings.list_settings(), *RunConfig.list_settings(), *JudgeSettings.list_settings()]
    paths = dict.fromkeys(setting.path for setting in listed)
    return [path for path in paths if path.rpartition(".")[2] == field]


def _check_path(path: str, known: Mapping[str, Setting]) -> None:
    if any(f"{path}.".startswith(f"{name}.") for name in known):
        return
    field = path.rpartition(".")[2]
    in_other_sections = [name for name in known if name.rpartition(".")[2] == field]
    if in_other_sections:
        raise InputError(f"unknown setting: {path!r}", hint=f"did you mean {' or '.join(in_other_sections)}?")
    in_section = [name for name in known if name.startswith(f"{path.partition('.')[0]}.")]
    raise UnknownNameError("setting", path, in_section or known)


def agent_settings(context: Context, file: Path | None = None) -> Settings:
    """Return the settings of a command with the everyday options: options, environment, file, defaults.

    Args:
        context: The command with its options.
        file: A settings file that the command takes as an argument.
    """
    named = context.params.get("settings")
    if file is not None and named is not None:
        raise InputError("two files of settings are named", hint="name one, with or without --settings")
    changes = read_changes(context, Settings.list_settings())
    return read_settings(file or named, changes.values, labels=changes.labels)


def options_as(settings: type[S], context: Context) -> S:
    """Return settings of another class, made of a command's options alone."""
    changes = read_changes(context, settings.list_settings())
    return check_settings(settings, with_changes({}, changes.values), where="options", named=changes.labels)


class JudgeSettings(Strict):
    """The model that judges, and what metrics measure with."""

    model: ModelSettings = ModelSettings()
    prompts: Path | None = Field(default=None, description="Folder of judges' prompts that override the package's.")
    graph: str | None = Field(default=None, description="Graph for CDP and CDF. Default: starter.")
    nli: str | None = Field(default=None, description="NLI model for consistency: a name, or trained:FOLDER.")
    language_model: str | None = Field(default=None, description="Causal model for perplexity.")
    embedder: str | None = Field(
        default=None, description="Embedder of ragas-answer-relevance: static, st:NAME, endpoint:MODEL."
    )
    tokens: str = Field(default="character", description="How Chinese is counted: character or word.")


def one_of(kind: str, name: str, known: Sequence[_Name]) -> _Name:
    """Return the known name that equals `name`; raise UnknownNameError for an unknown one."""
    for candidate in known:
        if candidate == name:
            return candidate
    raise UnknownNameError(kind, name, known)


def describe_error(error: DialoreError) -> str:
    """Return an error with the options for the settings that its hint names."""
    if error.hint.startswith("did you mean"):
        return str(error)
    options = []
    for path in dict.fromkeys(re.findall(r"(?<![\w./-])[a-z]+\.[a-z_]+(?![\w(])", error.hint)):
        name = next((name for name, setting in EVERYDAY.items() if setting == path), None)
        if name is not None:
            options.append(f"--{name.replace('_', '-')}")
        elif path in _HELP:
            options.append(f"--set {path}=VALUE")
    return f"{error} [{', '.join(options)}]" if options else str(error)


def connecting() -> "tuple[Connect, Callable[[str], None]]":
    """Return an `open_model`, and a function that notes, once all is open, that it found no model."""
    from dialore.session import LEXICAL, open_model

    is_missing = False

    def connect(settings: ModelSettings, name: str | None = None) -> "LanguageModel | None":
        nonlocal is_missing
        model = open_model(settings, name)
        if model is None and name is None and settings.model != LEXICAL:
            is_missing = True
        return model

    def note_missing(consequence: str) -> None:
        if is_missing:
            note(f"no model: {consequence}; add one: --base-url URL --model NAME")

    return connect, note_missing
