"""A chat at the terminal, or of the lines of a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from dialore.agent import Agent, open_graphs
from dialore.cli import report
from dialore.cli.output import console, note, say_error, write_whole
from dialore.cli.wiring import connect_model, connect_stage_models, method_options, open_further_sources
from dialore.dialogue import Dialogue
from dialore.errors import DialoreError, InputError, UnknownNameError
from dialore.response import Response
from dialore.text import check_language

if TYPE_CHECKING:
    from collections.abc import Callable

    from dialore.cli.options import KnowledgeSettings, ModelSettings
    from dialore.llm.model import LanguageModel
    from dialore.response import StageTrace
    from dialore.sources.graph.several import Graphs
    from dialore.sources.graph.source import Graph

_HELP = """\
/why            what the last response drew on, and the demands behind it
/trace [STAGE]  every stage of the last response; with a name, its prompt and answer
/method [NAME]  which method answers; with a name, change it
/graph          the graph
/reset          begin a new dialogue
/save FILE      write the dialogue as JSON, for `dialore respond`
/quit           leave (or Ctrl-D)"""


class _LeaveError(Exception):
    """The user wants to go."""


def run(models: ModelSettings, knowledge: KnowledgeSettings, method: str, language: str | None, *, json: bool) -> None:
    """Chat until the input ends.

    Raises:
        InputError: the set-up is wrong; what is wrong while chatting is said, and the chat goes on.
    """
    spoken = check_language(language) if language else None
    # One event loop for the whole chat: an endpoint keeps its connections in it.
    with asyncio.Runner() as runner:
        model = connect_model(models, cached=False)
        stage_models: dict[str, LanguageModel] = {}
        graph, sources = None, {}
        try:
            stage_models = connect_stage_models(models)
            graph = open_graphs(knowledge.graph or [], knowledge.ranking)
            sources = open_further_sources(knowledge)
            opened = Opened(model, stage_models, graph, sources)
            session = Session(runner, opened, knowledge, language=spoken, json=json)
            session.use(method)
            session.talk()
        finally:
            for other in (model, *stage_models.values()):
                if other is not None:
                    runner.run(other.close())
            for source in (graph, *sources.values()):
                if source is not None:
                    source.close()  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Opened:
    """What a chat works with, whichever method it uses just now."""

    model: LanguageModel | None
    stage_models: dict[str, LanguageModel]
    graph: Graph | Graphs
    sources: dict[str, object]


class Session:
    """One chat: the dialogue so far, the agent that answers, the last response."""

    def __init__(
        self,
        runner: asyncio.Runner,
        opened: Opened,
        settings: KnowledgeSettings,
        *,
        language: str | None,
        json: bool,
    ) -> None:
        self._runner, self._opened, self._settings = runner, opened, settings
        self._graph = opened.graph
        self._language, self._json = language, json
        self._turns: list[dict[str, str]] = []
        self._last: Response | None = None
        self._agent: Agent
        self._is_terminal = sys.stdin.isatty()
        self._commands: dict[str, Callable[[str], None]] = {
            "/why": self._why,
            "/trace": self._trace,
            "/method": self._method,
            "/graph": self._show_graph,
            "/reset": self._reset,
            "/save": self._save,
            "/help": lambda _: self._say(_HELP),
            "/quit": self._leave,
            "/exit": self._leave,
        }

    def use(self, method: str) -> None:
        """Answer by this method from now on; raises InputError where it cannot be made."""
        self._agent = Agent.create(
            method,
            model=self._opened.model,
            graph=self._graph,
            sources=self._opened.sources,
            stage_models=self._opened.stage_models,
            prompts=self._settings.prompts,
            options=method_options([method], self._settings.option or [])[method],
            cite=self._settings.cite,
        )

    def talk(self) -> None:
        """Take turns until the input ends."""
        if self._is_terminal:
            self._say(f"{self._agent.method.name} by {self._agent.responder.name}. /help lists the commands.")
        interrupted = False
        while True:
            try:
                line = self._read()
                interrupted = False
                if line:
                    self._take(line)
            except (EOFError, _LeaveError):
                return
            except KeyboardInterrupt:
                if interrupted or not self._is_terminal:
                    raise
                interrupted = True
                note("stopped; Ctrl-C again or Ctrl-D leaves")

    def _read(self) -> str:
        if self._is_terminal:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401 - gives input() its line editing
            return input("\nyou> ").strip()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.strip()

    def _take(self, line: str) -> None:
        try:
            if line.startswith("/"):
                name, _, rest = line.partition(" ")
                if name not in self._commands:
                    raise UnknownNameError("command", name, self._commands)
                self._commands[name](rest.strip())
            else:
                self._runner.run(self._answer(line))
        except DialoreError as error:
            say_error(str(error))

    async def _answer(self, text: str) -> None:
        turns = [*self._turns, {"speaker": "user", "text": text}]
        data = {"id": "chat", "turns": turns, **({"language": self._language} if self._language else {})}
        dialogue = Dialogue.model_validate(data)
        shown = ""
        response: Response | None = None
        async with contextlib.aclosing(self._agent.stream(dialogue)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if isinstance(piece, Response):
                    response = piece
                elif not self._json:
                    typer.echo(piece, nl=False)
                    shown += piece
        if shown:
            typer.echo()
        if response is None or response.status == "failed":
            raise InputError(f"no response: {response.error if response else 'it was stopped'}", mend="say it again")
        if self._json:
            typer.echo(report.dumps(report.as_line(response)))
        elif not shown:
            typer.echo(response.text)
        if response.citations and not self._json:
            report.show_cited(console(), response)
        self._last = response
        self._turns = [*turns, {"speaker": dialogue.responder, "text": response.text}]

    # --- commands

    def _say(self, text: str) -> None:
        typer.echo(text, err=self._json)

    def _response(self) -> Response:
        if self._last is None:
            raise InputError("there is no response yet", mend="say something first")
        return self._last

    def _why(self, _: str) -> None:
        response = self._response()
        out = console(stderr=self._json)
        if response.demands is not None:
            report.show_demands(out, response.demands)
        report.show_used(out, response)

    def _trace(self, name: str) -> None:
        response = self._response()
        if not name:
            report.show_trace(console(stderr=self._json), response.trace)
            return
        stages = {stage.stage: stage for stage in response.trace}
        if name not in stages:
            raise UnknownNameError("stage", name, stages)
        self._say(_stage_text(stages[name]))

    def _method(self, name: str) -> None:
        if name:
            self.use(name)
        self._say(f"method: {self._agent.method.name} by {self._agent.responder.name}")

    def _show_graph(self, _: str) -> None:
        graph = self._graph
        console(stderr=self._json).print(f"graph: {escape(graph.name)}, {graph.facts_count:,} facts")

    def _reset(self, _: str) -> None:
        self._turns, self._last = [], None
        self._say("a new dialogue")

    def _save(self, name: str) -> None:
        if not name:
            raise InputError("/save needs a file's name", mend="/save talk.json")
        if not self._turns:
            raise InputError("there is nothing to save yet", mend="say something first")
        path = Path(name).expanduser()
        write_whole(path, report.dumps({"id": path.stem, "turns": self._turns}) + "\n")
        self._say(f"{len(self._turns)} turns written to {path}")

    def _leave(self, _: str) -> None:
        raise _LeaveError


def _stage_text(stage: StageTrace) -> str:
    prompt = "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in stage.messages)
    notes = "\n".join(f"note: {each}" for each in stage.notes)
    parts = [f"{stage.stage} · {stage.by} · {stage.outcome} · {stage.seconds * 1000:.0f} ms", prompt]
    parts += [f"[answer]\n{stage.completion}" if stage.completion else f"[output]\n{report.dumps(stage.output)}", notes]
    return "\n\n".join(part for part in parts if part)
