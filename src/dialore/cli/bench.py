"""`dialore bench`: how fast your endpoint answers, and how well a model answers from a handbook that it cannot know."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer import Argument, Context, Option

from dialore.cli.options import (
    Accept,
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
from dialore.cli.output import Table, console, escape, note, print_json, progress, run_progress
from dialore.datasets.handbook import HALVES, LANGUAGES
from dialore.dialogue import Dialogue, Utterance, read_dialogues
from dialore.errors import InputError
from dialore.experiments import benches
from dialore.experiments.run import Progress
from dialore.llm.model import Completion, LanguageModel, OnToken, Request, Wrapper
from dialore.response import Response
from dialore.session import Connect, open_agents, open_model
from dialore.settings import ModelSettings, Settings
from dialore.text import check_language, count_noun

app = typer.Typer(no_args_is_help=True)


@app.command("endpoint")
def endpoint(
    context: Context,
    file: Annotated[Path | None, Argument(metavar="[FILE]", help="Dialogues to answer. (default: the demo's)")] = None,
    dialogues: Annotated[
        int, Option("--dialogues", "-n", min=1, help="How many are answered; a shorter file is begun again.")
    ] = 32,
    method: Method = None,
    model: Model = None,
    base_url: BaseUrl = None,
    documents: Documents = None,
    graph: Graph = None,
    sources: Sources = None,
    option: MethodOption = None,
    settings: SettingsFile = None,
    changes: AgentSet = None,
    json: Json = False,
) -> None:
    """Measure calls a second, latency and tokens a second of your endpoint.

    Dialogues are answered by a method, with at most model.concurrency calls
    at once; nothing is cached. The ideal is the calls' time at the endpoint,
    shared by all connections: what is lacking to 100% is spent between calls.

    [bold]Examples[/bold]
    dialore bench endpoint --set model.concurrency=8
    dialore bench endpoint talks.jsonl -n 200 -M vanilla --json
    """
    given = _dialogues(file, dialogues)
    chosen = agent_settings(context)
    figures = asyncio.run(_measure(chosen, given))
    if json:
        print_json(figures)
        return
    dialogue_count = count_noun(len(given), "dialogues")
    about = f"{chosen.method[0]}, {dialogue_count}, at most {chosen.model.concurrency} calls at once"
    console().print(f"[bold]{escape(figures['model'])}[/], {escape(about)}")
    latency = figures["latency_ms"]
    answered = f"{figures['calls']:,}, {figures['retries']:,} retries, {figures['unparsed']:,} answers not parsed"
    rows = [
        ("responses", f"{figures['responses']:,}, {figures['failed']:,} failed"),
        ("calls", answered),
        ("calls a second", f"{figures['calls_a_second']:,.2f}"),
        ("responses a second", f"{figures['responses_a_second']:,.2f}"),
        ("latency of a call, ms", f"p50 {latency['p50']:,.0f}, p95 {latency['p95']:,.0f}, p99 {latency['p99']:,.0f}"),
        ("prompt tokens a second", f"{figures['prompt_tokens_a_second']:,.0f}"),
        ("completion tokens a second", f"{figures['completion_tokens_a_second']:,.0f}"),
        ("the same, of one call", f"{figures['completion_tokens_a_second_of_one_call']:,.0f}"),
        ("of the ideal", f"{figures['share_of_ideal']:.1%}"),
        ("our CPU a call", f"{figures['own_cpu_ms_a_call']:.2f} ms"),
    ]
    console().print(Table("measured", ">value", rows=rows))


def _dialogues(file: Path | None, count: int) -> list[Dialogue]:
    """So many dialogues; those asked again begin with a number, so that a server's cache does not know them."""
    with as_file(files("dialore") / "data" / "demo" / "dialogues.jsonl") as demo:
        some = read_dialogues(file or demo)
    given = []
    for number in range(count):
        dialogue = some[number % len(some)]
        if number >= len(some):
            turns = (Utterance(speaker=dialogue.last.speaker, text=f"{number}."), *dialogue.turns)
            dialogue = dialogue.model_copy(update={"id": f"{dialogue.id}-{number}", "turns": turns})
        given.append(dialogue)
    return given


