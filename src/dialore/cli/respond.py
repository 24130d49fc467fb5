"""`dialore respond` and `dialore ground`: dialogues in, responses or their grounds out."""

# No deferred annotations here: typer reads them.
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli.options import Json, KnowledgeSettings, ModelSettings, takes_settings


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """What is answered, by which methods, and where it goes."""

    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="A dialogue (JSON) or many (JSONL), .gz too; - for stdin.")
    ]
    method: Annotated[
        list[str] | None,
        typer.Option("--method", "-M", metavar="NAME", help="The method; may be given several times. [default: dcrag]"),
    ] = None
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write one JSON object a line here instead.")
    ] = None
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Write everything here, every stage's prompt and answer."),
    ] = None
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Append every model call to this file.")
    ] = None
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", help="Answer from this recording, with no model at all.")
    ] = None


@takes_settings
def respond(
    asked: AnswerSettings,
    models: ModelSettings,
    knowledge: KnowledgeSettings,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page that shows responses and traces.")
    ] = None,
    json: Json = False,
) -> None:
    """Answer the last turn of one dialogue or of many.

    A dialogue is {"turns": [{"speaker": "user", "text": "..."}, ...]}, or
    just {"turns": ["...", "..."]}; id, language (en, zh), topic and persona
    may be added. Malformed entries of a batch are recorded as failed.

    [bold]Examples[/bold]
    dialore respond talk.json
    dialore respond talks.jsonl -M dcrag -M vanilla --out responses.jsonl
    dialore respond talk.json --trace trace.jsonl --html trace.html
    echo '{"turns": ["My throat hurts."]}' | dialore respond - --json
    dialore respond talks.jsonl -o cross_revision=false    (an ablation)
    dialore respond talks.jsonl --record calls.jsonl       (then --replay)

    Exit code: 0 all answered, 1 some failed, 2 nothing could be done.
    """
    _answer(asked, models, knowledge, ground=False, html=html, json=json)


@takes_settings
def ground(
    asked: AnswerSettings,
    models: ModelSettings,
    knowledge: KnowledgeSettings,
    json: Json = False,
) -> None:
    """Find what a response needs to know, and stop there.

    Prints demands and ranked knowledge: a retriever for your own generator.

    [bold]Examples[/bold]
    dialore ground talk.json
    dialore ground talks.jsonl --json | jq '.knowledge[].text'
    dialore ground talk.json --method t-rag --graph conceptnet.graph
    """
    _answer(asked, models, knowledge, ground=True, json=json)


def _answer(
    asked: AnswerSettings,
    models: ModelSettings,
    knowledge: KnowledgeSettings,
    *,
    ground: bool,
    html: Path | None = None,
    json: bool,
) -> None:
    from dialore.cli.answering import Task, answer_file

    methods = tuple(asked.method or ["dcrag"])
    task = Task(asked.file, methods, models, knowledge, record=asked.record, replay=asked.replay)
    answer_file(task, ground=ground, out=asked.out, trace=asked.trace, html=html, json=json)
