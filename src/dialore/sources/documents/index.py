"""A document index as a source of knowledge: passages by BM25, by vectors, or by both fused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from dialore.errors import DialoreError, InputError, SourceError, UnknownNameError
from dialore.knowledge import Knowledge, PassageDetail, Source
from dialore.retrieval.cutting import Cutter
from dialore.retrieval.fusion import K, reciprocal_ranks
from dialore.sources.base import Findings
from dialore.sources.documents.appending import id_number
from dialore.sources.documents.editing import embedder_of
from dialore.sources.documents.layout import stamp
from dialore.sources.documents.together import Together
from dialore.sources.documents.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dialore.dialogue import Dialogue
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.documents.layout import Document

Retriever = Literal["fused", "bm25", "dense"]
RETRIEVERS: tuple[Retriever, ...] = get_args(Retriever)
_QUICK = ("static", "hashing")
"""Embedders that take microseconds; others work in a thread, or a dialogue would wait for another's."""


class DocumentIndex:
    """An index that `dialore documents build` or `build_documents` made, open for questions.

    Many threads and processes may ask while one changes it; each question is answered from the newest state.

    Args:
        path: its folder.
        name: its name; None for the one that it was built with.
        retriever: `bm25`, `dense` (cosine of embeddings), or `fused`, both by reciprocal ranks.
        embedder: the one that made its vectors; None loads it.
        depth: how many of each ranking are fused, at least.
        k: the constant of reciprocal ranks.
        exact: compare a question with every vector, also of large indices (see `retrieval.sketches`).

    Raises:
        InputError: no index, damaged, of another version, its embedder is another one now, or `dense` without vectors.
        UnknownNameError: no retriever is called that.
        MissingExtraError: the extra `documents` is not installed.
    """

    kind: Source = "documents"

    def __init__(
        self,
        path: Path | str,
        *,
        name: str | None = None,
        retriever: Retriever = "fused",
        embedder: Embedder | None = None,
        depth: int = 100,
        k: float = K,
        exact: bool = False,
    ) -> None:
        self.path = Path(path)
        self._view: View | None = View.open(self.path)
        manifest = self._view.manifest
        self.name = name or manifest.name
        self.retriever = _checked(retriever)
        self.depth, self.k, self.exact = depth, k, exact
        self._given = embedder
        self._embedder = embedder_of(manifest, self.path, embedder)
        self._cut = Cutter(**manifest.cutter)
        self._together = Together(self._find_each)
        if retriever == "dense" and self._embedder is None:
            raise InputError(f"{path} has no vectors", mend="build it with --embedder, or take the retriever bm25")

    # --- the state that is read

    def _live(self) -> View:
        if self._view is None:
            raise SourceError(f"the document index {self.path} is closed", mend="open it again")
        return self._view

    def refresh(self) -> bool:
        """Go on to the newest state; some microseconds where there is none. Every question does so by itself.

        Returns:
            Whether there was a newer one.

        Raises:
            SourceError: the index is closed, or damaged now.
        """
        old = self._live()
        try:
            if stamp(self.path) == old.stamp:
                return False
        except OSError:
            return False  # moved away: what was opened can still be read
        try:
            new = View.open(self.path)
            if new.manifest.embedder_fingerprint != old.manifest.embedder_fingerprint:
                self._embedder = embedder_of(new.manifest, self.path, self._given)
        except InputError as error:
            raise SourceError(error.message, mend=error.mend) from error
        self._cut = Cutter(**new.manifest.cutter)
        self._view = new
        return True

    def close(self) -> None:
        """Let go of the files; a second time does nothing."""
        self._view = None

    def __enter__(self) -> DocumentIndex:
        """The index."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    # --- what is in it

    def __len__(self) -> int:
        return self._live().manifest.live

    def documents(self) -> list[Document]:
        """The documents that have passages, in the order in which they came."""
        return [document for document in self._live().manifest.documents if document.passages]

    def passages(self) -> Iterator[Knowledge]:
        """Every passage, in order."""
        view = self._live()
        return (self._knowledge(view, row, 0.0) for row in view.live())

    def passage(self, identifier: str) -> Knowledge | None:
        """The passage of that id."""
        view, number = self._live(), id_number(identifier)
        if number < 0:
            return None
        rows = (view.ids == number).nonzero()[0]
        return next((self._knowledge(view, row, 0.0) for row in rows[view.counts(rows)].tolist()), None)

    def stats(self) -> dict[str, Any]:
        """Counts, sizes and settings."""
        view = self._live()
        manifest = view.manifest
        base = self.path / manifest.base
        return {
            "name": manifest.name,
            "path": str(self.path),
            "passages": manifest.live,
            "documents": len(self.documents()),
            "deleted": manifest.rows - manifest.live,
            "bytes": sum(file.stat().st_size for file in base.rglob("*") if file.is_file()),
            "embedder": manifest.embedder,
            "dimension": manifest.dimension,
            "cutter": manifest.cutter,
            "chunking": manifest.chunking,
        }

    # --- questions

    async def search(
        self,
        query: str,
        dialogue: Dialogue,
        top: int = 10,
        within: Sequence[Knowledge] = (),
        *,
        retriever: Retriever | None = None,
    ) -> Findings:
        """See `KnowledgeSource`: passages, the best first, equal texts once.

        `within` is not looked at: what belongs to a persona sentence is the persona source's to search. Neither is the
        dialogue's language: an index may hold several, and each text is cut by its own script.
        """
        chosen = retriever or self.retriever
        if self._embedder is None or chosen == "bm25":
            return Findings(self.find(query, top, retriever=chosen))
        if self._embedder.name.split(":")[0] in _QUICK:
            return Findings(await self._together.ask((top, chosen), query))
        return Findings(await asyncio.to_thread(self.find, query, top, retriever=chosen))

    def by(self, retriever: str) -> RankedIndex:
        """This index, ranked by another retriever; see `RankedSource`. Without vectors it is always ranked by terms."""
        return RankedIndex(self, "bm25" if self._embedder is None else _checked(retriever))

    def find(self, query: str, top: int = 10, *, retriever: Retriever | None = None) -> list[Knowledge]:
        """The `top` passages for a query, the best first, equal texts once.

        Args:
            query: what is looked for.
            top: how many at most.
            retriever: another than the index's own.

        Raises:
            SourceError: the index is closed or damaged, or its embedder cannot be asked.
            UnknownNameError: no retriever is called that.
        """
        return self._find_each((top, self.retriever if retriever is None else _checked(retriever)), [query])[0]

    def _find_each(self, wanted: tuple[int, Retriever], queries: Sequence[str]) -> list[list[Knowledge]]:
        """What `find` gives for each query, of one state of the index."""
        top, retriever = wanted
        self.refresh()
        view = self._live()
        if top < 1 or not view.manifest.live:
            return [[] for _ in queries]
        depth = max(self.depth, 2 * top)
        rankings = self._rank(view, queries, depth, retriever)
        return [
            self._enough(view, query, ranked, depth, wanted) for query, ranked in zip(queries, rankings, strict=True)
        ]

    def _enough(
        self, view: View, query: str, ranked: Sequence[tuple[int, float]], depth: int, wanted: tuple[int, Retriever]
    ) -> list[Knowledge]:
        """The first distinct passages of a ranking; it is made deeper where it has too few."""
        top, retriever = wanted
        while True:
            found = self._distinct(view, ranked, top)
            if len(found) == top or len(ranked) < depth:
                return found
            depth *= 4  # many of them were the same text
            [ranked] = self._rank(view, [query], depth, retriever)

    def _rank(
        self, view: View, queries: Sequence[str], depth: int, retriever: Retriever
    ) -> list[Sequence[tuple[int, float]]]:
        by_terms: list[Sequence[tuple[int, float]]] = []
        if retriever != "dense":
            by_terms = [view.by_terms(self._cut(query), depth) for query in queries]
        if retriever == "bm25" or self._embedder is None:
            return by_terms or [[] for _ in queries]
        try:
            vectors = self._embedder.encode(queries)
        except DialoreError as error:
            raise SourceError(f"{self.name}: {error.message}", mend=error.mend) from error
        near = view.by_vectors(vectors, depth, exact=self.exact)
        if retriever == "dense":
            return [*near]
        pairs = zip(by_terms, near, strict=True)
        return [reciprocal_ranks([[row for row, _ in ranked] for ranked in pair], k=self.k) for pair in pairs]

    def _distinct(self, view: View, ranked: Sequence[tuple[int, float]], top: int) -> list[Knowledge]:
        found: dict[str, Knowledge] = {}
        for row, score in ranked:
            knowledge = self._knowledge(view, row, round(score, 6))
            found.setdefault(knowledge.text, knowledge)
            if len(found) == top:
                break
        return list(found.values())

    def _knowledge(self, view: View, row: int, score: float) -> Knowledge:
        record = view.record(row)
        detail = {name: value for name, value in record.items() if name not in {"text", "extra"}}
        own = {name: value for name, value in record.get("extra", {}).items() if name not in PassageDetail.model_fields}
        return Knowledge(
            id=f"passage:{int(view.ids[row]):012x}",
            kind="passage",
            text=record["text"],
            source="documents",
            score=score,
            detail=PassageDetail.model_validate({**own, **detail, "index": self.name}),
        )


class RankedIndex:
    """An index as another retriever ranks it; the index holds the files.

    Args:
        index: the index.
        retriever: what ranks.
    """

    kind: Source = "documents"

    def __init__(self, index: DocumentIndex, retriever: Retriever) -> None:
        self.name, self.retriever = index.name, retriever
        self._index = index

    async def search(self, query: str, dialogue: Dialogue, top: int = 10, within: Sequence[Knowledge] = ()) -> Findings:
        """See `DocumentIndex.search`."""
        return await self._index.search(query, dialogue, top, within, retriever=self.retriever)

    def close(self) -> None:
        """Nothing: the index is closed by whoever opened it."""


def _checked(retriever: str) -> Retriever:
    for known in RETRIEVERS:
        if retriever == known:
            return known
    raise UnknownNameError("retriever", retriever, RETRIEVERS)
