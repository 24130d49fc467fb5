"""Runs told to MLflow or Weights & Biases where that is asked for; what these tell their makers is turned off."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.errors import InputError, UnknownNameError, first_line, import_optional
from dialore.experiments.store import PROMPTS, RunStore

if TYPE_CHECKING:
    from dialore.experiments.results import RunResults

_TRACKED = "tracked"  # the fact that tells by tracker under which id the run is kept there
_AT_ONCE = 100  # parameters that MLflow takes in one request
_PROJECT = "dialore"
_MENDS = {
    "mlflow": "set MLFLOW_TRACKING_URI to your server; a file or database on this machine wants all of `mlflow`",
    "wandb": "first `wandb login`, or set WANDB_MODE=offline",
}
log = logging.getLogger(__name__)


class MLflow:
    """A run at an MLflow server: `before` where it is kept there already, with the same parameters; else a new one."""

    def __init__(self, name: str, parameters: Mapping[str, str], before: str | None) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow = import_optional("mlflow", "logging to MLflow", "mlflow")
        pairs = [(_plain(key), value) for key, value in parameters.items()]
        known: dict[str, str] = {}
        if before is not None:
            with suppress(mlflow.MlflowException):  # another server, or it was deleted there
                known = mlflow.get_run(before).data.params
        if not known or any(known.get(key, value) != value for key, value in pairs):
            before = None
        if before is None and "MLFLOW_EXPERIMENT_NAME" not in os.environ:
            mlflow.set_experiment(_PROJECT)
        self._mlflow, run = mlflow, mlflow.start_run(run_id=before, run_name=name, nested=True)
        self.id, self.place = run.info.run_id, f"{mlflow.get_tracking_uri()}, run {run.info.run_id}"
        for start in range(0, len(pairs), _AT_ONCE):
            mlflow.log_params(dict(pairs[start : start + _AT_ONCE]))

    def log(self, figures: Mapping[str, float], step: int | None = None) -> None:
        """Send figures, without waiting for the server."""
        self._mlflow.log_metrics({_plain(key): value for key, value in figures.items()}, step, synchronous=False)

    def add(self, files: Iterable[Path]) -> None:
        """Send files."""
        for file in files:
            self._mlflow.log_artifact(str(file), "report")

    def close(self, *, failed: bool) -> None:
        """Wait until all is sent, and end the run."""
        self._mlflow.flush_async_logging()
        self._mlflow.end_run("FAILED" if failed else "FINISHED")


def _plain(key: str) -> str:
    """Return a key as MLflow takes it."""
    return re.sub(r"[^\w\-. :/]", "_", key)[:250]


class _WandB:
    """A run at Weights & Biases, gone on with where it is kept there already."""

    def __init__(self, name: str, parameters: Mapping[str, str], before: str | None) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._wandb = wandb = import_optional("wandb", "logging to Weights & Biases", "wandb")
        off = {"disable_code": True, "disable_git": True, "x_disable_meta": True, "x_disable_stats": True}
        settings = wandb.Settings(console="off", silent=True, **off)
        project = os.environ.get("WANDB_PROJECT", _PROJECT)
        self._run = wandb.init(project=project, name=name, id=before, resume="allow", settings=settings)
        self._run.config.update(dict(parameters), allow_val_change=True)
        self.id, self.place = self._run.id, self._run.dir if self._run.offline else self._run.url

    def log(self, figures: Mapping[str, float], step: int | None = None) -> None:
        """Send figures, without waiting for the server."""
        self._run.log({**figures} if step is None else {**figures, "responses": step})

    def add(self, files: Iterable[Path]) -> None:
        """Send files."""
        made = self._wandb.Artifact(f"report-{self.id}", type="report")
        for file in files:
            made.add_file(str(file))
        self._run.log_artifact(made)

    def close(self, *, failed: bool) -> None:
        """Wait until all is sent, and end the run."""
        self._run.finish(exit_code=int(failed))


TRACKERS: dict[str, Callable[[str, Mapping[str, str], str | None], MLflow | _WandB]] = {
    "mlflow": MLflow,
    "wandb": _WandB,
}


class _Tracked:
    """A run as a tracker is told of it: none where `to` is None, and no more after a first failure."""

    def __init__(self, to: MLflow | _WandB | None = None) -> None:
        self._to = to
        self.place = to.place if to is not None else ""

    def log(self, figures: Mapping[str, float], step: int | None = None) -> None:
        """Tell figures, of so many responses."""
        self.tell(lambda to: to.log(figures, step))

    def log_scores(self, results: RunResults) -> None:
        """Tell every system's figure by every metric."""
        systems = results.systems()
        several = len({system.model for system in systems}) > 1
        figures: dict[str, float] = {}
        for system in systems:
            name = f"{system.name} ({system.model})" if several else system.name
            scores = system.scores.values()
            figures |= {f"{score.metric}/{name}": score.value for score in scores if score.value is not None}
        self.log(figures)

    def add(self, files: Iterable[Path]) -> None:
        """Tell files."""
        self.tell(lambda to: to.add(files))

    def tell(self, tell: Callable[[MLflow | _WandB], None]) -> None:
        """Have the tracker told, where there is one."""
        if self._to is None:
            return
        try:
            tell(self._to)
        except Exception as error:  # noqa: BLE001 - whatever ails the tracker, the run goes on
            log.warning("not logged any further: %s: %s", type(error).__name__, first_line(error))
            self._to = None


@contextmanager
def tracking(name: str | None, store: RunStore) -> Iterator[_Tracked]:
    """Yield the run of a store at a tracker, with its parameters; gone on with where it is kept there already."""
    if not name:
        yield _Tracked()
        return
    if name not in TRACKERS:
        raise UnknownNameError("tracker", name, TRACKERS)
    facts = store.facts()
    known = facts.get(_TRACKED, {})
    try:
        made = TRACKERS[name](str(facts.get("name", store.folder.name)), _parameters(store, facts), known.get(name))
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"cannot log to {name}: {first_line(error)}", hint=_MENDS[name]) from error
    store.keep({_TRACKED: {**known, name: made.id}})
    tracked, failed = _Tracked(made), True
    try:
        yield tracked
        failed = False
    finally:
        tracked.tell(lambda to: to.close(failed=failed))


def _parameters(store: RunStore, facts: Mapping[str, Any]) -> dict[str, str]:
    """Return what the run is: data, seeds, systems with their models, hashes of prompts and sources, version."""
    config = facts.get("config", {})
    dataset, models = config.get("dataset", {}), config.get("models", [])
    parameters = {f"data.{name}": dataset.get(name) for name in ("name", "split", "cut", "limit", "seed")}
    parameters |= {name: config.get(name) for name in ("repetitions", "cite")}
    for system in store.systems():
        key = f"system.{system.number}"
        parameters |= {key: system.title}
        parameters |= {f"{key}.{name}": getattr(system, name) for name in ("method", "options", "model")}
    parameters |= {f"temperature.{model.get('model')}": model.get("temperature") for model in models}
    parameters |= {f"prompt.{name}": reference for name, reference in facts.get(PROMPTS, {}).items()}
    parameters |= {f"source.{name}": mark for name, mark in facts.get("fingerprints", {}).items()}
    parameters["version.dialore"] = facts.get("versions", {}).get("dialore")
    return {
        name: (value if isinstance(value, str) else json.dumps(value))[:500]
        for name, value in parameters.items()
        if value not in (None, "")
    }
