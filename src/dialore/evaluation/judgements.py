"""Published human judgements of single responses, in their authors' files: what metrics and judges are held to."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from dialore.datasets.files import open_text
from dialore.dialogue import Dialogue
from dialore.errors import InputError, UnknownNameError
from dialore.knowledge import Knowledge, Passage
from dialore.response import Response
from dialore.text import LANGUAGE_NAMES, Language

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TURN = re.compile(r"^([AB]): ?(.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A response that people judged.

    Attributes:
        id: its name in its set: `begin_dev_wow-12`.
        dialogue: what it answers, with reference and gold knowledge where the set has them.
        response: the response; its knowledge is what it was to be grounded in.
        context: the same for all responses to one history.
        system: who made it; empty where the set does not say.
        ratings: people's scores by criterion, on the set's own scales; higher is better.
        labels: people's yes or no by criterion; yes is better.
    """

    id: str
    dialogue: Dialogue
    response: Response
    context: str
    system: str = ""
    ratings: dict[str, float] = field(default_factory=dict)
    labels: dict[str, bool] = field(default_factory=dict)


Reader = Callable[["JudgementSet", "Path"], Iterator[Judgement]]


@dataclass(frozen=True, slots=True)
class JudgementSet:
    """A set of human judgements.

    Attributes:
        name: its name on the command line.
        file: the published file's name, without `.gz`.
        paper: where it comes from.
        language: of its dialogues.
        reader: reads the file.
    """

    name: str
    file: str
    paper: str
    language: Language
    reader: Reader

    def read(self, folder: Path) -> list[Judgement]:
        """Every judgement.

        Args:
            folder: where the files lie, or lie in a folder `judgements`; gzipped or not.

        Raises:
            InputError: there is no such file, or it is malformed; names line and field.
        """
        path = self.find(folder)
        if path is None:
            raise InputError(f"{self.name}: no file {self.file} in {folder}", mend="name its folder with --data")
        found = list(self.reader(self, path))
        if not found:
            raise InputError(f"{path}: no judgement in it", mend="is it the published file?")
        return found

    def find(self, folder: Path) -> Path | None:
        """The file, where there is one."""
        names = (f"{inner}{self.file}{end}" for inner in ("", "judgements/") for end in (".gz", ""))
        return next((path for name in names if (path := folder / name).is_file()), None)


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a file, with where it stands."""

    place: str
    fields: Mapping[str, Any]

    def text(self, name: str) -> str:
        """A field's text; raises InputError where it is missing or blank."""
        value = self.fields.get(name)
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{self.place}: field {name}: no text", mend="is it the published file?")
        return value.strip()

    def number(self, name: str, low: float, high: float) -> float | None:
        """A field's number; None where it lies off the scale, as slips of annotators do."""
        value = self.fields.get(name)
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise InputError(
                f"{self.place}: field {name}: {value!r} is no number", mend="is it the published file?"
            ) from None
        # Means of few raters are printed with few digits.
        return number if low - 1e-3 <= number <= high + 1e-3 and not math.isnan(number) else None


def _rows(path: Path, *, tabs: bool = False) -> Iterator[_Row]:
    with open_text(path) as file:
        reader = (
            csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if tabs else csv.DictReader(file, strict=True)
        )
        try:
            for fields in reader:
                yield _Row(f"{path.name}, line {reader.line_num}", fields)
        except csv.Error as error:
            raise InputError(f"{path.name}, line {reader.line_num}: {error}") from error


def _judgement(
    of: JudgementSet,
    number: int,
    turns: Sequence[str | dict[str, str]],
    text: str,
    *,
    system: str = "",
    knowledge: str = "",
    reference: str | None = None,
    ratings: Mapping[str, float | None] | None = None,
    labels: Mapping[str, bool | None] | None = None,
) -> Judgement:
    name = f"{of.name}-{number}"
    given = [turn if isinstance(turn, str) else turn["text"] for turn in turns]
    gold: dict[str, Any] = {"id": name, "turns": turns, "language": of.language, "reference": reference}
    pieces = []
    if knowledge:
        gold["knowledge"] = [knowledge]
        passage = Passage(knowledge)
        pieces = [Knowledge(id=passage.id, kind="passage", text=knowledge, source="documents", used=True)]
    return Judgement(
        name,
        Dialogue.model_validate(gold),
        Response(id=name, method=system or "unknown", text=text, knowledge=pieces),
        "\n".join(given),
        system,
        {key: value for key, value in (ratings or {}).items() if value is not None},
        {key: value for key, value in (labels or {}).items() if value is not None},
    )


_USR = {
    "overall": (1, 5),
    "understandable": (0, 1),
    "natural": (1, 3),
    "maintains_context": (1, 3),
    "engaging": (1, 3),
    "uses_knowledge": (0, 1),
}
_TRUTH = "Original Ground Truth"


