"""A run's configuration, as its YAML file says it: data, systems, models, sources, repetitions and budget."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from dialore.datasets.files import archive_of
from dialore.datasets.published import data_file, published_sets
from dialore.datasets.split import Condition, Cut
from dialore.errors import InputError, check_type, install
from dialore.llm.model import Price  # noqa: TC001 - pydantic reads the annotations
from dialore.session import REHEARSAL
from dialore.settings import (
    ModelSettings,
    Setting,
    SourceSettings,
    Strict,
    absolute_paths,
    as_list,
    check_settings,
    read_table,
    with_changes,
)
from dialore.sources.registry import KINDS

_MODEL = "model."
_LOCAL_INPUT = re.compile(r"(?:data|models|runs)/[^:]+$")
_EXTRAS = {"hf": ("torch", "local"), "cross": ("sentence_transformers", "sentence-transformers")}
_EXTRAS["st"] = _EXTRAS["cross"]


class DatasetConfig(Strict):
    """Which dialogues are answered."""

    name: str = Field(description="A data set, see `dialore data show`; `jsonl` for dialogues in Dialore's own form.")
    split: str = Field(
        default="", description="The split's name, for tables; without a path, which file of those fetched."
    )
    path: Path = Field(
        default_factory=lambda given: data_file(given["name"], given["split"]),
        description="The data set's file; in an experiment file, looked for beside it, then where the command runs. "
        "Without it, that of the package (`everyday`), or one that `dialore data get` fetched.",
    )
    cut: Cut | None = Field(
        default=None,
        description="Where dialogues are split into history and reference: `last` for jsonl and everyday, which bring "
        "their references, else `random`.",
    )
    where: Annotated[list[Condition], BeforeValidator(as_list)] = Field(
        default=[],
        description="Which turns may be references: `searched`, those that a person typed a query for; `knowledge`, "
        "those with gold knowledge; `passive`, those that answer no request for information or opinion.",
    )
    reference: Literal["response", "knowledge"] = Field(
        default="response",
        description="What responses are scored against: the data set's own, or its gold knowledge, where the response "
        "is to be that (MSDP, Tables 1 and 5); a turn without any has no reference.",
    )
    pool: bool = Field(
        default=False,
        description="Keep with each dialogue the sentences that its responder could draw on, for `documents: pool:`.",
    )
    limit: int | None = Field(default=None, ge=1, description="How many dialogues, sampled by seed.")
    seed: int = Field(default=0, description="Of the sample.")


class SystemConfig(Strict):
    """A method with its options.

    Attributes:
        name: its name in tables; made of method and options where it is not given.
        options: hyper-parameters and switches.
        stages: other models for some of its stages, beside those of the run's models; see `ModelSettings`.
        unscored: metrics that score systems together (`together-...`) and leave this one out of their prompt.
    """

    method: str
    name: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    stages: dict[str, str] = Field(default_factory=dict)
    unscored: list[str] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, given: object) -> object:
        return {"method": given} if isinstance(given, str) else given

    @property
    def title(self) -> str:
        """Its name in tables."""
        options = ", ".join(
            f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in self.options.items()
        )
        return self.name or (f"{self.method} ({options})" if options else self.method)


class BudgetConfig(Strict):
    """The limits of a run's costs over all commands that work on it: tokens, or money by the models' prices."""

    tokens: int | None = Field(default=None, ge=0, description="Stop when so many tokens are paid for.")
    cost: float | None = Field(default=None, ge=0, description="Stop when so much is spent, by the models' prices.")


class UserConfig(Strict):
    """A simulated user, with whom whole conversations are held in place of answering single turns.

    Attributes:
        model: its language model, better another than the agent's; `base_url` is where that is.
        tempers: those of goals that name none, in turn.
        turns: the most answers of a conversation, whatever the temper.
        real: real dialogues that the simulated are held against: a file, or a data set, `NAME:SPLIT`.
    """

    model: str | None = None
    base_url: str | None = None
    tempers: list[Literal["patient", "brisk", "doubtful"]] = Field(
        default=["patient", "brisk", "doubtful"], min_length=1
    )
    turns: int = Field(default=8, ge=1)
    real: str = ""


class DataConfig(Strict):
    """Where the data of a run is from, and the commands that make the files that it reads."""

    source: str = Field(default="", description="Where the data is published, with its licence.")
    commands: list[str] = Field(default_factory=list, description="The commands, in the order in which they are run.")


class RunConfig(Strict):
    """A run: systems × dialogues × models × repetitions."""

    name: str = Field(description="The run's name, for tables.")
    about: str = Field(default="", description="What it is for, e.g. which table of which paper it repeats.")
    data: DataConfig = Field(
        default=DataConfig(), exclude=True, description="Where the data is from, and the commands that make its files."
    )
    dataset: DatasetConfig = Field(description="The dialogues.")
    systems: list[SystemConfig] = Field(min_length=1, description="The methods with their options.")
    models: list[ModelSettings] = Field(
        default_factory=lambda: [ModelSettings()],
        min_length=1,
        description="The language models; without any, the one of the environment or the command line.",
    )
    repetitions: int = Field(default=1, ge=1, description="How often each dialogue is answered by each system.")
    sources: SourceSettings = Field(default=SourceSettings(), description="Where knowledge comes from.")
    concurrency: int = Field(default=64, ge=1, description="The most dialogues under way, and the most calls at once.")
    cite: bool = Field(default=False, description="Have models cite their knowledge by number.")
    batch: bool = Field(default=False, description="Call by the provider's batch API: half the price, within a day.")
    budget: BudgetConfig = Field(default=BudgetConfig(), description="When to stop.")
    metrics: list[str] = Field(
        default_factory=list, description="What `dialore score` and `dialore report` use where nothing else is said."
    )

    user: UserConfig = Field(
        default=UserConfig(), description="A simulated user, with whom conversations are held if it is given."
    )

    @property
    def simulates(self) -> bool:
        """Whether conversations with a simulated user are held."""
        return "user" in self.model_fields_set

    def price(self, model: ModelSettings) -> Price | None:
        """Return a model's price in this run: in batches it is half."""
        if model.price is None or not self.batch:
            return model.price
        prompt, completion, *cached = (part / 2 for part in model.price)
        return (prompt, completion, cached[0]) if cached else (prompt, completion)

    @classmethod
    def list_settings(cls, prefix: str = "") -> Iterator[Setting]:
        """Yield all fields; those of models by the name `model`, which sets them for each model."""
        yield from super().list_settings(prefix)
        for setting in ModelSettings.list_settings(f"{prefix}{_MODEL}"):
            if setting.path != "model.concurrency":  # the run has one for all models
                yield setting

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        title, count = Counter(system.title for system in self.systems).most_common(1)[0]
        if count > 1:
            raise ValueError(f"two systems are called {title!r}: give one a name")
        return self


