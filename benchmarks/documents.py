"""The document benchmark: an index of made-up sentences is built, asked, written to by processes that are killed."""

# No deferred annotations here: typer reads them.
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from unittest.mock import patch

import typer

from benchmarks.made_up import sentences
from benchmarks.measure import (
    ROOT,
    answer_parent,
    child,
    folder,
    peak_memory,
    report,
    resident,
    show,
    size_of,
    spread,
    tell,
    timed,
)
from dialore.errors import DialoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dialore.sources.documents import DocumentIndex

_TOP = 10
_BATCH = 20
"""Passages that a writer adds at a time."""


def documents(
    passages: Annotated[int, typer.Option(min=100, help="Sentences of the index.")] = 113_847,
    questions: Annotated[int, typer.Option(min=1, help="For each retriever.")] = 200,
    kills: Annotated[int, typer.Option(min=0, help="Writers that are killed while they write.")] = 20,
    writing: Annotated[float, typer.Option(min=0, help="Seconds that a reader asks while another writes.")] = 5,
    files: Annotated[Path | None, typer.Option("--folder", help="Keep the files here.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a document index: build, BM25, dense and fused questions, killed writers, a reader while another writes.

    Each step runs in a process of its own.
    """
    with folder(files) as here:
        figures = measure_documents(here, passages, questions)
        if kills:
            tell("killing writers")
            figures["killed"] = child("documents", "kill", here, kills)
        if writing:
            tell("asking while another process writes")
            figures["while_writing"] = child("documents", "ask_while_writing", here, writing)
        report(figures, json, _show)


def measure_documents(here: Path, passages: int, questions: int) -> dict[str, Any]:
    """Build and ask an index of so many sentences in a folder; the figures by step."""
    tell(f"building an index of {passages:,} sentences")
    figures: dict[str, Any] = {"passages": passages, "build": child("documents", "build", here, passages)}
    tell("asking")
    figures["asked"] = child("documents", "ask", here, passages, questions)
    return figures


def _show(figures: dict[str, Any]) -> None:
    asked, passages = figures["asked"], figures["passages"]
    wanted = {"bm25": "p50 under 5", "dense": "p50 under 15", "fused": "p50 under 15"}
    rows = [
        {f"{_TOP} passages of {passages:,}, ms": name, **asked[name], "wanted at 113,847": wanted[name]}
        for name in wanted
    ]
    show("", rows)
    build = figures["build"]
    beside = {"build_s (under 60 at 113,847)": build["seconds"], "build_peak_memory_mb": build["peak_memory_mb"]}
    show("", [beside | {"size_mb": build["size_mb"], "open_ms": asked["open_ms"], "memory_mb": asked["memory_mb"]}])
    if "exact" in asked:
        show("exact dense search, ms", [{**asked["exact"], "recall of approximate search": asked["recall"]}])
    if "killed" in figures:
        show("writers killed with -9", [figures["killed"]])
    if "while_writing" in figures:
        show("fused questions while another process writes, ms", [figures["while_writing"]])


def _questions(count: int, passages: int) -> list[str]:
    """Questions of four words of a sentence of the index, and one of another."""
    rng = random.Random(3)  # noqa: S311 - texts, not secrets
    texts = list(sentences(min(passages, 20_000)))
    found = []
    for _ in range(count):
        words = rng.choice(texts).strip(".").split()
        found.append(" ".join([*rng.sample(words, 4), rng.choice(rng.choice(texts).split())]))
    return found


def build(here: str, passages: str) -> dict[str, Any]:
    """Build the index."""
    from dialore.retrieval.chunking import Chunking
    from dialore.retrieval.documents.indexing import build_documents

    index = Path(here) / "documents"
    begun, cpu = time.perf_counter(), time.process_time()
    built = build_documents(index, texts=sentences(int(passages)), chunking=Chunking("whole"))
    return {
        "seconds": round(time.perf_counter() - begun, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "passages": built.passages,
        "size_mb": round(sum(size_of(file) for file in Path(here).glob("documents*")) / 2**20, 2),
        "peak_memory_mb": round(peak_memory(), 1),
    }


def ask(here: str, passages: str, questions: str) -> dict[str, Any]:
    """Open the index and ask it by every retriever."""
    from dialore.retrieval.embedding import load_embedder
    from dialore.sources.documents import RETRIEVERS, DocumentIndex

    given = _questions(int(questions), int(passages))
    embedder = load_embedder("static")
    embedder.encode(["all of it loaded"])
    before = resident().get("all", 0)
    begun = time.perf_counter()
    with DocumentIndex(Path(here) / "documents", embedder=embedder) as index:
        figures: dict[str, Any] = {"open_ms": round((time.perf_counter() - begun) * 1000, 2)}
        for retriever in RETRIEVERS:
            find = partial(index.by(retriever).find, top=_TOP)
            first, times = timed(find, given[:1])[0], timed(find, given)
            figures[retriever] = {**spread(times), "first": round(first, 3)}
        figures["memory_mb"] = round(resident().get("all", 0) - before, 1)
        if list(Path(here).glob("documents.*.hnsw")):
            figures["exact"], figures["recall"] = _exact(index.by("dense"), given)
    return figures


def _exact(index: "DocumentIndex", given: list[str]) -> tuple[dict[str, float], float]:
    """Time exact search, and compare it with approximate search: the share of its scores that approximate search gives.

    Scores are compared, and not passages, of which many have the same score here.
    """
    from dialore.retrieval.documents.sqlite import SqliteStore

    approximate = [Counter(passage.score for passage in index.find(query, _TOP)) for query in given]
    with patch.object(SqliteStore, "approximate", return_value=None):
        index.find(given[0], _TOP)  # reads the vectors
        times = timed(partial(index.find, top=_TOP), given)
        exact = [Counter(passage.score for passage in index.find(query, _TOP)) for query in given]
    shared = sum((every & proposed).total() for every, proposed in zip(exact, approximate, strict=True))
    return spread(times), round(shared / sum(every.total() for every in exact), 4)


def write(here: str) -> None:
    """Add batches of passages until killed, each under a name of its own; a line on standard output for each."""
    from dialore.retrieval.documents.indexing import add_documents
    from dialore.retrieval.embedding import load_embedder

    embedder = load_embedder("static")
    number = time.time_ns()
    while True:
        texts = [f"Note {number} has a part {part} about the harbour." for part in range(_BATCH)]
        add_documents(Path(here) / "documents", texts=texts, texts_name=f"batch-{number}", embedder=embedder)
        print(number, flush=True)
        number += 1


@contextmanager
def _writer(here: str) -> "Iterator[subprocess.Popen[str]]":
    """Yield a process that writes, after its first batch; killed at the end."""
    command = [sys.executable, "-m", "benchmarks.documents", "write", here]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT) as process:  # noqa: S603
        try:
            if process.stdout is None or not process.stdout.readline():
                raise DialoreError(f"the writer failed: {process.stderr.read()[-300:] if process.stderr else ''}")
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def kill(here: str, kills: str) -> dict[str, Any]:
    """Kill writers at random moments; afterwards every batch must be there whole, or not at all."""
    from dialore.sources.documents import DocumentIndex

    rng = random.Random(9)  # noqa: S311 - moments, not secrets
    whole = batches = 0
    for _ in range(int(kills)):
        with _writer(here):
            time.sleep(rng.uniform(0, 0.3))
        with DocumentIndex(Path(here) / "documents") as index:
            counts = [each.passages for each in index.documents() if each.name.startswith("batch-")]
            answers = index.find("a note about the harbour", _TOP)
        whole += all(count == _BATCH for count in counts) and len(answers) == _TOP
        batches = len(counts)
    return {"writers": int(kills), "index_whole_after": whole, "batches": batches}


def ask_while_writing(here: str, seconds: str) -> dict[str, Any]:
    """Ask an open index while another process adds to it."""
    from dialore.sources.documents import DocumentIndex

    times: list[float] = []
    seen: set[int] = set()
    with DocumentIndex(Path(here) / "documents") as index, _writer(here):
        given = _questions(100, 1000)
        end = time.perf_counter() + float(seconds)
        while time.perf_counter() < end:
            times += timed(lambda query: index.find(query, _TOP), given[len(times) % len(given) :][:1])
            seen.add(len(index))
    return {"questions": len(times), **spread(times), "states_seen": len(seen)}


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    answer_parent({"build": build, "ask": ask, "kill": kill, "ask_while_writing": ask_while_writing})
