"""Settings of agents: their models, sources, method and options, from arguments, the environment or a file.

A field that bears a `Flag` is an option of every command that takes the settings: a new option is one field here and
the place that reads it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, get_args, get_origin

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

from dialore.dialogue import Checked
from dialore.errors import InputError, UnknownNameError
from dialore.files import parse_yaml, read_text
from dialore.llm.model import Api
from dialore.sources.registry import KINDS, kind_of_key

_MODEL = "Language model"
_KNOWLEDGE = "Knowledge and method"
_FILE = "DIALORE_SETTINGS"
DEFAULT_METHOD = "weave"

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Flag:
    """Marks a field of settings as an option of commands, under the heading `panel`; its description is its help.

    Where `environment` holds, `DIALORE_<NAME>` sets it, too.
    """

    names: tuple[str, ...]
    metavar: str | None = None
    panel: str | None = None
    environment: bool = True


@dataclass(frozen=True, slots=True)
class Option:
    """A field of settings as commands offer it: `path` is its dotted name from the outermost settings."""

    path: str
    kind: Any
    flag: Flag
    help: str
    default: Any = None
    least: float | None = None

    @property
    def several(self) -> bool:
        """True where it may be given several times."""
        return get_origin(self.kind) in {list, dict}


class Strict(Checked):
    """Settings that know no other fields and do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def _wrong(cls, error: ValidationError) -> InputError:
        return _wrong(cls, error, f"{cls.__name__}(...)", {})

    @classmethod
    def flagged(cls, path: str = "") -> Iterator[Option]:
        """Yield every field that is an option, those of settings within these too."""
        for name, inner in cls.model_fields.items():
            flag = next((mark for mark in inner.metadata if isinstance(mark, Flag)), None)
            scope = _settings_in(inner.annotation)
            if flag is not None:
                least = next((bound.ge for bound in inner.metadata if hasattr(bound, "ge")), None)
                yield Option(path + name, inner.annotation, flag, inner.description or "", inner.default, least)
            elif scope is not None:
                yield from scope.flagged(f"{path}{name}.")


def _settings_in(kind: Any) -> type[Strict] | None:  # noqa: ANN401 - a type
    return next((k for k in (kind, *get_args(kind)) if isinstance(k, type) and issubclass(k, Strict)), None)


def pairs(texts: Iterable[str], form: str = "NAME=VALUE") -> dict[str, str]:
    """Return a mapping from the command line's texts of the form NAME=VALUE; raise InputError for others."""
    split = {str(text): str(text).partition("=") for text in texts}
    for text, (name, equals, value) in split.items():
        if not (name and equals and value):
            raise InputError(f"{text!r} is not {form}", hint=f"write {form}")
    return {name: value for name, _, value in split.values()}


def _as_pairs(form: str) -> BeforeValidator:
    """Return a validator that reads a mapping also from texts NAME=VALUE."""

    def read(given: object) -> object:
        if not isinstance(given, list | tuple):
            return given
        try:
            return pairs(given, form)
        except InputError as error:
            raise ValueError(error.message) from error

    return BeforeValidator(read)


def as_list(given: object) -> object:
    """One text or path as a list of it."""
    return [given] if isinstance(given, str | Path) else given


def _spec(given: object) -> object:
    """Return a ranking as text, from a table of its fields, too: `{name: paper, history: 5}`."""
    if not isinstance(given, dict):
        return given
    changes = {name: "+".join(value) if isinstance(value, list) else value for name, value in given.items()}
    return ",".join([str(changes.pop("name", "default")), *(f"{name}={value}" for name, value in changes.items())])


def _unkept(description: str, default: Any = None, **field: Any) -> Any:  # noqa: ANN401 - as pydantic's Field
    """Return a field that is not kept with a run: how a model is reached, not what it is."""
    return Field(default=default, description=description, exclude=True, **field)


