"""`dialore ask`, `respond` and `ground`: dialogues in, responses or their grounds out."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Context, Option

from dialore.agent import Agent
from dialore.cli import render
from dialore.cli.options import (
    WITHOUT_MODEL,
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
)
from dialore.cli.output import check_targets, lines_to, note, note_languages, progress, say_error, say_json
from dialore.cli.waiting import watch
from dialore.dialogue import Dialogue, dialogue_from, parse_dialogues
from dialore.errors import InputError
from dialore.files import decode_text, read_text, write_whole
from dialore.parallel import bounded_map
from dialore.response import Grounding, Response
from dialore.session import open_agents
from dialore.settings import Settings

Result = Response | Grounding
_Entry = tuple[str, Dialogue | InputError]

_File = Annotated[str, Argument(metavar="FILE|-", help="A dialogue (JSON) or many (JSONL), .gz too; - for stdin.")]
_Out = Annotated[Path | None, Option("--out", metavar="FILE", help="Write one JSON object a line here instead.")]
_Trace = Annotated[
    Path | None, Option("--trace", metavar="FILE", help="All goes here, every stage's prompt and answer.")
]
_Html = Annotated[Path | None, Option("--html", metavar="FILE", help="Write a page that shows responses and traces.")]


@dataclass(frozen=True, slots=True)
class _Outputs:
    """Where results go beside the terminal."""

    out: Path | None = None
    trace: Path | None = None
    html: Path | None = None
    json: bool = False


def ask(
    context: Context,
    question: Annotated[str, Argument(metavar="TEXT|-", help="What is asked; - for stdin.")],
    method: Method = None,
    model: Model = None,
    base_url: BaseUrl = None,
    documents: Documents = None,
    graph: Graph = None,
    sources: Sources = None,
    option: MethodOption = None,
    settings: SettingsFile = None,
    changes: AgentSet = None,
    trace: _Trace = None,
    html: _Html = None,
    json: Json = False,
) -> None:
    """Answer one question, and show what the answer draws on.

    [bold]Examples[/bold]
    dialore ask "What helps against a sore throat?"
    dialore ask "May I return a cup?" --documents shop.idx --set cite=true
    git log -5 | dialore ask - -M vanilla --json
    """
    text = _standard_input() if question == "-" else question
    dialogue = dialogue_from({"turns": [text]}, place="the question", default_id="question")
    outputs = _Outputs(trace=trace, html=html, json=json)
    _answer([(dialogue.id, dialogue)], outputs, agent_settings(context), ground=False)


def respond(
    context: Context,
    file: _File,
    method: Method = None,
    model: Model = None,
    base_url: BaseUrl = None,
    documents: Documents = None,
    graph: Graph = None,
    sources: Sources = None,
    option: MethodOption = None,
    settings: SettingsFile = None,
    changes: AgentSet = None,
    out: _Out = None,
    trace: _Trace = None,
    html: _Html = None,
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
    dialore respond talks.jsonl --set model.record=calls.jsonl

    Exit code: 0 all answered, 1 some failed, 2 nothing could be done.
    """
    _answer(file, _Outputs(out, trace, html, json), agent_settings(context), ground=False)


def ground(
    context: Context,
    file: _File,
    method: Method = None,
    model: Model = None,
    base_url: BaseUrl = None,
    documents: Documents = None,
    graph: Graph = None,
    sources: Sources = None,
    option: MethodOption = None,
    settings: SettingsFile = None,
    changes: AgentSet = None,
    out: _Out = None,
    trace: _Trace = None,
    json: Json = False,
) -> None:
    """Find what a response needs to know, and stop there.

    Prints demands and ranked knowledge: a retriever for your own generator.

    [bold]Examples[/bold]
    dialore ground talk.json
    dialore ground talks.jsonl --json | jq '.knowledge[].text'
    dialore ground talk.json --method t-rag --graph conceptnet.graph
    """
    _answer(file, _Outputs(out, trace, json=json), agent_settings(context), ground=True)


