"""Writing a graph's tables into a new file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np

from dialore.sources.graph.store.layout import EDGE, INTEGER_TABLES, TABLES, GraphMeta, concept_key, id_key, text_key
from dialore.text import normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from dialore.sources.graph.writing.collect import Collector

    Step = Callable[[str, int, int], None]

_BATCH = 4096


def write_graph(
    path: Path,
    meta: GraphMeta,
    collector: Collector,
    columns: dict[str, NDArray[Any]],
    arrays: Mapping[str, NDArray[Any]],
    step: Step,
) -> None:
    """Write all tables; raises lmdb.Error and OSError where the disk refuses."""
    names = sum(len(name.encode()) for name in collector.names)
    kept = sum(array.nbytes for array in arrays.values())
    size = 2 * (kept + meta.facts * 64 + names * 4 + meta.concepts * 256) + 2**24
    env = lmdb.open(str(path), subdir=False, map_size=size, max_dbs=len(TABLES), sync=False, lock=False)
    try:
        tables = {table: env.open_db(table, integerkey=table in INTEGER_TABLES) for table in TABLES}
        _write_concepts(env, tables, collector, step)
        _write_edges(env, tables, columns, step)
        with env.begin(write=True) as transaction:
            for name, value in arrays.items():
                transaction.put(name.encode(), np.ascontiguousarray(value).tobytes(), db=tables[b"meta"])
            transaction.put(b"meta", meta.model_dump_json().encode(), db=tables[b"meta"])
        env.sync(True)
    finally:
        env.close()


def _write_concepts(env: lmdb.Environment, tables: Mapping[bytes, Any], collector: Collector, step: Step) -> None:
    keys: dict[bytes, list[int]] = {}
    for number, name in enumerate(collector.names):
        if key := concept_key(name):  # a concept of punctuation alone is found by its exact form only
            keys.setdefault(text_key(key), []).append(number)
        if number % _BATCH == 0:
            step("writing concepts", number, len(collector.names))
    with env.begin(write=True) as transaction, transaction.cursor(tables[b"names"]) as cursor:
        cursor.putmulti(((id_key(number), name.encode()) for number, name in enumerate(collector.names)), append=True)
    with env.begin(write=True) as transaction, transaction.cursor(tables[b"ids"]) as cursor:
        ids = sorted((text_key(form), number) for form, number in collector.number_of.items())
        cursor.putmulti(((form, id_key(number)) for form, number in ids), append=True)
    # What is its own stem is found by its form: that is most of them.
    kept = sorted(
        stems for stems, own in keys.items() if len(own) > 1 or text_key(normalise(collector.names[own[0]])) != stems
    )
    with env.begin(write=True) as transaction, transaction.cursor(tables[b"keys"]) as cursor:
        cursor.putmulti(((stems, np.array(keys[stems], "<u4").tobytes()) for stems in kept), append=True)


def _write_edges(
    env: lmdb.Environment, tables: Mapping[bytes, Any], columns: dict[str, NDArray[Any]], step: Step
) -> None:
    for done, (table, own, other) in enumerate(((b"out", "head", "tail"), (b"in", "tail", "head"))):
        order = np.lexsort((columns[other], columns["relation"], -columns["weight"], columns[own]))
        records = np.empty(len(order), EDGE)
        records["other"] = columns[other][order]
        for field in ("relation", "provenance", "weight", "norm"):
            records[field] = columns[field][order]
        owners, starts = np.unique(columns[own][order], return_index=True)
        bounds = (np.append(starts, len(order)) * EDGE.itemsize).tolist()
        whole = memoryview(records.tobytes())
        with env.begin(write=True) as transaction, transaction.cursor(tables[table]) as cursor:
            cursor.putmulti(
                (
                    (id_key(number), bytes(whole[bounds[place] : bounds[place + 1]]))
                    for place, number in enumerate(owners.tolist())
                ),
                append=True,
            )
        step("writing facts", done + 1, 2)