class ModelSettings(Strict):
    """A language model and how it is asked; what is not said comes from the environment (`dialore.connect`)."""

    model: Annotated[str | None, Flag(("--model", "-m"), "NAME", _MODEL)] = Field(
        default=None,
        description="Model name; gguf:FILE or hf:NAME for one run here. Else DIALORE_MODEL, OPENAI_MODEL. "
        "lexical: no model. rehearsal: answers that fit and mean nothing.",
    )
    base_url: Annotated[str | None, Flag(("--base-url", "-u"), "URL", _MODEL)] = Field(
        default=None,
        description="OpenAI-compatible endpoint. Else DIALORE_BASE_URL, OPENAI_BASE_URL, an Ollama on this machine.",
    )
    api: Annotated[Api, Flag(("--api",), "chat|completions", _MODEL)] = Field(
        default="chat", description="Speak to it by messages, or, as base models want, by plain text to be continued."
    )
    stages: Annotated[dict[str, str], Flag(("--stage-model",), "STAGE=NAME", _MODEL), _as_pairs("STAGE=NAME")] = Field(
        default_factory=dict, description="Another model for one stage, e.g. commonsense-directive=hf:allenai/cosmo-xl."
    )
    temperature: Annotated[float | None, Flag(("--temperature",), None, _MODEL)] = Field(
        default=None, ge=0, description="Of every answer, in place of what the prompts say."
    )
    top_p: Annotated[float | None, Flag(("--top-p",), None, _MODEL)] = Field(
        default=None, gt=0, le=1, description="Likewise; prompts say none."
    )
    max_tokens: Annotated[int | None, Flag(("--max-completion-tokens",), "TOKENS", _MODEL)] = Field(
        default=None, ge=1, description="Of every answer at most, in place of what each prompt says."
    )
    window: Annotated[int | None, Flag(("--window",), "TOKENS", _MODEL)] = Field(
        default=None, ge=1, description="Its window. Turns that do not fit are left out, the oldest first."
    )
    no_truncate: Annotated[bool, Flag(("--no-truncate",), None, _MODEL)] = Field(
        default=False, description="Leave no turn out: a history that does not fit the model's window fails."
    )
    name: str = Field(default="", description="Its name in tables, where that is not the model's.")
    key_env: str = Field(default="", description="The environment variable that holds its key.")
    extra_body: dict[str, Any] = Field(default_factory=dict, description="Further fields of every request's body.")
    price: tuple[float, float] | tuple[float, float, float] | None = Field(
        default=None,
        description="Money per million prompt tokens and per million completion tokens; third, if they differ, per "
        "million prompt tokens that the server had cached.",
    )
    named_by: str = _unkept("The file that says the address, if one does.", "")
    api_key: Annotated[str | None, Flag(("--api-key",), "KEY", _MODEL, environment=False)] = _unkept(
        "Its key. Better in the environment: DIALORE_API_KEY, OPENAI_API_KEY.", repr=False
    )
    cache: Annotated[Path | None, Flag(("--cache",), "FILE", _MODEL, environment=False)] = _unkept(
        "Keep completions here, so that an equal call is paid for once. Default: in the user's cache folder."
    )
    no_cache: Annotated[bool, Flag(("--no-cache",), None, _MODEL, environment=False)] = _unkept(
        "Ask anew, and keep nothing.", default=False
    )
    timeout: Annotated[float, Flag(("--timeout",), "SECONDS", _MODEL)] = _unkept(
        "Of silence, before an answer or within it.", 120.0, ge=0.1
    )
    thinking: Annotated[int | None, Flag(("--thinking",), "TOKENS", _MODEL)] = _unkept(
        "What its thoughts may take, beside an answer's own limit. Default: 4096 once it is seen to think.", ge=0
    )
    slots: Annotated[int | None, Flag(("--slots",), None, _MODEL)] = _unkept(
        "How many calls a gguf: (1) or hf: (8) model answers at once, where not said.", ge=1
    )
    threads: Annotated[int | None, Flag(("--threads",), None, _MODEL)] = _unkept(
        "Of a gguf: model. Default: one a core.", ge=1
    )
    retries: Annotated[int, Flag(("--retries",), None, _MODEL)] = _unkept(
        "How often a failed call is tried again.", 4, ge=0
    )
    concurrency: Annotated[int, Flag(("--concurrency",), None, _MODEL)] = _unkept("The most calls at once.", 64, ge=1)
    record: Annotated[Path | None, Flag(("--record",), "FILE", _MODEL, environment=False)] = _unkept(
        "Append every model call to this file."
    )
    replay: Annotated[Path | None, Flag(("--replay",), "FILE", _MODEL, environment=False)] = _unkept(
        "Answer from this recording, with no model at all."
    )

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if self.no_cache and self.cache is not None:
            raise ValueError("--cache and --no-cache do not go together: take one of them")
        if self.record is not None and self.replay is not None:
            raise ValueError("--record and --replay do not go together: take one of them")
        return self

    def cached(self) -> Self:
        """Return the same, with completions kept in the user's cache folder where nothing else is said."""
        if self.no_cache or self.cache is not None:
            return self
        from dialore.files import cache_folder

        return self.model_copy(update={"cache": cache_folder() / "completions.sqlite"})

    @field_validator("price", mode="before")
    @classmethod
    def _check_price(cls, price: object) -> object:
        if price is not None and not (isinstance(price, list | tuple) and len(price) in {2, 3}):
            raise ValueError("give two or three numbers: [PROMPT, COMPLETION] or [PROMPT, COMPLETION, CACHED]")
        return price


