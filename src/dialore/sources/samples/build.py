"""Building a sample base: samples sorted, embedded and written, whole or not at all."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel

from dialore.errors import InputError
from dialore.sources.samples.fitness import is_fit, overlap
from dialore.sources.samples.layout import LINES, META, OFFSETS, OVERLAPS, PERPLEXITIES, VECTORS, Group, SamplesMeta
from dialore.sources.samples.sample import context_text
from dialore.text import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dialore.retrieval.embedding import Embedder
    from dialore.sources.samples.sample import Sample

_BATCH = 1024
TURNS = 3
"""Last turns of a history that are encoded, as MSDP's released code has it."""


class BuildReport(BaseModel):
    """What was built.

    Attributes:
        path: the folder.
        samples: how many samples it holds.
        fit: how many of them are fit for knowledge generation (see `is_fit`).
        grounded: how many have a response that overlaps its knowledge by 0.6 to 0.9 (MSDP, Section 2.2).
        bytes: its size.
        seconds: how long it took.
    """

    path: str
    samples: int
    fit: int
    grounded: int
    bytes: int
    seconds: float


def build_samples(
    samples: Iterable[Sample],
    out: Path,
    embedder: Embedder,
    *,
    turns: int = TURNS,
    overlap_run: int = 1,
    perplexities: Mapping[str, float] | None = None,
    perplexity_by: str = "",
    graph: str = "",
    on_step: Callable[[str, int, int | None], None] | None = None,
) -> BuildReport:
    """Write a sample base; an old one stays in place until the new one is whole.

    Args:
        samples: the samples.
        out: the folder.
        embedder: encodes topic and history of each (Section 2.1).
        turns: how many last turns of a history it sees.
        overlap_run: see `overlap`.
        perplexities: each sample's perplexity as a prompt, by its id (Appendix A), or None.
        perplexity_by: the model that they are of.
        graph: the name of the graph that the knowledge was aligned with; such knowledge is fit as it is.
        on_step: told what is being done, how much of it is done, and of how much.

    Raises:
        InputError: no samples, or a folder that cannot be written or holds something else.
    """
    started = time.perf_counter()
    rows, groups = _sorted(list(samples), all_fit=bool(graph))
    if not rows:
        raise InputError("no sample has any knowledge", mend="take dialogues whose replies come with their knowledge")
    check_out(out)
    meta = SamplesMeta(
        samples=len(rows),
        groups=groups,
        embedder=embedder.name,
        fingerprint=embedder.fingerprint,
        dimension=embedder.dimension,
        turns=turns,
        overlap_run=overlap_run,
        perplexity_by=perplexity_by if perplexities is not None else "",
        graph=graph,
    )
    shares = np.array([overlap(s.knowledge, s.response, s.language, overlap_run) for s in rows], np.float32)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        _write_lines(rows, temporary)
        np.save(temporary / VECTORS, _encode(rows, embedder, turns, on_step))
        np.save(temporary / OVERLAPS, shares)
        if perplexities is not None:
            values = [perplexities.get(sample.id, np.inf) for sample in rows]
            np.save(temporary / PERPLEXITIES, np.array(values, np.float64))
        (temporary / META).write_text(meta.model_dump_json(indent=1), encoding="utf-8")
        _put_in_place(temporary, out)
    except OSError as error:
        raise InputError(
            f"cannot write {out}: {error.strerror or error}", mend="check the folder and its permissions"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return BuildReport(
        path=str(out),
        samples=len(rows),
        fit=sum(group.fit - group.start for group in groups),
        grounded=int(((shares >= np.float32(0.6)) & (shares <= np.float32(0.9))).sum()),
        bytes=sum(file.stat().st_size for file in out.iterdir()),
        seconds=time.perf_counter() - started,
    )


def check_out(out: Path) -> None:
    """Check that a folder is free for a base, or holds one; raises InputError where it does not."""
    if out.exists() and not (out / META).is_file():
        raise InputError(f"{out} is there and is no sample database", mend="name another folder, or delete it")


def _sorted(samples: Sequence[Sample], *, all_fit: bool) -> tuple[list[Sample], list[Group]]:
    """Samples by language, the fit ones first, so that each search goes over one stretch of rows."""
    rows: list[Sample] = []
    groups: list[Group] = []
    for language in LANGUAGES:
        own = [sample for sample in samples if sample.language == language]
        if not own:
            continue
        flags = [all_fit or is_fit(sample) for sample in own]
        start = len(rows)
        rows += [sample for sample, fit in zip(own, flags, strict=True) if fit]
        middle = len(rows)
        rows += [sample for sample, fit in zip(own, flags, strict=True) if not fit]
        groups.append(Group(language=language, start=start, fit=middle, stop=len(rows)))
    return rows, groups


def _write_lines(rows: Sequence[Sample], folder: Path) -> None:
    ends = [0]
    with (folder / LINES).open("wb") as file:
        for sample in rows:
            data = sample.line().encode("utf-8", "replace")
            file.write(data + b"\n")
            ends.append(ends[-1] + len(data) + 1)
    np.save(folder / OFFSETS, np.array(ends, np.int64))


def _encode(
    rows: Sequence[Sample], embedder: Embedder, turns: int, on_step: Callable[[str, int, int | None], None] | None
) -> NDArray[np.float32]:
    vectors = np.empty((len(rows), embedder.dimension), np.float32)
    for start in range(0, len(rows), _BATCH):
        some = rows[start : start + _BATCH]
        vectors[start : start + len(some)] = embedder.encode(
            [context_text(sample.topic, [turn.text for turn in sample.turns], turns) for sample in some]
        )
        if on_step is not None:
            on_step("embedding samples", start + len(some), len(rows))
    return vectors


def _put_in_place(temporary: Path, out: Path) -> None:
    old = out.with_name(f".{out.name}.{os.getpid()}.old")
    if out.exists():
        out.rename(old)
    try:
        temporary.rename(out)
    except OSError:
        if old.exists():
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
