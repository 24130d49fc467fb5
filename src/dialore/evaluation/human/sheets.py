"""Criteria by paper, the items that annotators judge, their sheets as CSV and as a page, and reading them back."""

from __future__ import annotations

import csv
import functools
import io
import itertools
import random
import unicodedata
import warnings
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from dialore.datasets import gold_text
from dialore.errors import InputError, MissingExtraError, UnknownNameError
from dialore.evaluation.judges.comparing import shown
from dialore.pages import asset, environment
from dialore.text import Language

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.evaluation.report.data import ScoredResponse
    from dialore.response import Response

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
Form = Literal["pairwise", "likert", "ranking"]
SIDES = ("A", "B", "tie")
CONTROL = "(control)"
"""The name of what no system said: a control case, whose right answer everybody sees."""
BATCH = 10
"""Items of a batch with control cases, the control case among them (MSDP, Appendix E.1)."""
Judged = Literal["response", "query", "knowledge"]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Words(_Frozen):
    """A text in both languages."""

    en: str
    zh: str

    def in_(self, language: Language) -> str:
        """The text in one of them."""
        return self.zh if language == "zh" else self.en


class Criterion(_Frozen):
    """One question.

    Attributes:
        title: its name for annotators.
        compare: the question where responses stand side by side.
        rate: the question where one stands alone.
        scale: the least and the most that one may give.
        anchors: what points of the scale mean.
        of: asked only of items that show it.
    """

    title: Words
    compare: Words
    rate: Words
    scale: tuple[int, int]
    anchors: dict[int, Words]
    of: Literal["", "persona", "knowledge"] = ""


class CriteriaSet(_Frozen):
    """The questions of one paper's evaluation.

    Attributes:
        title: what the sheet is headed by.
        form: the form that the paper asks in.
        shows: what annotators see besides the dialogue: `persona`, `knowledge`, `topic`.
        judges: what is judged: responses, the queries or questions behind them, or the knowledge that they use.
        grounded: whether only dialogues with gold knowledge are sampled.
        controls: whether one item in ten is a control case.
        minimum: the name of a score that is the least of the others; empty for none.
        guide: the instructions that annotators read first.
    """

    title: Words
    paper: str
    form: Form
    shows: tuple[Literal["persona", "knowledge", "topic"], ...] = ()
    judges: Judged = "response"
    grounded: bool = False
    controls: bool = False
    minimum: str = ""
    guide: Words
    criteria: dict[str, Criterion]


@functools.cache
def criteria_sets() -> dict[str, CriteriaSet]:
    """Every set by name."""
    return {name: CriteriaSet.model_validate(given) for name, given in _yaml("criteria").items()}


@functools.cache
def sheet_words(language: Language) -> dict[str, Any]:
    """The words of sheets in a language."""
    words: dict[str, Any] = _yaml("sheet")[language]
    return words


def _yaml(name: str) -> Any:  # noqa: ANN401 - plain data
    file = resources.files("dialore") / "data" / "report" / f"{name}.yaml"
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def criteria_set(name: str) -> CriteriaSet:
    """A set by name.

    Raises:
        UnknownNameError: there is none of that name.
    """
    sets = criteria_sets()
    if name not in sets:
        raise UnknownNameError("set of criteria", name, sets)
    return sets[name]


class Keyed(_Frozen):
    """What an item's key keeps: whose response stands under which letter, its batch, and what it is not asked."""

    dialogue: str
    systems: tuple[str, ...]
    batch: int = 0
    skips: tuple[str, ...] = ()


class Key(BaseModel):
    """The key of an export: it undoes the blinding, and is kept apart from the sheets.

    Attributes:
        seed: of sampling, shuffling and blinding.
        same: pairs of equal texts: ties that nobody is asked about.
    """

    format: Literal[1] = 1
    criteria: str
    form: Form
    seed: int
    language: Language
    items: dict[str, Keyed]
    same: list[Keyed] = []


