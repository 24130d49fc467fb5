"""The pipeline benchmark: what a method costs beside its model's time."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from dialore.cli.bench.asking import connected, endpoint, good, steps_of
from dialore.cli.bench.dialogues import made_up
from dialore.cli.bench.measures import (
    bare_calls,
    cacheable_share,
    import_seconds,
    peak_memory,
    percentile,
    stage_calls,
)
from dialore.cli.bench.table import show
from dialore.cli.output import print_json, progress
from dialore.sources.graph import open_graph
from dialore.workbench import create_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dialore.dialogue import Dialogue
    from dialore.response import Response

    Step = Callable[[str, int, int | None], None]

_CALLS = 100
_IMPORTS = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: `latency` and `batch_latency` in milliseconds."""

    dialogues: int
    latency: int
    batch: int
    connections: int
    batch_latency: int
    method: str
    graph: str


@dataclass(slots=True)
class Measured:
    """What came out; seconds, bytes, and ratios that hold on any machine.

    Attributes:
        call_cpu: our CPU seconds for one model call: prompt, request, parsing; one entry a call.
        bare_cpu: the CPU seconds of the same call by the HTTP library alone.
        response_cpu: our CPU seconds for one response.
        response_wall: wall-clock seconds of one response.
        calls: model calls a response.
        steps: model calls a response that had to wait for one another.
        cacheable: the share of prompt characters that an earlier prompt of the run begins with.
        batch_seconds: wall-clock seconds of the batch.
        batch_calls: its model calls.
        batch_bare: wall-clock seconds of as many calls by the HTTP library alone.
        import_seconds: of `import dialore` in a fresh process.
        peak_bytes: the most memory that this process had.
    """

    call_cpu: list[float] = field(default_factory=list)
    bare_cpu: list[float] = field(default_factory=list)
    response_cpu: list[float] = field(default_factory=list)
    response_wall: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    cacheable: float = 0.0
    batch_seconds: float = 0.0
    batch_calls: int = 0
    batch_bare: float = 0.0
    import_seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0


def run(plan: Plan, *, json: bool) -> None:
    """Measure and show; raises InputError for an unknown method or graph, or an endpoint that does not start."""
    with closing(open_graph(plan.graph)) as graph:
        facts = graph.store.meta.facts
        dialogues = made_up(graph, max(plan.dialogues + 1, plan.batch))
    with progress("starting an endpoint") as step, endpoint() as url:
        measured = asyncio.run(_measure(plan, dialogues, url, step))
        step("importing dialore in fresh processes", 0, None)
        measured.import_seconds = import_seconds(_IMPORTS)
    measured.peak_bytes = peak_memory()
    figures = _summary(plan, measured, facts)
    if json:
        print_json(figures)
    else:
        show(figures)


async def _measure(plan: Plan, dialogues: Sequence[Dialogue], url: str, step: Step) -> Measured:
    measured = Measured()
    step("model calls", 0, None)
    model = connected("wait-0", url, plan.connections)
    measured.call_cpu, bodies = await stage_calls(model, dialogues, _CALLS)
    await model.close()
    measured.bare_cpu, _ = await bare_calls(url, bodies, "wait-0", at_once=1)
    responses = await _one_by_one(plan, dialogues[: plan.dialogues + 1], url, measured, step)
    measured.cacheable = cacheable_share(responses)
    if plan.batch:
        await _batch(plan, dialogues[: plan.batch], url, measured, step)
        several = [bodies[place % len(bodies)] for place in range(measured.batch_calls)]
        step("as many bare calls", 0, None)
        _, measured.batch_bare = await bare_calls(url, several, f"wait-{plan.batch_latency}", at_once=plan.connections)
    return measured


async def _one_by_one(
    plan: Plan, dialogues: Sequence[Dialogue], url: str, measured: Measured, step: Step
) -> list[Response]:
    responses: list[Response] = []
    model = connected(f"wait-{plan.latency}", url, plan.connections)
    async with create_agent(plan.method, model=model, graph=plan.graph) as agent:
        await agent.respond(dialogues[-1])  # warms imports and caches that a run pays for once
        for place, dialogue in enumerate(dialogues[:-1]):
            step("responses one by one", place, len(dialogues) - 1)
            wall, cpu = time.perf_counter(), time.process_time()
            response = good(await agent.respond(dialogue))
            measured.response_cpu.append(time.process_time() - cpu)
            measured.response_wall.append(time.perf_counter() - wall)
            measured.calls.append(response.usage.calls)
            measured.steps.append(steps_of(response))
            responses.append(response)
    return responses


async def _batch(plan: Plan, dialogues: Sequence[Dialogue], url: str, measured: Measured, step: Step) -> None:
    model = connected(f"wait-{plan.batch_latency}", url, plan.connections)
    async with create_agent(plan.method, model=model, graph=plan.graph) as agent:
        await asyncio.gather(*(agent.respond(dialogues[0]) for _ in range(plan.connections)))  # opens the connections
        begun = time.perf_counter()
        async for response in agent.respond_all(dialogues, at_once=2 * plan.connections):
            measured.batch_calls += good(response).usage.calls
            step("a batch at once", measured.batch_calls, None)
        measured.batch_seconds = time.perf_counter() - begun


def _summary(plan: Plan, measured: Measured, facts: int) -> dict[str, Any]:
    """The figures by name: medians and 95th percentiles of times in milliseconds, and ratios."""
    own, bare = statistics.median(measured.call_cpu), statistics.median(measured.bare_cpu)
    latency = plan.latency / 1000
    figures: dict[str, Any] = {"plan": asdict(plan), "graph_facts": facts}
    figures["cpu_per_call_ms"] = _spread(measured.call_cpu)
    figures["cpu_per_call_over_bare_http"] = round(own / bare, 2) if bare else None
    figures["cpu_per_response_ms"] = _spread(measured.response_cpu)
    figures["wall_per_response_ms"] = _spread(measured.response_wall)
    figures["calls_per_response"] = statistics.median(measured.calls)
    figures["sequential_steps"] = statistics.median(measured.steps)
    walls = statistics.median(measured.response_wall)
    figures["wall_over_latency"] = round(walls / latency, 2) if latency else None
    figures["cacheable_prefix_share"] = round(measured.cacheable, 3)
    if plan.batch:
        ideal = measured.batch_calls * plan.batch_latency / 1000 / plan.connections
        figures["batch"] = {
            "dialogues": plan.batch,
            "calls": measured.batch_calls,
            "seconds": round(measured.batch_seconds, 3),
            "calls_a_second": round(measured.batch_calls / measured.batch_seconds, 1),
            "over_ideal": round(ideal / measured.batch_seconds, 3),
            "over_bare_http": round(measured.batch_bare / measured.batch_seconds, 3),
        }
    figures["import_ms"] = _spread(measured.import_seconds)
    figures["peak_memory_mb"] = round(measured.peak_bytes / 2**20, 1)
    return figures


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    return {"median": round(statistics.median(seconds) * 1000, 2), "p95": round(percentile(seconds, 95) * 1000, 2)}
