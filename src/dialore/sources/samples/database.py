"""The database of samples: one file; samples by similarity, by perplexity, and at random (MSDP, Sections 2 and A).

The file is a NumPy archive: the samples as JSON Lines, an array of their encodings, and the numbers that they are
selected by. Rows are sorted by language, and those that are fit for knowledge generation stand before the others.
"""

from __future__ import annotations

import os
import random
import time
import zlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from pydantic import BaseModel, ValidationError

from dialore.errors import InputError, SourceError
from dialore.retrieval.ranking import rank
from dialore.sources.samples.sample import Sample, context_text, is_fit, overlap, topic_of, whole_id
from dialore.text import LANGUAGES, Language

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.retrieval.embedding import Embedder

VERSION = 2
TURNS = 3
"""Last turns of a history that are encoded, as MSDP's released code has it."""
GROUNDED = (0.6, 0.9)
"""The overlap of response and knowledge that MSDP prompts with (Section 2.2)."""
_BATCH = 1024
_SPARE = 16
"""Rows looked at beyond those wanted, as the database may hold histories of the very dialogue that is answered."""
_BROKEN = (OSError, ValueError, EOFError, KeyError, BadZipFile, zlib.error)
_MEND = "build it again with `dialore samples build`"


class Group(NamedTuple):
    """The rows of one language: from `start` those that are fit, from `fit` to `stop` the others."""

    start: int
    fit: int
    stop: int


class SamplesMeta(BaseModel):
    """How a database was made, and what is in it.

    Attributes:
        version: of the form.
        samples: how many.
        fit: how many of them are fit for knowledge generation (see `is_fit`).
        grounded: how many have a response that overlaps its knowledge by 0.6 to 0.9 (MSDP, Section 2.2).
        groups: the rows of each language.
        embedder: the spec of the embedder that made the encodings.
        fingerprint: the embedder's.
        dimension: components of an encoding.
        turns: how many last turns of a history are encoded.
        overlap_run: see `overlap`.
        perplexity_by: the model that perplexities are of; empty where there are none.
        graph: the graph that knowledge was aligned with; empty where it is the data's own.
    """

    version: int = VERSION
    samples: int
    fit: int
    grounded: int
    groups: dict[Language, Group]
    embedder: str
    fingerprint: str
    dimension: int
    turns: int
    overlap_run: int = 1
    perplexity_by: str = ""
    graph: str = ""


