"""The serve benchmark: what `dialore serve` adds to its stages under load, beside the bare endpoint and Hayhooks.

It is asked by conversations that each go on for a while, a turn after the last one has ended and been thought about;
by single streams that begin evenly; and by as many in one instant, which is the worst that can come. No question comes
twice, so no completion comes from a cache. The endpoint, the service and the client are processes of this machine, and
share its cores: the row of the bare endpoint says what they take without a service. Memory and CPU are read from /proc,
so this is for Linux.
"""

# No deferred annotations here: typer reads them.
import asyncio
import json as jsons
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer

from benchmarks.endpoint import endpoint
from benchmarks.made_up import sentences
from benchmarks.measure import folder, percentile, report, show, tell
from dialore.errors import InputError
from dialore.response import StageTrace
from dialore.response_text import longest_chain
from dialore.retrieval.chunking import Chunking
from dialore.retrieval.documents.indexing import build_documents

_AT_ONCE = 16
"""Requests at once while memory is measured."""
PATIENCE = 120
SETTINGS = """
method = ["rag", "weave"]
[model]
base_url = "{url}"
model = "{model}"
concurrency = 1024
[sources]
documents = "{here}/documents"
[server]
port = {port}
workers = {workers}
concurrency = {most}
folder = "{here}/{name}"
"""
_HAYHOOKS = '''
from pathlib import Path

from hayhooks import BasePipelineWrapper, async_streaming_generator, get_last_user_message
from haystack import Pipeline, Document
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.utils import Secret

PROMPT = """Answer from these passages.
{{% for document in documents %}}{{{{ document.content }}}}
{{% endfor %}}Question: {{{{ question }}}}"""


class PipelineWrapper(BasePipelineWrapper):
    def setup(self):
        store = InMemoryDocumentStore()
        lines = Path("{here}/documents.txt").read_text(encoding="utf-8").splitlines()
        store.write_documents([Document(content=line) for line in lines])
        model = OpenAIChatGenerator(api_key=Secret.from_token("none"), model="{model}", api_base_url="{url}")
        self.pipeline = Pipeline()
        self.pipeline.add_component("retriever", InMemoryBM25Retriever(store, top_k=5))
        template = [ChatMessage.from_user(PROMPT)]
        self.pipeline.add_component("prompt", ChatPromptBuilder(template, required_variables=["question"]))
        self.pipeline.add_component("llm", model)
        self.pipeline.connect("retriever.documents", "prompt.documents")
        self.pipeline.connect("prompt.prompt", "llm.messages")

    async def run_chat_completion_async(self, model, messages, body):
        said = get_last_user_message(messages)
        given = {{"retriever": {{"query": said}}, "prompt": {{"question": said}}}}
        return async_streaming_generator(pipeline=self.pipeline, pipeline_run_args=given)
'''


@dataclass(frozen=True, slots=True)
class Target:
    """The server under test: its URL up to `/chat/completions`, the model's id there, and its process."""

    title: str
    url: str
    model: str
    pid: int = 0

    @property
    def pids(self) -> list[int]:
        """Its process and those that it has begun."""
        found = [self.pid] if self.pid else []
        for pid in found:
            begun = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
            found += map(int, begun.split())
        return found

    def cpu(self) -> float:
        """CPU seconds of its processes so far."""
        ticks = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Their resident memory in MB."""
        pages = (Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1] for pid in self.pids)
        return sum(map(int, pages)) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def files(self) -> int:
        """Their open files and sockets."""
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in self.pids)


@dataclass(slots=True)
class Seen:
    """A client's record of one stream."""

    status: int = 0
    first: float = 0.0
    is_whole: bool = False
    text: str = ""
    error: str = ""
    trace: str = ""
    retry_after: str = ""