class Item(BaseModel):
    """What an annotator sees.

    Attributes:
        id: says nothing about the systems.
        turns: speaker and text.
        topic: the dialogue's, where the criteria want it.
        persona: the responder's, where the criteria want it: the gold sentences, where there is gold knowledge.
        knowledge: the rest of the gold knowledge; without any, what the response itself drew on. Only where a response
            stands alone may it be the response's own.
        texts: what is judged, in the order of the letters.
        skips: criteria that are not asked, as what they are about is not there.
    """

    id: str
    turns: list[tuple[str, str]]
    topic: str = ""
    persona: list[str] = []
    knowledge: list[str] = []
    texts: list[str]
    skips: tuple[str, ...] = ()
    batch: int = 0


def gather(
    responses: Mapping[str, Iterable[ScoredResponse]], judged: Judged, *, grounded: bool = False
) -> dict[str, tuple[Dialogue, dict[str, Response]]]:
    """The dialogues that every system answered with something to judge, by id; of repetitions the first.

    With `grounded` only those with gold knowledge.
    """
    found: dict[str, tuple[Dialogue, dict[str, Response]]] = {}
    for system, answers in responses.items():
        for scored in answers:
            is_wanted = scored.repetition == 0 and (scored.dialogue.knowledge or not grounded)
            if is_wanted and text_of(scored.response, judged):
                # A trace is many times what is judged, and wanted for queries alone.
                kept = scored.response if judged == "query" else scored.response.model_copy(update={"trace": []})
                found.setdefault(scored.dialogue.id, (scored.dialogue, {}))[1][system] = kept
    return {name: entry for name, entry in found.items() if len(entry[1]) == len(responses)}


def text_of(response: Response, judged: Judged) -> str:
    """What is judged of a response, as judges that compare are shown it; empty where there is none."""
    if judged == "knowledge" and response.status != "failed":
        return "\n".join(item.text for item in response.knowledge if item.used)
    if judged == "response" and response.status != "failed":
        return response.text.strip()  # with its line ends
    return shown(response, "queries")


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
        limit: how many dialogues, sampled by seed.
        against: for pairs: only those with this system; all pairs otherwise.
        seed: of sampling, shuffling and blinding.

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
    same: list[Keyed] = []
    for group in groups:
        # Each order of a pair as often as the other, so that no system gains by its side.
        turns = [place % len(group) for place in range(len(wanted))]
        draw.shuffle(turns)
        for dialogue_name, turn in zip(wanted, turns, strict=True):
            order = list(group[turn:] + group[:turn])
            if len(group) > 2:
                draw.shuffle(order)
            dialogue, answers = found[dialogue_name]
            texts = [text_of(answers[system], chosen.judges) for system in order]
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


def _with_controls(made: Sequence[tuple[Item, Keyed]], draw: random.Random) -> list[tuple[Item, Keyed]]:
    """Items in batches, in each a control case: an item of it with a text whose words are shuffled in place of one."""
    found: list[tuple[Item, Keyed]] = []
    for batch, start in enumerate(range(0, len(made), BATCH - 1)):
        some = made[start : start + BATCH - 1]
        item, keyed = draw.choice(some)
        place = draw.randrange(len(item.texts))
        texts, systems = list(item.texts), list(keyed.systems)
        words = texts[place].split() if " " in texts[place] else list(texts[place])
        draw.shuffle(words)
        texts[place], systems[place] = " ".join(words), CONTROL
        control = item.model_copy(update={"id": _new_id(draw), "texts": texts})
        some = [*some, (control, keyed.model_copy(update={"systems": tuple(systems)}))]
        draw.shuffle(some)
        found += [tuple(each.model_copy(update={"batch": batch}) for each in pair) for pair in some]  # type: ignore[misc]
    return found


def _new_id(draw: random.Random) -> str:
    """It begins with a letter that is no hexadecimal digit: spreadsheets take 12345e6789 for a number."""
    return f"i{draw.getrandbits(40):010x}"


def _item(
    dialogue: Dialogue,
    answers: Sequence[Response],
    texts: list[str],
    chosen: CriteriaSet,
    language: Language,
    draw: random.Random,
) -> Item:
    gold = [
        (isinstance(each, dict) and each.get("source"), gold_text(each) or str(each)) for each in dialogue.knowledge
    ]
    knowledge = [text for source, text in gold if source != "persona"]
    if not gold and len(answers) == 1:
        knowledge = [item.text for item in answers[0].knowledge if item.used]
    there = {
        "topic": dialogue.topic or "",
        "persona": [text for source, text in gold if source == "persona"] if gold else list(dialogue.persona),
        "knowledge": knowledge,
    }
    return Item(
        id=_new_id(draw),
        turns=_turns(dialogue, language),
        texts=texts,
        skips=tuple(name for name, each in chosen.criteria.items() if each.of and not there[each.of]),
        **{name: value for name, value in there.items() if name in chosen.shows},  # type: ignore[arg-type]
    )


