"""Convert published human judgements of responses to one form, for `dialore score --against-ratings`.

`python scripts/convert_judgements.py FROM TO` writes `TO/SET.jsonl` for each published file that lies in FROM, gzipped
or not: USR on Topical-Chat (Mehri and Eskenazi, ACL 2020; topicalchat_usr.json), BEGIN (Dziri et al., TACL 2022;
begin_dev_wow.tsv, begin_dev_topicalchat.tsv), the DailyDialog part of xDial-Eval (Zhang et al., 2023; judgements of
Zhao et al., ACL 2020, and of Gupta et al., SIGDIAL 2019; xdial_dailydialog_zhao.csv, xdial_dailydialog_gupta.csv, in
English and Chinese), factual correctness of grounded responses (Santhanam et al., 2021; alexa_factual_expert.csv), and
the human evaluation of MTRAG (Katsis et al., 2025; human_evaluations.json), whose lines keep the turns' answerability.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dialore.datasets import data_set, split_dialogues
from dialore.datasets.files import open_text
from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Line = dict[str, Any]
_PUBLISHED = "is it the published file?"
_TURN = re.compile(r"^([AB]): ?(.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file, with where it stands."""

    place: str
    fields: Mapping[str, Any]

    def text(self, name: str) -> str:
        """Return a field's text; raises InputError where it is missing or blank."""
        value = self.fields.get(name)
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{self.place}: field {name}: no text", hint=_PUBLISHED)
        return value.strip()

    def number(self, name: str, low: float, high: float) -> float | None:
        """Return a field's number; None where there is none, or it lies off the scale, as slips of annotators do."""
        value = self.fields.get(name)
        if name in self.fields and not str(value or "").strip() and value != 0:
            return None
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise InputError(f"{self.place}: field {name}: {value!r} is no number", hint=_PUBLISHED) from None
        # Means of few raters are printed with few digits.
        return number if low - 1e-3 <= number <= high + 1e-3 and not math.isnan(number) else None

    def choice(self, name: str, known: Mapping[str, bool | None]) -> bool | None:
        """Return what a field's text stands for, None for none; raises InputError where it is none of those known."""
        if name in self.fields and not (self.fields[name] or "").strip():
            return None
        value = self.text(name)
        if value not in known:
            raise InputError(f"{self.place}: field {name}: {value!r} is none of {', '.join(known)}", hint=_PUBLISHED)
        return known[value]


def rows(path: Path, *, tabs: bool = False) -> Iterator[Row]:
    """Yield the rows of a CSV file, or of one whose columns are divided by tabs."""
    with open_text(path) as file:
        quoting = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tabs else {"strict": True}
        reader = csv.DictReader(file, **quoting)  # type: ignore[arg-type]
        try:
            for fields in reader:
                yield Row(f"{path.name}, line {reader.line_num}", fields)
        except csv.Error as error:
            raise InputError(f"{path.name}, line {reader.line_num}: {error}") from error


USR = {
    "overall": (1, 5),
    "understandable": (0, 1),
    "natural": (1, 3),
    "maintains_context": (1, 3),
    "engaging": (1, 3),
    "uses_knowledge": (0, 1),
}
_TRUTH = "Original Ground Truth"


def usr(path: Path) -> Iterator[Line]:
    """Yield a JSON list; the original response is the reference of the others to the same history."""
    with open_text(path) as file:
        try:
            entries = json.load(file)
        except ValueError as error:
            raise InputError(f"{path.name}: not valid JSON: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{path.name}: expected a list of objects", hint=_PUBLISHED)
    truths = {entry.get("dialog_history"): entry.get("response") for entry in entries if entry.get("model") == _TRUTH}
    for number, entry in enumerate(entries, start=1):
        row = Row(f"{path.name}, entry {number}", entry)
        history, system, fact = row.text("dialog_history"), row.text("model"), row.text("fact")
        truth = truths.get(entry["dialog_history"]) if system != _TRUTH else None
        yield {
            "turns": [turn.strip() for turn in history.split("\n") if turn.strip()],
            "response": row.text("response"),
            "system": system,
            "knowledge": [] if fact.startswith("_nofact") else [fact],
            "reference": truth.strip() if truth else None,
            "ratings": {name: row.number(name, low, high) for name, (low, high) in USR.items()},
        }


# Two of the responses are labelled generic: they say nothing that could be attributed, or not.
BEGIN = {"Fully attributable": True, "Not fully attributable": False, "Generic": None}


def begin(path: Path) -> Iterator[Line]:
    """One history, response, knowledge and label a line."""
    for row in rows(path, tabs=True):
        label = row.choice("begin_label", BEGIN)
        yield {
            "turns": [row.text("message")],
            "response": row.text("response"),
            "system": row.text("model_name"),
            "knowledge": [row.text("knowledge")],
            "labels": {"attributable": label},
        }


