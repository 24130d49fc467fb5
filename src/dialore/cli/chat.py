"""`dialore chat`: talk, and look at the grounds."""

import asyncio
import contextlib
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError
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
from dialore.cli.output import console, escape, note, note_languages, read_line, say, say_error, say_json
from dialore.cli.waiting import watch
from dialore.dialogue import Dialogue, read_dialogues
from dialore.errors import DialoreError, InputError, UnknownNameError, describe
from dialore.files import write_whole
from dialore.methods.registry import method_names
from dialore.response import Response
from dialore.session import Session, options_by_method
from dialore.settings import Settings
from dialore.text import count_noun, spoken_in

_BEST = 5
"""Pieces of knowledge shown for a turn where there is no model; /why shows all."""
_HELP = """\
/why            what the last response drew on, and the demands behind it
/trace [STAGE]  every stage of the last response; with a name, its prompt and answer
/method [NAME]  which method answers; with a name, change it
/graph          the graph
/reset          begin a new dialogue
/save FILE      write the dialogue and its responses as JSON, for `dialore respond` and `dialore chat`
/quit           leave (or Ctrl-D)"""


def chat(
    context: Context,
    file: Annotated[
        Path | None, Argument(metavar="[FILE]", help="A dialogue to go on with, as /save or anybody writes it.")
    ] = None,
    method: Method = None,
    model: Model = None,
    base_url: BaseUrl = None,
    documents: Documents = None,
    graph: Graph = None,
    sources: Sources = None,
    option: MethodOption = None,
    settings: SettingsFile = None,
    changes: AgentSet = None,
    language: Annotated[
        str | None, Option("--language", "-l", metavar="NAME", help="en, zh, fr, ... (default: the last turn's)")
    ] = None,
    json: Json = False,
) -> None:
    r"""Talk with a method; responses stream in.

    While you chat: /why shows what the last response drew on, /trace every
    stage of it, /method NAME changes the method, /graph describes the graph,
    /reset begins anew, /save FILE keeps the dialogue, /help, /quit.

    [bold]Examples[/bold]
    dialore chat
    dialore chat --base-url http://localhost:8000/v1 --model my-model
    printf 'My throat hurts.\n/why\n' | dialore chat
    dialore chat talk.json                  (what /save kept)

    Nothing is cached unless model.cache is set. Exit code of lines from a pipe:
    0 all went well, 1 some failed, 2 nothing was answered.
    """
    chosen = agent_settings(context)
    begun = read_dialogues(file)[0] if file else None
    if language:
        spoken_in([], language)
    # One event loop for the whole chat: an endpoint keeps its connections in it.
    with asyncio.Runner() as runner:
        connect, say_without = connecting()
        bench = Session(chosen.knowledge, cite=chosen.cite, connect=connect)
        try:
            session = _ChatSession(runner, bench, chosen, language=language, json=json)
            session.use(chosen.method[0])
            say_without(WITHOUT_MODEL)
            if begun is not None:
                session.go_on(begun)
            session.talk()
        finally:
            runner.run(bench.close())


class _LeaveError(Exception):
    """The user wants to go."""


