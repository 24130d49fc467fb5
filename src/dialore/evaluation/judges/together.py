"""Several systems scored in one prompt, so that their scores compare (SCG-QP, Appendix; EDIT, Section 4.1.3)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from dialore.errors import InputError, UnknownNameError
from dialore.evaluation.base import Measure, unavailable
from dialore.evaluation.judges.answers import scores_shape
from dialore.evaluation.judges.comparing import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dialore.dialogue import Dialogue
    from dialore.evaluation.judges.asking import Asker
    from dialore.evaluation.judges.comparing import Judged
    from dialore.response import Response

TOP = 10
"""The best score."""
JOINT_CRITERIA: dict[Judged, tuple[str, ...]] = {"responses": ("overall", "useful-knowledge"), "queries": ("overall",)}
"""What systems can be scored by together: on the whole (SCG-QP), or by useful knowledge (EDIT)."""


async def score_together(
    judge: Asker,
    dialogue: Dialogue,
    responses: Mapping[str, Response],
    *,
    criterion: str = "overall",
    judged: Judged = "responses",
    seed: int = 0,
) -> dict[str, Measure]:
    """Score several systems' answers to a dialogue at once, 1 to 10, in an order shuffled by seed and dialogue.

    Systems without an answer are left out of the prompt, and not available.

    Args:
        judge: who is asked.
        dialogue: what the responses answer.
        responses: by system.
        criterion: one of `JOINT_CRITERIA`.
        judged: the responses' texts, or the queries that were asked for them.
        seed: of the order.

    Raises:
        UnknownNameError: no such criterion.
        InputError: fewer than two systems.
        ModelError: the call failed.
    """
    if len(responses) < 2:
        raise InputError("scoring together wants at least two systems", mend="name another")
    if criterion not in JOINT_CRITERIA[judged]:
        raise UnknownNameError(f"criterion for {judged}", criterion, JOINT_CRITERIA[judged])
    texts = {system: text for system, response in responses.items() if (text := shown(response, judged))}
    lacking = "the system has no response" if judged == "responses" else "the system asked no query"
    measures = {system: unavailable(lacking) for system in responses}
    if len(texts) < 2:
        alone = unavailable("fewer than two systems have something to be scored")
        return measures | dict.fromkeys(texts, alone)
    order = shuffled(list(texts), dialogue, seed)
    shape = scores_shape("JointScores", len(order), TOP)
    name = f"together-{judged}"
    said = await judge.ask(
        name, shape, dialogue, label=name, candidates=[texts[system] for system in order], criterion=criterion
    )
    if isinstance(said, Measure):
        return measures | dict.fromkeys(texts, said)
    scored = zip(order, said.scores, strict=True)
    return measures | {
        system: Measure((float(score),), detail=f"{order.index(system) + 1} of {len(order)} shown")
        for system, score in scored
    }


def shuffled(systems: list[str], dialogue: Dialogue, seed: int) -> list[str]:
    """Systems in the order in which a judge is shown them; it depends on neither their order nor other dialogues."""
    order = sorted(systems)
    random.Random(f"{seed}/{dialogue.id}").shuffle(order)  # noqa: S311 - no secret
    return order
