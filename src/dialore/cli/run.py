"""`dialore run`: methods × dialogues × models × repetitions, kept on disk and resumed."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from dialore.cli.options import (
    METHODS,
    WITHOUT_MODEL,
    Accepted,
    Json,
    MethodOptions,
    Spread,
    connecting,
    one_of,
    takes_settings,
)
from dialore.cli.output import confirm, note, print_json, run_progress
from dialore.errors import InputError
from dialore.experiments.config import RunConfig, make_config, missing_inputs, read_config
from dialore.experiments.run import Estimate, run_experiment
from dialore.experiments.systems import Progress
from dialore.session import options_by_method
from dialore.settings import pairs

RunOptions = Annotated[Mapping[str, object], Spread(RunConfig, "said")]
_MANY_CALLS = 2_000
"""Calls from which a person at a terminal is asked whether to run."""
_NEEDED = {"--method": "systems", "--dataset": "dataset.name"}


class _EnoughError(Exception):
    """The user wanted the estimate alone, or does not want the run."""


@takes_settings
def run(
    said: RunOptions,
    accepted: Accepted,
    config: Annotated[Path | None, Argument(metavar="[FILE]", help="An experiment file; or say all here.")] = None,
    out: Annotated[Path | None, Option(metavar="FOLDER", help="Where the run is kept. (default: runs/NAME)")] = None,
    method: Annotated[
        list[str] | None,
        Option("--method", "-M", metavar="NAME", help="A method; may be given several times.", autocompletion=METHODS),
    ] = None,
    option: MethodOptions = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask, whatever it is expected to cost.")] = False,
    dry: Annotated[bool, Option("--dry-run", help="Say what it is expected to cost, and leave.")] = False,
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
    dialore run -M dcrag -M vanilla --dataset everyday
    dialore run experiment.yaml --dry-run          (calls and tokens, by rehearsal)

    Exit code: 0 all answered, 1 some failed or a budget is spent, 2 nothing could be done.
    """
    chosen = configured(config, said, method or [], option or [])
    if dry and (chosen.sources.embedder or "").startswith("endpoint:"):  # nothing outside is asked
        sources = chosen.sources.model_copy(update={"embedder": None})
        chosen = chosen.model_copy(update={"sources": sources})
    folder = out or Path("runs") / chosen.name
    expected: list[Estimate] = []

    def on_estimate(estimate: Estimate) -> None:
        expected.append(estimate)
        _say_estimate(estimate)
        is_asked = not (yes or json) and estimate.calls > _MANY_CALLS and sys.stdin.isatty()
        if dry or (is_asked and not confirm("Go on?")):
            raise _EnoughError

    try:
        ended = carry_out(chosen, folder, on_estimate, accepted, engine)
    except KeyboardInterrupt:
        note(f"interrupted: what is finished is kept in {folder}; the same command again does the rest")
        raise
    except _EnoughError:
        if json:
            print_json(asdict(expected[0]))
        return
    _say_end(ended, folder, asdict(expected[0]) if expected else None, json=json)


def configured(file: Path | None, said: Mapping[str, object], methods: list[str], options: list[str]) -> RunConfig:
    """Return the run's configuration: its file, then what the options say.

    Raises:
        InputError: as `read_config` and `make_config`, no file and too few options, or inputs that are missing.
    """
    changes = dict(said)
    if methods:
        own = options_by_method(methods, pairs(options, "NAME=VALUE"))
        changes["systems"] = [{"method": name, "options": given} for name, given in own.items()]
    if file is not None:
        config = read_config(file, changes)
        if options and not methods:
            own = options_by_method([system.method for system in config.systems], pairs(options, "NAME=VALUE"))
            systems = [s.model_copy(update={"options": s.options | own[s.method]}) for s in config.systems]
            config = config.model_copy(update={"systems": systems})
        if missing := missing_inputs(config, file):
            if len(missing) == 1:
                raise InputError(f"{file} wants what is not here: {missing[0]}")
            for absent in missing:
                note(f"missing: {absent}")
            raise InputError(f"{file} wants {len(missing)} things that are not here", hint="make them as said above")
    else:
        missing = [needed for needed, name in _NEEDED.items() if name not in changes]
        if missing:
            hint = "see `dialore run -h`"
            raise InputError(f"a run without an experiment file needs {' and '.join(missing)}", hint=hint)
        config = make_config({"name": f"{'-'.join(methods)}-{changes['dataset.name']}"}, changes)
    return config.model_copy(update={"models": [model.cached() for model in config.models]})


def carry_out(
    config: RunConfig, folder: Path, on_estimate: Callable[[Estimate], None], accepted: Accepted, engine: str = "local"
) -> Progress:
    """Carry a run out, showing how far it is; raises as `run_experiment`."""
    elsewhere = None
    if one_of("engine", engine, ("local", "ray")) == "ray":
        from dialore.experiments.ray import RayEngine

        elsewhere = RayEngine()
    connect, say_without = connecting()

    def estimated(estimate: Estimate) -> None:
        say_without(WITHOUT_MODEL)
        on_estimate(estimate)

    with run_progress("answering") as on_progress:
        told: dict[str, Any] = {"on_estimate": estimated, "on_progress": on_progress, **asdict(accepted)}
        return asyncio.run(run_experiment(config, folder, connect, engine=elsewhere, **told))


def _say_estimate(estimate: Estimate) -> None:
    cost = ""
    if estimate.cost:
        cost = f", {estimate.cost:.2f} by the price given if the server has no prompt tokens cached"
    note(
        f"{estimate.responses:,} responses to make: about {estimate.calls:,} calls, {estimate.prompt_tokens:,} prompt "
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
            f"({ended.calls:,} calls, {ended.cached:,} answered from the cache, {ended.tokens:,} tokens); "
            f"score it with `dialore score {folder}`"
        )
    if missing:
        raise typer.Exit(2 if not (ended.ok or ended.before) else 1)
