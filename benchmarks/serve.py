"""The serve benchmark: what `dialore serve` adds to its stages under load, beside the bare endpoint and Hayhooks.

The endpoint, the service and the client are processes of this machine, and share its cores: the row of the bare
endpoint says what they take without a service. Memory and CPU are read from /proc, so this is for Linux.
"""

# No deferred annotations here: typer reads them.
import asyncio
import json as jsons
import os
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
from dialore.evaluation.report.display import longest_chain
from dialore.response import StageTrace
from dialore.sources.documents.building import build_documents
from dialore.sources.documents.chunking import Chunking

_AT_ONCE = 16
"""Requests at once while memory is measured."""
_PATIENCE = 120
_SETTINGS = """
method = ["rag", "weave"]
[model]
base_url = "{url}"
model = "{model}"
concurrency = 1024
[sources]
documents = "{here}/documents"
[server]
port = {port}
concurrency = {most}
folder = "{here}/{model}"
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
    """What is asked: its URL up to `/chat/completions`, the model's id there, and its process."""

    title: str
    url: str
    model: str
    pid: int = 0

    def cpu(self) -> float:
        """CPU seconds of its process so far."""
        if not self.pid:
            return 0.0
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Its resident memory in MB."""
        pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="utf-8").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def files(self) -> int:
        """Its open files and sockets."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


@dataclass(slots=True)
class _Stream:
    """What a client saw of one stream."""

    status: int = 0
    first: float = 0.0
    is_whole: bool = False
    trace: str = ""
    retry_after: str = ""


@dataclass(slots=True)
class _Client:
    """Asks a target; all of its questions are about the documents."""

    session: aiohttp.ClientSession
    questions: Sequence[str]
    asked: int = field(default=0)

    def body(self, target: Target, *, stream: bool) -> dict[str, Any]:
        self.asked += 1
        message = {"role": "user", "content": self.questions[self.asked % len(self.questions)]}
        return {"model": target.model, "messages": [message], "stream": stream}

    async def stream(self, target: Target, after: float = 0.0) -> _Stream:
        """Have a conversation as a stream, begun after so many seconds."""
        await asyncio.sleep(after)
        seen, begun = _Stream(), time.perf_counter()
        body = self.body(target, stream=True)
        try:
            async with self.session.post(f"{target.url}/chat/completions", json=body) as answer:
                seen.status, seen.retry_after = answer.status, answer.headers.get("Retry-After", "")
                async for line in answer.content:
                    if not seen.first and _has_text(line):
                        seen.first = time.perf_counter() - begun
                    if b'"finish_reason": "stop"' in line or b'"finish_reason":"stop"' in line:
                        seen.is_whole = True
                        seen.trace = (jsons.loads(line[6:]).get("grounding") or {}).get("trace", "")
        except aiohttp.ClientError:
            seen.is_whole = False
        return seen

    async def plain(self, target: Target) -> bool:
        """Ask once without a stream; whether it was answered."""
        async with self.session.post(f"{target.url}/chat/completions", json=self.body(target, stream=False)) as answer:
            await answer.read()
            return answer.status == 200

    async def chain(self, target: Target, trace: str) -> int:
        """The model calls one after another that a response took; 1 where its service does not tell."""
        if not trace:
            return 1
        async with self.session.get(f"{target.url}/traces/{trace}") as answer:
            return longest_chain([StageTrace.model_validate(each) for each in (await answer.json())["trace"]])


def _has_text(line: bytes) -> bool:
    if not line.startswith(b"data: {"):
        return False
    choices = jsons.loads(line[6:]).get("choices") or [{}]
    return bool((choices[0].get("delta") or {}).get("content"))


