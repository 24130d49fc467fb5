"""`dialore feedback`: what users said of a service's responses, counted, exported, and answered anew."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from dialore.cli.memory import Store, ask_store
from dialore.cli.options import (
    AgentSet,
    BaseUrl,
    Documents,
    Graph,
    Json,
    Method,
    MethodOption,
    Model,
    SettingsFile,
    Sources,
    agent_settings,
    connecting,
    one_of,
)
from dialore.cli.output import Table, console, note, print_json, run_progress
from dialore.cli.score import show_scores
from dialore.errors import InputError
from dialore.evaluation.registry import Context, load_metrics
from dialore.experiments import feedback
from dialore.experiments.feedback import Row, summary
from dialore.experiments.feedback import replay as answer_anew
from dialore.experiments.results import RunResults
from dialore.experiments.scoring import measure_run
from dialore.experiments.store import RunStore
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
    """
    make = {"dialogues": feedback.as_dialogues, "responses": feedback.as_responses, "pairs": feedback.as_pairs}
    make["conversations"] = feedback.as_conversations
    rows = _rows(store, bad=bad)
    count = feedback.write_lines(out, make[one_of("form", form, list(make))](rows))
    if json:
        print_json({"file": str(out), "entries": count})
    note(f"{count} of {count_noun(len(rows), 'responses')}: {out}")


@app.command("replay")
def replay(
    context: typer.Context,
    store: Store,
    method: Method = None,
    model: Model = None,
    base_url: BaseUrl = None,
    documents: Documents = None,
    graph: Graph = None,
    sources: Sources = None,
    option: MethodOption = None,
    settings: SettingsFile = None,
    changes: AgentSet = None,
    out: Annotated[Path, Option(metavar="FOLDER", help="The run.")] = Path("runs/replay"),
    again: Annotated[bool, Option("--all", help="Good responses, too.")] = False,
    json: Json = False,
) -> None:
    """Answer anew what was answered badly, beside what was said then, and compare.

    Better answers that users gave are the references of f1 and rouge-l. Run
    the same command again and only what is missing or failed is answered.

    [bold]Examples[/bold]
    dialore feedback replay store.sqlite -M weave --documents notes.index
    dialore feedback replay store.sqlite -M rag -o top=10 --set sources.prompts=mine
    """
    rows = _rows(store, bad=not again)
    connect, say_without = connecting()
    with run_progress("answering") as on_progress:
        asyncio.run(answer_anew(rows, agent_settings(context), out, connect, on_progress))
    say_without("what was found is scored")
    names = ("f1", "rouge-l") if any(row["better"] for row in rows) else ("distinct-2",)
    with RunStore.open(out) as run:
        with run.writing():
            asyncio.run(measure_run(run, load_metrics(names, Context())))
        results = RunResults([run], names)
        if json:
            print_json([dataclasses.asdict(system) for system in results.systems()])
        else:
            show_scores(results)
    if lacking := sum(map(feedback.lacks_memory, rows)):
        note(
            f"{lacking} of {len(rows)} former responses drew on the users' memory, which their traces lack: "
            "they are answered without it"
        )
    note(f"side by side: `dialore report {out}`")


def _rows(place: str, *, bad: bool = False) -> list[Row]:
    """Return the feedback in a store; raises InputError where there is none."""
    rows = [row for row in ask_store(place, lambda store: store.feedback()) if not (bad and row["good"])]
    if not rows:
        raise InputError(f"{place} has no {'bad ' * bad}feedback", hint="users give it by thumb, or POST /v1/feedback")
    return rows
