"""Several document indices asked as one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dialore.errors import InputError, SourceError
from dialore.retrieval.fusion import K, reciprocal_ranks
from dialore.sources.base import Findings, RankedSource
from dialore.sources.documents.index import DocumentIndex, Retriever

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge, Source
    from dialore.sources.base import KnowledgeSource


class SeveralDocuments:
    """Sources of passages asked at once, their rankings fused by reciprocal ranks; each passage keeps its index's name.

    One that cannot be asked is told of, and the others give what they have; only where none can be asked is it an
    error.

    Args:
        sources: at least one.
        name: the name of them all; None joins theirs.
        k: the constant of reciprocal ranks.
    """

    kind: Source = "documents"

    def __init__(self, sources: Sequence[KnowledgeSource], *, name: str | None = None, k: float = K) -> None:
        self.sources, self.k = tuple(sources), k
        self.name = name or "+".join(source.name for source in sources)

    async def search(self, query: str, dialogue: Dialogue, top: int = 10, within: Sequence[Knowledge] = ()) -> Findings:
        """See `KnowledgeSource`; a text that several indices have is given once, as of the first.

        The notes name each index that could not be asked.

        Raises:
            SourceError: none of them can be asked.
        """
        asked = (source.search(query, dialogue, top, within) for source in self.sources)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found: list[Findings] = []
        failed: list[SourceError] = []
        notes: list[str] = []
        for source, answer in zip(self.sources, answers, strict=True):
            if isinstance(answer, SourceError):
                failed.append(answer)
                notes.append(f"{source.name} could not be asked, the others were: {answer}")
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append(Findings.of(answer))
                notes += found[-1].notes
        if not found:
            raise _all_failed(failed)
        return Findings(self._fused(found, top), notes=notes)

    def _fused(self, rankings: Sequence[Sequence[Knowledge]], top: int) -> list[Knowledge]:
        by_text: dict[str, Knowledge] = {}
        for ranking in rankings:
            for piece in ranking:
                by_text.setdefault(piece.text, piece)
        fused = reciprocal_ranks([[piece.text for piece in ranking] for ranking in rankings], k=self.k)
        return [by_text[text].model_copy(update={"score": round(score, 6)}) for text, score in fused[:top]]

    def by(self, retriever: str) -> SeveralDocuments:
        """These sources, ranked by another retriever where they can be; see `RankedSource`."""
        ranked = [source.by(retriever) if isinstance(source, RankedSource) else source for source in self.sources]
        return SeveralDocuments(ranked, name=self.name, k=self.k)

    def close(self) -> None:
        """Close them all."""
        for source in self.sources:
            source.close()


def _all_failed(errors: Sequence[SourceError]) -> SourceError:
    """All errors as one, each said once, with the mend of the first."""
    return SourceError("; ".join(dict.fromkeys(error.message for error in errors)), mend=errors[0].mend)


def open_documents(paths: Sequence[Path], *, retriever: Retriever = "fused") -> KnowledgeSource:
    """Open document indices as one source.

    Args:
        paths: their folders; one that is named twice is opened once.
        retriever: how each is searched.

    Raises:
        InputError: none is named, or as `DocumentIndex` does.
    """
    if not paths:
        raise InputError("no document index is named", mend="give --documents PATH")
    opened: list[DocumentIndex] = []
    try:
        for path in dict.fromkeys(path.resolve() for path in paths):
            opened.append(DocumentIndex(path, retriever=retriever))  # noqa: PERF401 - those before are closed on failure
    except BaseException:
        for index in opened:
            index.close()
        raise
    return opened[0] if len(opened) == 1 else SeveralDocuments(opened)
