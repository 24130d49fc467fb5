"""Settings of agents: their models, sources, method and options, from arguments, the environment or a file.

A new setting is one field with a description, and the code that reads it. Commands set any field by
`--set section.field=value`; fields of `model`, `sources` and the outermost settings also have an environment variable.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticUndefined

from dialore.dialogue import Checked
from dialore.errors import InputError, UnknownNameError
from dialore.files import cache_folder, parse_toml, parse_yaml, read_text
from dialore.llm.model import Api
from dialore.sources.registry import KINDS, kind_of_key

DEFAULT_METHOD = "weave"
_FILE_VARIABLE = "DIALORE_SETTINGS"

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of settings.

    Attributes:
        path: The dotted name from the outermost settings, for example `model.window`.
        kind: The annotated type.
        help: What it does.
        default: The value if nothing sets it.
        variable: The environment variable that sets it; empty if there is none.
    """

    path: str
    kind: Any
    help: str
    default: Any = None
    variable: str = ""


class Strict(Checked):
    """Settings that know no other fields and do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    without_variable: ClassVar[frozenset[str] | None] = None
    """The fields that no environment variable sets; None if there are no variables at all."""

    @classmethod
    def _wrong(cls, error: ValidationError) -> InputError:
        return _wrong(cls, error, f"{cls.__name__}(...)", {})

    @classmethod
    def list_settings(cls, prefix: str = "") -> Iterator[Setting]:
        """Yield all fields, including those of nested settings."""
        for name, field in cls.model_fields.items():
            section = _section_type(field.annotation)
            if section is not None:
                yield from section.list_settings(f"{prefix}{name}.")
                continue
            has_variable = cls.without_variable is not None and name not in cls.without_variable
            variable = f"DIALORE_{name.upper()}" if has_variable else ""
            default = None if field.default is PydanticUndefined else field.default
            yield Setting(f"{prefix}{name}", field.annotation, field.description or "", default, variable)


def _section_type(kind: Any) -> type[Strict] | None:  # noqa: ANN401 - a type
    return kind if isinstance(kind, type) and issubclass(kind, Strict) else None


def parse_pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return a mapping from texts of the form NAME=VALUE; raise InputError for others."""
    values: dict[str, str] = {}
    for text in texts:
        name, _, value = str(text).partition("=")
        if not (name and value):
            raise InputError(f"{text!r} is not NAME=VALUE", hint="write NAME=VALUE")
        values[name] = value
    return values


def as_list(value: object) -> object:
    """Return a single text or path as a list of it, anything else unchanged."""
    return [value] if isinstance(value, str | Path) else value


def _as_ranking(value: object) -> object:
    """Return a ranking as text if it is a table of its fields, such as `{name: paper, history: 5}`."""
    if not isinstance(value, dict):
        return value
    fields = {name: "+".join(item) if isinstance(item, list) else item for name, item in value.items()}
    return ",".join([str(fields.pop("name", "default")), *(f"{name}={item}" for name, item in fields.items())])