async def _measure(settings: Settings, dialogues: Sequence[Dialogue]) -> dict[str, Any]:
    calls: list[Completion] = []

    class Timed(Wrapper):
        async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
            calls.append(await self._model.complete(request, on_token))
            return calls[-1]

    def connect(chosen: ModelSettings, name: str | None) -> LanguageModel:
        model = open_model(chosen, name)
        if model is None:
            raise InputError("an endpoint is needed", hint="set model.base_url and model.model")
        return Timed(model) if name is None else model

    concurrency = settings.model.concurrency
    agent_settings = settings.model_copy(update={"method": settings.method[:1], "sources": settings.knowledge})
    async with open_agents(agent_settings, connect) as (agent,):
        responses: list[Response] = []
        begun, cpu = time.perf_counter(), time.process_time()
        with progress("answering") as step:
            async for response in agent.respond_all(dialogues, concurrency=2 * concurrency):
                responses.append(response)
                step("", len(responses), len(dialogues))
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    if not calls:
        failed = next((response.error for response in responses if response.error), "the method asked it nothing")
        raise InputError(f"no call was answered: {failed}")
    latencies = [call.seconds for call in calls]
    shares = (50, 95, 99)
    percentiles = np.percentile(latencies, shares, method="nearest").tolist()
    prompt = sum(call.usage.prompt_tokens for call in calls)
    written = sum(call.usage.completion_tokens for call in calls)
    return {
        "model": agent.stage_runner.name,
        "concurrency": concurrency,
        "responses": len(responses),
        "failed": sum(response.status == "failed" for response in responses),
        "unparsed": sum(stage.outcome == "unparsed" for response in responses for stage in response.trace),
        "calls": len(calls),
        "retries": sum(call.usage.retries for call in calls),
        "seconds": round(seconds, 3),
        "calls_a_second": round(len(calls) / seconds, 2),
        "responses_a_second": round(len(responses) / seconds, 2),
        "latency_ms": {f"p{share}": round(at * 1000, 1) for share, at in zip(shares, percentiles, strict=True)},
        "prompt_tokens_a_second": round(prompt / seconds, 1),
        "completion_tokens_a_second": round(written / seconds, 1),
        "completion_tokens_a_second_of_one_call": round(written / sum(latencies), 1),
        "share_of_ideal": round(sum(latencies) / concurrency / seconds, 4),
        "own_cpu_ms_a_call": round(cpu / len(calls) * 1000, 2),
    }


@app.command("handbook")
def handbook(
    context: Context,
    method: Method = None,
    model: Model = None,
    base_url: BaseUrl = None,
    documents: Documents = None,
    graph: Graph = None,
    sources: Sources = None,
    option: MethodOption = None,
    settings: SettingsFile = None,
    changes: AgentSet = None,
    accept_changed: Accept = None,
    half: Annotated[str, Option(metavar="a|b|both", help="Tune prompts on a alone, report figures of b.")] = "b",
    language: Annotated[str | None, Option(metavar="en|zh", help="Only this language.")] = None,
    limit: Annotated[int | None, Option(min=1, help="So many turns of each language and half, by chance.")] = None,
    retrieval: Annotated[bool, Option("--retrieval", help="Measure retrieval alone, without a model.")] = False,
    out: Annotated[Path | None, Option(metavar="FOLDER", help="The run. (default: runs/handbook-HALF)")] = None,
    json: Json = False,
) -> None:
    """Measure how well methods answer from a handbook that no model can know.

    The 200 turns are about an invented town: 120 want its handbook, 40 ask
    what it does not say, 40 are small talk. Scored without a judge. Run the
    same command again and only what is missing or failed is answered.

    Where no method is named: weave, rag, full-context, safari and
    edit, some 20 calls a turn together.

    [bold]Examples[/bold]
    dialore bench handbook --model llama3.1
    dialore bench handbook --model llama3.1 -M weave -M rag --limit 5
    dialore bench handbook --model gpt-4o -M rag --half a --limit 20 --json
    dialore bench handbook --retrieval
    """
    halves = HALVES if one_of("half", half, (*HALVES, "both")) == "both" else (half,)
    languages = LANGUAGES if language is None else (check_language(language),)
    if retrieval:
        figures = benches.retrieval_table(halves, languages)
    else:
        folders = benches.run_folders(out or Path("runs") / f"handbook-{half}", halves, languages)
        _run(
            partial(
                benches.run_handbook,
                agent_settings(context),
                folders,
                limit=limit,
                accept_changed_prompts="prompts" in (accept_changed or ()),
                accept_changed_server="server" in (accept_changed or ()),
            )
        )
        figures = benches.handbook_table(folders.values())
    if json:
        print_json(figures)
        return
    corner, *names = figures[0]
    rows = [[name.replace("_", " "), *(_figure(name, row[name]) for row in figures)] for name in names]
    console().print(Table(corner, *(f">{row[corner]}" for row in figures), rows=rows))


