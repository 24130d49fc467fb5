"""`dialore demo`: bundled dialogues, answered by every method over small sources of our own."""

import asyncio
import json
import tempfile
import webbrowser
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table as Grid
from typer import Option

from dialore import response_text
from dialore.agent import Agent
from dialore.cli import render
from dialore.cli.options import Json
from dialore.cli.output import Table, check_targets, console, progress, say_json, styled
from dialore.dialogue import Dialogue, read_dialogues
from dialore.errors import InputError
from dialore.evaluation.report.display import Conversation, render_page
from dialore.files import cache_folder, write_whole
from dialore.knowledge import Passage
from dialore.llm.model import Completion, LanguageModel, OnToken, Request, Wrapper
from dialore.llm.recording import Replay
from dialore.methods.few_shot import SampleDatabase, build_samples, samples_of
from dialore.methods.registry import method_class, method_sources
from dialore.parallel import gather
from dialore.response import Response
from dialore.retrieval.embedding import load_embedder
from dialore.session import connect, create_agent
from dialore.sources.graph import open_graph
from dialore.sources.in_memory import InMemoryPassages
from dialore.sources.persona import open_persona

METHODS: tuple[str, ...] = ("vanilla", "t-rag", "qp-rag", "dcrag")
FURTHER: tuple[str, ...] = ("weave", "safari", "scg-qp", "edit", "msdp")
_INSTEAD = "a shelf of our own passages, in the place of the web"
_TOKENS_A_SECOND = 20_000
_COLUMN = 33
"""Characters that a column of a method wants, where they stand side by side."""
_LIVE = """\
[bold]Go live[/] with any OpenAI-compatible endpoint:
  export DIALORE_BASE_URL=https://api.openai.com/v1 DIALORE_MODEL=... DIALORE_API_KEY=...
or start Ollama, which is found by itself. Then:
  dialore chat                                        talk; /why shows the grounds
  dialore respond talk.json --html trace.html         {"turns": ["...", "..."]}"""
_MADE = "Completions recorded from a capable instruction-tuned model; retrieval is live."
_PACE = f"model calls are replayed at {_TOKENS_A_SECOND:,} tokens a second; open a stage for its prompt and answer"


def demo(
    html: Annotated[Path | None, Option(metavar="FILE", help="The page. (default: the cache folder)")] = None,
    open_page: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
    live: Annotated[bool, Option("--live", help="Answer by a model of yours, too.")] = False,
    model: Annotated[str | None, Option("--model", "-m", metavar="NAME", help="For --live; or gguf:FILE.")] = None,
    base_url: Annotated[str | None, Option("--base-url", "-u", metavar="URL", help="For --live: its endpoint.")] = None,
    limit: Annotated[int | None, Option(min=1, help="So many dialogues of each part.")] = None,
    json: Json = False,
) -> None:
    """Nine dialogues, answered by several methods, side by side.

    Six are answered over the starter graph by vanilla, t-rag, qp-rag and
    dcrag, three over sources of our own by weave, safari, scg-qp, edit and
    msdp. Completions are replayed, retrieval is live. Writes a page with the
    whole trace of every response.

    [bold]Examples[/bold]
    dialore demo
    dialore demo --html demo.html --open
    dialore demo --live --model gguf:model.gguf --limit 1
    """
    check_targets(html)
    recordings = demo_folder() / "recordings.jsonl"
    if not recordings.is_file():
        raise InputError(f"the demo's recordings are missing: {recordings}", hint="install dialore again")
    models = [_pace_replay(Replay(recordings, match="label"))]
    if live or model or base_url:
        mine = connect(model, base_url=base_url)
        if mine is None:
            raise InputError("--live needs a language model", hint="--model gguf:FILE, or --base-url and --model")
        models.append(mine)
    conversations = asyncio.run(_answer(models, limit))
    responses = [response for conversation in conversations for response in conversation.responses]
    page = html or cache_folder() / "demo.html"
    title = "Dialore: what a reply needs to know"
    write_whole(page, render_page(conversations, title=title, made=_MADE, pace=_PACE))
    if json:
        for response in responses:
            say_json(render.as_line(response))
    else:
        _show_demo(conversations, _MADE, page)
    if open_page:
        webbrowser.open(page.resolve().as_uri())
    if not live and any(response.status == "failed" for response in responses):
        raise typer.Exit(1)