class SourceSettings(Strict):
    """Where knowledge comes from: places by the keys of `dialore.sources.registry`, and how graphs are ranked."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Annotated[list[str], BeforeValidator(as_list)]] = Field(init=False)

    ranking: Annotated[str, Flag(("--ranking",), "NAME[,FIELD=VALUE]", _KNOWLEDGE), BeforeValidator(_spec)] = Field(
        default="default",
        description="How facts are ranked: default, or paper for DCRAG's plain cosine; with changes: paper,history=5.",
    )
    embedder: Annotated[str | None, Flag(("--embedder",), "SPEC", _KNOWLEDGE)] = Field(
        default=None,
        description="What facts are ranked by: static, st:NAME, onnx:FOLDER, endpoint:MODEL[@URL]. Default: static.",
    )
    rerank: Annotated[str, Flag(("--rerank",), "SPEC", _KNOWLEDGE)] = Field(
        default="",
        description="Put what sources find in order once more: cross:NAME, onnx:FOLDER, dense:st:NAME, or model.",
    )
    prompts: Annotated[Path | None, Flag(("--prompts",), "FOLDER", _KNOWLEDGE)] = Field(
        default=None, description="Prompts that override ours; start from `dialore prompts export`."
    )

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        settings = {name: value for name, value in given.items() if value is not None}
        for name in settings.keys() - cls.model_fields.keys():
            try:
                kind_of_key(name)
            except UnknownNameError as error:
                raise ValueError(str(error)) from error
        several = {name: list(map(str, value)) for name, value in settings.items() if isinstance(value, list | tuple)}
        return settings | several

    @classmethod
    def flagged(cls, path: str = "") -> Iterator[Option]:
        """Yield a place of every kind of source, and its own fields."""
        for kind in KINDS.values():
            flag = Flag((kind.flag, *([kind.short] if kind.short else [])), kind.metavar, _KNOWLEDGE)
            yield Option(path + kind.key, list[str] if kind.several else str, flag, kind.help)
        yield from super().flagged(path)

    def places(self, name: str) -> list[str]:
        """Return what is named of a kind of source, by the name that methods have for it."""
        return (self.model_extra or {}).get(KINDS[name].key) or []


class AgentSettings(Strict):
    """One more agent of a service: `[agents.NAME]` in a file. What it does not say is as of the service's own agent."""

    method: str
    options: dict[str, Any] = Field(default_factory=dict)
    persona: Annotated[list[str], BeforeValidator(as_list)] = Field(default_factory=list)
    sources: SourceSettings | None = None
    cite: bool | None = None

    @classmethod
    def flagged(cls, path: str = "") -> Iterator[Option]:
        """Nothing: agents stand in files."""
        return iter(())


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
    open_per_address: int = Field(
        default=16, ge=1, description="Requests under way at once to paths that need no key, of one address."
    )
    max_head: int = Field(default=32_768, ge=1000, description="Bytes of a request's line and headers.")
    head_seconds: float = Field(default=20, gt=0, description="In which they have to come.")
    body_seconds: float = Field(default=120, gt=0, description="In which a whole body has to come.")
    max_body: int = Field(default=1_000_000, ge=1, description="Bytes of a request.")
    max_upload: int = Field(default=20_000_000, ge=1, description="Bytes of an uploaded file, also when unpacked.")
    read_seconds: float = Field(default=60, gt=0, description="That reading an uploaded file may take.")
    read_memory: int = Field(default=2_000_000_000, ge=200_000_000, description="Bytes that reading it may take.")
    read_characters: int = Field(default=20_000_000, ge=1, description="Of its text.")
    ocr: bool = Field(default=False, description="Read scanned pages, by the extra `ocr`.")
    max_messages: int = Field(default=500, ge=1)
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

    method: Annotated[
        list[str], Flag(("--method", "-M"), "NAME", _KNOWLEDGE), BeforeValidator(as_list), Field(min_length=1)
    ] = Field(
        default=[DEFAULT_METHOD],
        description="The method; may be given several times. Default: weave, on the starter graph where no source is "
        "named.",
    )
    options: Annotated[dict[str, Any], Flag(("--option", "-o"), "NAME=VALUE", _KNOWLEDGE), _as_pairs("NAME=VALUE")] = (
        Field(
            default_factory=dict,
            description="A hyper-parameter or switch of the method, e.g. -o limit=10; see `dialore methods`.",
        )
    )
    cite: Annotated[bool, Flag(("--cite",), None, _KNOWLEDGE)] = Field(
        default=False,
        description="Have the model cite its knowledge by number: the numbers are shown, and kept as spans.",
    )
    model: ModelSettings = ModelSettings()
    sources: SourceSettings = SourceSettings()
    agents: dict[Annotated[str, Field(pattern=r"^[\w.-]{1,64}$")], AgentSettings] = Field(default_factory=dict)
    server: ServerSettings = ServerSettings()

    @property
    def knowledge(self) -> SourceSettings:
        """The sources; where neither these nor a method are named, the starter graph."""
        if self.sources.model_extra or "method" in self.model_fields_set:
            return self.sources
        return self.sources.model_copy(update={"graph": ["starter"]})


