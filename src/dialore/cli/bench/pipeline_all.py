"""The pipeline benchmark of every method: calls, steps, tokens, our own CPU and what prompts share, in one table."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dialore.cli.bench.asking import connected, endpoint, good, steps_of
from dialore.cli.bench.dialogues import made_up
from dialore.cli.bench.measures import cacheable_share, percentile
from dialore.cli.bench.pipeline_world import open_world, with_persona
from dialore.cli.output import console, print_json, progress, table
from dialore.llm.rehearsal import Rehearsal
from dialore.methods.registry import method_class, method_names, method_sources
from dialore.sources.graph import open_graph
from dialore.workbench import create_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.response import Response
    from dialore.sources.graph.source import Graph

    Step = Callable[[str, int, int | None], None]

_WARM_UP = 2
_STEERED = {"pplm"}
"""Methods that ask for steered decoding, which no endpoint offers: rehearsed in this process."""
CPU_MS = 15.0
SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: dialogues a method, milliseconds of latency, sentences of the base or a base that is there."""

    dialogues: int
    latency: int
    graph: str
    sentences: int
    documents: Path | None


@dataclass(frozen=True, slots=True)
class MethodCost:
    """What a response of one method costs.

    Attributes:
        method: its name.
        sources: those that it asked.
        calls: model calls, the median.
        steps: model calls that had to wait for one another, the median.
        prompt_tokens: sent, by estimate (four characters each), the median.
        completion_tokens: written, likewise.
        cpu_ms: our own CPU milliseconds, median; the HTTP client's work is in it.
        cpu_ms_p95: the 95th percentile.
        cacheable: the share of prompts that a prompt of other dialogues, or of this response, begins with.
        in_talk: the same where the dialogue's turn before was answered too.
        rehearsed: answered in this process, for no endpoint can do what the method asks.
    """

    method: str
    sources: tuple[str, ...]
    calls: float
    steps: float
    prompt_tokens: float
    completion_tokens: float
    cpu_ms: float
    cpu_ms_p95: float
    cacheable: float
    in_talk: float
    rehearsed: bool


def run(plan: Plan, *, json: bool) -> None:
    """Measure every method and show one table; raises InputError for an unknown graph or a response that fails."""
    with closing(open_graph(plan.graph)) as graph, progress("making a world") as step:
        dialogues = [with_persona(each) for each in made_up(graph, plan.dialogues + _WARM_UP)]
        with open_world(graph, plan.sentences, plan.documents, step) as sources, endpoint() as url:
            passages = len(sources["documents"])
            costs = [asyncio.run(_cost(name, plan, dialogues, graph, sources, url, step)) for name in method_names()]
        facts = graph.store.meta.facts
    if json:
        said = {**asdict(plan), "documents": str(plan.documents or "")}
        print_json({"plan": said, "facts": facts, "passages": passages, "methods": [asdict(cost) for cost in costs]})
    else:
        _show(plan, facts, passages, costs)


async def _cost(
    name: str,
    plan: Plan,
    dialogues: Sequence[Dialogue],
    graph: Graph,
    sources: dict[str, Any],
    url: str,
    step: Step,
) -> MethodCost:
    taken = method_sources(method_class(name))
    given = {key: source for key, source in sources.items() if key in taken}
    model = Rehearsal() if name in _STEERED else connected(f"wait-{plan.latency}", url)
    before: list[Response] = []
    responses: list[Response] = []
    seconds: list[float] = []
    try:
        agent = create_agent(name, model=model, graph=graph, sources=given)
        for place, dialogue in enumerate(dialogues):
            step(name, place, len(dialogues))
            before.append(good(await agent.respond(dialogue.model_copy(update={"turns": dialogue.turns[:-2]}))))
            begun = time.process_time()
            responses.append(good(await agent.respond(dialogue)))
            seconds.append(time.process_time() - begun)
    finally:
        await model.close()
    first, measured, cpu = responses[:_WARM_UP], responses[_WARM_UP:], seconds[_WARM_UP:]
    return MethodCost(
        method=name,
        sources=tuple(key for key in taken if key == "graph" or key in given),
        calls=statistics.median(response.usage.calls for response in measured),
        steps=statistics.median(steps_of(response) for response in measured),
        prompt_tokens=statistics.median(response.usage.prompt_tokens for response in measured),
        completion_tokens=statistics.median(response.usage.completion_tokens for response in measured),
        cpu_ms=round(statistics.median(cpu) * 1000, 2),
        cpu_ms_p95=round(percentile(cpu, 95) * 1000, 2),
        cacheable=round(cacheable_share(measured, after=first), 3),
        in_talk=round(cacheable_share(measured, after=[*first, *before]), 3),
        rehearsed=name in _STEERED,
    )


def _show(plan: Plan, facts: int, passages: int, costs: Sequence[MethodCost]) -> None:
    out = console()
    out.print(
        f"{plan.dialogues} dialogues a method, a graph of {facts:,} facts, a base of {passages:,} passages; "
        f"CPU wanted: under {CPU_MS:.0f} ms, cacheable: at least {SHARE:.0%}"
    )
    heads = (">calls", ">in a row", ">tokens in", ">out", ">our CPU ms", ">p95", ">cacheable", ">in a talk")
    rows = table("!method", "sources", *heads)
    for cost in costs:
        name = cost.method + ("*" if cost.rehearsed else "")
        cpu = _marked(f"{cost.cpu_ms:.1f}", good=cost.cpu_ms < CPU_MS)
        shares = [_marked(f"{share:.0%}", good=share >= SHARE) for share in (cost.cacheable, cost.in_talk)]
        counts = (f"{cost.calls:g}", f"{cost.steps:g}", f"{cost.prompt_tokens:,.0f}", f"{cost.completion_tokens:,.0f}")
        rows.add_row(name, ", ".join(cost.sources) or "-", *counts, cpu, f"{cost.cpu_ms_p95:.1f}", *shares)
    out.print(rows)
    out.print("[dim]* rehearsed in this process: it asks for steered decoding, which no endpoint offers[/]")


def _marked(text: str, *, good: bool) -> str:
    return text if good else f"[yellow]{text}[/]"