def _pace_replay(replay: Replay) -> LanguageModel:
    """Return a replay that takes a little time for each token, so that a trace shows which calls ran at once."""

    class Paced(Wrapper):
        async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
            completion = await replay.complete(request, on_token)
            usage = completion.usage
            await asyncio.sleep((usage.prompt_tokens + usage.completion_tokens) / _TOKENS_A_SECOND)
            return completion

    return Paced(replay)


async def _answer(models: Sequence[LanguageModel], limit: int | None) -> list[Conversation]:
    """Return the responses of each model, asked for one at a time: a trace shows the method's own concurrency alone.

    The responses of further models than the first are named by them, too.
    """
    conversations: list[Conversation] = []
    with progress("opening the starter graph") as step:
        step("opening the starter graph", 0, None)
        work = [(part, part.dialogues()[:limit]) for part in PARTS]
        whole = sum(len(dialogues) for _, dialogues in work)
        for part, dialogues in work:
            heading: tuple[str, str] | None = (part.title, part.about)
            async with AsyncExitStack() as stack:
                agents: list[Agent] = []
                for model in models:
                    agents += await stack.enter_async_context(open_part(part, model))
                for dialogue in {talk.language: talk for talk in dialogues}.values():  # to load what a language needs
                    await gather(*(agent.ground(dialogue) for agent in agents[: len(part.methods)]))
                for dialogue in dialogues:
                    step("answering", len(conversations), whole)
                    responses = [await agent.respond(dialogue) for agent in agents]
                    for column, response in enumerate(responses):
                        if column >= len(part.methods):
                            response.method = f"{response.method} by {response.model}"
                    conversations.append(Conversation(dialogue, responses, heading))
                    heading = None
    for model in models[1:]:
        await model.close()
    return conversations


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the demo: its name, heading and methods, and the folder of its dialogues and sources in the demo's."""

    name: str
    title: str
    about: str
    methods: tuple[str, ...]
    folder: str = ""
    cite: bool = False
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def dialogues(self) -> list[Dialogue]:
        """Its dialogues."""
        return read_dialogues(demo_folder() / self.folder / "dialogues.jsonl")


COMMONSENSE = _Part(
    "commonsense",
    "Commonsense from a graph",
    "Six chats in which nobody asks for anything. What could the reply know? Facts come from the starter graph.",
    METHODS,
)
FURTHER_SYSTEMS = _Part(
    "further",
    "Further systems",
    "A persona with documents under each sentence, a turn that asks for nothing, and a question: answered over small "
    "sources of our own. weave and safari go to the persona, its documents and a library of 60 passages; edit answers"
    " its questions from the same passages; msdp writes knowledge after 15 samples a language. scg-qp's “web” is here"
    " a shelf with those passages: nothing is searched online. Small numbers cite.",
    FURTHER,
    "further",
    cite=True,
    options={"msdp": {"response_shots": 10}},  # of fifteen samples a language, fewer than the paper draws
)
PARTS: tuple[_Part, ...] = (COMMONSENSE, FURTHER_SYSTEMS)


def demo_folder() -> Path:
    """Return where the demo's dialogues, sources, recordings and page template lie."""
    return Path(str(resources.files("dialore") / "data" / "demo"))


@asynccontextmanager
async def open_part(part: _Part, model: LanguageModel | None) -> AsyncIterator[list[Agent]]:
    """Yield an agent for each of a part's methods, over the part's sources; these are closed, the model is not.

    Args:
        part: the part.
        model: the model; None: knowledge is shown, by the method `lexical`.

    Raises:
        InputError: the part's files are damaged.
    """
    async with AsyncExitStack() as stack:
        graph = open_graph(None)
        stack.callback(graph.close)
        sources = _further_sources(demo_folder() / part.folder, stack) if part.folder else {}
        yield [
            create_agent(
                method,
                model=model,
                # weave and SAFARI would ask the graph too, where they are given one.
                graph=graph
                if method not in {"weave", "safari"} and "graph" in method_sources(method_class(method))
                else None,
                sources=sources.get(method, {}),
                options=part.options.get(method),
                cite=part.cite and method != "msdp",
            )
            for method in part.methods
        ]