def read_config(
    path: Path, changes: Mapping[str, object] | None = None, *, labels: Mapping[str, str] | None = None
) -> RunConfig:
    """Return a run's configuration from its YAML or TOML. Relative paths are looked up beside the file first.

    Args:
        path: The experiment file.
        changes: Values by dotted name (`dataset.limit`); see `make_config`.
        labels: What errors call the changes, by dotted name.

    Raises:
        InputError: The file is missing or malformed; every field that is wrong is named.
    """
    values = {"name": path.stem} | read_table(path, "experiment")
    if "sources" in values:
        values["sources"] = absolute_paths(values["sources"], path.parent)
    dataset = values.get("dataset")
    if isinstance(dataset, dict) and (path.parent / str(dataset.get("path", ""))).is_file():
        values["dataset"] = dataset | {"path": (path.parent / dataset["path"]).resolve()}
    models = values.get("models")
    if isinstance(models, list):
        values["models"] = [_with_file(model, path) for model in models]
    return make_config(values, changes, where=str(path), labels=labels)


def _with_file(model: object, path: Path) -> object:
    """Return the settings of a model of an experiment file, with the file that names its address."""
    table = {"model": model} if isinstance(model, str) else model
    return table | {"named_by": str(path)} if isinstance(table, dict) else table


def make_config(
    values: dict[str, Any],
    changes: Mapping[str, object] | None = None,
    *,
    where: str = "the run",
    labels: Mapping[str, str] | None = None,
) -> RunConfig:
    """Return a configuration from plain data; raise InputError naming every field that is wrong.

    Changes of `model.<field>` apply to every model. A change of `model.model` replaces all models by that one.
    """
    changes = dict(changes or {})
    model_changes = {name: changes.pop(name) for name in list(changes) if name.startswith(_MODEL)}
    values = with_changes(values, changes)
    if model_changes:
        fields = with_changes({}, {name.removeprefix(_MODEL): value for name, value in model_changes.items()})
        if fields.get("base_url") is not None:
            fields["named_by"] = ""  # the user names the address, not the file
        models = [{}] if "model" in fields else values.get("models") or [{}]
        values["models"] = [model | fields if isinstance(model, dict) else model for model in models]
    named = {
        f"models.0.{name.removeprefix(_MODEL)}" if name.startswith(_MODEL) else name: label
        for name, label in (labels or {}).items()
    }
    return check_settings(RunConfig, values, where=where, named=named)


