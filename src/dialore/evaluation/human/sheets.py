"""Criteria by paper, the items that annotators judge, and their sheets as CSV and as a page."""

from __future__ import annotations

import csv
import functools
import io
import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict

from dialore.datasets import gold_text
from dialore.errors import InputError, UnknownNameError
from dialore.evaluation.judges.comparing import judged_text
from dialore.text import Language

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.evaluation.report.data import ScoredResponse
    from dialore.response import Response

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
Form = Literal["pairwise", "likert", "ranking"]
CONTROL = "(control)"
"""The name of what no system said: a control case, whose right answer everybody sees."""
BATCH = 10
"""Items of a batch with control cases, the control case among them (MSDP, Appendix E.1)."""
_Judged = Literal["response", "query", "knowledge"]
NOT_ASKED = "–"
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Words(_Frozen):
    """A text in both languages."""

    en: str
    zh: str

    def in_(self, language: Language) -> str:
        """Return the text in one of them."""
        return self.zh if language == "zh" else self.en


class Criterion(_Frozen):
    """A question to annotators; it is asked only of items that have the part that it is `of`.

    Attributes:
        compare: the question where responses stand side by side.
        rate: the question where one stands alone.
        anchors: what points of the scale, from the least to the most, mean.
        module: of an error, the part of the method that makes it.
    """

    title: Words
    compare: Words
    rate: Words
    scale: tuple[int, int]
    anchors: dict[int, Words]
    of: Literal["", "persona", "knowledge"] = ""
    module: str = ""


class CriteriaSet(_Frozen):
    """The questions of one paper's evaluation.

    Attributes:
        shows: what annotators see besides the dialogue: `persona`, `knowledge`, `topic`; `stages`: what each stage of
            the method gave, and the knowledge in the end.
        judges: what is judged: responses, the queries or questions behind them, or the knowledge that they use.
        grounded: whether only dialogues with gold knowledge are sampled.
        controls: whether one item in ten is a control case.
        minimum: the name of a score that is the least of the others (MSDP, Section 3.5); empty for none.
        mean: the name of a score that is the mean of the others (EDIT, Table 5); empty for none.
    """

    title: Words
    paper: str
    form: Form
    shows: tuple[Literal["persona", "knowledge", "topic", "stages"], ...] = ()
    judges: _Judged = "response"
    grounded: bool = False
    controls: bool = False
    minimum: str = ""
    mean: str = ""
    guide: Words
    criteria: dict[str, Criterion]


@functools.cache
def criteria_sets() -> dict[str, CriteriaSet]:
    """Return every set by name."""
    return {name: CriteriaSet.model_validate(given) for name, given in _yaml("criteria").items()}


@functools.cache
def sheet_words(language: Language) -> dict[str, Any]:
    """Return the words of sheets in a language."""
    words: dict[str, Any] = _yaml("sheet")[language]
    return words


def _yaml(name: str) -> Any:  # noqa: ANN401 - plain data
    file = resources.files("dialore") / "data" / "report" / f"{name}.yaml"
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def criteria_set(name: str) -> CriteriaSet:
    """Return a set by name; raise UnknownNameError where there is none."""
    sets = criteria_sets()
    if name not in sets:
        raise UnknownNameError("set of criteria", name, sets)
    return sets[name]


class Keyed(_Frozen):
    """The key of an item: whose response stands under which letter, its batch, and what it is not asked."""

    dialogue: str
    systems: tuple[str, ...]
    batch: int = 0
    skips: tuple[str, ...] = ()


class Key(BaseModel):
    """The key of an export, which undoes the blinding; pairs of the same texts are ties without a question."""

    format: Literal[1] = 1
    criteria: str
    form: Form
    seed: int
    language: Language
    items: dict[str, Keyed]
    same: list[Keyed] = []


def key_of(folder: Path) -> Path:
    """Return where the key of a folder of sheets lies: beside it."""
    return folder.with_name(f"{folder.resolve().name}.key.json")


class Item(BaseModel):
    """An item as an annotator sees it; its id says nothing about the systems.

    Attributes:
        shown: lines of what else the criteria show, by name. The persona is the gold sentences, where there is gold
            knowledge; knowledge the rest of it, or without any what a response that stands alone itself drew on.
        texts: what is judged, in the order of the letters.
        skips: criteria that are not asked, as what they are about is not there.
    """

    id: str
    turns: list[tuple[str, str]]
    shown: dict[str, list[str]]
    texts: list[str]
    skips: tuple[str, ...] = ()
    batch: int = 0


