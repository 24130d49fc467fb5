"""`dialore run`: methods × dialogues × models × repetitions, kept on disk and resumed."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Context, Option

from dialore.cli.options import (
    WITHOUT_MODEL,
    Accept,
    BaseUrl,
    Changes,
    Data,
    DataSet,
    Documents,
    Graph,
    Json,
    Limit,
    Method,
    MethodOption,
    Model,
    RunSet,
    Sources,
    connecting,
    one_of,
    read_changes,
)
from dialore.cli.output import confirm, note, print_json, run_progress
from dialore.errors import InputError
from dialore.experiments.config import RunConfig, make_config, missing_inputs, read_config
from dialore.experiments.run import Estimate, run_experiment
from dialore.experiments.systems import Progress
from dialore.session import options_by_method
from dialore.settings import parse_pairs
from dialore.text import count_noun

_MANY_CALLS = 2_000
"""Calls from which a person at a terminal is asked whether to run."""


class _EnoughError(Exception):
    """The user wanted the estimate alone, or does not want the run."""


def run(
    context: Context,
    config: Annotated[Path | None, Argument(metavar="[FILE]", help="An experiment file; or say all here.")] = None,
    dataset: DataSet = None,
    data: Data = None,
    limit: Limit = None,
    method: Method = None,
    model: Model = None,
    base_url: BaseUrl = None,
    documents: Documents = None,
    graph: Graph = None,
    sources: Sources = None,
    option: MethodOption = None,
    changes: RunSet = None,
    out: Annotated[Path | None, Option(metavar="FOLDER", help="Where the run is kept. (default: runs/NAME)")] = None,
    accept_changed: Accept = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask, whatever it is expected to cost.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what it is expected to cost, and leave.")] = False,
    engine: Annotated[str, Option(metavar="local|ray", help="Where it runs.")] = "local",
    json: Json = False,
) -> None:
    """Answer a data set by several systems, into a folder from which the run can be resumed.

    Every finished response is on disk at once. Run the same command again
    and only what is missing or failed is done; score it with `dialore score`.
    An experiment file with a simulated user (`user:`) gives conversations.

    [bold]Examples[/bold]
    dialore run experiment.yaml
    dialore run experiment.yaml --limit 20 --model llama3.1
    dialore run -M dcrag -M vanilla --dataset dailydialog --data valid.json.gz --limit 100
    dialore run -M dcrag -M vanilla --dataset everyday --set budget.tokens=100000
    dialore run experiment.yaml --dry-run          (calls and tokens, by rehearsal)

    Exit code: 0 all answered, 1 some failed or a budget is spent, 2 nothing could be done.
    """
    chosen = run_config(config, read_changes(context, RunConfig.list_settings()), method or [], option or [])
    if dry_run and (chosen.sources.embedder or "").startswith("endpoint:"):  # nothing outside is asked
        sources_alone = chosen.sources.model_copy(update={"embedder": None})
        chosen = chosen.model_copy(update={"sources": sources_alone})
    folder = out or Path("runs") / chosen.name
    expected: list[Estimate] = []

    def on_estimate(estimate: Estimate) -> None:
        expected.append(estimate)
        _say_estimate(estimate)
        is_asked = not (yes or json) and estimate.calls > _MANY_CALLS and sys.stdin.isatty()
        if dry_run or (is_asked and not confirm("Go on?")):
            raise _EnoughError

    try:
        progress = carry_out(chosen, folder, on_estimate, accept_changed or (), engine)
    except KeyboardInterrupt:
        note(f"interrupted: what is finished is kept in {folder}; the same command again does the rest")
        raise
    except _EnoughError:
        if json:
            print_json(asdict(expected[0]))
        return
    _say_end(progress, folder, asdict(expected[0]) if expected else None, json=json)


def run_config(file: Path | None, changes: Changes, methods: Sequence[str], options: Sequence[str]) -> RunConfig:
    """Return the run's configuration: its file with the changes of the command line.

    Raises:
        InputError: As `read_config` and `make_config`, there is no file and too few options, or inputs are missing.
    """
    values, pairs = dict(changes.values), parse_pairs(options)
    if methods:
        systems = options_by_method(methods, pairs).items()
        values["systems"] = [{"method": name, "options": by_name} for name, by_name in systems]
    if file is None:
        config = _config_without_file(values, changes, methods)
    else:
        config = read_config(file, values, labels=changes.labels)
        if pairs and not methods:
            by_method = options_by_method([system.method for system in config.systems], pairs)
            config = config.model_copy(
                update={
                    "systems": [
                        system.model_copy(update={"options": system.options | by_method[system.method]})
                        for system in config.systems
                    ]
                }
            )
        _check_inputs(config, file)
    return config.model_copy(update={"models": [model.cached() for model in config.models]})


def _config_without_file(values: dict[str, object], changes: Changes, methods: Sequence[str]) -> RunConfig:
    missing = [] if methods else ["--method"]
    if "dataset.name" not in values:
        missing.append("--dataset")
    if missing:
        hint = "see `dialore run -h`"
        raise InputError(f"a run without an experiment file needs {' and '.join(missing)}", hint=hint)
    return make_config({"name": f"{'-'.join(methods)}-{values['dataset.name']}"}, values, labels=changes.labels)


def _check_inputs(config: RunConfig, file: Path) -> None:
    missing = missing_inputs(config)
    if len(missing) == 1:
        raise InputError(f"{file}: missing input: {missing[0]}")
    if missing:
        for line in missing:
            note(f"missing: {line}")
        raise InputError(f"{file}: missing inputs: {len(missing)}", hint="make them as listed above")


def carry_out(
    config: RunConfig,
    folder: Path,
    on_estimate: Callable[[Estimate], None],
    accepted: Sequence[str] = (),
    engine: str = "local",
) -> Progress:
    """Carry a run out, showing how far it is; raises as `run_experiment`."""
    elsewhere = None
    if one_of("engine", engine, ("local", "ray")) == "ray":
        from dialore.experiments.ray import RayEngine

        elsewhere = RayEngine()
    changed = {one_of("change to accept", name, ("prompts", "server")) for name in accepted}
    connect, say_without = connecting()

    def estimated(estimate: Estimate) -> None:
        say_without(WITHOUT_MODEL)
        on_estimate(estimate)

    with run_progress("answering") as on_progress:
        experiment = run_experiment(
            config,
            folder,
            connect,
            engine=elsewhere,
            on_estimate=estimated,
            on_progress=on_progress,
            accept_changed_prompts="prompts" in changed,
            accept_changed_server="server" in changed,
        )
        return asyncio.run(experiment)


def _say_estimate(estimate: Estimate) -> None:
    cost = ""
    if estimate.cost:
        cost = f", {estimate.cost:.2f} by the price given if the server has no prompt tokens cached"
    calls = count_noun(estimate.calls, "calls")
    note(
        f"{count_noun(estimate.responses, 'responses')} to make: about {calls}, {estimate.prompt_tokens:,} prompt "
        f"and {estimate.completion_tokens:,} completion tokens{cost} (rehearsed)"
    )
    if estimate.failed:
        note(f"a rehearsed response failed: {estimate.failed}")


def _say_end(ended: Progress, folder: Path, expected: dict[str, object] | None, *, json: bool) -> None:
    for failure in ended.failures:
        note(f"failed: {failure}")
    if ended.failed > len(ended.failures):
        note(f"and {ended.failed - len(ended.failures)} more failed")
    if ended.stopped:
        note(f"stopped: {ended.stopped}")
    missing = ended.total - ended.before - ended.ok
    if json:
        summary = {"folder": str(folder), "responses": ended.total, "before": ended.before, "answered": ended.ok}
        summary |= {"failed": ended.failed, "missing": missing, "calls": ended.calls, "cached": ended.cached}
        print_json({**summary, "tokens": ended.tokens, "stopped": ended.stopped or None, "expected": expected})
    else:
        note(
            f"{ended.ok} answered, {ended.failed} failed, {ended.before} were there: {folder} "
            f"({count_noun(ended.calls, 'calls')}, {ended.cached:,} answered from the cache, {ended.tokens:,} tokens); "
            f"score it with `dialore score {folder}`"
        )
    if missing:
        raise typer.Exit(2 if not (ended.ok or ended.before) else 1)
