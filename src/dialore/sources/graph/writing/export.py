"""Writing a graph's facts back to a file that a graph can be built of again."""

from __future__ import annotations

import gzip
import json
from typing import IO, TYPE_CHECKING, Literal, get_args

from dialore.sources.graph.writing.swap import replacing, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dialore.sources.graph.store.embedded import GraphStore

ExportFormat = Literal["tsv", "jsonl"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
HEADER = ("head", "relation", "tail", "weight", "provenance")
_BATCH = 4096


def lines_of(store: GraphStore, file_format: ExportFormat) -> Iterator[str]:
    """The lines of a graph's facts: a header and five columns of TSV, or a JSON object each."""
    if file_format == "tsv":
        yield "\t".join(HEADER)
    for fact in store.facts():
        values = (fact.head, fact.relation, fact.tail, fact.weight, fact.provenance)
        if file_format == "tsv":
            yield "\t".join(" ".join(str(value).split()) for value in values)
        else:
            yield json.dumps(dict(zip(HEADER, values, strict=True)), ensure_ascii=False)


def export_graph(
    store: GraphStore,
    target: Path,
    file_format: ExportFormat,
    on_step: Callable[[str, int, int], None] | None = None,
) -> int:
    """Write a graph's facts to a file, gzipped where it ends in `.gz`; it is there whole or not at all.

    Returns:
        How many facts.

    Raises:
        GraphError: the file cannot be written, or the disk is full.
    """
    done = -1 if file_format == "tsv" else 0
    with replacing(target) as temporary, writing(target), _opened(temporary, target) as file:
        for line in lines_of(store, file_format):
            file.write(line + "\n")
            done += 1
            if on_step is not None and done % _BATCH == 0:
                on_step("writing facts", done, store.meta.facts)
    return done


def _opened(path: Path, target: Path) -> IO[str]:
    if target.suffix == ".gz":
        return gzip.open(path, "wt", encoding="utf-8", newline="\n")
    return path.open("w", encoding="utf-8", newline="\n")
