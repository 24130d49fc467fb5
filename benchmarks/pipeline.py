"""The pipeline benchmark: what a response of each method costs beside its model's time.

An endpoint of this machine answers after a known time. Measured of every method: model calls, steps in a row, tokens,
our own CPU, and the share of prompts that a server's prefix cache can reuse.
"""

# No deferred annotations here: typer reads them.
import asyncio
import bisect
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.endpoint import connected, endpoint
from benchmarks.made_up import made_up, open_world, with_persona
from benchmarks.measure import peak_memory, percentile, report, show, tell
from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.llm.fake import FakeModel
from dialore.methods.registry import method_class, method_names, method_sources
from dialore.response import Response
from dialore.response_text import longest_chain
from dialore.session import create_agent
from dialore.sources.graph import Graph, open_graph

_WARM_UP = 2
_IMPORTS = 5
_STEERED = {"pplm"}
"""Methods that ask for steered decoding, which no endpoint offers: rehearsed in this process."""


def pipeline(
    dialogues: Annotated[int, typer.Option(min=1, help="Dialogues a method, one by one.")] = 20,
    latency: Annotated[int, typer.Option(min=0, help="Milliseconds that the endpoint takes.")] = 5,
    method: Annotated[list[str] | None, typer.Option("--method", "-M", help="These alone. [default: all]")] = None,
    graph: Annotated[str, typer.Option(help="A graph's path, or starter.")] = "starter",
    passages: Annotated[int, typer.Option(min=10, help="Of the document index that is generated.")] = 100_000,
    documents: Annotated[Path | None, typer.Option(help="A document index to be asked instead.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure what a response of each method costs beside its model's time."""
    names = [method_class(name).name for name in method or method_names()]
    with closing(open_graph(graph)) as opened, endpoint() as url:
        talks = [with_persona(each) for each in made_up(opened, dialogues + _WARM_UP)]
        with open_world(opened, passages, documents) as sources:
            size = len(sources["documents"])
            costs = [asyncio.run(_cost(name, latency, talks, opened, sources, url)) for name in names]
        facts = opened.store.meta.facts
    figures: dict[str, Any] = {
        "plan": {"dialogues": dialogues, "latency": latency, "facts": facts, "passages": size},
        "import_ms": round(statistics.median(import_seconds(_IMPORTS)) * 1000, 1),
        "peak_memory_mb": round(peak_memory(), 1),
        "methods": costs,
    }
    report(figures, json, _show)


async def _cost(
    name: str, latency: int, dialogues: Sequence[Dialogue], graph: Graph, sources: dict[str, Any], url: str
) -> dict[str, Any]:
    taken = method_sources(method_class(name))
    given = {key: source for key, source in sources.items() if key in taken}
    model = FakeModel() if name in _STEERED else connected(f"wait-{latency}", url)
    before: list[Response] = []
    responses: list[Response] = []
    seconds: list[float] = []
    tell(name)
    try:
        agent = create_agent(name, model=model, graph=graph if "graph" in taken else None, sources=given)
        for dialogue in dialogues:
            before.append(good(await agent.respond(dialogue.model_copy(update={"turns": dialogue.turns[:-2]}))))
            begun = time.process_time()
            responses.append(good(await agent.respond(dialogue)))
            seconds.append(time.process_time() - begun)
    finally:
        await model.close()
    first, measured, cpu = responses[:_WARM_UP], responses[_WARM_UP:], seconds[_WARM_UP:]
    usages = [response.usage for response in measured]
    return {
        "method": name + ("*" if name in _STEERED else ""),
        "sources": ", ".join(key for key in taken if key == "graph" or key in given),
        "calls": statistics.median(usage.calls for usage in usages),
        "steps": statistics.median(steps_of(response) for response in measured),
        "prompt_tokens": statistics.median(usage.prompt_tokens for usage in usages),
        "completion_tokens": statistics.median(usage.completion_tokens for usage in usages),
        "cpu_ms": round(statistics.median(cpu) * 1000, 2),
        "cpu_ms_p95": round(percentile(cpu, 95) * 1000, 2),
        "cacheable": round(cacheable_share(measured, after=first), 3),
        "cacheable_in_talk": round(cacheable_share(measured, after=[*first, *before]), 3),
    }


def _show(figures: dict[str, Any]) -> None:
    plan = figures["plan"]
    title = f"{plan['dialogues']} dialogues a method, {plan['facts']:,} facts, {plan['passages']:,} passages"
    show(f"{title}; wanted: CPU under 15 ms, cacheable in a talk at least 0.80", figures["methods"])
    beside = {"import of dialore, ms (wanted: under 200)": figures["import_ms"]}
    show("", [beside | {"peak memory, MB (wanted: under 400)": figures["peak_memory_mb"]}])


def good(response: Response) -> Response:
    """Return the response, if it is one; raises InputError where it failed."""
    if response.status == "failed":
        raise InputError(f"a response of the benchmark failed: {response.error}", hint="report this")
    return response


def steps_of(response: Response) -> int:
    """Model calls of a response that had to wait for one another."""
    return longest_chain([stage for stage in response.trace if stage.usage.calls])


def import_seconds(count: int) -> list[float]:
    """Seconds of `import dialore` in fresh processes."""
    code = "import time; t = time.perf_counter(); import dialore; print(time.perf_counter() - t)"
    runs = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
        for _ in range(count)
    )
    return [float(done.stdout) for done in runs]


def cacheable_share(responses: Iterable[Response], after: Iterable[Response] = ()) -> float:
    """Return the share of prompt characters that some earlier prompt begins with, over all calls in order.

    It is what a server's prefix cache can reuse if it forgets nothing.

    Args:
        responses: those whose prompts are counted.
        after: responses that were made before them: a server that has been running for a while.
    """
    whole = shared = 0
    earlier = sorted(prompt for response in after for prompt in _prompts(response))
    for response in responses:
        for prompt in _prompts(response):
            place = bisect.bisect_left(earlier, prompt)
            # The longest common prefix is that with a neighbour in the order of the alphabet.
            near = earlier[max(0, place - 1) : place + 1]
            shared += max((_common(prompt, other) for other in near), default=0)
            whole += len(prompt)
            earlier.insert(place, prompt)
    return shared / whole if whole else 0.0


def _prompts(response: Response) -> list[str]:
    """Return the prompts of a response, in order of their calls, as a server reads them."""
    return [
        "\n".join(f"{message['role']}\n{message['content']}" for message in stage.messages)
        for stage in response.trace
        if stage.messages
    ]


def _common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