def read_settings(file: Path | None = None, said: Mapping[str, object] | None = None) -> Settings:
    """Return settings: what the arguments say, else the environment (`DIALORE_...`), else a file, else the defaults.

    Args:
        file: TOML (`dialore.toml`) or YAML (`agent.yaml`), whose paths are looked for beside it first; None: that of
            `DIALORE_SETTINGS`, if it is set. It is never looked for by itself: it may name where a key is sent.
        said: what arguments say, by dotted name (`model.base_url`).

    Raises:
        InputError: a file that is missing or malformed; every field that is wrong is named.
    """
    if file is None and os.environ.get(_FILE):
        file = Path(os.environ[_FILE]).expanduser()
    given: dict[str, Any] = {}
    if file is not None:
        given = read_table(file)
        for table in (given, *_tables(given.get("agents"))):
            if "sources" in table:
                table["sources"] = absolute_paths(table["sources"], file.parent)
    if isinstance(given.get("model"), str):
        given["model"] = {"model": given["model"]}
    asked = {**_environment(), **(said or {})}
    given = with_changes(given, asked)
    if isinstance(given.get("model"), dict):
        given["model"] |= {"named_by": "" if file is None or "model.base_url" in asked else str(file)}
    named = {path: _variable(flag) for path, flag in flags(Settings, asked).items()} | flags(Settings, said or {})
    return check_settings(Settings, given, where="settings" if file is None else str(file), named=named)


def flags(settings: type[Strict], said: Iterable[str]) -> dict[str, str]:
    """Return the options of settings that are said, by dotted name."""
    return {option.path: option.flag.names[0] for option in settings.flagged() if option.path in said}


def _variable(flag: str) -> str:
    return "DIALORE_" + flag.lstrip("-").replace("-", "_").upper()


def _environment() -> dict[str, object]:
    variables: dict[str, object] = {}
    for option in Settings.flagged():
        text = os.environ.get(_variable(option.flag.names[0]), "").strip()
        if text and option.flag.environment:
            text = ",".join(str(expand_home(part.strip())) for part in text.split(",")) if "~/" in text else text
            variables[option.path] = [part.strip() for part in text.split(",")] if option.several else text
    return variables