def _further_sources(folder: Path, stack: AsyncExitStack) -> dict[str, dict[str, object]]:
    """Return the sources of each method, made of the folder's files; none needs an extra."""
    lines = (folder / "passages.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n")
    passages = (Passage(**json.loads(line), provenance="passages.jsonl") for line in lines)
    documents = InMemoryPassages(passages, own_language=True)
    instead = [replace(passage, provenance=_INSTEAD) for passage in documents.passages]
    web = InMemoryPassages(instead, kind="web", name="shelf in the place of the web", own_language=True)
    persona = open_persona()
    base = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "samples"
    build_samples(samples_of(read_dialogues(folder / "samples.jsonl")), base, load_embedder())
    samples = SampleDatabase(base)
    stack.callback(samples.close)
    return {
        "weave": {"persona": persona, "documents": documents},
        "safari": {"persona": persona, "documents": documents},
        "scg-qp": {"web": web},
        "edit": {"documents": documents},
        "msdp": {"samples": samples},
    }


# --- in the terminal


def _show_demo(conversations: Sequence[Conversation], made: str, page: Path) -> None:
    """Print conversations, how the responses came about, where the page is, and how to go live."""
    out = console()
    for conversation in conversations:
        dialogue = conversation.dialogue
        if conversation.heading is not None:
            out.print(Rule(f"[bold]{escape(conversation.heading[0])}[/]", characters="═"))
            out.print(f"[dim]{escape(conversation.heading[1])}[/]\n")
        out.print(Rule(f"[bold]{escape(dialogue.topic or dialogue.id)}[/]", align="left"))
        turns = Grid.grid(padding=(0, 1))
        turns.add_column(justify="right")
        turns.add_column(overflow="fold")
        for turn in dialogue.turns:
            colour = "cyan" if turn.speaker == dialogue.last.speaker else "green"
            turns.add_row(f"[{colour}]{escape(turn.speaker)}:[/]", escape(turn.text))
        for sentence in dialogue.persona:
            turns.add_row("", f"[dim]({escape(dialogue.responder)}: {escape(sentence)})[/]")
        out.print(turns)
        wide = out.width >= _COLUMN * len(conversation.responses)
        (_side_by_side if wide else _stack)(out, conversation.responses)
    stages = [stage for talk in conversations for response in talk.responses for stage in response.trace]
    if any(stage.prompt_changed for stage in stages):
        out.print("[yellow]≈[/] a prompt differs from the recorded one: retrieval or a prompt has changed since")
    for prompt, version in dict.fromkeys((stage.prompt, stage.recorded_with) for stage in stages):
        if version:
            out.print(f"[dim]  {escape(prompt)}: recorded with {version}[/]")
    out.print(f"[dim]{made}[/]")
    out.print(f"Every stage, prompt and piece of knowledge: [bold]{escape(str(page))}[/]\n", soft_wrap=True)
    out.print(_LIVE, soft_wrap=True)


def _name(response: Response) -> str:
    changed = any(stage.prompt_changed for stage in response.trace)
    return response.method + (" ≈" if changed else "")


def _drew(response: Response) -> str:
    used = response.used
    if not response.knowledge:
        return "[dim]nothing was looked up[/]"
    if not used:
        facts = "facts" if all(item.kind == "fact" for item in response.knowledge) else "pieces"
        return f"[dim]none of {len(response.knowledge)} {facts}[/]"
    marks = {name: response_text.superscript([number]) for name, number in response.numbers.items()}
    return "\n".join(f"{marks.get(item.id, '•')} {escape(item.text)}{render.show_origin(item)}" for item in used)


def _way(response: Response) -> str:
    """Return how it came about, for methods that plan, direct, ask or draft; empty for others."""
    return "\n".join(
        f"[dim]{escape(name)}:[/] {escape(words)}" for name, words in response_text.steps_of(response).short
    )


def _side_by_side(out: Console, responses: Sequence[Response]) -> None:
    rows = Table(*(_name(response) for response in responses), shares=[1] * len(responses))
    rows.add_row(*(styled(render.answer(response)) for response in responses), end_section=True)
    ways = [_way(response) for response in responses]
    if any(ways):
        rows.add_row(*map(styled, ways), end_section=True)
    rows.add_row(*(styled(_drew(response)) for response in responses))
    rows.add_row(*(styled(f"[dim]{escape(response_text.summary(response))}[/]") for response in responses))
    out.print(rows)


def _stack(out: Console, responses: Sequence[Response]) -> None:
    rows = Table("!method", "response", "draws on", shares=[1, 3, 2])
    for response in responses:
        below = "".join(
            f"\n{part}" for part in (_way(response), f"[dim]{escape(response_text.summary(response))}[/]") if part
        )
        text, knowledge = styled(render.answer(response) + below), styled(_drew(response))
        rows.add_row(_name(response), text, knowledge, end_section=True)
    out.print(rows)
