"""A sample base open for reading: samples by similarity, by perplexity, and at random (MSDP, Sections 2.1, 2.2, A)."""

from __future__ import annotations

import mmap
import random
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import InputError, SourceError
from dialore.retrieval.ranking import rank
from dialore.sources.samples.layout import LINES, MEND, OFFSETS, OVERLAPS, PERPLEXITIES, VECTORS, read_meta
from dialore.sources.samples.sample import Sample, context_text, topic_of, whole_id

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.samples.layout import Group
    from dialore.text import Language

_SPARE = 16
"""Rows looked at beyond those wanted, as a base may hold histories of the very dialogue that is answered."""


class SampleBase:
    """A sample base. A dialogue is never given samples that were cut from itself; both go by id.

    Args:
        path: its folder.
        embedder: encodes queries; None for the one that made the base.

    Raises:
        InputError: there is no base, it is damaged, or the embedder is not the one that made it.
    """

    def __init__(self, path: Path, embedder: Embedder | None = None) -> None:
        self.path = Path(path)
        self.meta = read_meta(self.path)
        if embedder is not None:
            self._check(embedder)
            self.__dict__["embedder"] = embedder
        try:
            self._offsets: NDArray[np.int64] = np.load(self.path / OFFSETS, mmap_mode="r")
            self._vectors: NDArray[np.float32] = np.load(self.path / VECTORS, mmap_mode="r")
            self._overlaps: NDArray[np.float32] = np.load(self.path / OVERLAPS)
            file = self.path / PERPLEXITIES
            self._perplexities: NDArray[np.float64] | None = np.load(file) if self.meta.perplexity_by else None
            with (self.path / LINES).open("rb") as lines:
                self._lines = mmap.mmap(lines.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"the sample database {self.path} is damaged: {error}", mend=MEND) from None
        shapes = (len(self._offsets) - 1, *self._vectors.shape, len(self._overlaps))
        if shapes != (self.meta.samples, self.meta.samples, self.meta.dimension, self.meta.samples) or (
            int(self._offsets[-1]) != len(self._lines)
        ):
            raise InputError(f"the sample database {self.path} is damaged: its parts do not fit", mend=MEND)
        self._drawn: dict[tuple[object, ...], list[int]] = {}

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    def __len__(self) -> int:
        return self.meta.samples

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder that made the base; raises InputError where it is another by now."""
        from dialore.retrieval.embedding import load_embedder

        loaded = load_embedder(self.meta.embedder)
        self._check(loaded)
        return loaded

    def close(self) -> None:
        """Let go of the file."""
        self._lines.close()

    def sample(self, row: int) -> Sample:
        """The sample in a row.

        Raises:
            SourceError: the file is damaged or closed.
        """
        try:
            return Sample.of_line(self._lines[int(self._offsets[row]) : int(self._offsets[row + 1])])
        except (ValueError, TypeError) as error:
            raise SourceError(f"sample {row} of {self.path} cannot be read: {error}", mend=MEND) from None

    def overlap(self, row: int) -> float:
        """How much of a row's response stands in its knowledge."""
        return float(self._overlaps[row])

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
        group = self._group(dialogue.language)
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
            places, scores = rank(query, self._vectors[rows.start : rows.stop], wanted)
            found: list[tuple[Sample, float]] = []
            for place, score in zip(places, scores, strict=True):
                sample = self.sample(rows.start + int(place))
                if sample.dialogue != own:
                    found.append((sample, float(score)))
                    if len(found) == top:
                        return found
            if wanted >= len(rows):
                return found
            wanted *= 4

    def drawn(
        self, dialogue: Dialogue, count: int, seed: int = 0, overlap: tuple[float, float] | None = None
    ) -> list[Sample]:
        """Samples with a response at random, the same for every dialogue of a language but for its own (Section 2.2).

        Args:
            dialogue: the dialogue.
            count: how many.
            seed: of the draw.
            overlap: only samples whose response overlaps its knowledge so much, least and most; None for all.
        """
        key = ("overlap", dialogue.language, count, seed, overlap)
        if key not in self._drawn:
            shares = self._overlaps
            low, high = (np.float32(0), np.float32(1)) if overlap is None else map(np.float32, overlap)
            self._drawn[key] = self._shuffled(dialogue.language, (shares >= low) & (shares <= high), count, seed)
        return self._but_own(self._drawn[key], dialogue, count, answered=True)

    def drawn_for_knowledge(self, dialogue: Dialogue, count: int, seed: int = 0, *, fit: bool = True) -> list[Sample]:
        """Samples at random for knowledge generation (Tables 5 and 8, "random"), the same for every dialogue."""
        key = ("knowledge", dialogue.language, count, seed, fit)
        if key not in self._drawn:
            allowed = np.zeros(len(self), bool)
            if (group := self._group(dialogue.language)) is not None:
                allowed[group.start : group.fit if fit and group.fit - group.start >= count else group.stop] = True
            self._drawn[key] = self._shuffled(dialogue.language, allowed, count, seed)
        return self._but_own(self._drawn[key], dialogue, count)

    def clearest(self, dialogue: Dialogue, top: int = 10, *, fit: bool = True) -> list[Sample]:
        """Perplexity-based selection (Appendix A): the samples whose prompts a model is least surprised by.

        Raises:
            InputError: the base was built without perplexities.
        """
        if self._perplexities is None:
            raise InputError(
                f"the sample database {self.path} has no perplexities",
                mend="build it with `dialore samples build ... --perplexity hf:gpt2`",
            )
        group = self._group(dialogue.language)
        if group is None:
            return []
        key = ("clearest", dialogue.language, top, fit)
        if key not in self._drawn:
            stop = group.fit if fit and group.fit - group.start >= top else group.stop
            order = np.argsort(self._perplexities[group.start : stop], kind="stable")[: top + _SPARE]
            self._drawn[key] = [group.start + int(place) for place in order]
        return self._but_own(self._drawn[key], dialogue, top)

    # --- helpers

    def _check(self, embedder: Embedder) -> None:
        if embedder.fingerprint != self.meta.fingerprint:
            raise InputError(
                f"the sample database {self.path} was built by another {self.meta.embedder} embedder than is here now",
                mend=MEND,
            )

    def _group(self, language: Language) -> Group | None:
        return next((group for group in self.meta.groups if group.language == language), None)

    def _shuffled(self, language: Language, allowed: NDArray[np.bool_], count: int, seed: int) -> list[int]:
        group = self._group(language)
        if group is None:
            return []
        rows: list[Any] = (group.start + np.flatnonzero(allowed[group.start : group.stop])).tolist()
        draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
        # More than wanted, so that a dialogue's own samples can be passed over.
        return draw.sample(rows, min(len(rows), count + _SPARE))

    def _but_own(self, rows: list[int], dialogue: Dialogue, count: int, *, answered: bool = False) -> list[Sample]:
        own = whole_id(dialogue.id)
        found: list[Sample] = []
        for row in rows:
            if len(found) >= count:
                break
            sample = self.sample(row)
            if sample.dialogue != own and (sample.response or not answered):
                found.append(sample)
        return found


def open_samples(path: Path | str, embedder: Embedder | None = None) -> SampleBase:
    """Open a sample base (`dialore samples build`); raises InputError as SampleBase does."""
    return SampleBase(Path(path), embedder)
