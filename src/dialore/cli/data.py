"""`dialore data`: published data sets, looked into, counted, and made into dialogue files."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from dialore.cli.options import DATA_SETS, Json, one_of
from dialore.cli.output import Table, check_targets, console, escape, note, print_json, progress, say, say_json_text
from dialore.datasets.base import NO_TURN, Answer, DataSet, WholeDialogue, gold_text
from dialore.datasets.published import data_file, fetch, published_sets, remote, remotes
from dialore.datasets.registry import data_set, data_set_names
from dialore.datasets.split import CUTS, answers_of, stream_histories
from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.files import write_whole
from dialore.plugins import loadable
from dialore.text import Language, count_noun

_SHOWN = ("name", "version", "languages", "has", "paper", "licence", "where", "form")

_MAX_LISTED_KEYS = 12

app = typer.Typer(no_args_is_help=True)
_Name = Annotated[
    str, Argument(metavar="NAME", help="The data set; see `dialore data show`.", autocompletion=DATA_SETS)
]
_File = Annotated[
    Path | None,
    Argument(
        metavar="[FILE]", help="As it is published, gzipped or not; of an archive, ARCHIVE:FILE. (default: by --split)"
    ),
]
_Split = Annotated[str, Option("--split", metavar="NAME", help="Without a file: which of those fetched.")]


@app.command("get")
def get(
    name: _Name,
    split: Annotated[list[str] | None, Option(metavar="NAME", help="This split; several times. (default: all)")] = None,
    out: Annotated[Path | None, Option(metavar="FILE", help="For one split. (default: the cache folder)")] = None,
    address: Annotated[
        str | None,
        Option("--from", metavar="URL", help="Another address, URL:MEMBER of an archive, or hf:OWNER/NAME/FILE."),
    ] = None,
    sha256: Annotated[str, Option(metavar="HASH", help="With --from: the SHA-256 of its file.")] = "",
    json: Json = False,
) -> None:
    """Fetch a data set from its published home, and check it; `--dataset NAME` then finds it.

    What is broken off goes on where it stopped when the command is given
    again. Nothing but the data set's own home is asked.

    [bold]Examples[/bold]
    dialore data get dailydialog
    dialore data get kbp --split dev --out data/kbp/dev.json
    dialore data get dailydialog --split train --from hf:OWNER/NAME/train.json
    """
    known = remotes(name) if address is None else dict.fromkeys(split or ["data"], remote(address, {"": sha256}))
    wanted = [one_of("split", part, list(known)) for part in split or known]
    if out is not None and len(wanted) > 1:
        raise InputError("--out is for one split", hint=f"name it by --split, one of {', '.join(known)}")
    check_targets(out if out is not None and out.parent.is_dir() else None)
    entry = published_sets().get(name, {})
    reader = data_set(name) if name in data_set_names() else None
    licence, home = (reader.licence, reader.where) if reader else (entry["licence"], entry["note"])
    note(f"{name}: licence: {licence}; {home}")
    for part in wanted:
        with progress("fetching") as step:
            file, digest = fetch(name, part, known[part], out, step)
        if json:
            done = {"data_set": name, "split": part, "file": str(file), "url": known[part].url}
            print_json({**done, "licence": licence, "sha256": digest, "checked": bool(known[part].sha256)})
            continue
        say(str(file))
        checked = "as it was published" if known[part].sha256 else "not checked: what it should be is not known here"
        note(f"{part}: SHA-256 {digest}, {checked}")


@app.command("show")
def show(
    name: Annotated[
        str | None, Argument(metavar="[NAME]", help="The data set. (default: list all)", autocompletion=DATA_SETS)
    ] = None,
    file: _File = None,
    split: _Split = "",
    count: Annotated[int, Option("--count", "-n", min=1, help="How many dialogues.")] = 3,
    stats: Annotated[bool, Option("--stats", help="Count and measure all dialogues instead.")] = False,
    json: Json = False,
) -> None:
    """List the data sets, show one's whole dialogues with the gold knowledge of each turn, or measure them all.

    Samples, which --stats counts, are turns that may be a reference: the
    system's or wizard's where a data set has such roles, else any but the first.

    [bold]Examples[/bold]
    dialore data show
    dialore data show everyday
    dialore data show kbp dev.json -n 1
    dialore data show kbp kbp.zip:dev.json --stats --json
    """
    if name is None:
        _list_data_sets(json=json)
        return
    path = file or data_file(name, split)
    if stats:
        _show_figures(describe_file(name, path), json=json)
        return
    for dialogue in islice(data_set(name).read(path), count):
        gold = {answer.turn: answer for answer in answers_of(dialogue)}
        if json:
            print_json(_as_data(dialogue, gold))
            continue
        out = console()
        out.print(f"[bold]{escape(dialogue.id)}[/]  {escape(dialogue.topic or '')}")
        for sentence in dialogue.persona:
            out.print(f"[dim]persona:[/] {escape(sentence)}")
        rows = Table("!speaker", "turn", "gold knowledge")
        for position, turn in enumerate(dialogue.turns):
            rows.add_row(turn.speaker, turn.text, _gold_cell(gold.get(position)))
        out.print(rows)


def _list_data_sets(*, json: bool) -> None:
    readers, can = list(loadable(data_set_names(), data_set)), published_sets()
    if json:
        splits = {name: list(entry["splits"]) for name, entry in can.items()}
        described = ({key: getattr(reader, key) for key in _SHOWN} for reader in readers)
        print_json([{**entry, "get": splits.get(entry["name"], [])} for entry in described])
        return
    rows = Table("!data set", ">v", "!language", "has", "licence", "where to get it")
    for reader in readers:
        held = ", ".join(reader.has) or "-"
        rows.add_row(reader.name, str(reader.version), ", ".join(reader.languages), held, reader.licence, reader.where)
    console().print(rows)
    note(f"`dialore data get NAME` fetches {', '.join(reader.name for reader in readers if reader.name in can)}")
    for name in can.keys() - set(data_set_names()):
        note(f"and, without a reader of dialogues, {name} ({can[name]['licence']}): {can[name]['note']}")


def _show_figures(figures: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json(figures)
        return
    rows = Table("!measure", ">value")
    for key, value in figures.items():
        for part, number in (value if isinstance(value, dict) else {"": value}).items():
            rows.add_row(f"{key} {part}".replace("_", " ").strip(), _figure(number))
    console().print(rows)


@app.command("convert")
def convert(
    name: _Name,
    file: _File = None,
    split: _Split = "",
    out: Annotated[Path | None, Option(metavar="FILE", help="Where they go. (default: standard output)")] = None,
    cut: Annotated[
        str, Option(metavar="last|random|all", help="The reference: the last turn that may be, a random one, or each.")
    ] = "last",
    limit: Annotated[int | None, Option(min=1, help="How many to keep, sampled by --seed.")] = None,
    seed: Annotated[int, Option(help="Of what is sampled.")] = 0,
    json: Annotated[bool, Option("--json", help="With --out: say what was done as JSON.")] = False,
) -> None:
    """Convert a data set's file to dialogues with references and gold knowledge (JSONL).

    [bold]Examples[/bold]
    dialore data convert dailydialog valid.json.gz --out valid.jsonl
    dialore data convert kbp dev.json --cut all --limit 20 --out 20.jsonl
    dialore data convert xdailydialog-zh dev.txt --cut all | dialore respond -
    """
    reader, file = data_set(name), file or data_file(name, split)
    without_turn: list[str] = []
    histories = stream_histories(
        lambda: reader.read(file),
        cut=one_of("cut", cut, CUTS),
        limit=limit,
        seed=seed,
        on_left_out=lambda dialogue: without_turn.append(dialogue.id),
    )
    if out is not None:
        check_targets(out, source=file, begins="{")
    count = 0

    def lines() -> Iterator[str]:
        nonlocal count
        for dialogue in histories:
            count += 1
            yield f"{as_line(dialogue)}\n"
        if not count:
            raise InputError(f"{file}: no dialogue has a turn to be answered", hint=reader.published)

    if out is None:
        for line in lines():
            say_json_text(line.removesuffix("\n"))
    else:
        write_whole(out, lines())
    report = reader.report
    for identifier in without_turn:
        report.leave_out(identifier, NO_TURN)
    if json and out is not None:
        counts = {"left_out": dict(report.left_out), "unused_keys": dict(report.unused_keys)}
        written = {"data_set": name, "read": report.read, "dialogues": count, **counts}
        print_json({**written, "out": str(out), "cut": cut, "seed": seed})
        return
    _note_report(reader)
    if out is not None:
        note(f"{count_noun(count, 'dialogues')} of {name} written to {out}")


def _note_report(reader: DataSet) -> None:
    """Say which dialogues have no turn to be answered, and which keys are not read; the reader logs the rest."""
    report = reader.report
    for reason in report.reasons():
        if NO_TURN in reason:
            note(reason)
    if report.unused_keys:
        kept = "kept as extra fields" if reader.keeps_unused else "not read"
        listed = report.unused_keys.most_common(_MAX_LISTED_KEYS)
        names = ", ".join(f"{key} ({count:,})" for key, count in listed)
        more = len(report.unused_keys) - len(listed)
        note(f"keys of entries that are {kept}: {names}" + (f", and {more} more" if more else ""))


def _as_data(dialogue: WholeDialogue, gold: Mapping[int, Answer]) -> dict[str, Any]:
    turns = []
    for position, turn in enumerate(dialogue.turns):
        shown: dict[str, Any] = {"speaker": turn.speaker, "text": turn.text}
        if position in gold:
            shown["gold"] = gold[position].model_dump(mode="json", exclude_none=True, exclude={"turn"})
        turns.append(shown)
    data = dialogue.model_dump(mode="json", exclude_defaults=True, exclude={"turns", "answers", "pool"})
    return {**data, "turns": turns, "pool": len(dialogue.pool)}


def _figure(value: object) -> str:
    if isinstance(value, int | float):
        return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
    return "-" if value is None else str(value)


def _gold_cell(answer: Answer | None) -> str:
    if answer is None:
        return ""
    lines = [f"<{', '.join(answer.sources) or 'no source'}>"] if answer.sources is not None else []
    lines += [f"? {answer.extra['query']}"] if "query" in answer.extra else []
    lines += [f"- {gold_text(item)}" for item in answer.knowledge]
    return "\n".join(lines)


def as_line(dialogue: Dialogue) -> str:
    """Return a dialogue as one line of a dialogue file; what is empty is left out, other keys stand where they stood.

    A gold plan stays even where it is to use no source.
    """
    data = dialogue.model_dump(mode="json", exclude_defaults=True, exclude={"extra"})
    if "sources" in dialogue.model_fields_set:
        data["sources"] = list(dialogue.sources)
    return dumps({**data, **dialogue.extra}, ensure_ascii=False)


def describe_file(name: str, file: Path) -> dict[str, Any]:
    """Return a file's measures: counts, means and shares. A mean or share of nothing is None.

    Lengths are in words for English and in characters, without spaces, for Chinese.

    Raises:
        InputError: the file is not in its published form, or holds no dialogue.
    """
    sums, plans, languages = Counter[str](), Counter[str](), Counter[str]()
    for dialogue in data_set(name).read(file):
        languages[dialogue.language] += 1
        _add(dialogue, sums, plans)
    if not sums["dialogues"]:
        raise InputError(f"{file}: no dialogue in it", hint=f"{name} is {data_set(name).form}")
    samples, grounded = sums["samples"], sums["with_knowledge"]
    return {
        "data_set": name,
        "version": data_set(name).version,
        "languages": dict(languages),
        "dialogues": sums["dialogues"],
        "samples": samples,
        "turns": sums["turns"],
        "turns_per_dialogue": _ratio(sums["turns"], sums["dialogues"]),
        "samples_per_dialogue": _ratio(samples, sums["dialogues"]),
        "length_unit": "characters" if languages["zh"] * 2 > sums["dialogues"] else "words",
        "turn_length": _ratio(sums["length"], sums["turns"]),
        "reference_length": _ratio(sums["reference_length"], samples),
        "share_with": {
            "knowledge": _ratio(grounded, samples),
            "persona": _ratio(sums["with_persona"], samples),
            "plan": _ratio(sums["planned"], samples),
            "query": _ratio(sums["with_query"], samples),
        },
        "share_of_plan": {plan: _ratio(count, sums["planned"]) for plan, count in sorted(plans.items())},
        "knowledge_pieces": _ratio(sums["pieces"], grounded),
        "knowledge_length": _ratio(sums["knowledge_length"], grounded),
        "pool_sentences": _ratio(sums["pool"], sums["dialogues"]),
    }


def _add(dialogue: WholeDialogue, sums: Counter[str], plans: Counter[str]) -> None:
    """Count a dialogue and its samples."""
    language, turns = dialogue.language, dialogue.turns
    sums.update(dialogues=1, turns=len(turns), pool=len(dialogue.pool))
    sums["length"] += sum(_length(turn.text, language) for turn in turns)
    for answer in answers_of(dialogue):
        sums["samples"] += 1
        if answer.turn < len(turns):
            sums["reference_length"] += _length(turns[answer.turn].text, language)
        sums["with_knowledge"] += bool(answer.knowledge)
        sums["with_persona"] += bool(dialogue.persona)
        sums["with_query"] += "query" in answer.extra
        sums["pieces"] += len(answer.knowledge)
        sums["knowledge_length"] += sum(_length(gold_text(item), language) for item in answer.knowledge)
        if answer.sources is not None:
            sums["planned"] += 1
            plans["+".join(answer.sources) or "none"] += 1


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _length(text: str, language: Language) -> int:
    """Return the words of an English text as white space divides them, or the characters of a Chinese one."""
    pieces = text.split()
    return len(pieces) if language == "en" else sum(map(len, pieces))
