"""How whole dialogues become histories with a reference."""

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


def cut_dialogues(
    dialogues: Iterable[Dialogue], *, cut: Cut = "last", limit: int | None = None, seed: int = 0
) -> list[Dialogue]:
    """Histories with their references, out of whole dialogues.

    A history brings the gold knowledge and plan of its reference, and what else belongs to that turn, in `extra`.
    Where a data set has plans, `"sources" in history.model_fields_set` even if the plan is to use none.

    Args:
        dialogues: whole dialogues; those without a turn to be answered are left out.
        cut: of the turns that may be a reference (the wizard's, the system's, or all but the first), `last` takes the
            last, `random` one of each dialogue, by seed, `all` each in turn, one history each.
        limit: how many to keep, drawn without replacement by seed and kept in file order; None for all.
        seed: of both draws.
    """
    whole = list(dialogues)
    return list(stream_histories(lambda: whole, cut=cut, limit=limit, seed=seed))


def stream_histories(
    read: Callable[[], Iterable[Dialogue]], *, cut: Cut = "last", limit: int | None = None, seed: int = 0
) -> Iterator[Dialogue]:
    """What `cut_dialogues` gives, one at a time; with a limit the dialogues are read twice instead of being held."""
    if limit is not None and limit < 1:
        raise InputError(f"the limit must be at least 1, not {limit}")
    kept: set[int] | None = None
    if limit is not None:
        draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
        count = sum(1 for dialogue in read() for _ in _cut_answers(dialogue, cut, draw))
        kept = set(draw.sample(range(count), limit)) if limit < count else None
    # The draw starts anew, so that both readings cut the same turns.
    draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
    pairs = ((dialogue, answer) for dialogue in read() for answer in _cut_answers(dialogue, cut, draw))
    for place, (dialogue, answer) in enumerate(pairs):
        if kept is None or place in kept:
            yield _history(dialogue, answer, named=cut != "last")


def _cut_answers(dialogue: Dialogue, cut: Cut, draw: random.Random) -> tuple[Answer, ...]:
    answers = answers_of(dialogue)
    if not answers:
        return ()
    drawn = draw.randint(1, len(answers)) - 1
    return {"last": answers[-1:], "random": answers[drawn : drawn + 1], "all": answers}[cut]


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