def _answer(source: str | list[_Entry], outputs: _Outputs, settings: Settings, *, ground: bool) -> None:
    """Answer the dialogues of a file, or these entries, and leave with the exit code of the result."""
    path = Path(source) if isinstance(source, str) and source != "-" else None
    check_targets(outputs.out, outputs.trace, outputs.html, settings.model.record, source=path, begins="{<")
    entries = _read_entries(source) if isinstance(source, str) else source
    note_languages(entry.spoken for _, entry in entries if not isinstance(entry, InputError))
    with lines_to(outputs.out) as to_out, lines_to(outputs.trace) as to_trace:

        def write(result: Result, entry: _Entry) -> None:
            dialogue = None if isinstance(entry[1], InputError) else entry[1]
            line = render.as_line(result)
            to_out(line)
            if outputs.trace is not None:
                to_trace(render.as_line(result, trace=True))
            if outputs.json:
                say_json(line)
            elif outputs.out is None:
                render.show(result, dialogue)
            if result.status == "failed" and dialogue is not None:
                note(f"{result.id}, {result.method}: failed: {result.error}")
            render.note_failed_sources(result)

        results = asyncio.run(_answer_all(settings, entries, write, ground=ground))
    if outputs.html is not None:
        _write_page(outputs.html, entries, results)
    if len(results) > 1 and not outputs.json:
        render.totals(results, to_stderr=outputs.out is not None)
    _leave_by(results)


def _leave_by(results: Sequence[Result]) -> None:
    """Leave with exit code 1 or 2 if some or all results failed."""
    failed = sum(result.status == "failed" for result in results)
    if not failed:
        return
    if failed < len(results):
        raise typer.Exit(1)
    if failed > 1:
        say_error(f"all {failed} failed")
    raise typer.Exit(2)


async def _answer_all(
    settings: Settings, entries: Sequence[_Entry], write: Callable[[Result, _Entry], None], *, ground: bool
) -> list[Result]:
    """Answer the entries by every agent; each result is written as soon as all before it are, those left at the end."""
    settings = settings.model_copy(update={"model": settings.model.cached()})
    finished: dict[int, Result] = {}
    written = 0
    connect, say_without = connecting()
    async with open_agents(settings, connect) as agents:
        say_without(WITHOUT_MODEL)
        jobs = [(entry, agent) for entry in entries for agent in agents]
        if len(jobs) == 1 and not ground and not isinstance(asked := entries[0][1], InputError):
            result = await watch(agents[0], asked)
            write(result, entries[0])
            return [result]
        with progress("answering") as step:
            step("", 0, len(jobs))

            async def do(position: int) -> None:
                nonlocal written
                finished[position] = await _result(*jobs[position], ground=ground)
                while written in finished:
                    written += 1
                    write(finished[written - 1], jobs[written - 1][0])
                step("", len(finished), len(jobs))

            try:
                await bounded_map(range(len(jobs)), do, limit=min(settings.model.concurrency, len(jobs)))
            finally:
                for position in sorted(finished.keys() - set(range(written))):
                    write(finished[position], jobs[position][0])
    return [finished[position] for position in range(len(jobs))]


async def _result(entry: _Entry, agent: Agent, *, ground: bool) -> Result:
    identifier, dialogue = entry
    if isinstance(dialogue, InputError):
        made: dict[str, Any] = {"id": identifier, "method": agent.method.name, "error": str(dialogue)}
        return (Grounding if ground else Response)(status="failed", model=agent.stage_runner.name, **made)
    return await (agent.ground(dialogue) if ground else agent.respond(dialogue))


def _write_page(path: Path, entries: Sequence[_Entry], results: Sequence[Result]) -> None:
    from dialore.evaluation.report.display import Conversation, render_page

    responses = [result for result in results if isinstance(result, Response)]
    conversations = [
        Conversation(entry, [response for response in responses if response.id == identifier])
        for identifier, entry in entries
        if not isinstance(entry, InputError)
    ]
    page = render_page(conversations, title="Dialore: responses and their grounds")
    write_whole(path, page, private=True)
    note(f"page: {path}")


def _read_entries(file: str) -> list[_Entry]:
    """Return the entries of a dialogue file, each with its id; `-` reads standard input.

    A malformed entry is said on standard error; where no entry is any good, the first one's error is raised.

    Raises:
        InputError: the file cannot be read, or holds no dialogue at all.
    """
    if file == "-":
        if sys.stdin.isatty():
            note("reading a dialogue from the terminal; end it with Ctrl-D")
        text, name = _standard_input(), "stdin"
    else:
        path = Path(file)
        text, name = read_text(path), path.name
    stem = name.split(".", maxsplit=1)[0] or "dialogue"
    entries = [
        (entry.id if isinstance(entry, Dialogue) else f"{stem}-{number}", entry)
        for number, entry in enumerate(parse_dialogues(text, name=name), start=1)
    ]
    errors = [entry for _, entry in entries if isinstance(entry, InputError)]
    if errors and len(errors) == len(entries):
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise InputError(errors[0].message + more, hint=errors[0].hint)
    for error in errors:
        note(f"left out: {error}")
    return entries


def _standard_input() -> str:
    try:
        return decode_text(sys.stdin.buffer.read())
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8: byte {error.start}", hint="send UTF-8") from error
