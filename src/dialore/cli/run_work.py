"""What `dialore run` does: make the configuration, say what it will cost, run with a progress bar, say how it ended."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dialore.cli.output import note, print_json
from dialore.cli.wiring import completions_cache, method_options
from dialore.errors import InputError
from dialore.experiments.config import ModelConfig, RunConfig, make_config, read_config
from dialore.experiments.opening import LEXICAL, default_connect
from dialore.experiments.run import run_experiment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dialore.cli.options import KnowledgeSettings, ModelSettings
    from dialore.experiments.estimate import Estimate
    from dialore.experiments.opening import Connect
    from dialore.experiments.runner import Progress
    from dialore.llm.model import LanguageModel

_MANY_CALLS = 2_000
"""Calls from which a person at a terminal is asked whether to go on."""


@dataclass(frozen=True, slots=True)
class Task:
    """What the command line says."""

    config: Path | None
    out: Path | None
    methods: tuple[str, ...]
    changes: dict[str, object]
    models: ModelSettings
    knowledge: KnowledgeSettings
    replay: Path | None
    accept_changed_prompts: bool
    ask: bool
    dry: bool
    engine: str


class _EnoughError(Exception):
    """The user wanted the estimate alone, or does not want the run."""


def work(task: Task, *, json: bool) -> None:
    """Run it.

    Raises:
        InputError: nothing could be done.
        typer.Exit: with 1 where some failed or the budget is spent, with 2 where all failed.
    """
    config = configure(task)
    folder = task.out or Path("runs") / config.name
    connect_model = _replay(task.replay) if task.replay is not None else _connect(task, config)
    accept = task.accept_changed_prompts
    expected: list[Estimate] = []

    def on_estimate(estimate: Estimate) -> None:
        expected.append(estimate)
        _say_estimate(estimate, task)

    try:
        with _bar() as show:
            if task.engine == "ray":
                from dialore.experiments.ray import run_on_ray

                ended = run_on_ray(
                    config,
                    folder,
                    connect_model,
                    accept_changed_prompts=accept,
                    on_estimate=on_estimate,
                    on_progress=show,
                )
            elif task.engine == "local":
                running = run_experiment(
                    config,
                    folder,
                    connect_model,
                    accept_changed_prompts=accept,
                    on_estimate=on_estimate,
                    on_progress=show,
                )
                ended = asyncio.run(running)
            else:
                raise InputError(f"no such engine: {task.engine}", mend="local or ray")
    except KeyboardInterrupt:
        note(f"interrupted: what is finished is kept in {folder}; the same command again does the rest")
        raise
    except _EnoughError:
        if json:
            print_json(asdict(expected[0]))
        return
    _say_end(ended, folder, expected, json=json)


def configure(task: Task) -> RunConfig:
    """The run's configuration: its file, then what the options say.

    Raises:
        InputError: as `read_config` and `make_config`, or no file and too few options.
    """
    changes = dict(task.changes)
    given: dict[str, Any] = {}
    if task.methods:
        options = method_options(task.methods, task.knowledge.option or [])
        changes["systems"] = [{"method": name, "options": chosen} for name, chosen in options.items()]
    elif task.knowledge.option:
        raise InputError("--option goes with --method", mend="an experiment file says the options of its systems")
    changes |= _sources(task.knowledge)
    if task.knowledge.cite:
        changes["cite"] = True
    usual = type(task.models)()
    if any((task.models.model, task.models.base_url, task.models.stage_model)) or task.models.api != usual.api:
        changes["models"] = [_model(task.models)]
    if task.models.concurrency != usual.concurrency:
        changes["concurrency"] = task.models.concurrency
    if task.config is not None:
        return read_config(task.config, changes)
    missing = [option for option, name in _NEEDED.items() if name not in changes]
    if missing:
        raise InputError(f"a run without an experiment file needs {' and '.join(missing)}", mend="see `dialore run -h`")
    given["name"] = f"{'-'.join(task.methods)}-{changes['dataset.name']}"
    return make_config(given, changes)


_NEEDED = {"--method": "systems", "--dataset": "dataset.name", "--data": "dataset.path"}


def _sources(settings: KnowledgeSettings) -> dict[str, object]:
    said = {
        "sources.graph": settings.graph,
        "sources.ranking": settings.ranking if settings.ranking != type(settings)().ranking else None,
        "sources.documents": settings.documents,
        "sources.persona": settings.persona,
        "sources.search": settings.search,
        "sources.samples": settings.samples,
        "sources.declared": settings.sources,
        "sources.prompts": settings.prompts,
    }
    return {name: value for name, value in said.items() if value}


def _model(settings: ModelSettings) -> dict[str, object]:
    stages: dict[str, str] = {}
    for text in settings.stage_model or []:
        stage, equals, name = text.partition("=")
        if not (stage and equals and name):
            raise InputError(f"stage model {text!r} is not STAGE=NAME", mend="e.g. topic-tracking=hf:NAME")
        stages[stage] = name
    return {"model": settings.model, "base_url": settings.base_url, "api": settings.api, "stages": stages}


def _connect(task: Task, config: RunConfig) -> Connect:
    settings = task.models
    cache = completions_cache(settings)
    kept = {"api_key": settings.api_key, "timeout": settings.timeout, "retries": settings.retries}
    connect_model = default_connect(config.concurrency, cache, **kept)

    def make(config: ModelConfig, name: str | None) -> LanguageModel | None:
        model = connect_model(config, name)
        if model is None and name is None and config.model != LEXICAL:
            note("no endpoint: no model writes; what is found is the response (go live: --base-url, --model)")
        return model

    return make


def _replay(path: Path) -> Connect:
    def make(config: ModelConfig, name: str | None) -> LanguageModel | None:
        from dialore.llm.recording import Replay

        return Replay(path)

    return make


def _say_estimate(estimate: Estimate, task: Task) -> None:
    cost = f", {estimate.cost:.2f} by the price given" if estimate.cost else ""
    note(
        f"{estimate.responses:,} responses to make: about {estimate.calls:,} calls, {estimate.prompt_tokens:,} prompt "
        f"and {estimate.completion_tokens:,} completion tokens{cost} (rehearsed)"
    )
    if estimate.failed:
        note(f"a rehearsed response failed: {estimate.failed}")
    if task.dry:
        raise _EnoughError
    if task.ask and estimate.calls > _MANY_CALLS and sys.stdin.isatty() and not typer.confirm("Go on?", err=True):
        raise _EnoughError


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    """A progress bar with rate, failures, tokens and time left, where standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    words = TextColumn("{task.fields[words]}")
    with Bar(TextColumn("answering"), BarColumn(), MofNCompleteColumn(), words, console=Console(stderr=True)) as bar:
        shown = bar.add_task("answering", total=None, words="")

        def show(progress: Progress) -> None:
            bar.update(shown, total=progress.total, completed=progress.before + progress.done, words=_words(progress))

        yield show


