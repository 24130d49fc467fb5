"""What a data set is, and how whole dialogues become histories with a reference."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, get_args

from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.text import Language

Cut = Literal["last", "random", "all"]
CUTS: tuple[Cut, ...] = get_args(Cut)


class DataSet(Protocol):
    """Reads one data set's published files.

    Class attributes: its name, version of this reader, language, source, licence, and what a file looks like.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    language: ClassVar[Language]
    source: ClassVar[str]
    licence: ClassVar[str]
    form: ClassVar[str]

    def read(self, path: Path) -> Iterator[Dialogue]:
        """Whole dialogues, every turn in place.

        Raises:
            InputError: the file is not in the published form; the entry is named.
        """
        ...


def alternating(texts: Iterable[str], identifier: str, language: Language, **fields: object) -> Dialogue:
    """A dialogue of two speakers who take turns."""
    from dialore.dialogue import Dialogue

    turns = [{"speaker": "AB"[place % 2], "text": text} for place, text in enumerate(texts)]
    return Dialogue.model_validate({"id": identifier, "language": language, "turns": turns, **fields})


def cut_dialogues(
    dialogues: Iterable[Dialogue], *, cut: Cut = "last", limit: int | None = None, seed: int = 0
) -> list[Dialogue]:
    """Histories with their references, out of whole dialogues.

    Args:
        dialogues: whole dialogues; those of a single turn are left out.
        cut: `last`, the last turn is the reference; `random`, one turn of each dialogue but the first, by seed;
            `all`, every turn but the first, one history each.
        limit: how many to keep, drawn without replacement by seed and kept in file order; None for all.
        seed: of both draws.
    """
    draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
    histories = [history for dialogue in dialogues for history in _histories(dialogue, cut, draw)]
    if limit is None or limit >= len(histories):
        return histories
    if limit < 1:
        raise InputError(f"the limit must be at least 1, not {limit}")
    return [histories[place] for place in sorted(draw.sample(range(len(histories)), limit))]


def _histories(dialogue: Dialogue, cut: Cut, draw: random.Random) -> Iterator[Dialogue]:
    last = len(dialogue.turns) - 1
    if last < 1:
        return
    places = {"last": [last], "random": [draw.randint(1, last)], "all": list(range(1, last + 1))}[cut]
    for place in places:
        identifier = dialogue.id if cut == "last" else f"{dialogue.id}@{place}"
        yield dialogue.model_copy(
            update={"id": identifier, "turns": dialogue.turns[:place], "reference": dialogue.turns[place].text}
        )