def _turns(dialogue: Dialogue, language: Language) -> list[tuple[str, str]]:
    """Speakers and texts; speakers who are called by a letter, as responses are, get a number instead."""
    names = list(dict.fromkeys(turn.speaker for turn in dialogue.turns))
    shown = {name: name for name in names}
    if any(name in LETTERS for name in names):
        word = "说话人" if language == "zh" else "Speaker "
        shown = {name: f"{word}{number}" for number, name in enumerate(names, start=1)}
    return [(shown[turn.speaker], turn.text) for turn in dialogue.turns]


def for_annotator(items: Sequence[Item], annotator: int, seed: int) -> list[Item]:
    """The same items in an order of the annotator's own, so that tiredness does not fall on the same ones."""
    draw = random.Random(f"{seed}-{annotator}")  # noqa: S311
    batches = [list(some) for _, some in itertools.groupby(items, lambda item: item.batch)]
    for some in batches:
        draw.shuffle(some)
    draw.shuffle(batches)
    return [item for some in batches for item in some]


def answer_columns(chosen: CriteriaSet, form: Form, letters: int) -> list[str]:
    """The columns that annotators fill in: a criterion each; for rankings a criterion and letter each."""
    if form == "ranking":
        return [f"{name} {letter}" for name in chosen.criteria for letter in LETTERS[:letters]]
    return list(chosen.criteria)


def columns_of(items: Sequence[Item], chosen: CriteriaSet, form: Form) -> list[str]:
    """All columns of a sheet: the item, what is read, what is filled in."""
    letters = max(len(item.texts) for item in items)
    texts = [chosen.judges] if form == "likert" else [f"{chosen.judges} {letter}" for letter in LETTERS[:letters]]
    return ["item", *chosen.shows, "dialogue", *texts, *answer_columns(chosen, form, letters), "comment"]


def rows_of(items: Sequence[Item], chosen: CriteriaSet, form: Form) -> list[list[str]]:
    """A sheet's rows, with the answers' columns empty."""
    columns = columns_of(items, chosen, form)
    rows = []
    for item in items:
        known = {
            "item": item.id,
            "topic": item.topic,
            "persona": "\n".join(item.persona),
            "knowledge": "\n".join(item.knowledge),
            "dialogue": "\n".join(f"{speaker}: {text}" for speaker, text in item.turns),
        }
        names = [chosen.judges] if form == "likert" else [f"{chosen.judges} {letter}" for letter in LETTERS]
        known |= dict(zip(names, item.texts, strict=False)) | dict.fromkeys(item.skips, NOT_ASKED)
        rows.append([known.get(column, "") for column in columns])
    return rows


NOT_ASKED = "–"
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_SHOWN = 5
_SIDES = {side.lower(): side for side in SIDES} | {"平局": "tie", "平": "tie", "t": "tie"}