class ModelSettings(Strict):
    """A language model and how it is called; the environment fills in what is missing (`dialore.connect`).

    Fields with `exclude` say how a model is reached, not which it is; a run does not save them.
    """

    without_variable = frozenset(
        ("name", "key_env", "extra_body", "price", "named_by", "api_key", "cache", "no_cache", "record", "replay")
    )
    model: str | None = Field(
        default=None,
        description="Model name; gguf:FILE or hf:NAME for one run here. Else DIALORE_MODEL, OPENAI_MODEL. "
        "lexical: no model. rehearsal: answers that fit and mean nothing.",
    )
    base_url: str | None = Field(
        default=None,
        description="OpenAI-compatible endpoint. Else DIALORE_BASE_URL, OPENAI_BASE_URL, an Ollama on this machine.",
    )
    api: Api = Field(
        default="chat",
        description="chat: send messages; completions: send plain text to be continued, as base models want.",
    )
    stages: dict[str, str] = Field(
        default_factory=dict,
        description="Other models for single stages: model.stages.STAGE=NAME.",
    )
    temperature: float | None = Field(
        default=None, ge=0, description="Temperature of every call, in place of the prompts'."
    )
    top_p: float | None = Field(default=None, gt=0, le=1, description="Nucleus sampling of every call.")
    max_tokens: int | None = Field(
        default=None, ge=1, description="Maximum tokens of every answer, in place of the prompts'."
    )
    window: int | None = Field(
        default=None,
        ge=1,
        description="Context window in tokens. Turns that do not fit are left out, the oldest first.",
    )
    no_truncate: bool = Field(
        default=False, description="Fail if the history does not fit the window; leave no turn out."
    )
    name: str = Field(default="", description="Name in tables, if not the model's.")
    key_env: str = Field(default="", description="The environment variable that holds the API key.")
    extra_body: dict[str, Any] = Field(default_factory=dict, description="Further fields of every request's body.")
    price: tuple[float, float] | tuple[float, float, float] | None = Field(
        default=None,
        description="Money per million prompt tokens and per million completion tokens; third, if they differ, per "
        "million prompt tokens that the server had cached.",
    )
    named_by: str = Field(default="", description="The file that names the address, if one does.", exclude=True)
    api_key: str | None = Field(
        default=None,
        description="API key. Better in the environment: DIALORE_API_KEY, OPENAI_API_KEY.",
        repr=False,
        exclude=True,
    )
    cache: Path | None = Field(
        default=None,
        description="File of completions, so that an equal call is paid for once. Default: in the cache folder.",
        exclude=True,
    )
    no_cache: bool = Field(default=False, description="Neither read nor keep cached completions.", exclude=True)
    timeout: float = Field(default=120.0, ge=0.1, description="Seconds without data before a call fails.", exclude=True)
    thinking: int | None = Field(
        default=None,
        ge=0,
        description="Tokens for thoughts beside an answer's own limit. Default: 4096 once the model is seen to think.",
        exclude=True,
    )
    slots: int | None = Field(
        default=None,
        ge=1,
        description="Calls that a gguf: (1) or hf: (8) model answers at once.",
        exclude=True,
    )
    threads: int | None = Field(
        default=None, ge=1, description="Threads of a gguf: model. Default: one per core.", exclude=True
    )
    retries: int = Field(default=4, ge=0, description="How often a failed call is repeated.", exclude=True)
    concurrency: int = Field(default=64, ge=1, description="Maximum calls at once.", exclude=True)
    record: Path | None = Field(default=None, description="File to append every model call to.", exclude=True)
    replay: Path | None = Field(default=None, description="Recording to answer from, without any model.", exclude=True)

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if self.no_cache and self.cache is not None:
            raise ValueError("model.cache and model.no_cache exclude each other: set one of them")
        if self.record is not None and self.replay is not None:
            raise ValueError("model.record and model.replay exclude each other: set one of them")
        return self

    def cached(self) -> Self:
        """Return the same settings with the default cache file, unless they name one or disable caching."""
        if self.no_cache or self.cache is not None:
            return self
        return self.model_copy(update={"cache": cache_folder() / "completions.sqlite"})

    @field_validator("price", mode="before")
    @classmethod
    def _check_price(cls, price: object) -> object:
        if price is not None and not (isinstance(price, list | tuple) and len(price) in {2, 3}):
            raise ValueError("give two or three numbers: [PROMPT, COMPLETION] or [PROMPT, COMPLETION, CACHED]")
        return price


