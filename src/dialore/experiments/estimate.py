"""What a run will cost: a few dialogues rehearsed by the real methods and prompts, with answers that mean nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dialore.experiments.config import BudgetConfig
from dialore.experiments.opening import open_systems
from dialore.knowledge import Knowledge
from dialore.llm.rehearsal import Rehearsal
from dialore.sources.base import Findings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dialore.dialogue import Dialogue
    from dialore.experiments.config import RunConfig
    from dialore.experiments.store import Job, RunStore
    from dialore.knowledge import Source
    from dialore.settings import ModelSettings

_REHEARSED = 4


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is expected of a number of responses.

    Attributes:
        responses: how many are to be made.
        calls: model calls.
        prompt_tokens: tokens sent, by estimate.
        completion_tokens: tokens written, by estimate: real answers are longer or shorter.
        cost: money, where every model has a price; else None.
        failed: rehearsed responses that failed, in words: something is wrong before it begins.
    """

    responses: int
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None = None
    failed: str = ""


async def estimate_missing(
    config: RunConfig,
    store: RunStore,
    jobs: Iterable[Job],
    numbers: Mapping[int, int],
    lexical: Sequence[ModelSettings],
) -> Estimate:
    """What the jobs that are not done yet will cost; raises as `estimate_run`.

    Args:
        config: the run.
        store: what is there of it.
        jobs: all that it wants.
        numbers: each system's number in the store, by its number in the configuration.
        lexical: the models that are none: the method `lexical` answers, without a call.
    """
    done = store.done()
    missing = Counter(job.system for job in jobs if job not in done)
    if not missing:
        return Estimate(responses=0, calls=0, prompt_tokens=0, completion_tokens=0)
    return await estimate_run(config, store, {given: missing[kept] for given, kept in numbers.items()}, lexical)


async def estimate_run(
    config: RunConfig, store: RunStore, responses: dict[int, int], lexical: Sequence[ModelSettings]
) -> Estimate:
    """Rehearse a few dialogues with every system, and multiply.

    Args:
        config: the run.
        store: holds its dialogues; a few, evenly spaced, are rehearsed.
        responses: how many each system has still to make, by its number in the configuration.
        lexical: as for `estimate_missing`.

    Raises:
        InputError: as `open_systems`.
    """
    spaced = [store.dialogue(place) for place in range(0, store.size, max(1, store.size // _REHEARSED))][:_REHEARSED]
    calls = sent = written = cost = 0.0
    failed = ""

    def rehearsal(settings: ModelSettings, name: str | None) -> Rehearsal | None:
        return None if settings in lexical and name is None else Rehearsal()

    unlimited = config.model_copy(update={"budget": BudgetConfig()})
    async with open_systems(unlimited, rehearsal, {"web": Unsearched()}) as opened:
        prices = [model.price for model in config.models for _ in config.systems]
        for system in opened.systems:
            answered = [await opened.agents[system.number, 0].respond(dialogue) for dialogue in spaced]
            share = responses.get(system.number, 0) / max(1, len(answered))
            usages = [response.usage for response in answered]
            calls += share * sum(usage.calls for usage in usages)
            sent += share * sum(usage.prompt_tokens for usage in usages)
            written += share * sum(usage.completion_tokens for usage in usages)
            price = prices[system.number] or (0.0, 0.0)
            spent = sum(u.prompt_tokens * price[0] + u.completion_tokens * price[1] for u in usages)
            cost += share * spent / 1e6
            failed = failed or next((response.error or "" for response in answered if response.status == "failed"), "")
    return Estimate(
        responses=sum(responses.values()),
        calls=round(calls),
        prompt_tokens=round(sent),
        completion_tokens=round(written),
        cost=cost if all(price is not None for price in prices) else None,
        failed=failed,
    )


class Unsearched:
    """The web in a rehearsal: nothing is sent anywhere, and passages of common length come back."""

    name = "web"
    kind: Source = "web"

    async def search(self, query: str, dialogue: Dialogue, top: int = 10, within: Sequence[Knowledge] = ()) -> Findings:
        """Passages of a hundred words."""
        text = f"A page that a search for {query} could have found. " * 9
        return Findings(Knowledge(id=f"passage:{n}", kind="passage", text=text, source="web") for n in range(top))

    def close(self) -> None:
        """Nothing to close."""
