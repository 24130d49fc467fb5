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
    Flag,
    ModelSettings,
    SourceSettings,
    Strict,
    absolute_paths,
    as_list,
    check_settings,
    flags,
    read_table,
    with_changes,
)
from dialore.sources.registry import KINDS

_MODELS = "models."
_COMMAND = re.compile(r"^#\s+(dialore .+)$", re.MULTILINE)
_DATA = re.compile(r"^# Data:(.+\n(?:#[^\S\n]*+\S.*\n)*)", re.MULTILINE)
_LOCAL_INPUT = re.compile(r"(?:data|models|runs)/[^:]+$")
_EXTRAS = {"hf": ("torch", "local"), "cross": ("sentence_transformers", "sentence-transformers")}
_EXTRAS["st"] = _EXTRAS["cross"]


class DatasetConfig(Strict):
    """Which dialogues are answered."""

    name: Annotated[str, Flag(("--dataset",), "NAME")] = Field(
        description="A data set, see `dialore data list`; `jsonl` for dialogues in Dialore's own form."
    )
    split: Annotated[str, Flag(("--split",), "NAME")] = Field(
        default="", description="The split's name, for tables; without a path, which file of those fetched."
    )
    path: Annotated[Path, Flag(("--data",), "FILE")] = Field(
        default_factory=lambda given: data_file(given["name"], given["split"]),
        description="The data set's file; in an experiment file, looked for beside it, then where the command runs. "
        "Without it, that of the package (`everyday`), or one that `dialore data get` fetched.",
    )
    cut: Annotated[Cut | None, Flag(("--cut",), "last|random|all")] = Field(
        default=None,
        description="Where dialogues are split into history and reference: `last` for jsonl and everyday, which bring "
        "their references, else `random`.",
    )
    where: Annotated[list[Condition], BeforeValidator(as_list), Flag(("--where",), "CONDITION")] = Field(
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
    limit: Annotated[int | None, Flag(("--limit",))] = Field(
        default=None, ge=1, description="How many dialogues, sampled by seed."
    )
    seed: Annotated[int, Flag(("--seed",))] = Field(default=0, description="Of the sample.")


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

    tokens: Annotated[int | None, Flag(("--max-tokens",))] = Field(
        default=None, ge=0, description="Stop when so many tokens are paid for."
    )
    cost: Annotated[float | None, Flag(("--max-cost",))] = Field(
        default=None, ge=0, description="Stop when so much is spent, by the models' prices."
    )


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


class RunConfig(Strict):
    """A run: systems × dialogues × models × repetitions."""

    name: str = Field(description="The run's name, for tables.")
    about: str = Field(default="", description="What it is for, e.g. which table of which paper it repeats.")
    dataset: DatasetConfig = Field(description="The dialogues.")
    systems: list[SystemConfig] = Field(min_length=1, description="The methods with their options.")
    models: list[ModelSettings] = Field(
        default_factory=lambda: [ModelSettings()],
        min_length=1,
        description="The language models; without any, the one of the environment or the command line.",
    )
    repetitions: Annotated[int, Flag(("--repetitions",))] = Field(
        default=1, ge=1, description="How often each dialogue is answered by each system."
    )
    sources: SourceSettings = Field(default=SourceSettings(), description="Where knowledge comes from.")
    concurrency: Annotated[int, Flag(("--concurrency",))] = Field(
        default=64, ge=1, description="The most dialogues under way, and the most calls at once."
    )
    cite: Annotated[bool, Flag(("--cite",))] = Field(
        default=False, description="Have models cite their knowledge by number."
    )
    batch: Annotated[bool, Flag(("--batch",))] = Field(
        default=False, description="Call by the provider's batch API: half the price, within a day."
    )
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

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        title, count = Counter(system.title for system in self.systems).most_common(1)[0]
        if count > 1:
            raise ValueError(f"two systems are called {title!r}: give one a name")
        return self


def read_config(path: Path, changes: Mapping[str, object] | None = None) -> RunConfig:
    """Return a run's configuration from its YAML or TOML; relative paths that exist beside the file are meant so.

    Changes are what the command line says, by dotted name (`dataset.limit`). Raises InputError where the file is
    missing or malformed; every field that is wrong is named.
    """
    given = {"name": path.stem} | read_table(path, "experiment")
    if "sources" in given:
        given["sources"] = absolute_paths(given["sources"], path.parent)
    dataset = given.get("dataset")
    if isinstance(dataset, dict) and (path.parent / str(dataset.get("path", ""))).is_file():
        given["dataset"] = dataset | {"path": (path.parent / dataset["path"]).resolve()}
    if isinstance(models := given.get("models"), list):
        tables = [{"model": model} if isinstance(model, str) else model for model in models]
        given["models"] = [model | {"named_by": str(path)} if isinstance(model, dict) else model for model in tables]
    return make_config(given, changes, where=str(path))


def make_config(
    given: dict[str, Any], changes: Mapping[str, object] | None = None, *, where: str = "the run"
) -> RunConfig:
    """Return a configuration from plain data; raise InputError naming every field that is wrong.

    Changes of `models.<field>` hold for every model that is given, but those that say which model it is: these make one
    model, in the place of the given ones.
    """
    changes = dict(changes or {})
    model_changes = {name: changes.pop(name) for name in list(changes) if name.startswith(_MODELS)}
    made = with_changes(given, changes)
    if model_changes:
        fields = {name.removeprefix(_MODELS): value for name, value in model_changes.items()}
        of_a_run = {name for name, field in ModelSettings.model_fields.items() if not field.exclude}
        before = [{}] if fields.keys() & of_a_run else given.get("models") or [{}]
        made["models"] = [model | fields if isinstance(model, dict) else model for model in before]
    named = {
        path.replace(_MODELS, f"{_MODELS}0."): flag
        for path, flag in flags(RunConfig, {*changes, *model_changes}).items()
    }
    return check_settings(RunConfig, made, where=where, named=named)


def any_config(said: Mapping[str, Any] | str | Path, changes: Mapping[str, object] | None = None) -> RunConfig:
    """Return a configuration of a file or mapping, cached as by commands; raise InputError for missing inputs."""
    hint = 'give a file or what one says: run_experiment("experiment.yaml", "runs/try")'
    check_type("an experiment", said, (str, Path, Mapping), hint)
    if isinstance(said, Mapping):
        config = make_config({"name": "try", **said}, changes, where="the experiment")
    else:
        config = read_config(Path(said), changes)
        if missing := missing_inputs(config, Path(said)):
            raise InputError(f"{said} wants what is not here", hint="; ".join(missing))
    return config.model_copy(update={"models": [model.cached() for model in config.models]})


# --- what it wants that is not here


def missing_inputs(config: RunConfig, file: Path) -> list[str]:
    """Return all that a run of a file would stop for, with what makes it: a command of its comments, or `# Data:`."""
    rehearsed = any(model.model == REHEARSAL for model in config.models)
    models = [] if rehearsed else [model.model or "" for model in config.models]
    named = [] if rehearsed else [*(system.stages for system in config.systems), *(it.stages for it in config.models)]
    stages = [name for by_stage in named for name in by_stage.values()]
    options = {str(value): name for system in config.systems for name, value in system.options.items()}
    missing = [*_files(config, file.read_text("utf-8"), [*models, *stages, *options])]
    for spec in (*stages, *options, "" if rehearsed else config.sources.embedder or ""):
        needed = [_EXTRAS[part] for part in spec.split(":") if part in _EXTRAS]
        if needed and find_spec(needed[0][0]) is None:
            other = f", or leave it: -o {options[spec]}=fused" if spec in options else ""
            missing.append(f"{spec}: {install(needed[0][1])}{other}")
    return list(dict.fromkeys(missing))


def _files(config: RunConfig, comments: str, specs: Iterable[str]) -> Iterator[str]:
    made: dict[str, str] = {}
    if not (archive_of(config.dataset.path) or (config.dataset.path,))[0].exists():
        yield f"{config.dataset.path}: {_way_to_get(str(config.dataset.path), config.dataset.name, comments)}"
    for kind in KINDS.values():
        for location in config.sources.places(kind.name):
            _, path = kind.path_of(location) or ("", Path())
            if (len(path.parts) > 1 or path.suffix) and ":" not in str(path) and not path.exists():
                made[str(path)] = _command_in(str(path), comments)
                yield f"{path}: {made[str(path)] or f'give another by {kind.flag}'}"
    for spec in specs:
        prefix, _, location = spec.partition(":")
        command = _command_in(f"--out {location}", comments) if prefix in {"hf", "trained"} else ""
        if command and not Path(location).exists():
            made[location] = command
            yield f"{location}: {command}"
    yield from _inputs_of(made, config.dataset.name, comments)


def _inputs_of(commands: dict[str, str], dataset: str, comments: str) -> Iterator[str]:
    """Yield the missing inputs of commands by what they make, and the inputs of the commands that make those."""
    queue, seen = list(commands.items()), {*commands}
    while queue:
        output, command = queue.pop(0)
        words = command.split()
        named = [words[at + 1] for at, word in enumerate(words[:-1]) if word in {"-D", "--dataset"}]
        for path in words:
            if not _LOCAL_INPUT.match(path) or path in seen or path == output or Path(path).exists():
                continue
            seen.add(path)
            way = _way_to_get(path, named[0] if named else dataset, comments, user=command)
            yield f"{path}: {way}"
            if way in _COMMAND.findall(comments):
                queue.append((path, way))


def _way_to_get(path: str, dataset: str, comments: str, user: str = "") -> str:
    """Return how a missing file is had: a command of `dialore data get`, one of a file's comments, or its `# Data:`.

    Args:
        path: The missing file or folder.
        dataset: The data set that it belongs to, unless its name is that of another published file.
        comments: The text of the experiment file.
        user: The command that reads the file, which cannot be the one that makes it.
    """
    comment = _DATA.search(comments)
    where = " ".join(comment[1].replace("\n#", " ").split()) if comment else f"the data set {dataset}"
    name = Path(path).name
    published = published_sets()
    for owner, entry in published.items():
        for split, file in entry["splits"].items():
            is_own = owner == dataset and split == name.partition(".")[0]
            if is_own or (name == Path(file).name and "-" in name):
                return f"dialore data get {owner} --split {split} --out {path}  # {where}"
    makers = [command for command in _COMMAND.findall(comments) if f" {path} " in f"{command} " and command != user]
    writes = [command for command in makers if f"--out {path} " in f"{command} " or f" build {path} " in command]
    return next(iter(writes), "") or where


def _command_in(what: str, comments: str) -> str:
    """Return the command in a file's comments that has these words; empty where none does."""
    return next((text for text in _COMMAND.findall(comments) if f" {what} " in f"{text} "), "")