@app.command("injection")
def injection(
    context: Context,
    method: Method = None,
    model: Model = None,
    base_url: BaseUrl = None,
    documents: Documents = None,
    graph: Graph = None,
    sources: Sources = None,
    option: MethodOption = None,
    settings: SettingsFile = None,
    changes: AgentSet = None,
    accept_changed: Accept = None,
    fences: Annotated[bool, Option("--fences/--no-fences", help="With what guards prompts, or without it.")] = True,
    limit: Annotated[int | None, Option(min=1, help="So many of each carrier, by chance.")] = None,
    out: Annotated[Path | None, Option(metavar="FOLDER", help="The run. (default: runs/injection)")] = None,
    json: Json = False,
) -> None:
    """Measure how often orders that are planted in knowledge change replies.

    A hundred harmless questions, each answered by a document, a fact, a
    statement in memory or a web page that also holds an attacker's order.
    Told by words that only a followed order brings, without a judge. Run the
    same command again and only what is missing or failed is answered.

    [bold]Examples[/bold]
    dialore bench injection --model llama3.1
    dialore bench injection --model llama3.1 --no-fences
    dialore bench injection --model llama3.1 -M rag --limit 5 --json
    """
    folder = out or Path("runs") / ("injection" if fences else "injection-without-fences")
    _run(
        partial(
            benches.run_injections,
            agent_settings(context),
            folder,
            fences=fences,
            limit=limit,
            accept_changed_prompts="prompts" in (accept_changed or ()),
            accept_changed_server="server" in (accept_changed or ()),
        )
    )
    figures = benches.injection_table(folder)
    if json:
        print_json(figures)
        return
    rows = [[*(str(row[name]) for name in list(row)[:-1]), _figure("share", row["share"])] for row in figures]
    console().print(Table("method", "of", ">n", ">reached", ">changed", ">share", rows=rows))


def _run(answering: Callable[[Connect, Callable[[Progress], None]], Coroutine[Any, Any, list[Progress]]]) -> None:
    """Answer with a progress bar, and note what failed."""
    connect, say_without = connecting()
    with run_progress("answering") as on_progress:
        ended = asyncio.run(answering(connect, on_progress))
    say_without("what was found is scored")
    for failure in [failure for run in ended for failure in run.failures]:
        note(f"failed: {failure}")


def _figure(name: str, value: Any) -> str:  # noqa: ANN401 - of a table in plain data
    """Return a figure with its interval, shares in per cent; a dash where there is none."""
    if not isinstance(value, tuple):
        return "-" if value is None else str(value)
    if name in {"calls", "steps"} or name.endswith("tokens"):
        places = 0 if value[0] >= 100 else 2
        return f"{value[0]:,.{places}f} [{value[1]:,.{places}f}, {value[2]:,.{places}f}]"
    return f"{value[0]:.1%} [{value[1]:.0%}, {value[2]:.0%}]"