class SampleDatabase:
    """A database of samples. A dialogue is never given samples that were taken from itself; both go by id.

    Args:
        path: the file.

    Raises:
        InputError: there is no database, or it is no whole file.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.meta, _ = _read(self.path)
        self._parts: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def __len__(self) -> int:
        return self.meta.samples

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder that made the database; raises InputError where it is another by now."""
        from dialore.retrieval.embedding import load_embedder

        loaded = load_embedder(self.meta.embedder)
        if loaded.fingerprint != self.meta.fingerprint:
            raise InputError(
                f"the sample database {self.path} was built by another {self.meta.embedder} embedder than is here now",
                mend=_MEND,
            )
        return loaded

    def close(self) -> None:
        """Nothing is held open."""

    def _part(self, name: str) -> Any:  # noqa: ANN401 - lines, or an array
        """A part of the file, a row each sample, read when first asked for; raises InputError where it is damaged."""
        if name not in self._parts:
            meta, part = _read(self.path, name)
            rows = part.tobytes().split(b"\n") if name == "lines" else part
            if len(rows) != len(self) or meta != self.meta:
                raise InputError(f"the sample database {self.path} is damaged: its parts do not fit", mend=_MEND)
            self._parts[name] = rows
        return self._parts[name]

    def sample(self, row: int) -> Sample:
        """The sample in a row; raises SourceError where it is damaged."""
        try:
            return Sample.of_line(self._part("lines")[row])
        except (ValueError, TypeError) as error:
            raise SourceError(f"sample {row} of {self.path} cannot be read: {error}", mend=_MEND) from None

    def nearest(
        self, dialogue: Dialogue, top: int = 10, *, topic: bool = True, fit: bool = True
    ) -> list[tuple[Sample, float]]:
        """Query-based selection (Section 2.1): the samples most like a dialogue's topic and history, the best first.

        Args:
            dialogue: the dialogue; samples are of its language.
            top: how many.
            topic: whether its topic counts.
            fit: only samples that are fit for knowledge generation; where there are too few, the others follow.

        Returns:
            Samples and the dot products of their encodings with the query's.
        """
        group = self.meta.groups.get(dialogue.language)
        if group is None or top < 1:
            return []
        text = context_text(topic_of(dialogue) if topic else "", dialogue.texts, self.meta.turns)
        query = self.embedder.encode([text])[0]
        stretches = [(group.start, group.fit), (group.fit, group.stop)] if fit else [(group.start, group.stop)]
        found: list[tuple[Sample, float]] = []
        for start, stop in stretches:
            if len(found) < top:
                found += self._nearest_of(query, range(start, stop), top - len(found), whole_id(dialogue.id))
        return found

    def _nearest_of(self, query: NDArray[np.float32], rows: range, top: int, own: str) -> list[tuple[Sample, float]]:
        wanted = top + _SPARE
        while True:
            places, scores = rank(query, self._part("vectors")[rows.start : rows.stop], wanted)
            samples = (self.sample(rows.start + int(place)) for place in places)
            found = [(each, float(score)) for each, score in zip(samples, scores, strict=True) if each.dialogue != own]
            if len(found) >= top or wanted >= len(rows):
                return found[:top]
            wanted *= 4

    def sampled(
        self, dialogue: Dialogue, count: int, seed: int = 0, overlap: tuple[float, float] | None = None
    ) -> list[Sample]:
        """Samples with a response at random, the same for every dialogue of a language but for its own (Section 2.2).

        Args:
            dialogue: the dialogue.
            count: how many.
            seed: by which they are sampled.
            overlap: only samples whose response overlaps its knowledge so much, least and most; None for all.
        """
        group = self.meta.groups.get(dialogue.language)
        if group is None:
            return []
        allowed = _within(self._part("overlaps")[group.start : group.stop], overlap or (0.0, 1.0))
        rows = _shuffled(group.start + np.flatnonzero(allowed), count, seed)
        return self._but_own(rows, dialogue, count, answered=True)

    def sampled_for_knowledge(self, dialogue: Dialogue, count: int, seed: int = 0, *, fit: bool = True) -> list[Sample]:
        """Samples at random for knowledge generation (Tables 5 and 8, "random"), the same for every dialogue."""
        return self._but_own(_shuffled(self._fit_rows(dialogue, count, fit=fit), count, seed), dialogue, count)

    def clearest(self, dialogue: Dialogue, top: int = 10, *, fit: bool = True) -> list[Sample]:
        """Perplexity-based selection (Appendix A): the samples whose prompts a model is least surprised by.

        Raises:
            InputError: the database was built without perplexities.
        """
        if not self.meta.perplexity_by:
            raise InputError(
                f"the sample database {self.path} has no perplexities",
                mend="build it with `dialore samples build ... --perplexity hf:gpt2`",
            )
        rows = self._fit_rows(dialogue, top, fit=fit)
        order = np.argsort(self._part("perplexities")[rows], kind="stable")[: top + _SPARE]
        return self._but_own(rows[order].tolist(), dialogue, top)

    # --- helpers

    def _fit_rows(self, dialogue: Dialogue, count: int, *, fit: bool) -> NDArray[np.int64]:
        """The rows of a dialogue's language; only the fit ones where these are wanted and enough."""
        group = self.meta.groups.get(dialogue.language, Group(0, 0, 0))
        stop = group.fit if fit and group.fit - group.start >= count else group.stop
        return np.arange(group.start, stop)

    def _but_own(self, rows: Sequence[int], dialogue: Dialogue, count: int, *, answered: bool = False) -> list[Sample]:
        """The first samples of some rows, without the dialogue's own."""
        own = whole_id(dialogue.id)
        found: list[Sample] = []
        for row in rows:
            if len(found) >= count:
                break
            sample = self.sample(row)
            if sample.dialogue != own and (sample.response or not answered):
                found.append(sample)
        return found


def open_samples(path: Path | str) -> SampleDatabase:
    """Open a database of `dialore samples build`; raises InputError as SampleDatabase does."""
    return SampleDatabase(Path(path))


def _read(path: Path, name: str = "meta") -> tuple[SamplesMeta, NDArray[Any]]:
    """What a database is, and one part of it."""
    mend = "build one with `dialore samples build`"
    if not path.exists():
        raise InputError(f"no such sample database: {path}", mend=mend)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            meta, part = SamplesMeta.model_validate_json(archive["meta"].tobytes()), archive[name]
    except (*_BROKEN, ValidationError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path} is no sample database, or a damaged one: {reason}", mend=mend) from None
    if meta.version != VERSION:
        raise InputError(f"{path} is of version {meta.version}; this program reads {VERSION}", mend=_MEND)
    return meta, part