def render_csv(items: Sequence[Item], chosen: CriteriaSet, form: Form) -> str:
    """A sheet as CSV, with a byte-order mark, so that spreadsheets read it as UTF-8."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns_of(items, chosen, form))
    writer.writerows([_inert(text) for text in row] for row in rows_of(items, chosen, form))
    return "\ufeff" + text.getvalue()


def render_page(items: Sequence[Item], chosen: CriteriaSet, form: Form, language: Language, annotator: int) -> str:
    """A sheet as one page to be printed and filled in by hand."""
    template = environment().get_template("report/sheet.html.j2")
    return template.render(
        items=items,
        chosen=chosen,
        form=form,
        language=language,
        annotator=annotator,
        words=sheet_words(language),
        letters=LETTERS,
        style=asset("report/sheet.css"),
    )


def _inert(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


class Annotation(BaseModel):
    """One annotator's answer to one question about one item, unblinded.

    Attributes:
        criteria: the name of the set of criteria.
        systems: the systems of the item, in the order of its letters.
        winner: of a pair: the system that won; None for a tie.
        values: the system's score, or every system's rank, by system; empty for a pair.
        asked: whether the annotator was asked; else it is a tie of two equal texts.
    """

    model_config = ConfigDict(frozen=True)

    annotator: str
    item: str
    dialogue: str
    criteria: str
    criterion: str
    form: Form
    systems: tuple[str, ...]
    winner: str | None = None
    values: dict[str, float] = {}
    asked: bool = True

    @property
    def is_wrong(self) -> bool:
        """Whether it takes a control case for something that a system said."""
        if CONTROL not in self.systems or not self.asked:
            return False
        if self.form == "pairwise":
            return self.winner in {None, CONTROL}
        if self.form == "ranking":
            return self.values[CONTROL] < max(self.values.values())
        return self.values[CONTROL] > sum(criteria_set(self.criteria).criteria[self.criterion].scale) / 2


class Sheet(NamedTuple):
    """A sheet that was read.

    Attributes:
        annotations: its answers; of a batch whose control case is judged wrongly there are none.
        empty: how many fields were left empty.
        dropped: how many batches were left out.
    """

    annotations: list[Annotation]
    empty: int
    dropped: int


def read_key(path: Path) -> Key:
    """The key of an export.

    Raises:
        InputError: the file is missing or is no key.
    """
    try:
        return Key.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", mend="name the key that the export wrote") from error
    except (ValidationError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no key of an export", mend="name the key that `annotate export` wrote") from error


def read_sheet(path: Path, key: Key, annotator: str) -> Sheet:
    """The answers in a filled-in sheet, without those of batches whose control case is judged wrongly.

    Raises:
        InputError: a column is missing, an item is not of this export or stands twice, or an answer is none of those
            that the question allows; row and column are named, several at once.
        MissingExtraError: it is XLSX, and openpyxl is not installed.
    """
    rows = read_xlsx(path) if path.suffix.lower() == ".xlsx" else _csv(path)
    chosen = criteria_set(key.criteria)
    letters = max(len(each.systems) for each in key.items.values())
    wanted = answer_columns(chosen, key.form, letters)
    # Somebody may have put a line of their own above.
    top = next((number for number, row in enumerate(rows) if "item" in map(str.strip, row)), 0)
    head = [name.strip() for name in rows[top]] if rows else []
    missing = [name for name in ["item", *wanted] if name not in head]
    if missing:
        raise InputError(
            f"{path.name}: no column {', '.join(missing)}", mend="keep the names of the sheet's columns as they were"
        )
    reader = _Reader(path.name, key, annotator)
    for number, row in enumerate(rows[top + 1 :], start=top + 2):
        fields = dict(zip(head, [field.strip() for field in row], strict=False))
        if any(fields.values()):
            reader.read(number, fields)
    if reader.wrong:
        more = f"; and {len(reader.wrong) - _SHOWN} more" if len(reader.wrong) > _SHOWN else ""
        raise InputError("; ".join(reader.wrong[:_SHOWN]) + more, mend="mend these fields and import again")
    failed = {key.items[each.item].batch for each in reader.found if each.is_wrong}
    kept = [each for each in reader.found if key.items[each.item].batch not in failed and CONTROL not in each.systems]
    if chosen.minimum:
        kept += _least(kept, chosen.minimum)
    if kept:
        kept += [
            Annotation(**reader.known(f"same {number}", criterion, keyed), asked=False)
            for number, keyed in enumerate(key.same)
            for criterion in chosen.criteria
        ]
    return Sheet(kept, reader.empty, len(failed))


def _least(annotations: Sequence[Annotation], name: str) -> list[Annotation]:
    """A score that is the least of an item's (MSDP, Section 3.5)."""
    by_item: dict[str, list[Annotation]] = {}
    for each in annotations:
        by_item.setdefault(each.item, []).append(each)
    return [
        some[0].model_copy(
            update={"criterion": name, "values": {s: min(each.values[s] for each in some) for s in some[0].values}}
        )
        for some in by_item.values()
    ]