def xdial(path: Path, column: str) -> Iterator[Line]:
    """Yield the same responses in ten languages, with one rating each; systems are not named."""
    for row in rows(path):
        turns = [turn.strip() for turn in row.text(f"{column}_ctx").split("\n") if turn.strip()]
        rating = row.number("ratings", 1, 5)
        yield {"turns": turns, "response": row.text(f"{column}_res"), "ratings": {"overall": rating}}


HALLUCINATION = {"yes": False, "Yes": False, "no": True, "No": True}


def alexa(path: Path) -> Iterator[Line]:
    """Histories of speakers A and B, with knowledge; a share of correct facts and a label."""
    for row in rows(path):
        turns = []
        for said in row.text("context").split("<br>"):
            found = _TURN.match(said.strip())
            if found is not None and found[2].strip():
                turns.append({"speaker": found[1], "text": found[2]})
        if not turns:
            raise InputError(f"{row.place}: field context: no turn", hint=_PUBLISHED)
        yield {
            "turns": turns,
            "response": row.text("response"),
            "knowledge": [row.text("knowledge")],
            "labels": {"not_hallucinated": row.choice("Hallucination", HALLUCINATION)},
            "ratings": {"factual_correctness": row.number("Avg Factual Correctness", 0, 1)},
        }


MTRAG = ("naturalness", "appropriateness", "completeness", "faithfulness")


def mtrag(path: Path) -> Iterator[Line]:
    """Responses of people, GPT-4o and Llama 3.1 405B; the mean of two or three annotators, and how often each won."""
    dialogues = {each.extra["task_id"]: each for each in split_dialogues(data_set("mtrag").read(path), cut="all")}
    with open_text(path) as file:
        evaluations = json.load(file)["evaluations"]
    for evaluation in evaluations:
        dialogue, system, given = dialogues[evaluation["task_id"]], evaluation["model_id"], evaluation["annotations"]

        def mean(name: str, given: Mapping[str, Any] = given) -> float:
            return fmean(float(each["value"]) for each in given[name].values())

        yield {
            "turns": [turn.model_dump() for turn in dialogue.turns],
            "response": evaluation["model_response"],
            "system": system,
            "knowledge": list(dialogue.knowledge),
            "reference": None if system == "reference" else dialogue.reference,
            "answerability": dialogue.extra["answerability"],
            "ratings": {name: mean(name) for name in MTRAG} | {"win_rate": mean("win-rate")},
        }


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """A published set: its file, its dialogues' language, and what reads it."""

    file: str
    language: str
    read: Callable[[Path], Iterator[Line]]


SETS: dict[str, PublishedSet] = {
    "topicalchat_usr": PublishedSet("topicalchat_usr.json", "en", usr),
    "begin_dev_wow": PublishedSet("begin_dev_wow.tsv", "en", begin),
    "begin_dev_topicalchat": PublishedSet("begin_dev_topicalchat.tsv", "en", begin),
    "alexa_factual_expert": PublishedSet("alexa_factual_expert.csv", "en", alexa),
    "mtrag_human": PublishedSet("human_evaluations.json", "en", mtrag),
}
for source in ("zhao", "gupta"):
    stem = f"xdial_dailydialog_{source}"
    SETS[f"{stem}_en"] = PublishedSet(f"{stem}.csv", "en", lambda path: xdial(path, "english"))
    SETS[f"{stem}_zh"] = PublishedSet(f"{stem}.csv", "zh", lambda path: xdial(path, "chinese"))


def find(name: str, folder: Path) -> Path | None:
    """Return the published file of a set, where there is one."""
    names = (f"{SETS[name].file}{end}" for end in (".gz", ""))
    return next((path for each in names if (path := folder / each).is_file()), None)


def convert(name: str, path: Path, out: Path) -> int:
    """Write a published file as JSONL; the number of judgements.

    Raises:
        InputError: the file is malformed; names line and field.
    """
    lines = []
    for number, line in enumerate(SETS[name].read(path), start=1):
        whole = {"id": f"{name}-{number}", "language": SETS[name].language, **line}
        for kind in ("ratings", "labels"):
            whole[kind] = {key: value for key, value in whole.get(kind, {}).items() if value is not None}
        lines.append(json.dumps({key: value for key, value in whole.items() if value}, ensure_ascii=False) + "\n")
    if not lines:
        raise InputError(f"{path}: no judgement in it", hint=_PUBLISHED)
    out.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def main() -> None:
    """Convert what lies in a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("published", metavar="FROM", type=Path, help="the folder of the published files")
    parser.add_argument("out", metavar="TO", type=Path, help="the folder that the converted files go to")
    options = parser.parse_args()
    published, out = options.published, options.out
    out.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        path = find(name, published)
        if path is not None:
            print(f"{out / name}.jsonl: {convert(name, path, out / f'{name}.jsonl')} judgements")


if __name__ == "__main__":
    main()
