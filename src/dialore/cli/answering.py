"""What `respond` and `ground` do: read, answer several at once, report in the file's order."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dialore.cli import report
from dialore.cli.output import Lines, check_targets, note, progress, say_error
from dialore.cli.reading import read_entries
from dialore.cli.wiring import connect_model, connect_stage_models, in_order, open_agents
from dialore.errors import InputError
from dialore.response import Grounding, Response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.agent import Agent
    from dialore.cli.options import KnowledgeSettings, ModelSettings
    from dialore.dialogue import Dialogue

    Result = Response | Grounding
    Entry = tuple[str, Dialogue | InputError]


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be answered, how and by what."""

    file: str
    methods: tuple[str, ...]
    models: ModelSettings
    knowledge: KnowledgeSettings
    record: Path | None = None
    replay: Path | None = None


class Sink:
    """Where results go as they come: standard output, a file, a trace file.

    Args:
        out: gets every result as a line, in standard output's stead.
        trace: gets every result with its trace as a line.
        json: lines on standard output in place of words for people.
    """

    def __init__(self, out: Lines, trace: Lines, *, json: bool, to_file: bool) -> None:
        self._out, self._trace = out, trace
        self._json, self._to_file = json, to_file
        self.results: list[Result] = []

    def take(self, result: Result, dialogue: Dialogue | None) -> None:
        """Write one result."""
        self.results.append(result)
        line = report.as_line(result)
        self._out.write(line)
        self._trace.write(report.as_line(result, trace=True))
        if self._json:
            typer.echo(report.dumps(line))
        elif not self._to_file:
            report.show(result, dialogue)
        if result.status == "failed" and dialogue is not None:
            note(f"{result.id}, {result.method}: failed: {result.error}")


def answer_file(
    task: Task,
    *,
    ground: bool,
    out: Path | None = None,
    trace: Path | None = None,
    html: Path | None = None,
    json: bool = False,
) -> None:
    """Answer or ground every dialogue of a file by every method, and leave with the exit code that fits.

    Raises:
        InputError: nothing could be done at all.
        ModelError: likewise.
        typer.Exit: with 1 where some failed, with 2 where all did.
    """
    check_targets(out, trace, html, task.record, source=None if task.file == "-" else Path(task.file))
    entries = read_entries(task.file)
    with ExitStack() as stack:
        lines = stack.enter_context(Lines(out))
        traces = stack.enter_context(Lines(trace))
        sink = Sink(lines, traces, json=json, to_file=out is not None)
        asyncio.run(_answer(task, entries, sink, ground=ground))
    if html is not None:
        _write_page(html, entries, [result for result in sink.results if isinstance(result, Response)])
        note(f"page: {html}")
    if len(sink.results) > 1 and not json:
        report.totals(sink.results, to_stderr=out is not None)
    _leave(sink.results)


def _leave(results: Sequence[Result]) -> None:
    failed = [result for result in results if result.status == "failed"]
    if not failed:
        return
    if len(failed) < len(results):
        raise typer.Exit(1)
    if len(results) > 1:
        say_error(f"all {len(results)} failed")
    raise typer.Exit(2)


async def _answer(task: Task, entries: Sequence[Entry], sink: Sink, *, ground: bool) -> None:
    model = connect_model(task.models, record=task.record, replay=task.replay)
    stage_models = {} if task.replay is not None else connect_stage_models(task.models)
    async with open_agents(task.methods, model, task.knowledge, stage_models) as agents:
        pairs = [(entry, agent) for entry in entries for agent in agents]
        jobs = [partial(_do, entry, agent, ground=ground) for entry, agent in pairs]
        with progress("answering") as step:
            place = 0
            async for result in in_order(jobs, task.models.concurrency if model is not None else 1):
                dialogue = pairs[place][0][1]
                place += 1
                sink.take(result, None if isinstance(dialogue, InputError) else dialogue)
                step("", place, len(jobs))


async def _do(entry: Entry, agent: Agent, *, ground: bool) -> Result:
    identifier, dialogue = entry
    if isinstance(dialogue, InputError):
        made: dict[str, Any] = {"id": identifier, "method": agent.method.name, "error": str(dialogue)}
        return (Grounding if ground else Response)(status="failed", by=agent.responder.name, **made)
    return await (agent.ground(dialogue) if ground else agent.respond(dialogue))


def _write_page(path: Path, entries: Sequence[Entry], responses: Sequence[Response]) -> None:
    from dialore.cli.page import Conversation, write_page

    conversations = [
        Conversation(entry, [response for response in responses if response.id == identifier])
        for identifier, entry in entries
        if not isinstance(entry, InputError)
    ]
    write_page(path, conversations, title="Dialore: responses and their grounds")