class _Reader:
    """Reads rows, and goes on after what is wrong, so that all of it is reported at once."""

    def __init__(self, name: str, key: Key, annotator: str) -> None:
        self._name, self._key, self._annotator = name, key, annotator
        self._chosen = criteria_set(key.criteria)
        self._seen: set[str] = set()
        self.found: list[Annotation] = []
        self.wrong: list[str] = []
        self.empty = 0

    def read(self, number: int, fields: dict[str, str]) -> None:
        item = fields.get("item", "")
        if item not in self._key.items:
            self._complain(number, "item", f"{item!r} is no item of this export")
        elif item in self._seen:
            self._complain(number, "item", f"{item} stands twice")
        else:
            self._seen.add(item)
            skips = self._key.items[item].skips
            for criterion in (name for name in self._chosen.criteria if name not in skips):
                made = self._answer(number, item, criterion, fields)
                self.found += [made] if made is not None else []

    def _answer(self, number: int, item: str, criterion: str, fields: dict[str, str]) -> Annotation | None:
        systems = self._key.items[item].systems
        ranks = self._key.form == "ranking"
        columns = [f"{criterion} {letter}" for letter in LETTERS[: len(systems)]] if ranks else [criterion]
        # Chinese keyboards write letters and digits of full width.
        given = [unicodedata.normalize("NFKC", fields.get(column, "")) for column in columns]
        if not all(given):
            self.empty += given.count("")
            if any(given):
                self._complain(number, columns[given.index("")], "is empty, where other ranks are given")
            return None
        known = self.known(item, criterion, self._key.items[item])
        if self._key.form == "pairwise":
            side = _SIDES.get(given[0].lower())
            if side is None:
                self._complain(number, criterion, f"{given[0]!r} is none of {', '.join(SIDES)}")
                return None
            return Annotation(**known, winner=None if side == "tie" else systems[SIDES.index(side)])
        low, high = (1, len(systems)) if ranks else self._chosen.criteria[criterion].scale
        values = [self._number(number, column, text, low, high) for column, text in zip(columns, given, strict=True)]
        if any(value is None for value in values):
            return None
        return Annotation(**known, values={s: float(v) for s, v in zip(systems, values, strict=True) if v is not None})

    def known(self, item: str, criterion: str, keyed: Keyed) -> dict[str, Any]:
        """What an annotation says besides its answer."""
        known = {"annotator": self._annotator, "item": item, "criterion": criterion, "systems": keyed.systems}
        return known | {"criteria": self._key.criteria, "form": self._key.form, "dialogue": keyed.dialogue}

    def _number(self, number: int, column: str, text: str, low: int, high: int) -> int | None:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not (low <= value <= high and value == int(value)):
            self._complain(number, column, f"{text!r} is no whole number from {low} to {high}")
            return None
        return int(value)

    def _complain(self, number: int, column: str, what: str) -> None:
        self.wrong.append(f"{self._name}, row {number}, column {column}: {what}")


def _csv(path: Path) -> list[list[str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        head = text.split("\n", 1)[0]
        # Spreadsheets of some countries write semicolons or tabs.
        delimiter = max(",;\t", key=head.count)
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path.name} is no CSV in UTF-8", mend="save it as CSV UTF-8") from error


def read_xlsx(path: Path) -> list[list[str]]:
    """The rows of the one sheet that has a column `item`, wherever it stands; of the first where none has.

    Raises:
        MissingExtraError: openpyxl is not installed.
        InputError: the file cannot be read, is no XLSX, or several of its sheets have such a column.
    """
    openpyxl = openpyxl_for(f"reading {path.name}")
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            # It warns of what spreadsheets add and it does not know.
            warnings.simplefilter("ignore")
            book = openpyxl.load_workbook(file, data_only=True)
            sheets = [
                [["" if cell is None else str(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
                for sheet in book.worksheets
            ]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # a damaged file fails wherever openpyxl or zipfile stumbles over it
        raise InputError(f"{path.name} is no XLSX", mend="save it as XLSX or CSV UTF-8") from error
    found = [rows for rows in sheets if any("item" in map(str.strip, row) for row in rows)]
    if len(found) > 1:
        raise InputError(f"{path.name}: {len(found)} sheets have a column item", mend="keep the one that counts")
    return next(iter([*found, *sheets]), [])


def openpyxl_for(what: str) -> Any:  # noqa: ANN401 - the library is untyped
    """The library that reads and writes XLSX; raises MissingExtraError without it."""
    try:
        import openpyxl
    except ImportError:
        raise MissingExtraError(what, "evaluation") from None
    return openpyxl
