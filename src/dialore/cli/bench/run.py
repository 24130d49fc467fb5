"""The run benchmark: how near `dialore run` comes to what an endpoint allows, and what it costs in CPU and memory."""

from __future__ import annotations

import asyncio
import json as jsons
import os
import tempfile
import time
import urllib.request
import zlib
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.cli.bench.asking import connected, endpoint, good
from dialore.cli.bench.dialogues import made_up
from dialore.cli.bench.measures import bare_calls, stage_calls
from dialore.cli.bench.run_memory import peak_of_runs
from dialore.cli.bench.run_scoring import time_scoring
from dialore.cli.bench.run_table import show
from dialore.cli.output import print_json, progress
from dialore.errors import InputError
from dialore.experiments.config import make_config
from dialore.experiments.run import run_experiment
from dialore.sources.graph import open_graph
from dialore.workbench import create_agent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dialore.agent import Agent
    from dialore.dialogue import Dialogue
    from dialore.experiments.config import RunConfig
    from dialore.experiments.runner import Progress
    from dialore.llm.model import Completion, LanguageModel, OnText, Request
    from dialore.settings import ModelSettings

    Step = Callable[[str, int, int | None], None]
    Tell = Callable[[int], None]
    Way = Callable[["Plan", Sequence[Dialogue], str, str, Tell], Awaitable["_Clock"]]

_BATCHES = 4
"""Batches of the gather-per-batch loop: its share of the ideal does not depend on how many there are."""
_BARE_BODIES = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured.

    Attributes:
        dialogues: how many are answered.
        connections: the most calls at once.
        median: of the endpoint's latency, in milliseconds.
        sigma: spread of its logarithm.
        method: the method; its calls depend on each other.
        memory: dialogues of the smaller run whose peak memory is measured; 0 leaves it out.
        responses: how many are scored; 0 leaves it out.
    """

    dialogues: int
    connections: int
    median: int
    sigma: float
    method: str
    memory: int
    responses: int


@dataclass(frozen=True, slots=True)
class Loop:
    """How one way to answer many dialogues did.

    Attributes:
        way: the way.
        dialogues: how many it answered.
        calls: model calls.
        seconds: wall-clock, from the first call to the last response kept.
        ideal: seconds that the endpoint waited in all, over the connections.
        half: seconds until half of the responses were there, where there are responses.
        cpu: our CPU seconds a call.
        endpoint_cpu: those of the endpoint, which runs on the same machine.
    """

    way: str
    dialogues: int
    calls: int
    seconds: float
    ideal: float
    half: float | None
    cpu: float
    endpoint_cpu: float

    @property
    def share(self) -> float:
        """Of the ideal throughput."""
        return self.ideal / self.seconds


def run(plan: Plan, *, json: bool) -> None:
    """Measure and show; raises InputError for an unknown method, or an endpoint that does not start."""
    figures: dict[str, Any] = {"plan": asdict(plan)}
    with progress("starting an endpoint") as step:
        with endpoint() as url, closing(open_graph(None)) as graph:
            dialogues = made_up(graph, plan.dialogues)
            loops = _loops(plan, dialogues, url, step)
        figures["loops"] = [asdict(loop) | {"over_ideal": loop.share} for loop in loops]
        if plan.memory:
            figures["memory"] = peak_of_runs(plan.method, [plan.memory, 4 * plan.memory], plan.connections, step)
        if plan.responses:
            figures["scoring"] = asdict(time_scoring(plan.responses, step))
    figures["cores"] = os.cpu_count()
    figures["load"] = round(os.getloadavg()[0], 1)
    if json:
        print_json(figures)
    else:
        show(figures)


def _loops(plan: Plan, dialogues: Sequence[Dialogue], url: str, step: Step) -> list[Loop]:
    few = dialogues[: _BATCHES * plan.connections]
    ours = _loop("dialore run", _by_run, plan, dialogues, url, step)
    # As many as ours made, so that the last ones, when connections fall idle, weigh as much.
    calls = [dialogues[place % len(dialogues)] for place in range(ours.calls)]
    return [
        ours,
        _loop("gather per batch", _by_batch, plan, few, url, step),
        _loop("semaphore over stages", _by_stages, plan, dialogues, url, step),
        _loop("bare HTTP calls", _by_bare_calls, plan, calls, url, step),
    ]


def _loop(title: str, way: Way, plan: Plan, dialogues: Sequence[Dialogue], url: str, step: Step) -> Loop:
    # The draw's seed is of the way: each has an endpoint's model of its own.
    name = f"lognormal-{plan.median}-{plan.sigma:g}-{zlib.crc32(title.encode()) % 1000}"
    clock = asyncio.run(_measure(way, plan, dialogues, url, name, _telling(step, title, len(dialogues))))
    counted, waited, theirs = _waited(url, name)
    calls = clock.calls or counted
    ideal = waited / counted * calls / plan.connections
    count = len(clock.times)
    half = clock.times[(count - 1) // 2] if count else None
    return Loop(title, count, calls, clock.seconds, ideal, half, clock.cpu / max(1, calls), theirs / counted)


def _telling(step: Step, name: str, total: int) -> Tell:
    return lambda done: step(name, done, total)


class _Clock:
    """Wall-clock and CPU time of a loop, and when each response was there."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._wall = self._cpu = self.seconds = self.cpu = 0.0
        self.times: list[float] = []
        self.calls = 0
        """How many calls are timed, where the endpoint was asked more."""
        self.start()

    def start(self) -> None:
        """The loop begins."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def count(self) -> None:
        """A response is there."""
        self.times.append(time.perf_counter() - self._wall)
        self._tell(len(self.times))

    def stop(self) -> _Clock:
        """The loop has ended."""
        self.seconds, self.cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return self


async def _measure(way: Way, plan: Plan, dialogues: Sequence[Dialogue], url: str, name: str, tell: Tell) -> _Clock:
    """One way's clock, after one response: what is imported and opened once is not what is compared."""
    async with _agent(plan, url, "wait-0") as agent:
        good(await agent.respond(dialogues[0]))
    return await way(plan, dialogues, url, name, tell)


