"""The faults benchmark: what becomes of requests where something fails under them, and what it leaves behind."""

# No deferred annotations here: typer reads them.
import asyncio
import logging
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer

from benchmarks.endpoint import begin
from benchmarks.made_up import sentences
from benchmarks.measure import folder, report, show, tell
from benchmarks.serve import PATIENCE, Client, Seen, Target, dialore_service, free_port
from dialore.retrieval.chunking import Chunking
from dialore.retrieval.documents.indexing import build_documents

_MODEL = "pace-100"
"""A word each tenth of a second: there is a middle of the stream."""
_MIDDLE = 0.3


def faults(
    requests: Annotated[int, typer.Option(min=2, help="Of each fault.")] = 50,
    idle: Annotated[
        float, typer.Option(min=0, help="Seconds until what is left is counted; an idle connection is kept for 15.")
    ] = 20.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count what becomes of requests under faults: answered, refused in OpenAI's shape, or lost."""
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # of an endpoint whose clients go
    with folder() as here:
        texts = list(sentences(200))
        build_documents(here / "documents", texts=texts, chunking=Chunking("whole"))
        rows = asyncio.run(_all(here, texts, requests, idle))
    report({"faults": rows}, json, lambda figures: show("wanted: none lost, nothing left", figures["faults"]))


class _Endpoint:
    """An endpoint that can go down and come back at its place."""

    def __init__(self) -> None:
        self.port = free_port()

    async def start(self) -> None:
        self._runner = await begin(self.port)

    async def stop(self) -> None:
        await self._runner.cleanup()


@asynccontextmanager
async def _service(here: Path, endpoint: _Endpoint, workers: int = 1) -> AsyncIterator[Target]:
    """Yield a service of its own process; its beginning and its end take a while, in which the endpoint goes on."""
    opened = dialore_service(here, f"http://127.0.0.1:{endpoint.port}/v1", _MODEL, 1000, workers)
    url, model, pid = await asyncio.to_thread(opened.__enter__)
    try:
        yield Target("dialore", url, f"{model}/weave", pid)
    finally:
        await asyncio.to_thread(opened.__exit__, None, None, None)


async def _all(here: Path, texts: Sequence[str], count: int, idle: float) -> list[dict[str, Any]]:
    endpoint = _Endpoint()
    await endpoint.start()
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as session:
        client = Client(session, texts)
        rows: list[dict[str, Any]] = []
        async with _service(here, endpoint) as target:
            await asyncio.gather(*(client.stream(target) for _ in range(8)))  # what is imported and opened once
            await asyncio.sleep(idle)
            several: Sequence[_Fault] = (_down_before, _down_in_mid_stream, _knowledge_changed, _client_gone)
            rows += [await _with_what_is_left(fault, client, target, endpoint, count, idle) for fault in several]
        rows.append(await _ended(here, client, endpoint, count))
        rows.append(await _one_users_memory(here, client, endpoint, count))
    await endpoint.stop()
    return rows


_Fault = Callable[[Client, Target, _Endpoint, int], Awaitable[dict[str, Any]]]


async def _with_what_is_left(
    fault: _Fault, client: Client, target: Target, endpoint: _Endpoint, count: int, idle: float
) -> dict[str, Any]:
    """Return a fault's row, with the tasks, and the files and sockets, of the service before it and after it."""
    name = fault.__name__.strip("_").replace("_", " ")
    tell(name)
    tasks, files = await _tasks(client, target), target.files()
    row = {"fault": name, **await fault(client, target, endpoint, count)}
    await asyncio.sleep(1)
    row |= {"tasks": f"{tasks}, {await _tasks(client, target)}", "files": f"{files}, {target.files()}"}
    await asyncio.sleep(idle)
    row["tasks"] += f", {await _tasks(client, target)}"
    row["files"] += f", {target.files()}"
    return row


async def _tasks(client: Client, target: Target) -> int:
    return await _figure(client, target, "dialore_tasks")


async def _figure(client: Client, target: Target, name: str) -> int:
    async with client.session.get(f"{target.url.removesuffix('/v1')}/metrics") as answer:
        found = re.search(rf"^{name} (\d+)", await answer.text(), re.MULTILINE)
    return int(found[1]) if found else -1


async def _middle(client: Client, target: Target, streams: "Sequence[asyncio.Task[Seen]]") -> None:
    """Wait until all streams that have not ended have begun, and a little longer."""
    under_way = "dialore_requests_under_way"
    while await _figure(client, target, under_way) <= sum(not one.done() for one in streams):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await asyncio.sleep(_MIDDLE)


def _counted(seen: Sequence[Seen]) -> dict[str, Any]:
    """Return how many were answered, which errors were said, and how many were neither."""
    errors = Counter(each.error for each in seen if not each.is_whole and each.error)
    answered = sum(each.is_whole for each in seen)
    said = ", ".join(f"{number} {error}" for error, number in errors.items())
    return {
        "requests": len(seen),
        "answered": answered,
        "errors": said or "none",
        "lost": len(seen) - answered - errors.total(),
    }


def _begun(client: Client, target: Target, count: int, scope: float = 0.0) -> "list[asyncio.Task[Seen]]":
    return [asyncio.create_task(client.stream(target, place * scope / count)) for place in range(count)]


async def _down_before(client: Client, target: Target, endpoint: _Endpoint, count: int) -> dict[str, Any]:
    await endpoint.stop()
    seen = await asyncio.gather(*_begun(client, target, count))
    await endpoint.start()
    return _counted(seen)


async def _down_in_mid_stream(client: Client, target: Target, endpoint: _Endpoint, count: int) -> dict[str, Any]:
    streams = _begun(client, target, count)
    await _middle(client, target, streams)
    await endpoint.stop()
    seen = await asyncio.gather(*streams)
    await endpoint.start()
    return _counted(seen)


async def _knowledge_changed(client: Client, target: Target, _: _Endpoint, count: int) -> dict[str, Any]:
    streams = _begun(client, target, count, 5.0)
    place, changes = f"{target.url}/knowledge/documents", 0
    while not all(each.done() for each in streams):
        async with client.session.post(place, json={"text": f"Number {changes} is new.", "title": "new"}) as answer:
            made = (await answer.json())["id"]
        async with client.session.delete(f"{place}/{made}") as answer:
            changes += answer.status == 200
        await asyncio.sleep(0.05)
    return _counted([each.result() for each in streams]) | {"besides": f"{changes} documents added and deleted"}


async def _client_gone(client: Client, target: Target, _: _Endpoint, count: int) -> dict[str, Any]:
    """Return each goes once it has the first text: there is nobody left to whom anything could be lost."""

    async def ask() -> None:
        async with client.session.post(
            f"{target.url}/chat/completions", json=client.body(target, stream=True)
        ) as answer:
            async for line in answer.content:
                if b'"content": "' in line and b'"content": ""' not in line:
                    return

    await asyncio.gather(*(ask() for _ in range(count)))
    return {"requests": count, "answered": 0, "errors": "none", "lost": 0}


async def _ended(here: Path, client: Client, endpoint: _Endpoint, count: int) -> dict[str, Any]:
    """SIGTERM in mid-stream; a stream without its end is lost, and one whose trace the next process has not."""
    tell("SIGTERM in mid-stream")
    async with _service(here, endpoint) as target:
        streams = _begun(client, target, count)
        await _middle(client, target, streams)
        os.kill(target.pid, signal.SIGTERM)
        seen = await asyncio.gather(*streams)
    async with _service(here, endpoint) as target:
        kept = sum([await _is_there(client, f"{target.url}/traces/{each.trace}") for each in seen])
    row = _counted(seen)
    return {"fault": "SIGTERM in mid-stream", **row, "lost": count - kept, "besides": f"{kept} traces kept"}


async def _one_users_memory(here: Path, client: Client, endpoint: _Endpoint, count: int) -> dict[str, Any]:
    """Two workers keep one user's conversations at once; one that the next process has not is lost."""
    tell("two workers that write one user's memory")
    async with _service(here, endpoint, workers=2) as target:
        consent = {"user": "ann", "consents": True}
        async with client.session.put(f"{target.url}/memory/consent", json=consent) as answer:
            answer.raise_for_status()

        async def ask(place: int) -> int:
            body = client.body(target, stream=False) | {"user": "ann", "metadata": {"conversation": f"c{place}"}}
            async with client.session.post(f"{target.url}/chat/completions", json=body) as answer:
                return answer.status

        codes = await asyncio.gather(*map(ask, range(count)))
    async with (
        _service(here, endpoint, workers=2) as target,
        client.session.get(f"{target.url}/conversations", params={"user": "ann"}) as answer,
    ):
        kept = len((await answer.json())["data"])
    errors = ", ".join(f"{number} {code}" for code, number in Counter(codes).items() if code != 200) or "none"
    row = {"requests": count, "answered": codes.count(200), "errors": errors, "lost": count - kept}
    return {"fault": "two workers, one user's memory", **row, "besides": f"{kept} conversations kept"}


async def _is_there(client: Client, url: str) -> bool:
    async with client.session.get(url) as answer:
        return answer.status == 200
