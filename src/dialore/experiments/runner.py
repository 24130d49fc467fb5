"""The runner: a work queue over whole dialogues, each finished response on disk at once, resumed where it stopped."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dialore.errors import BudgetError
from dialore.experiments.store import Job
from dialore.parallel import bounded_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dialore.dialogue import Dialogue
    from dialore.experiments.store import RunStore
    from dialore.response import Response

log = logging.getLogger(__name__)


class Answers(Protocol):
    """Whoever answers a dialogue: an agent, for one."""

    async def respond(self, dialogue: Dialogue) -> Response:
        """Answer; a failure is a response with the status `failed`."""
        ...


@dataclass(slots=True)
class Progress:
    """How a run stands.

    Attributes:
        total: responses that the run wants in all.
        before: those that were there when it began.
        ok: answered since.
        failed: failed since.
        tokens: prompt and completion tokens since; those of stages that the cache answered are left out.
        calls: calls since, cached ones left out.
        began: `time.perf_counter` at the start.
        stopped: why the run ended early, if it did.
        failures: the first few failures: what failed, and why.
    """

    total: int
    before: int = 0
    ok: int = 0
    failed: int = 0
    tokens: int = 0
    calls: int = 0
    began: float = field(default_factory=time.perf_counter)
    stopped: str = ""
    failures: list[str] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Responses made since the run began, failed ones too."""
        return self.ok + self.failed

    @property
    def rate(self) -> float:
        """Responses a second since the run began."""
        return self.done / max(1e-9, time.perf_counter() - self.began)

    @property
    def seconds_left(self) -> float | None:
        """About how long the rest takes, or None while nobody can tell."""
        left = self.total - self.before - self.done
        return left / self.rate if self.done else None

    def count(self, job: Job, response: Response) -> None:
        """Count a response."""
        usage = response.usage
        if response.status == "ok":
            self.ok += 1
        else:
            self.failed += 1
            if len(self.failures) < _SHOWN:
                self.failures.append(f"{response.id}, {response.method}: {response.error}")
        self.calls += usage.calls - usage.cached
        # Stage by stage, as some calls of a response may be the cache's and others not.
        paid = [stage.usage for stage in response.trace if not stage.usage.cached] if usage.cached else [usage]
        self.tokens += sum(one.prompt_tokens + one.completion_tokens for one in paid)


_SHOWN = 10


def jobs_of(store: RunStore, systems: Iterable[int], repetitions: int) -> list[Job]:
    """Every response that a run wants: all systems' of one dialogue together, so that a run cut short is paired.

    Args:
        store: the run.
        systems: the systems' numbers in it.
        repetitions: how often each answers a dialogue.
    """
    systems = sorted(systems)
    return [
        Job(position, system, repetition)
        for position in range(store.size)
        for system in systems
        for repetition in range(repetitions)
    ]


async def run_jobs(
    store: RunStore,
    jobs: Sequence[Job],
    answers: Callable[[Job], Answers],
    *,
    at_once: int,
    on_progress: Callable[[Progress], None] | None = None,
) -> Progress:
    """Make every response that is not there yet, several dialogues at once, each kept as soon as it is finished.

    The store must be held for writing. Failed responses of an earlier run are tried again. Where the budget is spent,
    calls under way finish, and so do dialogues that need no further one; where the run is interrupted, they do not.
    What is finished is kept either way, and the rest is left for the next run.

    Args:
        store: the run.
        jobs: what it wants in all.
        answers: who answers a job.
        at_once: the most dialogues under way.
        on_progress: told of every response.

    Returns:
        How the run ended.

    Raises:
        InputError: the set-up is wrong for every dialogue.
        ModelError: likewise, an endpoint that refuses.
    """
    done = store.done()
    progress = Progress(total=len(jobs), before=sum(1 for job in jobs if job in done))

    async def answer(job: Job) -> None:
        if progress.stopped:
            return
        try:
            response = await answers(job).respond(store.dialogue(job.position))
        except BudgetError as error:
            progress.stopped = str(error)
            return
        store.add(job, response)
        progress.count(job, response)
        if on_progress is not None:
            on_progress(progress)

    # The first that raises stops all: what it raises would befall every dialogue.
    await bounded_map([job for job in jobs if job not in done], answer, limit=at_once)
    return progress


def choose(agents: Mapping[tuple[int, int], Answers], numbers: Mapping[int, int]) -> Callable[[Job], Answers]:
    """Who answers a job, from agents by system number and repetition; see `RunStore.set_up` for the numbers."""
    placed = {(numbers[system], repetition): agent for (system, repetition), agent in agents.items()}
    return lambda job: placed[job.system, job.repetition]
