"""Whole dialogues split into histories and references."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal, get_args

from dialore.datasets.base import Answer, WholeDialogue
from dialore.dialogue import Dialogue
from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Cut = Literal["last", "random", "all"]
CUTS: tuple[Cut, ...] = get_args(Cut)


def split_dialogues(
    dialogues: Iterable[Dialogue], *, cut: Cut = "last", limit: int | None = None, seed: int = 0
) -> list[Dialogue]:
    """The histories of whole dialogues, each with its reference.

    A history brings the gold knowledge and plan of its reference, and what else belongs to that turn, in `extra`.
    Where a data set has plans, `"sources" in history.model_fields_set` even if the plan is to use none.

    Args:
        dialogues: whole dialogues; those without a turn to be answered are left out.
        cut: of the turns that may be a reference (the wizard's, the system's, or all but the first), `last` takes the
            last, `random` one of each dialogue, by seed, `all` each in turn, one history each.
        limit: how many to keep, sampled without replacement by seed and kept in file order; None for all.
        seed: of both samples.
    """
    whole = list(dialogues)
    return list(stream_histories(lambda: whole, cut=cut, limit=limit, seed=seed))


def stream_histories(
    read: Callable[[], Iterable[Dialogue]], *, cut: Cut = "last", limit: int | None = None, seed: int = 0
) -> Iterator[Dialogue]:
    """The histories of `split_dialogues`, one at a time; with a limit the dialogues are read twice, not held."""
    if limit is not None and limit < 1:
        raise InputError(f"the limit must be at least 1, not {limit}")
    kept: set[int] | None = None
    if limit is not None:
        sampler = random.Random(seed)  # noqa: S311 - a sample, not a secret
        count = sum(1 for _ in _choose(read(), cut, sampler))
        kept = set(sampler.sample(range(count), limit)) if limit < count else None
    # The sampler starts anew, so that both readings choose the same turns.
    sampler = random.Random(seed)  # noqa: S311 - a sample, not a secret
    for place, (dialogue, answer) in enumerate(_choose(read(), cut, sampler)):
        if kept is None or place in kept:
            yield _history(dialogue, answer, named=cut != "last")


def _choose(dialogues: Iterable[Dialogue], cut: Cut, sampler: random.Random) -> Iterator[tuple[Dialogue, Answer]]:
    for dialogue in dialogues:
        answers = answers_of(dialogue)
        if answers:
            sampled = sampler.randint(1, len(answers)) - 1
            chosen = {"last": answers[-1:], "random": answers[sampled : sampled + 1], "all": answers}[cut]
            yield from ((dialogue, answer) for answer in chosen)


def answers_of(dialogue: Dialogue) -> tuple[Answer, ...]:
    """The turns of a whole dialogue that may be references; of a plain dialogue, all but the first."""
    if isinstance(dialogue, WholeDialogue) and dialogue.answers is not None:
        return dialogue.answers
    return tuple(Answer(turn=place) for place in range(1, len(dialogue.turns)))


def _history(dialogue: Dialogue, answer: Answer, *, named: bool) -> Dialogue:
    fields = {name: getattr(dialogue, name) for name in Dialogue.model_fields if name in dialogue.model_fields_set}
    fields["turns"] = dialogue.turns[: answer.turn]
    fields["reference"] = dialogue.turns[answer.turn].text
    if named:
        fields["id"] = f"{dialogue.id}@{answer.turn}"
    if answer.knowledge:
        fields["knowledge"] = answer.knowledge
    if answer.sources is not None:
        fields["sources"] = answer.sources
    if answer.extra:
        fields["extra"] = {**dialogue.extra, **answer.extra}
    return Dialogue.model_construct(**fields)