def _within(shares: NDArray[np.float32], bounds: tuple[float, float]) -> NDArray[np.bool_]:
    low, high = map(np.float32, bounds)
    return (shares >= low) & (shares <= high)


def _shuffled(rows: NDArray[np.int64], count: int, seed: int) -> list[int]:
    """Some rows at random, more than wanted, so that a dialogue's own samples can be passed over."""
    sampler = random.Random(seed)  # noqa: S311 - a sample, not a secret
    return [int(rows[place]) for place in sampler.sample(range(len(rows)), min(len(rows), count + _SPARE))]


class BuildReport(BaseModel):
    """The size of a database that was built: see `SamplesMeta`."""

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
    """Write a database of samples; an old one stays in place until the new one is whole.

    Args:
        samples: the samples.
        out: the file.
        embedder: encodes topic and history of each (Section 2.1).
        turns: how many last turns of a history it sees.
        overlap_run: see `overlap`.
        perplexities: each sample's perplexity as a prompt, by its id (Appendix A), or None.
        perplexity_by: the model that they are of.
        graph: the name of the graph that the knowledge was aligned with; such knowledge is fit as it is.
        on_step: told what is being done, how much of it is done, and of how much.

    Raises:
        InputError: no samples, or a file that cannot be written or is something else.
    """
    started = time.perf_counter()
    rows, groups = _sorted(list(samples), all_fit=bool(graph))
    if not rows:
        raise InputError("no sample has any knowledge", mend="take dialogues whose replies come with their knowledge")
    check_out(out)
    shares = np.array([overlap(s.knowledge, s.response, s.language, overlap_run) for s in rows], np.float32)
    given = perplexities or {}
    meta = SamplesMeta(
        samples=len(rows),
        fit=sum(group.fit - group.start for group in groups.values()),
        grounded=int(_within(shares, GROUNDED).sum()),
        groups=groups,
        embedder=embedder.name,
        fingerprint=embedder.fingerprint,
        dimension=embedder.dimension,
        turns=turns,
        overlap_run=overlap_run,
        perplexity_by=perplexity_by if perplexities is not None else "",
        graph=graph,
    )
    arrays: dict[str, NDArray[Any]] = {
        "meta": np.frombuffer(meta.model_dump_json().encode(), np.uint8),
        "lines": np.frombuffer("\n".join(sample.line() for sample in rows).encode("utf-8", "replace"), np.uint8),
        "vectors": _encode(rows, embedder, turns, on_step),
        "overlaps": shares,
        "perplexities": np.array([given.get(sample.id, np.inf) for sample in rows], np.float64),
    }
    _write(arrays, out)
    size, seconds = out.stat().st_size, time.perf_counter() - started
    return BuildReport(
        path=str(out), samples=meta.samples, fit=meta.fit, grounded=meta.grounded, bytes=size, seconds=seconds
    )


def check_out(out: Path) -> None:
    """Check that a path is free for a database, or holds one; raises InputError where it does not."""
    if out.is_dir() or (out.exists() and out.read_bytes()[:2] != b"PK"):
        raise InputError(f"{out} is there and is no sample database", mend="name another file, or delete it")


def _sorted(samples: Sequence[Sample], *, all_fit: bool) -> tuple[list[Sample], dict[Language, Group]]:
    """Samples by language, the fit ones first, so that each search goes over one stretch of rows."""
    rows: list[Sample] = []
    groups: dict[Language, Group] = {}
    for language in LANGUAGES:
        own = [(all_fit or is_fit(sample), sample) for sample in samples if sample.language == language]
        if own:
            start, fit = len(rows), sum(good for good, _ in own)
            rows += [sample for good, sample in own if good] + [sample for good, sample in own if not good]
            groups[language] = Group(start, start + fit, len(rows))
    return rows, groups


def _encode(
    rows: Sequence[Sample], embedder: Embedder, turns: int, on_step: Callable[[str, int, int | None], None] | None
) -> NDArray[np.float32]:
    vectors = np.empty((len(rows), embedder.dimension), np.float32)
    for start in range(0, len(rows), _BATCH):
        some = rows[start : start + _BATCH]
        texts = [context_text(sample.topic, [turn.text for turn in sample.turns], turns) for sample in some]
        vectors[start : start + len(some)] = embedder.encode(texts)
        if on_step is not None:
            on_step("embedding samples", start + len(some), len(rows))
    return vectors


def _write(arrays: Mapping[str, NDArray[Any]], out: Path) -> None:
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        temporary.replace(out)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot write {out}: {reason}", mend="check the folder and its permissions") from error
    finally:
        temporary.unlink(missing_ok=True)