async def _by_run(plan: Plan, dialogues: Sequence[Dialogue], url: str, name: str, tell: Tell) -> _Clock:
    with tempfile.TemporaryDirectory(prefix="dialore-bench-") as folder:
        config = _config(plan, dialogues, Path(folder), name)
        clock = _Clock(tell)

        def on_progress(ended: Progress) -> None:
            if ended.failures:
                raise InputError(f"a response of the benchmark failed: {ended.failures[0]}", mend="report this")
            clock.count()

        def make(settings: ModelSettings, name: str | None) -> LanguageModel:
            return _Starting(connected(name or settings.model or "", url, plan.connections), clock)

        await run_experiment(config, Path(folder) / "run", make, on_progress=on_progress)
        return clock.stop()


class _Starting:
    """A model whose first call starts a clock: what is set up before is the same for a run of any size."""

    def __init__(self, model: LanguageModel, clock: _Clock) -> None:
        self._model, self._clock, self._is_first = model, clock, True

    @property
    def name(self) -> str:
        return self._model.name

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        if self._is_first:
            self._is_first = False
            self._clock.start()
        return await self._model.complete(request, on_text)

    async def close(self) -> None:
        await self._model.close()


async def _by_bare_calls(plan: Plan, dialogues: Sequence[Dialogue], url: str, name: str, tell: Tell) -> _Clock:
    """Calls of one stage by the HTTP library alone, with nothing between them: what this machine allows."""
    model = connected("wait-0", url, plan.connections)
    _, bodies = await stage_calls(model, dialogues, _BARE_BODIES)
    await model.close()
    clock = _Clock(tell)
    several = [bodies[place % len(bodies)] for place in range(len(dialogues))]
    _, seconds = await bare_calls(url, several, name, at_once=plan.connections)
    clock.stop()
    clock.seconds, clock.calls = seconds, len(several)
    return clock


def _config(plan: Plan, dialogues: Sequence[Dialogue], folder: Path, model: str) -> RunConfig:
    path = folder / "dialogues.jsonl"
    # With a reference, so that the last turn is what is answered.
    whole = (dialogue.model_copy(update={"reference": "Something else."}) for dialogue in dialogues)
    path.write_text("".join(dialogue.model_dump_json() + "\n" for dialogue in whole), encoding="utf-8")
    given: dict[str, Any] = {"name": "bench", "dataset": {"name": "jsonl", "path": str(path)}}
    given |= {"systems": [plan.method], "models": [{"model": model}], "concurrency": plan.connections}
    return make_config(given)


async def _by_batch(plan: Plan, dialogues: Sequence[Dialogue], url: str, name: str, tell: Tell) -> _Clock:
    async with _agent(plan, url, name) as agent:
        clock = _Clock(tell)
        for begin in range(0, len(dialogues), plan.connections):
            some = dialogues[begin : begin + plan.connections]
            await asyncio.gather(*(_answer(agent, dialogue, clock) for dialogue in some))
        return clock.stop()


async def _by_stages(plan: Plan, dialogues: Sequence[Dialogue], url: str, name: str, tell: Tell) -> _Clock:
    async with _agent(plan, url, name) as agent:
        clock = _Clock(tell)
        await asyncio.gather(*(_answer(agent, dialogue, clock) for dialogue in dialogues))
        return clock.stop()


async def _answer(agent: Agent, dialogue: Dialogue, clock: _Clock) -> None:
    good(await agent.respond(dialogue))
    clock.count()


def _agent(plan: Plan, url: str, name: str) -> Agent:
    return create_agent(plan.method, model=connected(name, url, plan.connections))


def _waited(url: str, model: str) -> tuple[int, float, float]:
    """A model's calls, the seconds that they waited, and the endpoint's CPU seconds since the first."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/waited") as answer:
        said = jsons.load(answer)[model]
    return int(said["calls"]), float(said["seconds"]), float(said["cpu"])