def serve(
    conversations: Annotated[int, typer.Option(min=2, help="Streams at once.")] = 200,
    seconds: Annotated[float, typer.Option(min=0, help="In which they arrive, evenly.")] = 10.0,
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
        served = stack.enter_context(_dialore(here, url, slow, conversations * 3 // 2))
        targets = [
            Target("endpoint alone", url, slow),
            Target("dialore rag", *served),
            Target("dialore weave", served[0], "dialore/weave", served[2]),
        ]
        if hayhooks is not None:
            targets.append(Target("hayhooks rag", *stack.enter_context(_hayhooks(hayhooks, here, url, slow))))
        figures: dict[str, Any] = {"plan": {"conversations": conversations, "seconds": seconds, "latency": latency}}
        streams, overload = asyncio.run(_loads(targets, texts, figures["plan"]))
        figures |= {"streams": streams, "overload": overload}
        if requests:
            alone = [Target("dialore rag", *stack.enter_context(_dialore(here, url, quick, 2 * _AT_ONCE)))]
            if hayhooks is not None:
                alone.append(Target("hayhooks rag", *stack.enter_context(_hayhooks(hayhooks, here, url, quick))))
            figures["memory"] = [asyncio.run(_memory(each, texts, requests)) for each in alone]
    report(figures, json, _show)


def _show(figures: dict[str, Any]) -> None:
    plan = figures["plan"]
    show(
        f"{plan['conversations']} streams, latency {plan['latency']} ms; wanted: added p95 under 20 ms",
        figures["streams"],
    )
    show("twice as many at once as the service takes; wanted: 429 with Retry-After, no error", [figures["overload"]])
    if "memory" in figures:
        show("plain requests; wanted: the same memory in the end", figures["memory"])


@contextmanager
def _dialore(here: Path, url: str, model: str, most: int) -> Iterator[tuple[str, str, int]]:
    port = _free_port()
    file = here / f"{model}.toml"
    file.write_text(_SETTINGS.format(url=url, model=model, here=here, port=port, most=most), encoding="utf-8")
    with _started([sys.executable, "-m", "dialore", "serve", str(file)], port, "/readyz", here) as pid:
        yield f"http://127.0.0.1:{port}/v1", "dialore", pid


@contextmanager
def _hayhooks(program: Path, here: Path, url: str, model: str) -> Iterator[tuple[str, str, int]]:
    port = _free_port()
    wrapper = here / f"hayhooks-{model}" / "rag" / "pipeline_wrapper.py"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_HAYHOOKS.format(url=url, model=model, here=here), encoding="utf-8")
    # Beside the program lies its environment's Python, which gives one process to measure.
    where = ["--host", "127.0.0.1", "--port", str(port), "--pipelines-dir", str(wrapper.parents[1])]
    with _started([str(program.with_name("python")), str(program), "run", *where], port, "/status", here) as pid:
        yield f"http://127.0.0.1:{port}/v1", "rag", pid


@contextmanager
def _started(command: list[str], port: int, ready: str, here: Path) -> Iterator[int]:
    """A service of this machine, once it answers; it is ended as an operator would."""
    with (here / f"{port}.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:  # noqa: S603
        try:
            asyncio.run(_ready(f"http://127.0.0.1:{port}{ready}"))
            yield process.pid
        except TimeoutError as error:
            said = Path(log.name).read_text(encoding="utf-8").strip().splitlines() or [""]
            raise InputError(f"a service of the benchmark did not start: {said[-1]}", mend="see above") from error
        finally:
            process.terminate()


async def _ready(url: str) -> None:
    async with asyncio.timeout(_PATIENCE), aiohttp.ClientSession(trust_env=False) as session:
        while True:
            try:
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def _loads(
    targets: Sequence[Target], texts: Sequence[str], plan: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=_PATIENCE)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as session:
        client, rows = _Client(session, texts), []
        for target in targets:
            for _ in range(2):
                await client.stream(target)  # what is imported and opened once
        for arrival, within in (("evenly", plan["seconds"]), ("at once", 0.0)):
            for target in targets:
                tell(f"{target.title}, {arrival}")
                rows.append(await _load(client, target, arrival, within, plan))
        return rows, await _overload(client, targets[1], plan["conversations"] * 3)


async def _load(client: _Client, target: Target, arrival: str, within: float, plan: dict[str, Any]) -> dict[str, Any]:
    count, files, cpu = plan["conversations"], target.files() if target.pid else 0, target.cpu()
    begun = time.perf_counter()
    seen = await asyncio.gather(*(client.stream(target, place * within / count) for place in range(count)))
    wall, cpu = time.perf_counter() - begun, target.cpu() - cpu
    good = [each for each in seen if each.is_whole]
    chains = [await client.chain(target, each.trace) for each in good]
    added = [each.first * 1000 - chain * plan["latency"] for each, chain in zip(good, chains, strict=True)]
    await asyncio.sleep(0.5)
    return {
        "target": target.title,
        "arriving": arrival,
        "errors": count - len(good),
        "steps": round(sum(chains) / max(1, len(chains)), 1),
        "added_ms_p50": round(percentile(added, 50), 1) if added else None,
        "added_ms_p95": round(percentile(added, 95), 1) if added else None,
        "cpu_ms": round(cpu / count * 1000, 1) if target.pid else None,
        "seconds": round(wall, 1),
        "files_left": target.files() - files if target.pid else None,
    }


async def _overload(client: _Client, target: Target, count: int) -> dict[str, Any]:
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
        client, done = _Client(session, texts), 0
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