class _ChatSession:
    """One chat: the dialogue so far, the agent that answers, the last response."""

    def __init__(
        self, runner: asyncio.Runner, bench: Session, settings: Settings, *, language: str | None, json: bool
    ) -> None:
        self._runner, self._bench, self._settings = runner, bench, settings
        self._models = bench.models(settings.model)
        bench.check(settings.method[:1], self._models)
        self._json = json
        self._about: dict[str, Any] = {"language": language} if language else {}
        self._turns: list[dict[str, str]] = []
        self._responses: list[Response] = []
        self._failed, self._noted = False, set[str]()
        self._agent: Agent
        self._is_terminal = sys.stdin.isatty()
        names = ("why", "trace", "method", "graph", "reset", "save", "help", "quit")
        self._commands: dict[str, Callable[[str], None]] = {f"/{name}": getattr(self, f"_{name}") for name in names}
        self._commands["/exit"] = self._quit

    def use(self, method: str) -> None:
        """Answer by this method from now on; raises InputError where it cannot be made."""
        options = options_by_method([method], self._settings.options)[method]
        self._agent = self._bench.agent(method, self._models, options)

    def go_on(self, dialogue: Dialogue) -> None:
        """Go on with a dialogue: after the response that was kept with it, or by answering its last turn."""
        self._about |= {"topic": dialogue.topic, "persona": list(dialogue.persona), **dialogue.extra}
        self._turns = [turn.model_dump() for turn in dialogue.turns]
        try:
            self._responses = TypeAdapter(list[Response]).validate_python(self._about.pop("responses", []))
        except ValidationError as error:
            hint = "`dialore chat` writes it by /save"
            raise InputError(f"dialogue {dialogue.id}: responses: {describe(error)}", hint=hint) from error
        if self._responses:
            self._turns.append({"speaker": dialogue.responder, "text": self._responses[-1].text})
        else:
            self._guarded(lambda: self._runner.run(self._answer(self._turns.pop())))

    def talk(self) -> None:
        """Take turns until the input ends; raises Exit where lines of a pipe could not be answered."""
        if self._is_terminal:
            self._say(f"{self._agent.method.name} by {self._agent.stage_runner.name}. /help lists the commands.")
        interrupted = False
        while True:
            try:
                line = self._read()
                interrupted = False
                if line:
                    self._guarded(functools.partial(self._take, line))
            except (EOFError, _LeaveError):
                break
            except KeyboardInterrupt:
                if interrupted or not self._is_terminal:
                    raise
                interrupted = True
                note("stopped; Ctrl-C again or Ctrl-D leaves")
        if self._failed and not self._is_terminal:
            raise typer.Exit(1 if self._responses else 2)

    def _read(self) -> str:
        if self._is_terminal:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401 - gives the prompt its line editing
            return read_line(f"\n{_speaker_name(self._speaker)}> ").strip()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.strip()

    def _guarded(self, do: Callable[[], None]) -> None:
        try:
            do()
        except DialoreError as error:
            say_error(str(error))
            self._failed = True

    def _take(self, line: str) -> None:
        if line.startswith("/"):
            name, _, rest = line.partition(" ")
            if name not in self._commands:
                raise UnknownNameError("command", name, self._commands)
            self._commands[name](rest.strip())
        else:
            self._runner.run(self._answer({"speaker": self._speaker, "text": line}))

    @property
    def _speaker(self) -> str:
        return self._turns[-2]["speaker"] if len(self._turns) > 1 else "user"

    async def _answer(self, turn: dict[str, str]) -> None:
        turns = [*self._turns, turn]
        dialogue = Dialogue.model_validate({"id": "chat", **self._about, "turns": turns})
        note_languages({dialogue.spoken} - self._noted)
        self._noted.add(dialogue.spoken)
        streamed: list[str] = []

        def show_chunk(chunk: str) -> None:
            streamed.append(chunk)
            say(chunk, newline=False)

        # Where the marks of citations stand is known at the end.
        response = await watch(self._agent, dialogue, None if self._json or self._settings.cite else show_chunk)
        if streamed:
            say()
        if response.status == "failed":
            raise InputError(f"no response: {response.error}", hint="say it again")
        render.note_failed_sources(response)
        if self._json:
            say_json(render.as_line(response))
        else:
            out = console()
            if not streamed:
                name = f"[bold green]{escape(_speaker_name(dialogue.responder))}>[/] " if self._is_terminal else ""
                out.print(name + render.answer(response), soft_wrap=not out.is_terminal)
            render.show_grounds(out, response, _BEST)
        self._responses.append(response)
        self._turns = [*turns, {"speaker": dialogue.responder, "text": response.text}]

    # --- commands

    def _say(self, text: str) -> None:
        say(text, stderr=self._json)

    def _response(self) -> Response:
        if not self._responses:
            raise InputError("there is no response yet", hint="say something first")
        return self._responses[-1]

    def _why(self, _: str) -> None:
        response = self._response()
        out = console(stderr=self._json)
        if render.is_without_model(response):
            render.show_found(out, response)
            return
        if response.demands is not None:
            render.show_demands(out, response.demands)
        render.show_used(out, response)

    def _trace(self, name: str) -> None:
        response = self._response()
        if not name:
            render.show_trace(console(stderr=self._json), response.trace)
            return
        stages = {stage.stage: stage for stage in response.trace}
        if name not in stages:
            raise UnknownNameError("stage", name, stages)
        stage = stages[name]
        head = f"{stage.stage} · {stage.model} · {stage.outcome} · {stage.seconds * 1000:.0f} ms"
        parts = [head, *(f"[{message['role']}]\n{message['content']}" for message in stage.messages)]
        parts += [f"[answer]\n{stage.completion}" if stage.completion else f"[output]\n{render.dumps(stage.output)}"]
        parts += ["\n".join(f"note: {line}" for line in stage.notes)]
        self._say("\n\n".join(filter(None, parts)))

    def _method(self, name: str) -> None:
        known = method_names()
        if name and name not in known:
            raise InputError(f"unknown method: {name!r}", hint=f"known: {', '.join(known)}")
        if name:
            self.use(name)
        self._say(f"method: {self._agent.method.name} by {self._agent.stage_runner.name}")

    def _graph(self, _: str) -> None:
        graph = self._bench.source("graph", needed=True)
        console(stderr=self._json).print(f"graph: {escape(graph.name)}, {count_noun(graph.facts_count, 'facts')}")

    def _reset(self, _: str) -> None:
        self._turns, self._responses = [], []
        self._say("a new dialogue")

    def _save(self, name: str) -> None:
        if not name:
            raise InputError("/save needs a file's name", hint="/save talk.json")
        if not self._turns:
            raise InputError("there is nothing to save yet", hint="say something first")
        path = Path(name).expanduser()
        about = {key: value for key, value in self._about.items() if value}
        if not about.get("persona") and (given := self._bench.source("persona").persona):
            about |= {"persona": list(given), "documents": {line: under for line, under in given.items() if under}}
        # The turns end with the user's: what is asked of `respond` is the response to it, as it was of the chat.
        responses = [render.as_line(response) for response in self._responses]
        kept = {"id": path.stem, **about, "turns": self._turns[:-1], "responses": responses}
        write_whole(path, f"{render.dumps(kept)}\n", private=True)
        self._say(f"{count_noun(len(self._turns), 'turns')} written to {path}")

    def _help(self, _: str) -> None:
        self._say(_HELP)

    def _quit(self, _: str) -> None:
        raise _LeaveError


def _speaker_name(speaker: str) -> str:
    """Return a speaker's name as the terminal shows it."""
    return {"user": "you", "system": "dialore"}.get(speaker, speaker)
