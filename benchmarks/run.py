"""The run benchmark: how near `dialore run` comes to what an endpoint allows, and what it costs in CPU and memory."""

# No deferred annotations here: typer reads them.
import asyncio
import json as jsons
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.endpoint import connected, endpoint, waited
from benchmarks.made_up import made_up
from benchmarks.measure import answer_parent, child, folder, peak_memory, report, show, size_of, tell
from benchmarks.pipeline import good
from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.experiments.config import RunConfig, make_config
from dialore.experiments.run import Progress, run_experiment
from dialore.llm.capabilities import ServerCapabilities
from dialore.llm.fake import FakeModel
from dialore.llm.model import Completion, LanguageModel, OnToken, Request
from dialore.llm.structured import output_schema
from dialore.methods.dcrag import ThoughtQueries
from dialore.methods.stage_runner import LLMRunner, StageCall
from dialore.prompts.library import PromptLibrary
from dialore.response import StageTrace
from dialore.session import create_agent
from dialore.settings import ModelSettings
from dialore.sources.graph import open_graph

_BATCHES = 4
"""Batches of the gather-per-batch loop: its share of the ideal does not depend on how many there are."""
_BARE_BODIES = 20
_WARM_UP = 10
_DIFFERENT = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """The measurement; the latency is lognormal, its median in milliseconds, its logarithm's spread sigma."""

    dialogues: int
    connections: int
    median: int
    sigma: float
    method: str


@dataclass(frozen=True, slots=True)
class Loop:
    """How one way to answer many dialogues did.

    Attributes:
        way: the way.
        dialogues: how many it answered.
        calls: model calls.
        seconds: wall-clock, from the first call to the last response kept.
        half: seconds until half of the responses were there.
        cpu_ms: our CPU milliseconds a call.
        endpoint_cpu_ms: those of the endpoint, which runs on the same machine.
        over_ideal: the seconds that the endpoint waited in all, over the connections, over the wall-clock seconds.
    """

    way: str
    dialogues: int
    calls: int
    seconds: float
    half: float | None
    cpu_ms: float
    endpoint_cpu_ms: float
    over_ideal: float


