"""What the pipeline benchmark measures, one function a figure."""

from __future__ import annotations

import asyncio
import bisect
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from dialore.llm.model import OutputSchema, Request
from dialore.llm.structured import output_schema
from dialore.llm.wire import Dialect
from dialore.methods.demands import ThoughtQueries
from dialore.methods.stages import ModelResponder, StageCall
from dialore.prompts.library import PromptLibrary
from dialore.response import StageTrace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dialore.dialogue import Dialogue
    from dialore.llm.model import LanguageModel
    from dialore.response import Response

_WARM_UP = 10


async def stage_calls(
    model: LanguageModel, dialogues: Sequence[Dialogue], count: int
) -> tuple[list[float], list[dict[str, Any]]]:
    """Do one stage again and again: prompt file to parsed answer.

    Returns:
        CPU seconds of each, and the request bodies that were sent.
    """
    responder = ModelResponder(model, PromptLibrary())
    seconds: list[float] = []
    bodies: list[dict[str, Any]] = []
    for place in range(count + _WARM_UP):
        dialogue = dialogues[place % len(dialogues)]
        call = StageCall("dcrag/query-production", dialogue, ThoughtQueries, {"thoughts": True}, "")
        step = StageTrace(stage="bench")
        begun = time.process_time()
        await responder.answer(call, step)
        seconds.append(time.process_time() - begun)
        bodies.append(_body(step.messages, model.name, output_schema(ThoughtQueries)))
    return seconds[_WARM_UP:], bodies[_WARM_UP:]


def _body(messages: list[dict[str, str]], model: str, schema: OutputSchema) -> dict[str, Any]:
    request = Request.model_validate({"messages": messages, "output_schema": schema})
    return Dialect().body(model, request, stream=False)


async def bare_calls(
    url: str, bodies: Sequence[dict[str, Any]], model: str, *, at_once: int
) -> tuple[list[float], float]:
    """The same calls by the HTTP library alone: what nobody can be faster than.

    Returns:
        CPU seconds of each call (of use only one at a time), and the wall-clock seconds of all.
    """
    import aiohttp

    free = asyncio.Semaphore(at_once)
    seconds: list[float] = []
    connector = aiohttp.TCPConnector(limit=at_once)
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:

        async def ask(body: dict[str, Any]) -> None:
            async with free:
                begun = time.process_time()
                async with session.post(f"{url}/chat/completions", json={**body, "model": model}) as response:
                    json.loads(await response.read())
                seconds.append(time.process_time() - begun)

        for _ in range(_WARM_UP):
            await ask({**bodies[0], "model": "wait-0"})
        seconds.clear()
        begun = time.perf_counter()
        if at_once == 1:
            for body in bodies:
                await ask(body)
        else:
            await asyncio.gather(*(ask(body) for body in bodies))
        return seconds, time.perf_counter() - begun


def cacheable_share(responses: Iterable[Response], after: Iterable[Response] = ()) -> float:
    """The share of prompt characters that some earlier prompt begins with, over all prompts in order of their calls.

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
    """The prompts of a response, in order of their calls, as a server reads them."""
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


def import_seconds(count: int) -> list[float]:
    """Seconds of `import dialore` in fresh processes."""
    code = "import time; t = time.perf_counter(); import dialore; print(time.perf_counter() - t)"
    runs = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
        for _ in range(count)
    )
    return [float(done.stdout) for done in runs]


def peak_memory() -> int:
    """The most memory that this process has had, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def percentile(values: Sequence[float], percent: int) -> float:
    """A percentile, interpolated; that of one value is the value."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