def gather(
    responses: Mapping[str, Iterable[ScoredResponse]], chosen: CriteriaSet
) -> dict[str, tuple[Dialogue, dict[str, Response]]]:
    """Return the dialogues that every system answered with something to judge, by id; of repetitions the first.

    Where queries are judged, a system that never makes one (SCG-QP's "No Query") is left out.
    """
    traced = chosen.judges == "query" or "stages" in chosen.shows  # a trace is many times what is judged
    dialogues: dict[str, tuple[Dialogue, dict[str, Response]]] = {}
    for system, answers in responses.items():
        for scored in answers:
            is_wanted = scored.repetition == 0 and (scored.dialogue.knowledge or not chosen.grounded)
            if is_wanted and _text_of(scored.response, chosen.judges):
                kept = scored.response if traced else scored.response.model_copy(update={"trace": []})
                dialogues.setdefault(scored.dialogue.id, (scored.dialogue, {}))[1][system] = kept
    asking = {system for _, answers in dialogues.values() for system in answers}
    judged = asking if chosen.judges == "query" else responses
    return {name: entry for name, entry in dialogues.items() if len(entry[1]) == len(judged)}


def _text_of(response: Response, judged: _Judged) -> str:
    """Return what is judged of a response, as judges that compare are shown it; empty where there is none."""
    if judged == "knowledge" and response.status != "failed":
        return "\n".join(item.text for item in response.knowledge if item.used)
    if judged == "response" and response.status != "failed":
        return response.text.strip()  # with its line ends
    return judged_text(response, "queries")


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

    A `limit` of dialogues is sampled by seed; of pairs only those with the system `against` are made, if it is given.
    """
    if not found:
        lacking = f"no dialogue has a {chosen.judges} of every system to be judged"
        raise InputError(lacking, hint="leave out systems without")
    systems = list(next(iter(found.values()))[1])
    groups = _groups(systems, form, against)
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    names = sorted(found)
    wanted = draw.sample(names, min(limit or len(names), len(names)))
    made: list[tuple[Item, Keyed]] = []
    same: list[Keyed] = []
    for group in groups:
        # Each order of a pair as often as the other, so that no system gains by its side.
        turns = [number % len(group) for number in range(len(wanted))]
        draw.shuffle(turns)
        for dialogue_name, turn in zip(wanted, turns, strict=True):
            order = list(group[turn:] + group[:turn])
            if len(group) > 2:
                draw.shuffle(order)
            dialogue, answers = found[dialogue_name]
            texts = [_text_of(answers[system], chosen.judges) for system in order]
            if form == "pairwise" and texts[0] == texts[1]:
                same.append(Keyed(dialogue=dialogue.id, systems=tuple(order)))
                continue
            item = _item(dialogue, [answers[system] for system in order], texts, chosen, language, draw)
            made.append((item, Keyed(dialogue=dialogue.id, systems=tuple(order), skips=item.skips)))
    draw.shuffle(made)
    if chosen.controls:
        made = _with_controls(made, draw)
    items = {item.id: keyed for item, keyed in made}
    key = Key(criteria=name, form=form, seed=seed, language=language, items=items, same=same)
    if len(key.items) != len(made):
        raise InputError("two items have the same id", hint="take another seed")
    return [item for item, _ in made], key


def _groups(systems: Sequence[str], form: Form, against: str | None) -> list[tuple[str, ...]]:
    if against is not None and against not in systems:
        raise UnknownNameError("system", against, systems)
    if form == "likert":
        return [(system,) for system in systems]
    if len(systems) < 2:
        raise InputError(
            f"a {form} sheet compares systems, and there is one: {systems[0]}", hint="take the form likert"
        )
    if form == "ranking":
        if len(systems) > len(LETTERS):
            raise InputError(f"{len(systems)} systems are too many to rank", hint="name some of them")
        return [tuple(systems)]
    if against is not None:
        return [(against, other) for other in systems if other != against]
    return list(itertools.combinations(systems, 2))


def _with_controls(made: Sequence[tuple[Item, Keyed]], draw: random.Random) -> list[tuple[Item, Keyed]]:
    """Items in batches, in each a control case: an item of it with a text whose words are shuffled in place of one."""
    controlled: list[tuple[Item, Keyed]] = []
    for batch, start in enumerate(range(0, len(made), BATCH - 1)):
        some = made[start : start + BATCH - 1]
        item, keyed = draw.choice(some)
        position = draw.randrange(len(item.texts))
        texts, systems = list(item.texts), list(keyed.systems)
        words = texts[position].split() if " " in texts[position] else list(texts[position])
        draw.shuffle(words)
        texts[position], systems[position] = " ".join(words), CONTROL
        control = item.model_copy(update={"id": _new_id(draw), "texts": texts})
        some = [*some, (control, keyed.model_copy(update={"systems": tuple(systems)}))]
        draw.shuffle(some)
        controlled += [tuple(part.model_copy(update={"batch": batch}) for part in pair) for pair in some]  # type: ignore[misc]
    return controlled


def _new_id(draw: random.Random) -> str:
    """Return a code that begins with no hexadecimal digit: spreadsheets take 12345e6789 for a number."""
    return f"i{draw.getrandbits(40):010x}"


def _item(
    dialogue: Dialogue,
    answers: Sequence[Response],
    texts: list[str],
    chosen: CriteriaSet,
    language: Language,
    draw: random.Random,
) -> Item:
    gold = [(isinstance(it, dict) and it.get("source"), gold_text(it) or str(it)) for it in dialogue.knowledge]
    knowledge = [text for source, text in gold if source != "persona"]
    if not gold and len(answers) == 1:
        knowledge = [item.text for item in answers[0].knowledge if item.used]
    there = {
        "topic": [dialogue.topic] if dialogue.topic else [],
        "persona": [text for source, text in gold if source == "persona"] if gold else list(dialogue.persona),
        "knowledge": knowledge,
        "stages": _stages(answers[0]) if "stages" in chosen.shows and len(answers) == 1 else [],
    }
    names = list(dict.fromkeys(turn.speaker for turn in dialogue.turns))
    speakers = {name: name for name in names}
    if any(name in LETTERS for name in names):  # as responses are called
        word = "说话人" if language == "zh" else "Speaker "
        speakers = {name: f"{word}{number}" for number, name in enumerate(names, start=1)}
    return Item(
        id=_new_id(draw),
        turns=[(speakers[turn.speaker], turn.text) for turn in dialogue.turns],
        texts=texts,
        skips=tuple(name for name, entry in chosen.criteria.items() if entry.of and not there[entry.of]),
        shown={name: lines for name, lines in there.items() if name in chosen.shows},
    )


def _stages(response: Response) -> list[str]:
    """Return what each stage gave that can be read, a line each, then the knowledge that the response was given."""
    lines = [f"{stage.stage}: {words}" for stage in response.trace if (words := _output_texts(stage.output))]
    return [*lines, f"knowledge: {_output_texts([piece.triple for piece in response.knowledge]) or '-'}"]


def _output_texts(output: object, name: str = "") -> str:
    """Return the texts in a stage's output by their names; numbers say nothing to a reader."""
    if isinstance(output, dict):
        joined = " | ".join(filter(None, (_output_texts(value, str(key)) for key, value in output.items())))
    else:
        texts = output if isinstance(output, list) else [output]
        joined = "; ".join(text for text in texts if isinstance(text, str) and text)
    return f"{name}: {joined}" if joined and name else joined