def _usr(of: JudgementSet, path: Path) -> Iterator[Judgement]:
    """A JSON list; the original response is the reference of the others to the same history."""
    with open_text(path) as file:
        try:
            entries = json.load(file)
        except ValueError as error:
            raise InputError(f"{path.name}: not valid JSON: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{path.name}: expected a list of objects", mend="is it the published file?")
    truths = {entry.get("dialog_history"): entry.get("response") for entry in entries if entry.get("model") == _TRUTH}
    for number, entry in enumerate(entries, start=1):
        row = _Row(f"{path.name}, entry {number}", entry)
        history, system = row.text("dialog_history"), row.text("model")
        turns = [turn.strip() for turn in history.split("\n") if turn.strip()]
        fact = row.text("fact")
        truth = truths.get(entry["dialog_history"]) if system != _TRUTH else None
        yield _judgement(
            of,
            number,
            turns,
            row.text("response"),
            system=system,
            knowledge="" if fact.startswith("_nofact") else fact,
            reference=truth.strip() if truth else None,
            ratings={name: row.number(name, low, high) for name, (low, high) in _USR.items()},
        )


# Two of the responses are labelled generic: they say nothing that could be attributed, or not.
_BEGIN = {"Fully attributable": True, "Not fully attributable": False, "Generic": None}


def _begin(of: JudgementSet, path: Path) -> Iterator[Judgement]:
    for number, row in enumerate(_rows(path, tabs=True), start=1):
        label = row.text("begin_label")
        if label not in _BEGIN:
            raise InputError(f"{row.place}: field begin_label: {label!r} is none of {', '.join(_BEGIN)}")
        yield _judgement(
            of,
            number,
            [row.text("message")],
            row.text("response"),
            system=row.text("model_name"),
            knowledge=row.text("knowledge"),
            labels={"attributable": _BEGIN[label]},
        )


def _xdial(of: JudgementSet, path: Path) -> Iterator[Judgement]:
    """The same responses in ten languages, with one rating each; systems are not named."""
    column = LANGUAGE_NAMES[of.language].lower()
    for number, row in enumerate(_rows(path), start=1):
        turns = [turn.strip() for turn in row.text(f"{column}_ctx").split("\n") if turn.strip()]
        rating = row.number("ratings", 1, 5)
        yield _judgement(of, number, turns, row.text(f"{column}_res"), ratings={"overall": rating})


_YES_NO = {"yes": True, "no": False}


def _alexa(of: JudgementSet, path: Path) -> Iterator[Judgement]:
    for number, row in enumerate(_rows(path), start=1):
        turns = []
        for said in row.text("context").split("<br>"):
            found = _TURN.match(said.strip())
            if found is not None and found[2].strip():
                turns.append({"speaker": found[1], "text": found[2]})
        if not turns:
            raise InputError(f"{row.place}: field context: no turn", mend="is it the published file?")
        hallucinated = row.text("Hallucination").lower()
        if hallucinated not in _YES_NO:
            raise InputError(f"{row.place}: field Hallucination: {hallucinated!r} is neither yes nor no")
        yield _judgement(
            of,
            number,
            turns,
            row.text("response"),
            knowledge=row.text("knowledge"),
            ratings={"factual_correctness": row.number("Avg Factual Correctness", 0, 1)},
            labels={"not_hallucinated": not _YES_NO[hallucinated]},
        )


def _sets() -> Iterator[JudgementSet]:
    usr = "Mehri and Eskenazi (ACL 2020), USR, on Topical-Chat"
    yield JudgementSet("topicalchat_usr", "topicalchat_usr.json", usr, "en", _usr)
    begin = "Dziri et al. (TACL 2022), BEGIN"
    for name in ("begin_dev_wow", "begin_dev_topicalchat"):
        yield JudgementSet(name, f"{name}.tsv", begin, "en", _begin)
    papers = {"zhao": "Zhao et al. (ACL 2020)", "gupta": "Gupta et al. (SIGDIAL 2019)"}
    for source, paper in papers.items():
        for language in get_args(Language):
            name, said = f"xdial_dailydialog_{source}", f"{paper}, by way of xDial-Eval (Zhang et al., 2023)"
            yield JudgementSet(f"{name}_{language}", f"{name}.csv", said, language, _xdial)
    alexa = "Santhanam et al. (2021), factual correctness of knowledge-grounded responses"
    yield JudgementSet("alexa_factual_expert", "alexa_factual_expert.csv", alexa, "en", _alexa)


SETS: dict[str, JudgementSet] = {one.name: one for one in _sets()}
"""The sets by name."""


def judgement_set(name: str) -> JudgementSet:
    """The set of that name; raises UnknownNameError where there is none."""
    if name not in SETS:
        raise UnknownNameError("set of judgements", name, SETS)
    return SETS[name]
