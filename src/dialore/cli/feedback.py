"""`dialore feedback`: what users said of a service's responses, counted and exported."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from dialore.cli.memory import Store, ask_store
from dialore.cli.options import Json, one_of
from dialore.cli.output import Table, console, note, print_json
from dialore.errors import InputError
from dialore.experiments import feedback
from dialore.experiments.feedback import Row, summary
from dialore.text import count_noun

app = typer.Typer(no_args_is_help=True)


@app.command("report")
def report(store: Store, json: Json = False) -> None:
    """Show which methods and sources go with bad responses, the worst first.

    [bold]Examples[/bold]
    dialore feedback report store.sqlite
    """
    rows = _rows(store)
    figures = summary(rows)
    if json:
        print_json(figures)
        return
    shown = Table("!what", "!name", ">responses", ">bad", ">95%")
    for entry in figures:
        interval = f"{entry['low']:.0%} to {entry['high']:.0%}"
        shown.add_row(entry["what"], entry["name"], str(entry["responses"]), f"{entry['bad']:.0%}", interval)
    console().print(shown)
    for row in rows:
        if row["reason"]:
            note(f"{'good' if row['good'] else 'bad'}: {row['reason']} ({row['trace']})")


@app.command("export")
def export(
    store: Store,
    out: Annotated[Path, Argument(metavar="OUT", help="The JSONL file that it goes to.")],
    form: Annotated[
        str,
        Option(
            "--as",
            metavar="dialogues|responses|pairs|conversations",
            help="Dialogues for `run`, with better answers as references; the responses given, for `import`, and then "
            "sheets by `annotate export`; pairs of chosen and rejected answers for preference training; whole "
            "conversations, for `import --conversations`.",
        ),
    ] = "dialogues",
    bad: Annotated[bool, Option("--bad", help="Of bad responses alone.")] = False,
    json: Json = False,
) -> None:
    """Write feedback as data.

    [bold]Examples[/bold]
    dialore feedback export store.sqlite judged.jsonl
    dialore feedback export store.sqlite given.jsonl --as responses
    dialore feedback export store.sqlite pairs.jsonl --as pairs

    Bad responses, answered anew beside what was said then:
    dialore feedback export store.sqlite bad.jsonl --bad
    dialore feedback export store.sqlite before.jsonl --bad --as responses
    dialore run -M weave --dataset jsonl --data bad.jsonl --out runs/again
    dialore import before.jsonl --out runs/again
    """
    make = {"dialogues": feedback.as_dialogues, "responses": feedback.as_responses, "pairs": feedback.as_pairs}
    make["conversations"] = feedback.as_conversations
    rows = _rows(store, bad=bad)
    count = feedback.write_lines(out, make[one_of("form", form, list(make))](rows))
    if json:
        print_json({"file": str(out), "entries": count})
    note(f"{count} of {count_noun(len(rows), 'responses')}: {out}")
    lacking = sum(map(feedback.lacks_memory, rows))
    if form == "dialogues" and lacking:
        note(f"{lacking} of {len(rows)} responses drew on the users' memory, which their traces lack")


def _rows(place: str, *, bad: bool = False) -> list[Row]:
    """Return the feedback in a store; raises InputError where there is none."""
    rows = [row for row in ask_store(place, lambda store: store.feedback()) if not (bad and row["good"])]
    if not rows:
        raise InputError(f"{place} has no {'bad ' * bad}feedback", hint="users give it by thumb, or POST /v1/feedback")
    return rows