def for_annotator(items: Sequence[Item], annotator: int, seed: int) -> list[Item]:
    """Return the same items in an order of the annotator's own, so that tiredness does not fall on the same ones."""
    draw = random.Random(f"{seed}-{annotator}")  # noqa: S311
    batches = [list(some) for _, some in itertools.groupby(items, lambda item: item.batch)]
    for some in batches:
        draw.shuffle(some)
    draw.shuffle(batches)
    return [item for some in batches for item in some]


def answer_columns(criteria: Iterable[str], form: Form, letters: int) -> list[str]:
    """Return the columns that annotators fill in: a criterion each; for rankings a criterion and letter each."""
    if form == "ranking":
        return [f"{name} {letter}" for name in criteria for letter in LETTERS[:letters]]
    return list(criteria)


def table_of(items: Sequence[Item], chosen: CriteriaSet, form: Form) -> list[list[str]]:
    """Return a sheet: its columns (the item, what is read, what is filled in), then a row an item without answers."""
    letters = max((len(item.texts) for item in items), default=2)
    texts = [chosen.judges] if form == "likert" else [f"{chosen.judges} {letter}" for letter in LETTERS[:letters]]
    answers = answer_columns(chosen.criteria, form, letters)
    columns = ["item", *chosen.shows, "dialogue", *texts, *answers, "comment"]
    rows = [columns]
    for item in items:
        known = {name: "\n".join(lines) for name, lines in item.shown.items()}
        known |= {"item": item.id, "dialogue": "\n".join(f"{speaker}: {text}" for speaker, text in item.turns)}
        known |= dict(zip(texts, item.texts, strict=False)) | dict.fromkeys(item.skips, NOT_ASKED)
        rows.append([known.get(column, "") for column in columns])
    return rows


def render_csv(items: Sequence[Item], chosen: CriteriaSet, form: Form) -> str:
    """Return a sheet as CSV, with a byte-order mark, so that spreadsheets read it as UTF-8."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(inert, row) for row in table_of(items, chosen, form))
    return "\ufeff" + text.getvalue()


def inert(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