@dataclass(slots=True)
class Client:
    """Asks a target; all of its questions are about the documents."""

    session: aiohttp.ClientSession
    questions: Sequence[str]
    asked: int = field(default=0)

    def body(self, target: Target, said: Sequence[dict[str, str]] = (), *, stream: bool) -> dict[str, Any]:
        """Return the next question, after what was said before."""
        self.asked += 1
        message = {"role": "user", "content": f"{self.questions[self.asked % len(self.questions)]} {self.asked}"}
        return {"model": target.model, "messages": [*said, message], "stream": stream}

    async def stream(self, target: Target, after: float = 0.0, said: Sequence[dict[str, str]] = ()) -> Seen:
        """Ask for a stream, begun after so many seconds, with what was said before."""
        await asyncio.sleep(after)
        seen, begun = Seen(), time.perf_counter()
        try:
            body = self.body(target, said, stream=True)
            async with self.session.post(f"{target.url}/chat/completions", json=body) as answer:
                seen.status, seen.retry_after = answer.status, answer.headers.get("Retry-After", "")
                if answer.status != 200:
                    seen.error = f"{answer.status} {(await answer.json())['error']['code']}"
                async for line in answer.content:
                    if line.startswith(b"data: {"):
                        self._take(seen, jsons.loads(line[6:]), begun)
        except aiohttp.ClientError as error:
            seen.is_whole, seen.error = False, type(error).__name__
        return seen

    @staticmethod
    def _take(seen: Seen, event: dict[str, Any], begun: float) -> None:
        choice = (event.get("choices") or [{}])[0]
        if piece := (choice.get("delta") or {}).get("content"):
            seen.first = seen.first or time.perf_counter() - begun
            seen.text += piece
        if choice.get("finish_reason"):
            seen.is_whole, seen.trace = True, (event.get("grounding") or {}).get("trace", "")
        seen.error = (event.get("error") or {}).get("code", seen.error)

    async def converse(self, target: Target, thinking: float, until: float, draw: random.Random) -> list[Seen]:
        """Have a conversation: a turn after the last one has ended and been thought about."""
        said: list[dict[str, str]] = []
        seen: list[Seen] = []
        pause = draw.uniform(0, thinking)
        while time.perf_counter() + pause < until:
            seen.append(await self.stream(target, pause, said[-6:]))
            question = {"role": "user", "content": self.questions[self.asked % len(self.questions)]}
            said += [question, {"role": "assistant", "content": seen[-1].text or "-"}]
            pause = draw.uniform(thinking / 2, thinking * 3 / 2)
        return seen

    async def plain(self, target: Target) -> bool:
        """Ask once without a stream; whether it was answered."""
        async with self.session.post(f"{target.url}/chat/completions", json=self.body(target, stream=False)) as answer:
            await answer.read()
            return answer.status == 200

    async def chain(self, target: Target, trace: str) -> int:
        """Return the model calls one after another that a response took; 1 where its service does not tell."""
        if not trace:
            return 1
        async with self.session.get(f"{target.url}/traces/{trace}") as answer:
            return longest_chain([StageTrace.model_validate(each) for each in (await answer.json())["trace"]])


