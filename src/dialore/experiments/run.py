"""A run from beginning to end: set up, estimate, resume, answer; `dialore run` is a thin coat over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore.experiments.estimate import estimate_missing
from dialore.experiments.opening import open_systems, set_up
from dialore.experiments.runner import choose, jobs_of, run_jobs
from dialore.experiments.store import RunStore
from dialore.workbench import connect_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dialore.experiments.config import RunConfig
    from dialore.experiments.estimate import Estimate
    from dialore.experiments.runner import Progress
    from dialore.workbench import Connect


async def run_experiment(
    config: RunConfig,
    folder: Path,
    connect: Connect = connect_model,
    *,
    accept_changed_prompts: bool = False,
    on_estimate: Callable[[Estimate], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Progress:
    """Make every response of a run that is not in its folder yet.

    Args:
        config: what is run.
        folder: where it is kept; made if need be. One that holds the same run is gone on with.
        connect: makes models of their settings.
        accept_changed_prompts: go on with a run whose prompts changed since, and keep that for its report.
        on_estimate: told what the run is expected to cost before it starts; what it raises stops the run there, and
            leaves one that was there as it was.
        on_progress: told of every response.

    Returns:
        How the run ended.

    Raises:
        InputError: a set-up that is wrong for every dialogue, a folder of another run, of other prompts, or held by
            another process.
        ModelError: an endpoint that refuses.
    """
    with RunStore.going_on(folder) as store:
        async with open_systems(config, connect) as opened:
            # Who wants the estimate alone leaves the run as it was.
            with store.together():
                numbers = set_up(store, config, opened, accept_changed_prompts=accept_changed_prompts)
                jobs = jobs_of(store, numbers.values(), config.repetitions)
                if on_estimate is not None:
                    on_estimate(await estimate_missing(config, store, jobs, numbers, opened.lexical))
            answers = choose(opened.agents, numbers)
            return await run_jobs(store, jobs, answers, at_once=config.concurrency, on_progress=on_progress)