def read_table(file: Path, what: str = "settings") -> dict[str, Any]:
    """Return the settings of a TOML or YAML file; what is empty is as good as not said. Raise InputError."""
    text = read_text(file)
    try:
        given = tomllib.loads(text) if file.suffix == ".toml" else parse_yaml(text, str(file))
    except ValueError as error:
        raise InputError(f"{file}: not valid TOML: {error}") from error
    if given is None:  # an empty YAML file, like an empty TOML file
        given = {}
    if not isinstance(given, dict):
        raise InputError(f"{file} holds no {what}", hint="it is to hold names and values")
    return {str(name): expand_home(value) for name, value in given.items() if value is not None}


def expand_home(value: Any) -> Any:  # noqa: ANN401 - plain data
    """Plain data with `~/`, with which a path begins, or one behind a kind of source (`index:~/x`), as the home."""
    if isinstance(value, dict):
        return {name: expand_home(item) for name, item in value.items()}
    if isinstance(value, list):
        return [expand_home(item) for item in value]
    return _HOME.sub(lambda match: match[1] + str(Path.home()) + "/", value) if isinstance(value, str) else value


_HOME = re.compile(r"^([\w+-]*:|)~/")


def _tables(given: object) -> list[dict[str, Any]]:
    return [table for table in given.values() if isinstance(table, dict)] if isinstance(given, dict) else []


def absolute_paths(sources: Any, folder: Path) -> Any:  # noqa: ANN401 - plain data
    """Return sources as a file names them, with paths that exist in a folder as absolute ones."""
    if not isinstance(sources, dict):
        return sources
    absolute = dict(sources)
    for kind in KINDS.values():
        if isinstance(places := absolute.get(kind.key), str | list):
            absolute[kind.key] = [
                kind.located(str(location), folder) for location in ([places] if isinstance(places, str) else places)
            ]
    if isinstance(prompts := absolute.get("prompts"), str):
        absolute["prompts"] = str((folder / prompts).resolve()) if (folder / prompts).exists() else prompts
    return absolute


def with_changes(given: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """Plain settings with changes by dotted name (`model.base_url`); settings that are left empty are made."""
    made = dict(given)
    for name, value in changes.items():
        *outer, last = name.split(".")
        inner: Any = made
        for part in outer:
            inner[part] = dict(inner[part]) if isinstance(inner.get(part), dict) else inner.get(part) or {}
            inner = inner[part]
            if not isinstance(inner, dict):  # what is wrong with it is said when it is validated
                break
        else:
            inner[last] = value
    return made


def check_settings(
    settings: type[S], given: Mapping[str, Any], *, where: str, named: Mapping[str, str] | None = None
) -> S:
    """Return settings from plain data; raise InputError naming every wrong field: by the option, or `where`.

    `named` has the options or variables that said some of them, by dotted name.
    """
    try:
        return settings.model_validate(given)
    except ValidationError as error:
        raise _wrong(settings, error, where, named or {}) from error


def _wrong(settings: type[BaseModel], error: ValidationError, where: str, named: Mapping[str, str]) -> InputError:
    wrong: dict[str, list[str]] = {}
    for issue in error.errors(include_url=False):
        field = ".".join(map(str, issue["loc"]))
        message = issue["msg"].removeprefix("Value error, ")
        if issue["type"] == "extra_forbidden":
            message, field = str(UnknownNameError("setting", field, _names(settings, issue["loc"][:-1]))), ""
        by = next((name for path, name in named.items() if f"{field}.".startswith(f"{path}.")), "")
        wrong.setdefault(by or where, []).append(f"{field}: {message}" if field and not by else message)
    return InputError("; ".join(f"{by}: {'; '.join(messages)}" for by, messages in wrong.items()))


def _names(settings: type[BaseModel], steps: tuple[int | str, ...]) -> list[str]:
    """Return the dotted names of the settings that stand where steps lead from the outermost ones."""
    inner: Any = settings
    for step in steps:
        if step in inner.model_fields:
            inner = _settings_in(inner.model_fields[step].annotation) or inner
    return [".".join(map(str, (*steps, name))) for name in inner.model_fields]