def serve(
    conversations: Annotated[int, typer.Option(min=2, help="Streams at once.")] = 200,
    seconds: Annotated[float, typer.Option(min=0, help="In which single streams begin, evenly.")] = 10.0,
    steady: Annotated[float, typer.Option(min=0, help="Seconds for which conversations go on.")] = 30.0,
    thinking: Annotated[float, typer.Option(min=0, help="Seconds between two turns, on average.")] = 10.0,
    idle: Annotated[float, typer.Option(min=0, help="Seconds until open files are counted once more.")] = 20.0,
    latency: Annotated[int, typer.Option(min=0, help="Milliseconds that the endpoint takes.")] = 200,
    requests: Annotated[int, typer.Option(min=0, help="Plain ones, over which memory is measured; 0: none.")] = 10_000,
    passages: Annotated[int, typer.Option(min=10, help="Of the documents.")] = 1000,
    hayhooks: Annotated[Path | None, typer.Option(help="The `hayhooks` of an environment that has it.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure what the service adds to its stages, under load."""
    with ExitStack() as stack:
        here, url = stack.enter_context(folder()), stack.enter_context(endpoint())
        texts = list(sentences(passages))
        (here / "documents.txt").write_text("\n".join(texts), encoding="utf-8")
        build_documents(here / "documents", texts=texts, chunking=Chunking("whole"))
        slow, quick = f"wait-{latency}", "wait-0"
        targets = [Target("endpoint alone", url, slow)]
        for workers, title in ((1, ""), (2, ", 2 workers")):
            at, model, pid = stack.enter_context(dialore_service(here, url, slow, conversations * 3 // 2, workers))
            targets += [
                Target(f"dialore rag{title}", at, model, pid),
                Target(f"dialore weave{title}", at, f"{model}/weave", pid),
            ]
        if hayhooks is not None:
            targets.append(Target("hayhooks rag", *stack.enter_context(_hayhooks(hayhooks, here, url, slow))))
        figures: dict[str, Any] = {"plan": {"conversations": conversations, "seconds": seconds, "latency": latency}}
        figures["plan"] |= {"steady": steady, "thinking": thinking, "idle": idle}
        figures |= asyncio.run(_loads(targets, texts, figures["plan"]))
        if requests:
            alone = [Target("dialore rag", *stack.enter_context(dialore_service(here, url, quick, 2 * _AT_ONCE)))]
            if hayhooks is not None:
                alone.append(Target("hayhooks rag", *stack.enter_context(_hayhooks(hayhooks, here, url, quick))))
            figures["memory"] = [asyncio.run(_memory(each, texts, requests)) for each in alone]
    report(figures, json, _show)


def _show(figures: dict[str, Any]) -> None:
    plan = figures["plan"]
    show(
        f"{plan['conversations']} at once, latency {plan['latency']} ms; wanted: added p95 under 20 ms",
        figures["streams"],
    )
    show("open files and sockets; wanted: as many after a while as before", figures["files"])
    show("twice as many at once as the service takes; wanted: 429 with Retry-After, no error", [figures["overload"]])
    if "memory" in figures:
        show("plain requests; wanted: the same memory in the end", figures["memory"])


@contextmanager
def dialore_service(here: Path, url: str, model: str, most: int, workers: int = 1) -> Iterator[tuple[str, str, int]]:
    """Serve the documents of a folder; gives the address, the model's id and the process."""
    port, name = free_port(), f"{model}-{workers}"
    file = here / f"{name}.toml"
    said = {"url": url, "model": model, "here": here, "port": port, "most": most, "workers": workers, "name": name}
    file.write_text(SETTINGS.format(**said), encoding="utf-8")
    with _started([sys.executable, "-m", "dialore", "serve", "--settings", str(file)], port, "/readyz", here) as pid:
        yield f"http://127.0.0.1:{port}/v1", "dialore", pid


@contextmanager
def _hayhooks(program: Path, here: Path, url: str, model: str) -> Iterator[tuple[str, str, int]]:
    port = free_port()
    wrapper = here / f"hayhooks-{model}" / "rag" / "pipeline_wrapper.py"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_HAYHOOKS.format(url=url, model=model, here=here), encoding="utf-8")
    # Beside the program lies its environment's Python, which gives one process to measure.
    where = ["--host", "127.0.0.1", "--port", str(port), "--pipelines-dir", str(wrapper.parents[1])]
    with _started([str(program.with_name("python")), str(program), "run", *where], port, "/status", here) as pid:
        yield f"http://127.0.0.1:{port}/v1", "rag", pid


@contextmanager
def _started(command: list[str], port: int, ready: str, here: Path) -> Iterator[int]:
    """Yield a service of this machine, once it answers; it is ended as an operator would."""
    with (here / f"{port}.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:  # noqa: S603
        try:
            asyncio.run(_ready(f"http://127.0.0.1:{port}{ready}"))
            yield process.pid
        except TimeoutError as error:
            said = Path(log.name).read_text(encoding="utf-8").strip().splitlines() or [""]
            raise InputError(f"a service of the benchmark did not start: {said[-1]}", hint="see above") from error
        finally:
            process.terminate()


async def _ready(url: str) -> None:
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession(trust_env=False) as session:
        while True:
            try:
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def _loads(targets: Sequence[Target], texts: Sequence[str], plan: dict[str, Any]) -> dict[str, Any]:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as session:
        client, rows = Client(session, texts), []
        for target in targets:
            for _ in range(4):
                await client.stream(target)  # what is imported and opened once
        services = {target.pid: target for target in targets if target.pid}.values()
        files = [{"service": target.title.replace(" weave", ""), "before": target.files()} for target in services]
        for arrival in ("conversations", "evenly", "at once"):
            for target in targets:
                tell(f"{target.title}, {arrival}")
                rows.append(await _load(client, target, arrival, plan))
        overload = await _overload(client, targets[1], plan["conversations"] * 3)
        for when, pause in (("after", 0.5), ("after_idle", plan["idle"])):
            await asyncio.sleep(pause)
            for row, target in zip(files, services, strict=True):
                row[when] = target.files()
        return {"streams": rows, "files": files, "overload": overload}


async def _load(client: Client, target: Target, arrival: str, plan: dict[str, Any]) -> dict[str, Any]:
    count, cpu, begun = plan["conversations"], target.cpu(), time.perf_counter()
    if arrival == "conversations":
        draw, until = random.Random(7), begun + plan["steady"]  # noqa: S311 - no secret
        all_of_them = (client.converse(target, plan["thinking"], until, draw) for _ in range(count))
        seen = [each for several in await asyncio.gather(*all_of_them) for each in several]
    else:
        scope = plan["seconds"] if arrival == "evenly" else 0.0
        seen = await asyncio.gather(*(client.stream(target, place * scope / count) for place in range(count)))
    wall, cpu = time.perf_counter() - begun, target.cpu() - cpu
    good = [each for each in seen if each.is_whole]
    chains = [await client.chain(target, each.trace) for each in good]
    added = [each.first * 1000 - chain * plan["latency"] for each, chain in zip(good, chains, strict=True)]
    await asyncio.sleep(0.5)
    return {
        "target": target.title,
        "arriving": arrival,
        "streams": len(seen),
        "a_second": round(len(seen) / wall, 1),
        "errors": len(seen) - len(good),
        "steps": round(sum(chains) / max(1, len(chains)), 1),
        "added_ms_p50": round(percentile(added, 50), 1) if added else None,
        "added_ms_p95": round(percentile(added, 95), 1) if added else None,
        "cpu_ms": round(cpu / max(1, len(seen)) * 1000, 1) if target.pid else None,
    }


async def _overload(client: Client, target: Target, count: int) -> dict[str, Any]:
    seen = await asyncio.gather(*(client.stream(target) for _ in range(count)))
    refused = [each for each in seen if each.status == 429]
    answered = sum(each.is_whole for each in seen)
    return {
        "streams": count,
        "answered": answered,
        "refused": len(refused),
        "with_retry_after": sum(each.retry_after.isdigit() for each in refused),
        "errors": count - answered - len(refused),
    }


async def _memory(target: Target, texts: Sequence[str], count: int) -> dict[str, Any]:
    """Memory at a tenth of the requests, at half, and in the end."""
    tell(f"{target.title}, {count} requests")
    row: dict[str, Any] = {"target": target.title, "errors": 0, "mb_at_start": round(target.memory(), 1)}
    async with aiohttp.ClientSession(trust_env=False) as session:
        client, done = Client(session, texts), 0
        files, cpu = target.files(), target.cpu()
        for mark in (count // 10, count // 2, count):
            left = iter(range(mark - done))

            async def ask(left: Iterator[int] = left) -> None:
                for _ in left:
                    row["errors"] += not await client.plain(target)

            await asyncio.gather(*(ask() for _ in range(_AT_ONCE)))
            done = mark
            row[f"mb_at_{mark}"] = round(target.memory(), 1)
        row["cpu_ms"] = round((target.cpu() - cpu) / count * 1000, 2)
    await asyncio.sleep(0.5)
    return row | {"files_left": target.files() - files}
