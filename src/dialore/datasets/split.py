"""Whole dialogues split into histories and references."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, get_args

from dialore.datasets.base import Answer, WholeDialogue
from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.text import asks

Cut = Literal["last", "random", "all"]
CUTS: tuple[Cut, ...] = get_args(Cut)
Condition = Literal["searched", "knowledge", "passive"]
_HOLDS: dict[Condition, Callable[[Dialogue, Answer], bool]] = {
    "searched": lambda _, answer: bool(answer.extra.get("query")),
    "knowledge": lambda _, answer: bool(answer.knowledge),
    "passive": lambda dialogue, answer: not asks(dialogue.turns[answer.turn - 1].text),
}


def split_dialogues(
    dialogues: Iterable[Dialogue],
    *,
    cut: Cut = "last",
    where: Sequence[Condition] = (),
    limit: int | None = None,
    seed: int = 0,
) -> list[Dialogue]:
    """Return the histories of whole dialogues, each with its reference.

    A history brings the gold knowledge and plan of its reference, and what else belongs to that turn, in `extra`.
    Where a data set has plans, `"sources" in history.model_fields_set` even if the plan is to use none.

    Args:
        dialogues: whole dialogues; those without a turn to be answered are left out.
        cut: of the turns that may be a reference (the wizard's, the system's, or all but the first), `last` takes the
            last, `random` one of each dialogue, by seed, `all` each in turn, one history each.
        where: only turns that were `searched` for, that have gold `knowledge`, whose user is `passive` (see `asks`).
        limit: how many to keep, sampled without replacement by seed and kept in file order; None for all.
        seed: of both samples.
    """
    whole = list(dialogues)
    return list(stream_histories(lambda: whole, cut=cut, where=where, limit=limit, seed=seed))


def stream_histories(
    read: Callable[[], Iterable[Dialogue]],
    *,
    cut: Cut = "last",
    where: Sequence[Condition] = (),
    limit: int | None = None,
    seed: int = 0,
    pool: bool = False,
    on_left_out: Callable[[Dialogue], None] = lambda _: None,
) -> Iterator[Dialogue]:
    """Yield the histories of `split_dialogues`, one at a time; with a limit the dialogues are read twice, not held.

    `on_left_out` is told of each dialogue without a turn to be answered. With `pool` each brings the sentences that its
    responder could draw on, as `extra["pool"]`.
    """
    if limit is not None and limit < 1:
        raise InputError(f"the limit must be at least 1, not {limit}")
    sampler = random.Random(seed)  # noqa: S311 - a sample, not a secret

    def choose(on_left_out: Callable[[Dialogue], None]) -> Iterator[tuple[Dialogue, Answer]]:
        for dialogue in read():
            answers = [it for it in answers_of(dialogue) if all(_HOLDS[held](dialogue, it) for held in where)]
            if answers:
                sampled = sampler.randint(1, len(answers)) - 1
                chosen = {"last": answers[-1:], "random": answers[sampled : sampled + 1], "all": answers}[cut]
                yield from ((dialogue, answer) for answer in chosen)
            else:
                on_left_out(dialogue)

    kept: set[int] | None = None
    if limit is not None:
        count = sum(1 for _ in choose(lambda _: None))
        kept = set(sampler.sample(range(count), limit)) if limit < count else None
        sampler.seed(seed)  # anew, so that both readings choose the same turns
    for position, (dialogue, answer) in enumerate(choose(on_left_out)):
        if kept is None or position in kept:
            history = _history(dialogue, answer, named=cut != "last")
            if pool and isinstance(dialogue, WholeDialogue):
                history = history.model_copy(update={"extra": {**history.extra, "pool": list(dialogue.pool)}})
            yield history


def answers_of(dialogue: Dialogue) -> tuple[Answer, ...]:
    """Return the turns of a whole dialogue that may be references; of a plain dialogue, all but the first."""
    if isinstance(dialogue, WholeDialogue) and dialogue.answers is not None:
        return dialogue.answers
    return tuple(Answer(turn=turn) for turn in range(1, len(dialogue.turns)))


def _history(dialogue: Dialogue, answer: Answer, *, named: bool) -> Dialogue:
    fields = {name: getattr(dialogue, name) for name in Dialogue.model_fields if name in dialogue.model_fields_set}
    fields["turns"] = dialogue.turns[: answer.turn]
    if answer.turn < len(dialogue.turns):
        fields["reference"] = dialogue.turns[answer.turn].text
    if named:
        fields["id"] = f"{dialogue.id}@{answer.turn}"
    if answer.references:
        fields["references"] = answer.references
    if answer.knowledge:
        fields["knowledge"] = answer.knowledge
    if answer.sources is not None:
        fields["sources"] = answer.sources
    if answer.extra:
        fields["extra"] = {**dialogue.extra, **answer.extra}
    return Dialogue.model_construct(**fields)
