"""What is given to annotators: items drawn, paired, shuffled and blinded by seed, and the key that undoes it."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from dialore.errors import InputError, UnknownNameError
from dialore.evaluation.human.criteria import CriteriaSet, Form
from dialore.text import Language

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dialore.dialogue import Dialogue
    from dialore.evaluation.report.data import ScoredResponse
    from dialore.response import Response

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Keyed(BaseModel):
    """What an item's key keeps: whose response stands under which letter."""

    model_config = ConfigDict(frozen=True)

    dialogue: str
    systems: tuple[str, ...]


class Key(BaseModel):
    """The key of an export: it undoes the blinding, and is kept apart from the sheets.

    Attributes:
        criteria: the name of the set of criteria.
        form: how it was asked.
        seed: of drawing, shuffling and blinding.
        language: the sheets' language.
        items: by the item's id.
    """

    format: Literal[1] = 1
    criteria: str
    form: Form
    seed: int
    language: Language
    items: dict[str, Keyed]


class Item(BaseModel):
    """What an annotator sees.

    Attributes:
        id: says nothing about the systems.
        turns: speaker and text.
        topic: the dialogue's, where the criteria want it.
        persona: the responder's, where the criteria want it.
        knowledge: the gold knowledge; where there is none, what the response itself drew on. Only where a response
            stands alone may it be the response's own.
        texts: what is judged, in the order of the letters.
    """

    id: str
    turns: list[tuple[str, str]]
    topic: str = ""
    persona: list[str] = []
    knowledge: list[str] = []
    texts: list[str]


def gather(
    responses: Mapping[str, Iterable[ScoredResponse]], judged: Literal["response", "query"]
) -> dict[str, tuple[Dialogue, dict[str, Response]]]:
    """The dialogues that every system answered with something to judge, by id; of repetitions the first."""
    found: dict[str, tuple[Dialogue, dict[str, Response]]] = {}
    for system, answers in responses.items():
        for scored in answers:
            if scored.repetition == 0 and text_of(scored.response, judged):
                # A trace is many times what is judged, and wanted for queries alone.
                kept = scored.response if judged == "query" else scored.response.model_copy(update={"trace": []})
                found.setdefault(scored.dialogue.id, (scored.dialogue, {}))[1][system] = kept
    return {name: entry for name, entry in found.items() if len(entry[1]) == len(responses)}


def text_of(response: Response, judged: Literal["response", "query"]) -> str:
    """What is judged of a response: its text, or the search query behind it; empty where there is none."""
    if response.status == "failed":
        return ""
    if judged == "response":
        return response.text.strip()
    if response.demands and response.demands.queries:
        return "; ".join(response.demands.queries)
    for stage in reversed(response.trace):
        query = stage.output.get("query")
        if isinstance(query, str) and query.strip():
            return query.strip()
    return ""


def make_items(
    found: Mapping[str, tuple[Dialogue, dict[str, Response]]],
    name: str,
    chosen: CriteriaSet,
    form: Form,
    *,
    language: Language,
    limit: int | None = None,
    against: str | None = None,
    seed: int = 0,
) -> tuple[list[Item], Key]:
    """Items in a shuffled order, and their key.

    Args:
        found: dialogues with every system's response; see `gather`.
        name: the name of the set of criteria.
        chosen: the criteria.
        form: `pairwise`: two at a time; `likert`: one at a time; `ranking`: all at once.
        language: the sheets' language.
        limit: how many dialogues, drawn by seed.
        against: for pairs: only those with this system; all pairs otherwise.
        seed: of drawing, shuffling and blinding.

    Raises:
        InputError: nothing to judge, or too few systems to compare.
        UnknownNameError: no system is called as `against` is.
    """
    if not found:
        raise InputError(
            f"no dialogue has a {chosen.judges} of every system to be judged", mend="leave out systems without"
        )
    systems = list(next(iter(found.values()))[1])
    groups = _groups(systems, form, against)
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    names = sorted(found)
    wanted = draw.sample(names, min(limit or len(names), len(names)))
    made: list[tuple[Item, Keyed]] = []
    for group in groups:
        # Each order of a pair as often as the other, so that no system gains by its side.
        turns = [place % len(group) for place in range(len(wanted))]
        draw.shuffle(turns)
        for dialogue_name, turn in zip(wanted, turns, strict=True):
            order = list(group[turn:] + group[:turn])
            if len(group) > 2:
                draw.shuffle(order)
            dialogue, answers = found[dialogue_name]
            made.append((_item(dialogue, [answers[s] for s in order], chosen, language, draw), _keyed(dialogue, order)))
    draw.shuffle(made)
    key = Key(criteria=name, form=form, seed=seed, language=language, items={item.id: keyed for item, keyed in made})
    if len(key.items) != len(made):
        raise InputError("two items have the same id", mend="take another seed")
    return [item for item, _ in made], key


def _groups(systems: Sequence[str], form: Form, against: str | None) -> list[tuple[str, ...]]:
    if against is not None and against not in systems:
        raise UnknownNameError("system", against, systems)
    if form == "likert":
        return [(system,) for system in systems]
    if len(systems) < 2:
        raise InputError(f"a {form} sheet compares systems, and there is one: {systems[0]}", mend="take --form likert")
    if form == "ranking":
        if len(systems) > len(LETTERS):
            raise InputError(f"{len(systems)} systems are too many to rank", mend="name some by --system")
        return [tuple(systems)]
    if against is not None:
        return [(against, other) for other in systems if other != against]
    return list(itertools.combinations(systems, 2))


def _keyed(dialogue: Dialogue, order: Sequence[str]) -> Keyed:
    return Keyed(dialogue=dialogue.id, systems=tuple(order))


def _item(
    dialogue: Dialogue, answers: Sequence[Response], chosen: CriteriaSet, language: Language, draw: random.Random
) -> Item:
    knowledge = [_words(each) for each in dialogue.knowledge]
    if not knowledge and len(answers) == 1:
        knowledge = [item.text for item in answers[0].knowledge if item.used]
    return Item(
        # Begins with a letter that is no hexadecimal digit: spreadsheets take 0012345678 and 12345e6789 for numbers.
        id=f"i{draw.getrandbits(40):010x}",
        turns=_turns(dialogue, language),
        topic=(dialogue.topic or "") if "topic" in chosen.shows else "",
        persona=list(dialogue.persona) if "persona" in chosen.shows else [],
        knowledge=knowledge if "knowledge" in chosen.shows else [],
        texts=[text_of(answer, chosen.judges) for answer in answers],
    )


def _turns(dialogue: Dialogue, language: Language) -> list[tuple[str, str]]:
    """Speakers and texts; speakers who are called by a letter, as responses are, get a number instead."""
    names = list(dict.fromkeys(turn.speaker for turn in dialogue.turns))
    if any(name in LETTERS for name in names):
        word = "说话人" if language == "zh" else "Speaker "
        shown = {name: f"{word}{number}" for number, name in enumerate(names, start=1)}
    else:
        shown = {name: name for name in names}
    return [(shown[turn.speaker], turn.text) for turn in dialogue.turns]


def _words(item: object) -> str:
    return str(item.get("text") or item) if isinstance(item, dict) else str(item)


def for_annotator(items: Sequence[Item], annotator: int, seed: int) -> list[Item]:
    """The same items in an order of the annotator's own, so that tiredness does not fall on the same ones."""
    shuffled = list(items)
    random.Random(f"{seed}-{annotator}").shuffle(shuffled)  # noqa: S311
    return shuffled
