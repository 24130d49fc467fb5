"""ROUGE of a model's stage outputs against the answers that it was, or could be, trained on.

The authors of SCG-QP report this figure for their query generator: ROUGE against ChatGPT's queries on
held-out dialogues, .1749 zero-shot and .4477 fine-tuned (README of gangiswag/dialog-search-query).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dialore.errors import InputError, import_optional
from dialore.evaluation.overlap import rouge_f1
from dialore.llm.model import LanguageModel, Message, Request, Sampling

if TYPE_CHECKING:
    from dialore.llm.distilled import Row

VARIANTS = ("rouge1", "rouge2", "rougeL")
_MAX_OUTPUT_TOKENS = 128
_MAX_CONCURRENT_REQUESTS = 8


@dataclass(frozen=True, slots=True)
class StageRouge:
    """Mean ROUGE F-measures of one stage, from 0 to 1.

    Attributes:
        task: The stage's prompt and language, for example `scg-qp/query-generation.paper.en`.
        outputs: Number of outputs that were compared.
        scores: F-measure by ROUGE variant (`rouge1`, `rouge2`, `rougeL`).
    """

    task: str
    outputs: int
    scores: dict[str, float]


async def score_stages(
    model: LanguageModel,
    rows: Sequence[Row],
    on_step: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[StageRouge]:
    """Send the inputs of held-out rows to a model and compare its outputs with those of the rows.

    Outputs are decoded greedily, and end at the first line break if no row of the task has one. English words are
    stemmed before they are compared. Chinese is compared by character.

    Args:
        model: The model to score, trained or not.
        rows: Rows of `dialore distill`. Only those of the split `valid` are used.
        on_step: Called with the number of finished and of all requests.

    Returns:
        One result per task, in order of task name.

    Raises:
        InputError: No row is held out.
        ModelError: A request failed.
    """
    held_out = [row for row in rows if row.split == "valid"]
    if not held_out:
        raise InputError("no row is held out", hint="one dialogue in ten is: gather some dozens of dialogues")
    import_optional("rouge_score", "ROUGE", "evaluation")  # before requests are paid for
    multiline_tasks = {row.task for row in rows if "\n" in row.output.strip()}
    finished = 0
    limiter = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)

    async def answer(row: Row) -> str:
        nonlocal finished
        stop = () if row.task in multiline_tasks else ("\n",)
        request = Request(
            messages=(Message(role="user", content=row.input),),
            sampling=Sampling(temperature=0.0, max_tokens=_MAX_OUTPUT_TOKENS, stop=stop),
            prompt=row.prompt,
            label=row.dialogue,
        )
        async with limiter:
            completion = await model.complete(request)
        finished += 1
        on_step(finished, len(held_out))
        return completion.text.strip()

    outputs = await asyncio.gather(*(answer(row) for row in held_out))
    by_task: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
    for row, output in zip(held_out, outputs, strict=True):
        by_task[row.task].append(rouge_f1(row.output, output, row.language))
    return [_average(task, by_task[task]) for task in sorted(by_task)]


def _average(task: str, scores: Sequence[dict[str, float]]) -> StageRouge:
    means = {name: sum(score[name] for score in scores) / len(scores) for name in VARIANTS}
    return StageRouge(task, len(scores), means)
