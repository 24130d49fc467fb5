"""What a run is made of, as its YAML file says it: data, systems, models, sources, repetitions and budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dialore.datasets.split import Cut
from dialore.errors import InputError
from dialore.llm.model import Api

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DatasetConfig(_Strict):
    """Which dialogues are answered.

    Attributes:
        name: a data set (`dialore data list`), or `jsonl` for dialogues in Dialore's own form.
        path: its file; a relative one is looked for beside the experiment file, then where the command runs.
        split: the split's name, for tables.
        cut: where whole dialogues are cut into history and reference; `last` for `jsonl`, whose dialogues bring their
            references, else `random`.
        reference: what responses are scored against: `response`, the data set's own, or `knowledge`, its gold
            knowledge, where the response is to be that (MSDP, Tables 1 and 5); a turn without any has no reference.
        limit: how many, drawn by seed; None for all.
        seed: of the draw.
    """

    name: str
    path: Path
    split: str = ""
    cut: Cut | None = None
    reference: Literal["response", "knowledge"] = "response"
    limit: int | None = Field(default=None, ge=1)
    seed: int = 0

    @property
    def title(self) -> str:
        """Its name in tables: `dailydialog valid, 100`."""
        return f"{self.name} {self.split}".strip() + (f", {self.limit}" if self.limit else "")


class ModelConfig(_Strict):
    """A language model; what is not said comes from the environment, as everywhere.

    Attributes:
        model: its name, or `hf:NAME`; `lexical` for the lexical responder; `rehearsal` for answers that fit and mean
            nothing: enough where a figure depends on retrieval alone, and to try an experiment out.
        base_url: the endpoint.
        api: `chat` or `completions`.
        stages: other models for some stages, by the stage's name.
        price: money per million prompt tokens and per million completion tokens.
    """

    model: str | None = None
    base_url: str | None = None
    api: Api = "chat"
    stages: dict[str, str] = Field(default_factory=dict)
    price: tuple[float, float] | None = None


class SystemConfig(_Strict):
    """A method with its options.

    Attributes:
        method: the method's name.
        name: its name in tables; made of method and options where it is not given.
        options: hyper-parameters and switches.
    """

    method: str
    name: str = ""
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, given: object) -> object:
        return {"method": given} if isinstance(given, str) else given

    @property
    def title(self) -> str:
        """Its name in tables."""
        said = ", ".join(f"{name}={_shown(value)}" for name, value in self.options.items())
        return self.name or (f"{self.method} ({said})" if said else self.method)


class SourcesConfig(_Strict):
    """Where knowledge comes from; each as the option of the same name of `dialore respond`."""

    graph: list[str] = Field(default_factory=list)
    ranking: str = "default"
    documents: list[Path] = Field(default_factory=list)
    persona: Path | None = None
    search: str | None = None
    samples: Path | None = None
    declared: Path | None = None
    prompts: Path | None = None

    @field_validator("graph", mode="before")
    @classmethod
    def _one_graph(cls, given: object) -> object:
        return [given] if isinstance(given, str) else given


class BudgetConfig(_Strict):
    """What a run may cost: tokens in all, or money by the models' prices."""

    tokens: int | None = Field(default=None, ge=0)
    cost: float | None = Field(default=None, ge=0)


class RunConfig(_Strict):
    """A run: systems × dialogues × models × repetitions.

    Attributes:
        name: the run's name, for tables.
        about: what it is for, e.g. which table of which paper it repeats.
        dataset: the dialogues.
        systems: the methods with their options.
        models: the language models; none given means the one of the environment or the command line.
        repetitions: how often each dialogue is answered by each system.
        sources: where knowledge comes from.
        concurrency: the most dialogues under way, and the most calls at once.
        cite: whether models cite their knowledge by number.
        budget: when to stop.
        metrics: what `dialore score` and `dialore report` use where nothing else is said.
    """

    name: str
    about: str = ""
    dataset: DatasetConfig
    systems: list[SystemConfig] = Field(min_length=1)
    models: list[ModelConfig] = Field(default_factory=lambda: [ModelConfig()], min_length=1)
    repetitions: int = Field(default=1, ge=1)
    sources: SourcesConfig = SourcesConfig()
    concurrency: int = Field(default=64, ge=1)
    cite: bool = False
    budget: BudgetConfig = BudgetConfig()
    metrics: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        titles = [system.title for system in self.systems]
        twice = sorted({title for title in titles if titles.count(title) > 1})
        if twice:
            raise ValueError(f"two systems are called {twice[0]!r}: give one a name")
        return self


def read_config(path: Path, changes: Mapping[str, object] | None = None) -> RunConfig:
    """A run's configuration from its file; relative paths in it that exist beside the file are meant so.

    Args:
        path: YAML.
        changes: what the command line says besides, by dotted name (`dataset.limit`); it wins.

    Raises:
        InputError: the file is missing or malformed; every field that is wrong is named.
    """
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(given, dict):
        raise InputError(f"{path} holds no experiment", mend="it wants name, dataset and systems")
    # What is left empty is as good as not said.
    said = {name: value for name, value in given.items() if value is not None}
    return make_config(_beside({"name": path.stem} | said, path.parent), changes, where=str(path))


def make_config(
    given: dict[str, Any], changes: Mapping[str, object] | None = None, *, where: str = "the run"
) -> RunConfig:
    """A configuration from plain data; raises InputError naming every field that is wrong."""
    for name, value in (changes or {}).items():
        *rooms, last = name.split(".")
        room: Any = given
        for inner in rooms:
            # A room that is named and left empty is None in YAML.
            room[inner] = room.get(inner) or {}
            room = room[inner]
            if not isinstance(room, dict):
                # What is wrong with it is told below.
                break
        else:
            room[last] = value
    try:
        return RunConfig.model_validate(given)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, issue['loc'])) or 'file'}: {issue['msg']}" for issue in error.errors()]
        raise InputError(f"{where}: {'; '.join(wrong)}") from error


_PATHS = {"path", "persona", "samples", "declared", "prompts", "documents", "graph"}


def _beside(given: Any, folder: Path) -> Any:  # noqa: ANN401 - plain data
    """Paths that exist beside the file, made independent of where the command runs."""
    if not isinstance(given, dict):
        return [_beside(item, folder) for item in given] if isinstance(given, list) else given
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in _PATHS and isinstance(value, str):
            found[name] = _placed(value, folder)
        elif name in _PATHS and isinstance(value, list):
            found[name] = [_placed(item, folder) if isinstance(item, str) else item for item in value]
        else:
            found[name] = _beside(value, folder)
    return found


def _placed(text: str, folder: Path) -> str:
    path = folder / text
    return str(path.resolve()) if not Path(text).is_absolute() and path.exists() else text


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