def any_config(said: Mapping[str, Any] | str | Path, changes: Mapping[str, object] | None = None) -> RunConfig:
    """Return a configuration of a file or mapping, cached as by commands; raise InputError for missing inputs."""
    hint = 'give a file or what one says: run_experiment("experiment.yaml", "runs/try")'
    check_type("an experiment", said, (str, Path, Mapping), hint)
    if isinstance(said, Mapping):
        config = make_config({"name": "try", **said}, changes, where="the experiment")
    else:
        config = read_config(Path(said), changes)
        if missing := missing_inputs(config):
            raise InputError(f"{said}: missing inputs", hint="; ".join(missing))
    return config.model_copy(update={"models": [model.cached() for model in config.models]})


# --- missing inputs


def missing_inputs(config: RunConfig) -> list[str]:
    """Return all missing files and extras of a run, each with the command or place to get it from."""
    is_rehearsed = any(model.model == REHEARSAL for model in config.models)
    specs: list[str] = []
    if not is_rehearsed:
        for stages in [*(system.stages for system in config.systems), *(model.stages for model in config.models)]:
            specs += stages.values()
    options = {str(value): name for system in config.systems for name, value in system.options.items()}
    models = [] if is_rehearsed else [model.model or "" for model in config.models]
    missing = [*_missing_files(config, [*models, *specs, *options])]
    embedder = "" if is_rehearsed else config.sources.embedder or ""
    for spec in (*specs, *options, embedder):
        extras = [_EXTRAS[part] for part in spec.split(":") if part in _EXTRAS]
        if extras and find_spec(extras[0][0]) is None:
            otherwise = f", or leave it: -o {options[spec]}=fused" if spec in options else ""
            missing.append(f"{spec}: {install(extras[0][1])}{otherwise}")
    return list(dict.fromkeys(missing))


def _missing_files(config: RunConfig, specs: Iterable[str]) -> Iterator[str]:
    commands: dict[str, str] = {}
    data = config.dataset.path
    if not (archive_of(data) or (data,))[0].exists():
        yield f"{data}: {_way_to_get(str(data), config.dataset.name, config.data)}"
    for kind in KINDS.values():
        for location in config.sources.places(kind.name):
            _, path = kind.path_of(location) or ("", Path())
            if (len(path.parts) > 1 or path.suffix) and ":" not in str(path) and not path.exists():
                commands[str(path)] = _command_with(str(path), config.data)
                yield f"{path}: {commands[str(path)] or f'set {kind.setting} to another'}"
    for spec in specs:
        prefix, _, location = spec.partition(":")
        command = _command_with(f"--out {location}", config.data) if prefix in {"hf", "trained"} else ""
        if command and not Path(location).exists():
            commands[location] = command
            yield f"{location}: {command}"
    yield from _inputs_of(commands, config)


def _inputs_of(commands: dict[str, str], config: RunConfig) -> Iterator[str]:
    """Yield the missing inputs of commands by what they make, and the inputs of the commands that make those."""
    queue, seen = list(commands.items()), {*commands}
    while queue:
        output, command = queue.pop(0)
        words = command.split()
        datasets = [words[index + 1] for index, word in enumerate(words[:-1]) if word in {"-D", "--dataset"}]
        for path in words:
            if not _LOCAL_INPUT.match(path) or path in seen or path == output or Path(path).exists():
                continue
            seen.add(path)
            dataset = datasets[0] if datasets else config.dataset.name
            way = _way_to_get(path, dataset, config.data, user=command)
            yield f"{path}: {way}"
            if way in config.data.commands:
                queue.append((path, way))


def _way_to_get(path: str, dataset: str, data: DataConfig, user: str = "") -> str:
    """Return how a missing file is had: a command of `dialore data get`, one of the run's, or where it is published.

    Args:
        path: The missing file or folder.
        dataset: The data set that it belongs to, unless its name is that of another published file.
        data: The commands of the run and the source of its data.
        user: The command that reads the file, which cannot be the one that makes it.
    """
    source = " ".join(data.source.split()) or f"the data set {dataset}"
    name = Path(path).name
    for owner, entry in published_sets().items():
        for split, file in entry["splits"].items():
            is_own = owner == dataset and split == name.partition(".")[0]
            if is_own or (name == Path(file).name and "-" in name):
                return f"dialore data get {owner} --split {split} --out {path}  # {source}"
    for command in data.commands:
        is_output = f"--out {path} " in f"{command} " or f" build {path} " in command
        if is_output and command != user:
            return command
    return source


def _command_with(text: str, data: DataConfig) -> str:
    """Return the first command that contains these words; empty if none does."""
    return next((command for command in data.commands if f" {text} " in f"{command} "), "")
