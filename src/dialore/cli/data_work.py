"""What `dialore data` does."""

from __future__ import annotations

import json as encoder
import os
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from dialore.cli.data_stats import describe_file
from dialore.cli.output import check_targets, console, note, print_json, table
from dialore.datasets.base import gold_text
from dialore.datasets.registry import data_set, data_set_names
from dialore.datasets.split import CUTS, answers_of, stream_histories
from dialore.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dialore.datasets.base import Answer, WholeDialogue
    from dialore.datasets.split import Cut
    from dialore.dialogue import Dialogue

_SAID = ("name", "version", "languages", "has", "paper", "licence", "where", "form")


def list_all(*, json: bool) -> None:
    """List every data set."""
    found = [data_set(name) for name in data_set_names()]
    if json:
        print_json([{key: getattr(each, key) for key in _SAID} for each in found])
        return
    rows = table("!data set", ">v", "!language", "has", "licence", "where to get it")
    for each in found:
        held = ", ".join(each.has) or "-"
        rows.add_row(each.name, str(each.version), ", ".join(each.languages), held, each.licence, each.where)
    console().print(rows)


def show(name: str, file: Path, *, count: int, json: bool) -> None:
    """Show a file's first whole dialogues with their gold knowledge."""
    for dialogue in islice(data_set(name).read(file), count):
        if json:
            print_json(_as_data(dialogue))
        else:
            _show_one(dialogue)


def _as_data(dialogue: WholeDialogue) -> dict[str, Any]:
    gold = {answer.turn: answer for answer in answers_of(dialogue)}
    turns = []
    for place, turn in enumerate(dialogue.turns):
        said: dict[str, Any] = {"speaker": turn.speaker, "text": turn.text}
        if place in gold:
            said["gold"] = gold[place].model_dump(mode="json", exclude_none=True, exclude={"turn"})
        turns.append(said)
    data = dialogue.model_dump(mode="json", exclude_defaults=True, exclude={"turns", "answers", "pool"})
    return {**data, "turns": turns, "pool": len(dialogue.pool)}


def _show_one(dialogue: WholeDialogue) -> None:
    from rich.markup import escape

    out = console()
    out.print(f"[bold]{escape(dialogue.id)}[/]  {escape(dialogue.topic or '')}")
    for sentence in dialogue.persona:
        out.print(f"[dim]persona:[/] {escape(sentence)}")
    gold = {answer.turn: answer for answer in answers_of(dialogue)}
    rows = table("!speaker", "turn", "gold knowledge")
    for place, turn in enumerate(dialogue.turns):
        rows.add_row(escape(turn.speaker), escape(turn.text), escape(_gold_cell(gold.get(place))))
    out.print(rows)


def _gold_cell(answer: Answer | None) -> str:
    if answer is None:
        return ""
    lines = [f"<{', '.join(answer.sources) or 'no source'}>"] if answer.sources is not None else []
    lines += [f"? {answer.extra['query']}"] if "query" in answer.extra else []
    lines += [f"- {gold_text(item)}" for item in answer.knowledge]
    return "\n".join(lines)


def stats(name: str, file: Path, *, json: bool) -> None:
    """Count and measure a file."""
    found = describe_file(name, file)
    if json:
        print_json(found)
        return
    rows = table("!measure", ">value")
    for key, value in found.items():
        shown = value if isinstance(value, dict) else {"": value}
        for part, number in shown.items():
            label = " ".join(f"{key} {part}".replace("_", " ").split())
            rows.add_row(label, _number(number))
    console().print(rows)


def _number(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def convert(name: str, file: Path, out: Path | None, *, cut: str, limit: int | None, seed: int, json: bool) -> None:
    """Convert a file to JSONL, one dialogue at a time; an output file is there whole or not at all."""
    if cut not in CUTS:
        raise UnknownNameError("cut", cut, CUTS)
    chosen: Cut = next(known for known in CUTS if known == cut)
    reader = data_set(name)
    histories = stream_histories(lambda: reader.read(file), cut=chosen, limit=limit, seed=seed)
    if out is None:
        for dialogue in histories:
            typer.echo(as_line(dialogue))
        return
    check_targets(out, source=file)
    count = _write_lines(out, (as_line(dialogue) for dialogue in histories))
    if json:
        print_json({"data_set": name, "dialogues": count, "out": str(out), "cut": cut, "seed": seed})
    else:
        note(f"{count} dialogues of {name} written to {out}")


def _write_lines(path: Path, lines: Iterator[str]) -> int:
    """Write lines as they come to a file that takes its name when it is whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    count = 0
    try:
        with temporary.open("w", encoding="utf-8") as file:
            for count, line in enumerate(lines, start=1):  # noqa: B007 - the last is how many there were
                file.write(f"{line}\n")
        temporary.replace(path)
    except OSError as error:
        problem = f"cannot write {path}: {error.strerror or error}"
        raise InputError(problem, mend="check the folder and its permissions") from error
    finally:
        temporary.unlink(missing_ok=True)
    return count


def as_line(dialogue: Dialogue) -> str:
    """A dialogue as one line of a dialogue file; what is empty is left out, other keys stand where they stood.

    A gold plan stays even where it is to use no source.
    """
    data = dialogue.model_dump(mode="json", exclude_defaults=True, exclude={"extra"})
    if "sources" in dialogue.model_fields_set:
        data["sources"] = list(dialogue.sources)
    return encoder.dumps({**data, **dialogue.extra}, ensure_ascii=False)