def run(
    dialogues: Annotated[int, typer.Option(min=1, help="How many are answered.")] = 1500,
    connections: Annotated[int, typer.Option(min=1, help="The most calls at once.")] = 64,
    median: Annotated[int, typer.Option(min=1, help="Of the endpoint's latency, in milliseconds.")] = 200,
    sigma: Annotated[float, typer.Option(min=0, help="Spread of the latency's logarithm.")] = 0.6,
    method: Annotated[str, typer.Option("--method", "-M", help="The method.")] = "dcrag",
    memory: Annotated[int, typer.Option(min=0, help="Dialogues of a run whose memory is measured; 0: none.")] = 500,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the throughput of `dialore run` against the ideal, and beside other loops; and the memory of runs."""
    plan = Plan(dialogues, connections, median, sigma, method)
    with endpoint() as url, closing(open_graph(None)) as graph:
        loops = _loops(plan, made_up(graph, dialogues), url)
    figures: dict[str, Any] = {"plan": asdict(plan), "loops": [asdict(loop) for loop in loops]}
    if memory:
        sizes = [memory, 4 * memory]
        figures["memory"] = [child("run", "rehearsed", method, size, connections) for size in sizes]
    report(figures, json, _show)


def _show(figures: dict[str, Any]) -> None:
    plan = figures["plan"]
    latency = f"latency's median {plan['median']} ms, sigma {plan['sigma']:g}"
    show(f"{plan['method']}, {latency}, {plan['connections']} connections; wanted: 0.95 of the ideal", figures["loops"])
    if "memory" in figures:
        show("runs without an endpoint; wanted: the same memory at any size", figures["memory"])


def _loops(plan: Plan, dialogues: Sequence[Dialogue], url: str) -> list[Loop]:
    few = dialogues[: _BATCHES * plan.connections]
    ours = _loop("dialore run", _by_run, plan, dialogues, url)
    # As many calls as ours made, so that the last ones, when connections fall idle, weigh as much.
    calls = [dialogues[place % len(dialogues)] for place in range(ours.calls)]
    return [
        ours,
        _loop("gather per batch", _by_batch, plan, few, url),
        _loop("semaphore over stages", _by_stages, plan, dialogues, url),
        _loop("bare HTTP calls", _by_bare_calls, plan, calls, url),
    ]


class _Clock:
    """Wall-clock and CPU time of a loop, and when each response was there."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.calls = 0
        """How many calls are timed, where the endpoint was asked more."""
        self.start()

    def start(self) -> None:
        """Note that the loop begins."""
        self.seconds = self.cpu = 0.0
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def count(self) -> None:
        """Count a response."""
        self.times.append(time.perf_counter() - self._wall)

    def stop(self) -> "_Clock":
        """Return the loop has ended."""
        self.seconds, self.cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return self


Way = Callable[[Plan, Sequence[Dialogue], str, str], Awaitable[_Clock]]


def _loop(title: str, way: Way, plan: Plan, dialogues: Sequence[Dialogue], url: str) -> Loop:
    tell(title)
    # The seed is of the way: each has an endpoint's model of its own.
    name = f"lognormal-{plan.median}-{plan.sigma:g}-{zlib.crc32(title.encode()) % 1000}"
    clock = asyncio.run(_measure(way, plan, dialogues, url, name))
    counted, seconds, theirs = waited(url, name)
    calls = clock.calls or counted
    ideal = seconds / counted * calls / plan.connections
    count = len(clock.times)
    half = round(clock.times[(count - 1) // 2], 2) if count else None
    cpu = round(clock.cpu / calls * 1000, 3), round(theirs / counted * 1000, 3)
    return Loop(title, count, calls, round(clock.seconds, 3), half, *cpu, round(ideal / clock.seconds, 4))


async def _measure(way: Way, plan: Plan, dialogues: Sequence[Dialogue], url: str, name: str) -> _Clock:
    """One way's clock, after one response: what is imported and opened once is not what is compared."""
    async with _agent(plan, url, "wait-0") as agent:
        good(await agent.respond(dialogues[0]))
    return await way(plan, dialogues, url, name)


async def _by_run(plan: Plan, dialogues: Sequence[Dialogue], url: str, name: str) -> _Clock:
    with folder() as here:
        path = here / "dialogues.jsonl"
        write_dialogues(path, dialogues, len(dialogues))
        clock = _Clock()

        def on_progress(ended: Progress) -> None:
            if ended.failures:
                raise InputError(f"a response of the benchmark failed: {ended.failures[0]}", hint="report this")
            clock.count()

        def make(settings: ModelSettings, name: str | None) -> LanguageModel:
            return _Starting(connected(name or settings.model or "", url, plan.connections), clock)

        config = run_config(path, plan.method, plan.connections, [{"model": name}])
        await run_experiment(config, here / "run", make, on_progress=on_progress)
        return clock.stop()


class _Starting:
    """A model whose first call starts a clock: what is set up before is the same for a run of any size."""

    def __init__(self, model: LanguageModel, clock: _Clock) -> None:
        self._model, self._clock, self._is_first = model, clock, True

    @property
    def name(self) -> str:
        return self._model.name

    async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
        if self._is_first:
            self._is_first = False
            self._clock.start()
        return await self._model.complete(request, on_token)

    async def close(self) -> None:
        await self._model.close()


async def _by_batch(plan: Plan, dialogues: Sequence[Dialogue], url: str, name: str) -> _Clock:
    async with _agent(plan, url, name) as agent:
        clock = _Clock()
        for begin in range(0, len(dialogues), plan.connections):
            some = dialogues[begin : begin + plan.connections]
            await asyncio.gather(*(_answer(agent, dialogue, clock) for dialogue in some))
        return clock.stop()


async def _by_stages(plan: Plan, dialogues: Sequence[Dialogue], url: str, name: str) -> _Clock:
    async with _agent(plan, url, name) as agent:
        clock = _Clock()
        await asyncio.gather(*(_answer(agent, dialogue, clock) for dialogue in dialogues))
        return clock.stop()


async def _answer(agent: Agent, dialogue: Dialogue, clock: _Clock) -> None:
    good(await agent.respond(dialogue))
    clock.count()


def _agent(plan: Plan, url: str, name: str) -> Agent:
    return create_agent(plan.method, model=connected(name, url, plan.connections))


async def _by_bare_calls(plan: Plan, dialogues: Sequence[Dialogue], url: str, name: str) -> _Clock:
    """Return calls of one stage by the HTTP library alone, with nothing between them: what this machine allows."""
    import aiohttp

    bodies = await _bodies(url, dialogues[:_BARE_BODIES])
    free = asyncio.Semaphore(plan.connections)
    connector = aiohttp.TCPConnector(limit=plan.connections)
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:

        async def ask(body: dict[str, Any], model: str) -> None:
            async with free, session.post(f"{url}/chat/completions", json={**body, "model": model}) as response:
                jsons.loads(await response.read())

        for _ in range(_WARM_UP):
            await ask(bodies[0], "wait-0")
        clock = _Clock()
        await asyncio.gather(*(ask(bodies[place % len(bodies)], name) for place in range(len(dialogues))))
        clock.stop()
    clock.calls = len(dialogues)
    return clock


async def _bodies(url: str, dialogues: Sequence[Dialogue]) -> list[dict[str, Any]]:
    """Return the request bodies of one stage, a dialogue each."""
    model = connected("wait-0", url)
    responder = LLMRunner(model, PromptLibrary())
    bodies = []
    for dialogue in dialogues:
        call = StageCall("dcrag/query-production", dialogue, ThoughtQueries, {"thoughts": True}, "")
        step = StageTrace(stage="bench")
        await responder.answer(call, step)
        given = {"messages": step.messages, "output_schema": output_schema(ThoughtQueries)}
        bodies.append(ServerCapabilities().body(model.name, Request.model_validate(given), stream=False))
    await model.close()
    return bodies


def write_dialogues(path: Path, some: Sequence[Dialogue], count: int) -> None:
    """Write so many dialogues, with a reference so that the last turn is what is answered."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            one = some[number % len(some)].model_copy(update={"id": f"bench-{number}", "reference": "Something else."})
            file.write(one.model_dump_json() + "\n")


def run_config(path: Path, method: str, connections: int, models: Sequence[dict[str, str]] = ()) -> RunConfig:
    """Return the configuration of a run of one method over a file of dialogues."""
    given: dict[str, Any] = {"name": "bench", "dataset": {"name": "jsonl", "path": str(path)}, "systems": [method]}
    given |= {"models": list(models)} if models else {}
    return make_config(given | {"concurrency": connections})


def rehearsed(method: str, dialogues: str, connections: str) -> dict[str, Any]:
    """Return a run over so many dialogues by rehearsal, without an endpoint: its time, memory and disk."""
    size = int(dialogues)
    with folder() as here:
        with closing(open_graph(None)) as graph:
            write_dialogues(here / "dialogues.jsonl", made_up(graph, min(size, _DIFFERENT)), size)
        config = run_config(here / "dialogues.jsonl", method, int(connections))
        begun, cpu = time.perf_counter(), time.process_time()
        ended = asyncio.run(run_experiment(config, here / "run", lambda _config, _name: FakeModel()))
        if ended.ok != size:
            raise InputError(f"{ended.failed} responses failed: {ended.failures[:1]}", hint="report this")
        ran, cpu = time.perf_counter(), time.process_time() - cpu
        asyncio.run(run_experiment(config, here / "run", lambda _config, _name: FakeModel()))
        return {
            "dialogues": size,
            "seconds": round(ran - begun, 2),
            "resume_seconds": round(time.perf_counter() - ran, 2),
            "cpu_ms": round(cpu / size * 1000, 3),
            "peak_memory_mb": round(peak_memory(), 1),
            "disk_mb": round(size_of(here / "run") / 2**20, 2),
        }


if __name__ == "__main__":
    answer_parent({"rehearsed": rehearsed})