class SourceSettings(Strict):
    """Where knowledge comes from: locations by the keys of `dialore.sources.registry`, and how graphs are ranked."""

    model_config = ConfigDict(extra="allow", frozen=True)
    without_variable = frozenset()
    __pydantic_extra__: dict[str, Annotated[list[str], BeforeValidator(as_list)]] = Field(init=False)

    ranking: Annotated[str, BeforeValidator(_as_ranking)] = Field(
        default="default",
        description="How facts are ranked: default, or paper for DCRAG's plain cosine; with changes: paper,history=5.",
    )
    embedder: str | None = Field(
        default=None,
        description="What facts are ranked by: static, st:NAME, onnx:FOLDER, endpoint:MODEL[@URL]. Default: static.",
    )
    rerank: str = Field(
        default="",
        description="Reorder the results of sources: cross:NAME, onnx:FOLDER, dense:st:NAME, or model.",
    )
    prompts: Path | None = Field(
        default=None,
        description="Folder of prompts that override the package's; see `dialore prompts --export`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _check_kinds(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        settings: dict[str, object] = {}
        for name, item in value.items():
            if item is None:
                continue
            if name not in cls.model_fields:
                try:
                    kind_of_key(name)
                except UnknownNameError as error:
                    raise ValueError(str(error)) from error
            settings[name] = list(map(str, item)) if isinstance(item, list | tuple) else item
        return settings

    @classmethod
    def list_settings(cls, prefix: str = "") -> Iterator[Setting]:
        """Yield the location of every kind of source, and the other fields."""
        for kind in KINDS.values():
            yield Setting(f"{prefix}{kind.key}", list[str], kind.help, None, f"DIALORE_{kind.key.upper()}")
        yield from super().list_settings(prefix)

    def places(self, name: str) -> list[str]:
        """Return the locations of a kind of source, by the name that methods have for it."""
        return (self.model_extra or {}).get(KINDS[name].key) or []


class AgentSettings(Strict):
    """One more agent of a service: `[agents.NAME]` in a file. What it does not say is as of the service's own agent."""

    method: str
    options: dict[str, Any] = Field(default_factory=dict)
    persona: Annotated[list[str], BeforeValidator(as_list)] = Field(default_factory=list)
    sources: SourceSettings | None = None
    cite: bool | None = None


class Limits(Strict):
    """The limits of a key; 0 where there is no limit."""

    requests_per_minute: int = Field(default=120, ge=0)
    concurrency: int = Field(default=32, ge=0, description="Requests under way at once.")
    tokens_per_day: int = Field(default=0, ge=0, description="Of prompts and completions, by UTC days.")


class KeySettings(Limits):
    """A key of a service, as `dialore serve --new-key NAME` prints it: the key itself is written nowhere."""

    name: str = Field(pattern=r"^[\w.-]{1,64}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", repr=False)
    knowledge: bool = Field(default=False, description="Whether it may change the knowledge.")
    groups: list[str] = Field(
        default_factory=list, description='Groups whose passages it may read, beside those of no group; "*": all.'
    )


def _sites(origins: list[str]) -> list[str]:
    """Origins as browsers write them: without a slash at the end."""
    return [origin.rstrip("/").lower() for origin in origins]


class ServerSettings(Strict):
    """How a service is reached and what it takes: `[server]` in a file."""

    host: str = "127.0.0.1"
    port: int = Field(default=8017, ge=0, le=65535)
    workers: int = Field(default=1, ge=1, description="Processes that answer.")
    folder: Path | None = Field(default=None, description="Where added knowledge is kept; else the user's data folder.")
    keys: list[KeySettings] = Field(default_factory=list)
    hosts: list[str] = Field(default_factory=list, description="Further names that a service without keys answers to.")
    origins: Annotated[list[str], AfterValidator(_sites)] = Field(
        default_factory=list, description='Other sites whose pages may ask it; "*": all.'
    )
    concurrency: int = Field(default=256, ge=1, description="Requests under way at once, of all keys.")
    connections: int = Field(default=1024, ge=1, description="Open connections, of each worker.")
    connections_per_address: int = Field(
        default=256, ge=1, description="Of them those of one address: a proxy in front has one address for all."
    )
    max_body: int = Field(default=1_000_000, ge=1, description="Bytes of a request.")
    max_upload: int = Field(default=20_000_000, ge=1, description="Bytes of an uploaded file, also when unpacked.")
    read_seconds: float = Field(default=60, gt=0, description="That reading an uploaded file may take.")
    read_memory: int = Field(default=2_000_000_000, ge=200_000_000, description="Bytes that reading it may take.")
    ocr: bool = Field(default=False, description="Read scanned pages, by the extra `ocr`.")
    include_hidden: bool = Field(
        default=False, description="Read what Office files hide, too: sheets, rows, columns, slides, shapes, text."
    )
    max_characters: int = Field(default=200_000, ge=1, description="Of all messages together.")
    max_tokens: int = Field(default=4096, ge=1, description="The most that a request may ask for.")
    max_seconds: float = Field(default=300, gt=0, description="Of one response.")
    store: str = Field(default="", repr=False, description="A SQLite file, or postgresql://USER@HOST/DATABASE.")
    annotate: Path | None = Field(default=None, description="Sheets of `dialore annotate export` that are filled in.")
    runs: Path | None = Field(default=None, description="A folder with runs, which the page shows.")
    memory_days: int = Field(default=365, ge=1, description="How long what users said of themselves is kept.")
    kept_days: int = Field(default=7, ge=0, description="How long conversations and traces are kept; 0: not at all.")

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        if len({key.name for key in self.keys}) < len(self.keys):
            raise ValueError("two keys have the same name")
        return self


class Settings(Strict):
    """The settings of an agent, and in files of further agents and the service that offers them."""

    without_variable = frozenset(("agents",))
    method: Annotated[list[str], BeforeValidator(as_list), Field(min_length=1)] = Field(
        default=[DEFAULT_METHOD],
        description="The method, or several. Default: weave, on the starter graph if no source is named.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Hyper-parameters and switches of the method, such as limit=10; see `dialore methods`.",
    )
    cite: bool = Field(
        default=False,
        description="Have the model cite its knowledge by number; the responses carry what each span cites.",
    )
    model: ModelSettings = ModelSettings()
    sources: SourceSettings = SourceSettings()
    agents: dict[Annotated[str, Field(pattern=r"^[\w.-]{1,64}$")], AgentSettings] = Field(
        default_factory=dict, description="Further agents of a service, by name."
    )
    server: ServerSettings = ServerSettings()

    @property
    def knowledge(self) -> SourceSettings:
        """The sources; the starter graph if neither sources nor a method are named."""
        if self.sources.model_extra or "method" in self.model_fields_set:
            return self.sources
        return self.sources.model_copy(update={"graph": ["starter"]})


def read_settings(
    file: Path | None = None,
    changes: Mapping[str, object] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
) -> Settings:
    """Return settings: the changes, else the environment (`DIALORE_...`), else a file, else the defaults.

    Args:
        file: TOML (`dialore.toml`) or YAML (`agent.yaml`). Paths in it are looked up beside it first. None: the file of
            `DIALORE_SETTINGS`, if that is set. No file is looked for by itself: it may name where a key is sent.
        changes: Values by dotted name (`model.base_url`).
        labels: What errors call the changes, by dotted name; for example an option of the command line.

    Raises:
        InputError: A file is missing or malformed; every field that is wrong is named.
    """
    if file is None and os.environ.get(_FILE_VARIABLE):
        file = Path(os.environ[_FILE_VARIABLE]).expanduser()
    values: dict[str, Any] = {}
    if file is not None:
        values = read_table(file)
        agents = values.get("agents")
        tables = [values, *agents.values()] if isinstance(agents, dict) else [values]
        for table in tables:
            if isinstance(table, dict) and "sources" in table:
                table["sources"] = absolute_paths(table["sources"], file.parent)
    if isinstance(values.get("model"), str):
        values["model"] = {"model": values["model"]}
    variables = {
        setting.path: setting for setting in Settings.list_settings() if os.environ.get(setting.variable, "").strip()
    }
    changes = {path: _variable_value(setting) for path, setting in variables.items()} | dict(changes or {})
    values = with_changes(values, changes)
    if isinstance(values.get("model"), dict):
        values["model"]["named_by"] = "" if file is None or "model.base_url" in changes else str(file)
    names = {path: setting.variable for path, setting in variables.items()} | dict(labels or {})
    return check_settings(Settings, values, where="settings" if file is None else str(file), named=names)


def _variable_value(setting: Setting) -> object:
    """Return the value of an environment variable; lists and mappings have commas between their items."""
    text = os.environ[setting.variable].strip()
    items = [part.strip() for part in text.split(",")]
    if "~/" in text:
        items = [str(expand_home(item)) for item in items]
    origin = get_origin(setting.kind)
    if origin is dict:
        return parse_pairs(items)
    return items if origin is list else ",".join(items)


def parse_value(text: str) -> object:
    """Return a value of `--set`: JSON if it is a list, object or quoted text, else the text itself."""
    if not text.startswith(("[", "{", '"')):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_table(file: Path, what: str = "settings") -> dict[str, Any]:
    """Return the settings of a TOML or YAML file without empty ones; raise InputError if it holds none."""
    text = read_text(file)
    table = parse_toml(text, str(file)) if file.suffix == ".toml" else parse_yaml(text, str(file))
    if table is None:  # an empty YAML file, like an empty TOML file
        return {}
    if not isinstance(table, dict):
        raise InputError(f"{file} holds no {what}", hint="it is to hold names and values")
    return {str(name): expand_home(value) for name, value in table.items() if value is not None}


_HOME = re.compile(r"^([\w+-]*:|)~/")


def expand_home(value: Any) -> Any:  # noqa: ANN401 - plain data
    """Return plain data with the home folder for a leading `~/`, also after a kind of source (`index:~/x`)."""
    if isinstance(value, dict):
        return {name: expand_home(item) for name, item in value.items()}
    if isinstance(value, list):
        return [expand_home(item) for item in value]
    if isinstance(value, str):
        return _HOME.sub(lambda match: f"{match[1]}{Path.home()}/", value)
    return value


def absolute_paths(sources: Any, folder: Path) -> Any:  # noqa: ANN401 - plain data
    """Return the sources of a file, with absolute paths for those that exist in its folder."""
    if not isinstance(sources, dict):
        return sources
    absolute = dict(sources)
    for kind in KINDS.values():
        locations = as_list(absolute.get(kind.key))
        if isinstance(locations, list):
            absolute[kind.key] = [kind.located(str(location), folder) for location in locations]
    prompts = absolute.get("prompts")
    if isinstance(prompts, str) and (folder / prompts).exists():
        absolute["prompts"] = str((folder / prompts).resolve())
    return absolute


def with_changes(values: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """Return plain settings with changes by dotted name (`model.base_url`), adding missing sections."""
    changed = dict(values)
    for path, value in changes.items():
        *sections, field = path.split(".")
        section: Any = changed
        for name in sections:
            inner = section.get(name)
            section[name] = dict(inner) if isinstance(inner, dict) else inner or {}
            section = section[name]
            if not isinstance(section, dict):  # validation reports it
                break
        else:
            section[field] = value
    return changed


def check_settings(
    settings: type[S], values: Mapping[str, Any], *, where: str, named: Mapping[str, str] | None = None
) -> S:
    """Return settings from plain data; raise InputError for every wrong field.

    Args:
        settings: The class of settings.
        values: The plain data.
        where: What errors call the origin of the data, for example the file.
        named: The option or variable that set a field, by dotted name; errors name it in place of `where`.
    """
    try:
        return settings.model_validate(values)
    except ValidationError as error:
        raise _wrong(settings, error, where, named or {}) from error


def _wrong(settings: type[BaseModel], error: ValidationError, where: str, named: Mapping[str, str]) -> InputError:
    messages: dict[str, list[str]] = {}
    for issue in error.errors(include_url=False):
        field = ".".join(map(str, issue["loc"]))
        message = issue["msg"].removeprefix("Value error, ")
        if issue["type"] == "extra_forbidden":
            message, field = str(UnknownNameError("setting", field, _siblings(settings, issue["loc"][:-1]))), ""
        label = next((label for path, label in named.items() if f"{field}.".startswith(f"{path}.")), "")
        messages.setdefault(label or where, []).append(f"{field}: {message}" if field and not label else message)
    return InputError("; ".join(f"{label}: {'; '.join(lines)}" for label, lines in messages.items()))


def _siblings(settings: type[BaseModel], steps: tuple[int | str, ...]) -> list[str]:
    """Return the dotted names of the settings in the section that steps lead to."""
    section: Any = settings
    for step in steps:
        if step in section.model_fields:
            kind = section.model_fields[step].annotation
            nested = (_section_type(part) for part in (kind, *get_args(kind)))
            section = next(filter(None, nested), section)
    return [".".join(map(str, (*steps, name))) for name in section.model_fields]
