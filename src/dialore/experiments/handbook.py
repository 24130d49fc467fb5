"""The handbook test run: every method answers it as a run that can be resumed, a folder a language; then its table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.evaluation.base import Mean
from dialore.evaluation.handbook import Item, judge, read_passages, recall
from dialore.evaluation.report.display import longest_chain
from dialore.evaluation.statistics import bootstrap, wilson
from dialore.experiments.config import make_config
from dialore.experiments.run import Progress, run_experiment
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

Figures = tuple[float, float, float]
"""A figure with both ends of its 95% interval."""
METHODS = ("weave", "rag", "full-context", "safari", "edit")
"""Those that read documents and cite: they answer where none is named."""
TOP = 3
"""How many passages a query may find where retrieval alone is measured."""


class _Share(Mean):
    """The sum of the first column divided by that of the second."""

    def combine(self, values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
        """The share of all rows together."""
        return float(self.of_sums(values.sum(axis=0)))


def handbook_index(language: str) -> Path:
    """The document index of the handbook in a language, built where it is not there yet."""
    passages = read_passages(language)
    texts = "\n".join(f"{one.title}\n{one.text}" for one in passages)
    mark = hashlib.blake2b(f"{LAYOUT} {TERMS}\n{texts}".encode(), digest_size=6).hexdigest()
    path = cache_folder() / f"handbook-{language}-{mark}.documents"
    if not path.exists():
        pieces = (Piece(passage.text, passage.title) for passage in passages)
        build_documents(path, texts=pieces, name="handbook", chunking=Chunking(unit="whole"))
    return path


async def run_handbook(
    settings: Settings,
    items: Sequence[Item],
    folder: Path,
    connect: Connect = connect_model,
    on_progress: Callable[[Progress], None] | None = None,
    *,
    accept_changed_prompts: bool = False,
    accept_changed_server: bool = False,
) -> list[Progress]:
    """Answer the items by the methods of the settings, into `folder/en` and `folder/zh`; what is there is kept.

    Where the settings name no method, by `METHODS`.

    What changed since may be accepted, and what is raised is, as by `run_experiment`.
    """
    ended = []
    methods = settings.method if "method" in settings.model_fields_set else METHODS
    for language, own in _by_language(items):
        lines = "".join(f"{item.dialogue.model_dump_json(exclude_unset=True)}\n" for item in own)
        mark = hashlib.blake2b(lines.encode(), digest_size=6).hexdigest()
        path = cache_folder() / f"handbook-{language}-{mark}.jsonl"
        path.write_text(lines, "utf-8")
        sources = settings.sources.model_copy(update={"documents": [str(handbook_index(language))]})
        config = make_config(
            {
                "name": f"handbook-{language}",
                "dataset": {"name": "jsonl", "path": path},
                "systems": [{"method": name, "options": settings.options} for name in methods],
                "concurrency": settings.model.concurrency,
                "cite": True,
            }
        ).model_copy(update={"sources": sources, "models": [settings.model.cached()]})
        answered = await run_experiment(
            config,
            folder / language,
            connect,
            accept_changed_prompts=accept_changed_prompts,
            accept_changed_server=accept_changed_server,
            on_progress=on_progress,
        )
        ended.append(answered)
    return ended


def handbook_table(folder: Path, items: Sequence[Item]) -> list[dict[str, Any]]:
    """The figures of each system of a run of these items, in the order of the table."""
    found: dict[str, list[tuple[Item, Response]]] = {}
    for language, own in _by_language(items):
        by_id = {item.id: item for item in own}
        with RunStore.open(folder / language) as store:
            for system in store.systems():
                rows = found.setdefault(system.title, [])
                rows += [(by_id[dialogue.id], response) for _, dialogue, response in store.responses(system.number)]
    return [{"method": name, "responses": len(rows), **_figures(rows)} for name, rows in found.items()]


def _figures(rows: Sequence[tuple[Item, Response]]) -> dict[str, Figures | int | None]:
    verdicts = [judge(item, response) for item, response in rows]
    responses = [response for _, response in rows]

    def rate(name: str) -> Figures | None:
        told = [value for verdict in verdicts if (value := getattr(verdict, name)) is not None]
        return (sum(told) / len(told), *wilson(sum(told), len(told))) if told else None

    def share(hits: str, of: str) -> Figures | None:
        return _interval((getattr(verdict, hits), getattr(verdict, of)) for verdict in verdicts if verdict.gold)

    def mean(values: Iterable[float]) -> Figures | None:
        return _interval((value, 1) for value in values)

    return {
        "failed": sum(response.status == "failed" for response in responses),
        "right": rate("right"),
        "citation_precision": share("cited_right", "cited"),
        "citation_recall": share("gold_cited", "gold"),
        "refused": rate("refused"),
        "drafts_left_alone": rate("alone"),
        "calls": mean(response.usage.calls for response in responses),
        "steps": mean(longest_chain(response.trace) for response in responses),
        "prompt_tokens": mean(response.usage.prompt_tokens for response in responses),
        "completion_tokens": mean(response.usage.completion_tokens for response in responses),
    }


def retrieval_table(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Recall of the needed passages among the first three, without a model: by last turn and by all turns."""
    table = []
    for retriever in RETRIEVERS:
        found: dict[str, list[tuple[float, float]]] = {"last turn": [], "all turns": []}
        for language, own in _by_language(items):
            with DocumentIndex(handbook_index(language), retriever=retriever) as index:

                def titles(query: str, index: DocumentIndex = index) -> list[str]:
                    return [piece.passage.title for piece in index.find(query, TOP)]

                for by, rows in found.items():
                    rows.extend(recall(titles, own, whole=by == "all turns"))
        table.append(
            {"retriever": retriever}
            | {f"recall_at_3_by_{by.replace(' ', '_')}": _interval(rows) for by, rows in found.items()}
        )
    return table


def _interval(rows: Iterable[tuple[float, float]]) -> Figures | None:
    values = np.array([*rows], dtype=np.float64).reshape(-1, 2)
    if not values[:, 1:].sum():
        return None
    made = bootstrap(_Share(), values)
    return made.value, made.low, made.high


def _by_language(items: Sequence[Item]) -> list[tuple[str, list[Item]]]:
    return [
        (language, own) for language in ("en", "zh") if (own := [item for item in items if item.language == language])
    ]