def _words(progress: Progress) -> str:
    left = progress.seconds_left
    ends = f", {int(left // 60)}:{int(left % 60):02d} left" if left is not None else ""
    return f"{progress.rate:.1f}/s, {progress.failed} failed, {progress.tokens:,} tokens{ends}"


def _say_end(ended: Progress, folder: Path, expected: list[Estimate], *, json: bool) -> None:
    for failure in ended.failures:
        note(f"failed: {failure}")
    if ended.failed > len(ended.failures):
        note(f"and {ended.failed - len(ended.failures)} more failed")
    if ended.stopped:
        note(f"stopped: {ended.stopped}")
    missing = ended.total - ended.before - ended.ok
    if json:
        said: dict[str, object] = {"folder": str(folder), "responses": ended.total, "before": ended.before}
        said |= {"answered": ended.ok, "failed": ended.failed, "missing": missing, "calls": ended.calls}
        said |= {"tokens": ended.tokens, "stopped": ended.stopped or None}
        said |= {"expected": asdict(expected[0]) if expected else None}
        print_json(said)
    else:
        note(
            f"{ended.ok} answered, {ended.failed} failed, {ended.before} were there: {folder} "
            f"({ended.calls:,} calls, {ended.tokens:,} tokens); score it with `dialore score {folder}`"
        )
    if missing:
        raise typer.Exit(2 if not (ended.ok or ended.before) else 1)
