"""`dialore bench handbook`: a run of each half and language of the handbook test, and one table of all."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.datasets.handbook import LANGUAGES, read_items, read_passages
from dialore.evaluation.base import Mean, SampleScore
from dialore.evaluation.handbook import METRICS
from dialore.evaluation.registry import Context, load_metrics
from dialore.evaluation.report.display import longest_chain
from dialore.evaluation.statistics import bootstrap
from dialore.experiments.config import config_of
from dialore.experiments.run import Progress, run_experiment
from dialore.experiments.scoring import measure_run, score_of
from dialore.experiments.store import RunStore
from dialore.files import cache_folder
from dialore.retrieval.chunking import Chunking
from dialore.retrieval.documents.indexing import build_documents
from dialore.retrieval.documents.store import LAYOUT, TERMS, Piece
from dialore.session import Connect, connect_model
from dialore.sources.documents import RETRIEVERS, DocumentIndex

if TYPE_CHECKING:
    from dialore.response import Response
    from dialore.settings import Settings

METHODS = ("weave", "rag", "full-context", "safari", "edit")
"""Those that read documents and cite: they answer where none is named."""
TOP = 3
"""How many passages a query may find where retrieval alone is measured."""


def _handbook_index(language: str) -> Path:
    """Return the document index of the handbook in a language, built where it is not there yet."""
    passages = read_passages(language)
    texts = "\n".join(f"{passage.title}\n{passage.text}" for passage in passages)
    mark = hashlib.blake2b(f"{LAYOUT} {TERMS}\n{texts}".encode(), digest_size=6).hexdigest()
    path = cache_folder() / f"handbook-{language}-{mark}.documents"
    if not path.exists():
        pieces = (Piece(passage.text, passage.title) for passage in passages)
        build_documents(path, texts=pieces, name="handbook", chunking=Chunking(unit="whole"))
    return path


def run_folders(folder: Path, halves: Sequence[str], languages: Sequence[str]) -> dict[tuple[str, str], Path]:
    """Return the folder of the run of each language and half: `en` and `zh`, of both halves `en-a`, `en-b`, ..."""
    pairs = itertools.product(languages, halves)
    return {pair: folder / ("-".join(pair) if len(halves) > 1 else pair[0]) for pair in pairs}


async def run_handbook(
    settings: Settings,
    folders: Mapping[tuple[str, str], Path],
    connect: Connect = connect_model,
    on_progress: Callable[[Progress], None] | None = None,
    *,
    limit: int | None = None,
    **accepted: Any,  # noqa: ANN401 - as `run_experiment` has them
) -> list[Progress]:
    """Answer and score so many turns of each half by the methods named, else `METHODS`; what is there is kept."""
    ended = []
    methods = settings.method if "method" in settings.model_fields_set else METHODS
    for (language, half), folder in folders.items():
        sources = settings.sources.model_copy(update={"documents": [str(_handbook_index(language))]})
        name = f"handbook-{language}"
        dataset = {"name": name, "split": half, "limit": limit}
        config = config_of(settings, methods, sources, name=name, dataset=dataset, cite=True, metrics=METRICS)
        ended.append(await run_experiment(config, folder, connect, on_progress=on_progress, **accepted))
        with RunStore.open(folder) as store, store.writing():
            await measure_run(store, load_metrics(METRICS, Context()))
    return ended


def handbook_table(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the figures of each system over all runs, in the order of the table."""
    measures: dict[str, dict[str, list[SampleScore]]] = {}
    responses: dict[str, list[Response]] = {}
    for folder in folders:
        with RunStore.open(folder) as store:
            for system in store.systems():
                responses.setdefault(system.title, []).extend(row[2] for row in store.responses(system.number))
                own = measures.setdefault(system.title, {name: [] for name in METRICS})
                for name in METRICS:
                    own[name] += [measure for _, measure in store.measures(name, system.number)]
    table = []
    for title, own_responses in responses.items():
        failed = sum(response.status == "failed" for response in own_responses)
        row: dict[str, Any] = {"method": title, "responses": len(own_responses), "failed": failed}
        for metric in load_metrics(METRICS, Context()):
            score = score_of(metric, measures[title][metric.about.name])
            figures = (score.value, score.low, score.high)
            row[score.metric.removeprefix("handbook-").replace("-", "_")] = None if None in figures else figures
        row["calls"] = _mean(response.usage.calls for response in own_responses)
        row["steps"] = _mean(longest_chain(response.trace) for response in own_responses)
        for tokens in ("prompt_tokens", "completion_tokens"):
            row[tokens] = _mean(getattr(response.usage, tokens) for response in own_responses)
        table.append(row)
    return table


def retrieval_table(halves: Sequence[str], languages: Sequence[str] = LANGUAGES) -> list[dict[str, Any]]:
    """Return the recall of the needed passages among the first three, without a model: by last turn and all turns."""
    items = [item for language in languages for half in halves for item in read_items(half=half, language=language)]
    table = []
    for retriever in RETRIEVERS:
        row: dict[str, Any] = {"retriever": retriever}
        for queries in ("last turn", "all turns"):
            recalls: list[float] = []
            for language in languages:
                titles = {passage.id: passage.title for passage in read_passages(language)}
                with DocumentIndex(_handbook_index(language), retriever=retriever) as index:
                    for item in (item for item in items if item.language == language and item.gold):
                        query = "\n".join(item.turns) if queries == "all turns" else item.turns[-1]
                        passages = {result.passage.title for result in index.find(query, TOP)}
                        recalls.append(sum(titles[name] in passages for name in item.gold) / len(item.gold))
            row[f"recall_at_3_by_{queries.replace(' ', '_')}"] = _mean(recalls)
        table.append(row)
    return table


def _mean(values: Iterable[float]) -> tuple[float, float, float]:
    """Return the mean with both ends of its 95% interval."""
    figure = bootstrap(Mean(), np.array([*values], dtype=np.float64).reshape(-1, 1))
    return figure.value, figure.low, figure.high
