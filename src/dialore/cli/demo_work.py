"""What `dialore demo` does."""

from __future__ import annotations

import asyncio
import webbrowser
from typing import TYPE_CHECKING

import typer

from dialore.cli import shown
from dialore.cli.demo_parts import PARTS, demo_folder, open_part
from dialore.cli.demo_show import show
from dialore.cli.output import check_targets, note, progress
from dialore.cli.page import Conversation, Heading, write_page
from dialore.llm.recording import Replay
from dialore.methods.registry import method_sources
from dialore.sources.base import KnowledgeSource

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dialore.agent import Agent
    from dialore.cli.demo_parts import Part
    from dialore.dialogue import Dialogue
    from dialore.llm.model import Completion, LanguageModel, OnText, Request

_TOKENS_A_SECOND = 6000
_MADE = "Completions recorded from a capable instruction-tuned model; retrieval is live."
_PACE = f"model calls are replayed at {_TOKENS_A_SECOND:,} tokens a second; open a stage for its prompt and answer"


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
    model: LanguageModel | None = None
    asked = [(part, part.methods) for part in PARTS]
    made, pace = _MADE, _PACE
    if recordings.is_file():
        model = Paced(Replay(recordings, match="label"))
    else:
        note("the demo's recordings are missing here: knowledge is looked up, without a model")
        asked = [(part, ("lexical",)) for part in PARTS if not part.folder]
        made, pace = "Quoted from what was found, without a language model; retrieval is live.", ""
    conversations = asyncio.run(_answer(asked, model))
    responses = [response for conversation in conversations for response in conversation.responses]
    page = html or _default_page()
    write_page(page, conversations, title="Dialore: what a reply needs to know", made=made, pace=pace)
    if json:
        for response in responses:
            typer.echo(shown.dumps(shown.as_line(response)))
    else:
        show(conversations, made, page)
    if open_page:
        webbrowser.open(page.resolve().as_uri())
    if any(response.status == "failed" for response in responses):
        raise typer.Exit(1)


def _default_page() -> Path:
    from dialore.sources.graph.starter import cache_folder

    return cache_folder() / "demo.html"


async def _answer(asked: Sequence[tuple[Part, Sequence[str]]], model: LanguageModel | None) -> list[Conversation]:
    """One response at a time: what runs at once in a trace is then what the method itself asked at once."""
    conversations: list[Conversation] = []
    with progress("opening the starter graph") as step:
        step("opening the starter graph", 0, None)
        work = [(part, methods, part.dialogues()) for part, methods in asked]
        whole = sum(len(dialogues) for _, _, dialogues in work)
        for part, methods, dialogues in work:
            heading = Heading(part.title, part.about) if len(work) > 1 else None
            async with open_part(part, model, methods) as agents:
                await _warm_up(agents, dialogues)
                for dialogue in dialogues:
                    step("answering", len(conversations), whole)
                    responses = [await agent.respond(dialogue) for agent in agents]
                    conversations.append(Conversation(dialogue, responses, heading))
                    heading = None
    return conversations


async def _warm_up(agents: Sequence[Agent], dialogues: Sequence[Dialogue]) -> None:
    """Load each language's words before a trace is timed: they are loaded once, whoever needs them first."""
    by_language = {dialogue.language: dialogue for dialogue in dialogues}
    for agent in agents:
        named = (getattr(agent.method, name, None) for name in method_sources(type(agent.method)))
        sources = [source for source in named if isinstance(source, KnowledgeSource)]
        for dialogue in by_language.values():
            if agent.method.name == "t-rag":  # looks up every mention, and asks no model to
                await agent.ground(dialogue)
            for source in sources:
                await source.search(dialogue.last.text, dialogue, 1)
