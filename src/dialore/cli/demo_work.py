"""What `dialore demo` does."""

from __future__ import annotations

import asyncio
import webbrowser
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table

from dialore.cli import report
from dialore.cli.figures import summary
from dialore.cli.options import KnowledgeSettings
from dialore.cli.output import check_targets, console, note, progress, table
from dialore.cli.page import Conversation, write_page
from dialore.cli.wiring import open_agents
from dialore.dialogue import read_dialogues
from dialore.llm.recording import Replay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from dialore.agent import Agent
    from dialore.dialogue import Dialogue
    from dialore.llm.model import Completion, LanguageModel, OnText, Request
    from dialore.response import Response

METHODS: tuple[str, ...] = ("vanilla", "t-rag", "qp-rag", "dcrag")
_WIDE = 132
_TOKENS_A_SECOND = 3000
_MADE = "Completions recorded from a capable instruction-tuned model; retrieval is live."
_PACE = f"model calls are replayed at {_TOKENS_A_SECOND:,} tokens a second; open a stage for its prompt and answer"
_LIVE = """\
[bold]Go live[/] with any OpenAI-compatible endpoint:
  export DIALORE_BASE_URL=https://api.openai.com/v1 DIALORE_MODEL=... DIALORE_API_KEY=...
or start Ollama, which is found by itself. Then:
  dialore chat                                        talk; /why shows the grounds
  dialore respond talk.json --html trace.html         {"turns": ["...", "..."]}"""


def demo_folder() -> Path:
    """Where the demo's dialogues, recordings and page template lie."""
    return Path(str(resources.files("dialore") / "data" / "demo"))


class Paced:
    """A replay that takes a little time for each token, so that a trace shows which calls ran at once."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    @property
    def name(self) -> str:
        """The names of the recorded models."""
        return self._replay.name

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """Answer from the recording; raises NotRecordedError as the replay does."""
        completion = await self._replay.complete(request, on_text)
        await asyncio.sleep(completion.usage.completion_tokens / _TOKENS_A_SECOND)
        return completion

    async def close(self) -> None:
        """Nothing to release."""


def run(html: Path | None, *, open_page: bool, json: bool) -> None:
    """Answer, show, write the page; leaves with 1 where a response failed."""
    check_targets(html)
    recordings = demo_folder() / "recordings.jsonl"
    dialogues = read_dialogues(demo_folder() / "dialogues.jsonl")
    model: LanguageModel | None = None
    methods, made, pace = METHODS, _MADE, _PACE
    if recordings.is_file():
        model = Paced(Replay(recordings, match="label"))
    else:
        from dialore.methods.lexical import LexicalResponder

        note("the demo's recordings are missing here: the lexical responder answers in their place, without a model")
        methods = tuple(method for method in METHODS if method in LexicalResponder.methods)
        made, pace = "Written by the lexical responder, without a language model; retrieval is live.", ""
    conversations = asyncio.run(_answer(dialogues, methods, model))
    responses = [response for conversation in conversations for response in conversation.responses]
    page = html or _default_page()
    write_page(page, conversations, title="Dialore: what a reply needs to know", made=made, pace=pace)
    if json:
        for response in responses:
            typer.echo(report.dumps(report.as_line(response)))
    else:
        _show(conversations, made, page)
    if open_page:
        webbrowser.open(page.resolve().as_uri())
    if any(response.status == "failed" for response in responses):
        raise typer.Exit(1)


def _default_page() -> Path:
    from dialore.sources.graph.starter import cache_folder

    return cache_folder() / "demo.html"


async def _answer(
    dialogues: Sequence[Dialogue], methods: Sequence[str], model: LanguageModel | None
) -> list[Conversation]:
    """One response at a time: what runs at once in a trace is then what the method itself asked at once."""
    conversations: list[Conversation] = []
    with progress("opening the starter graph") as step:
        step("opening the starter graph", 0, None)
        async with open_agents(methods, model, KnowledgeSettings()) as agents:
            await _warm_up(agents, dialogues)
            for place, dialogue in enumerate(dialogues):
                step("answering", place, len(dialogues))
                conversations.append(Conversation(dialogue, [await agent.respond(dialogue) for agent in agents]))
    return conversations


async def _warm_up(agents: Sequence[Agent], dialogues: Sequence[Dialogue]) -> None:
    """Load each language's words before a trace is timed: they are loaded once, whoever needs them first."""
    by_language = {dialogue.language: dialogue for dialogue in dialogues}
    for agent in agents:
        if agent.method.name == "t-rag":  # looks up every mention, and asks no model to
            for dialogue in by_language.values():
                await agent.ground(dialogue)


# --- words


def _show(conversations: Sequence[Conversation], made: str, page: Path) -> None:
    out = console()
    for conversation in conversations:
        dialogue = conversation.dialogue
        out.print(Rule(f"[bold]{escape(dialogue.topic or dialogue.id)}[/]", align="left"))
        out.print(_turns(dialogue))
        (_side_by_side if out.width >= _WIDE else _stacked)(out, conversation.responses)
    if any(stage.differs for each in conversations for response in each.responses for stage in response.trace):
        out.print("[yellow]≈[/] a prompt differs from the recorded one: retrieval or a prompt has changed since")
    out.print(f"[dim]{made}[/]")
    out.print(f"Every stage, prompt and fact: [bold]{escape(str(page))}[/]\n", soft_wrap=True)
    out.print(_LIVE, soft_wrap=True)


def _turns(dialogue: Dialogue) -> Table:
    rows = Table.grid(padding=(0, 1))
    rows.add_column(justify="right")
    rows.add_column(overflow="fold")
    for turn in dialogue.turns:
        colour = "cyan" if turn.speaker == dialogue.last.speaker else "green"
        rows.add_row(f"[{colour}]{escape(turn.speaker)}:[/]", escape(turn.text))
    return rows


def _name(response: Response) -> str:
    differs = any(stage.differs for stage in response.trace)
    return response.method + (" [yellow]≈[/]" if differs else "")


def _text(response: Response) -> str:
    return f"[red]{escape(response.error or 'failed')}[/]" if response.status == "failed" else escape(response.text)


def _drew(response: Response) -> str:
    used = [item for item in response.knowledge if item.used]
    if not response.knowledge:
        return "[dim]nothing was looked up[/]"
    if not used:
        return f"[dim]none of {len(response.knowledge)} facts[/]"
    return "\n".join(f"• {escape(item.text)}{f' [dim]({item.set})[/]' if item.set else ''}" for item in used)


def _side_by_side(out: Console, responses: Sequence[Response]) -> None:
    rows = table(*(_name(response) for response in responses))
    for column in rows.columns:
        column.ratio = 1
    rows.expand = True
    rows.add_row(*map(_text, responses), end_section=True)
    rows.add_row(*map(_drew, responses))
    rows.add_row(*(f"[dim]{escape(summary(response))}[/]" for response in responses))
    out.print(rows)


def _stacked(out: Console, responses: Sequence[Response]) -> None:
    rows = table("!method", "response", "draws on")
    rows.columns[1].ratio, rows.columns[2].ratio = 3, 2
    rows.expand = True
    for response in responses:
        figures = f"\n[dim]{escape(summary(response))}[/]"
        rows.add_row(_name(response), _text(response) + figures, _drew(response), end_section=True)
    out.print(rows)
