"""A shelf: passages in memory, ranked anew for each query. A source for some hundreds of texts, without an index."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from dialore.errors import InputError, UnknownNameError, check_type
from dialore.knowledge import Knowledge, Passage
from dialore.retrieval.reranking import Reranker, load_reranker
from dialore.sources.base import HeldSource
from dialore.text import detect_language

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue

InMemoryKind = Literal["documents", "web"]
KINDS: tuple[InMemoryKind, ...] = get_args(InMemoryKind)


class InMemoryPassages(HeldSource):
    """Passages that are held in memory; what is beyond some hundreds is for a document index.

    It needs no extra. As a shelf of the kind `web` it stands in for web search where there is none: in demonstrations
    and tests.

    Args:
        passages: the passages, or their texts; one that comes twice counts once.
        kind: what it stands for, `documents` or `web`.
        name: the source's name; None: its kind.
        retriever: what ranks, a `Reranker` or its spec: `fused`, `bm25`, `dense`, ...
        own_language: give a dialogue only passages of its language.

    Raises:
        InputError: a passage without text, or what is no passage.
        UnknownNameError: no such kind; no retriever is called that.
    """

    def __init__(
        self,
        passages: Iterable[Passage | str],
        *,
        kind: InMemoryKind = "documents",
        name: str | None = None,
        retriever: str | Reranker = "fused",
        own_language: bool = False,
    ) -> None:
        if kind not in KINDS:
            raise UnknownNameError("kind of shelf", kind, KINDS)
        if isinstance(passages, str | Mapping) or not isinstance(passages, Iterable):
            raise InputError(
                f"passages cannot be {passages!r:.80}", hint='give a list: InMemoryPassages(["We open at nine."])'
            )
        whole = [passage if isinstance(passage, Passage) else Passage(passage) for passage in passages]
        for passage in whole:
            check_type("a passage's text", passage.text, str, 'give texts: InMemoryPassages(["We open at nine."])')
        if not all(passage.text.strip() for passage in whole):
            raise InputError("a shelf cannot hold a passage without text", hint="leave empty passages out")
        self.kind = kind
        self.name = kind if name is None else name
        self.passages = tuple({passage.id: passage for passage in whole}.values())
        self.retriever = load_reranker(retriever) if isinstance(retriever, str) else retriever
        self.own_language = own_language
        self._pieces = [Knowledge.of_passage(passage, kind) for passage in self.passages]
        self._languages = [detect_language(passage.text) for passage in self.passages]

    def __len__(self) -> int:
        return len(self.passages)

    def _held(self, dialogue: Dialogue, scope: Sequence[Knowledge] = ()) -> list[Knowledge]:
        """Return the passages, where that is wanted those of the dialogue's language."""
        pieces = zip(self._pieces, self._languages, strict=True)
        return [piece for piece, language in pieces if not self.own_language or language == dialogue.language]

    def _rank(self, query: str, dialogue: Dialogue, pieces: Sequence[Knowledge], top: int) -> list[tuple[int, float]]:
        """See `HeldSource`; where the retriever is `bm25`, those without any word of the query are not found."""
        ranked = super()._rank(query, dialogue, pieces, top)
        return [(at, round(score, 6)) for at, score in ranked if score > 0 or self.retriever.name != "bm25"]

    def by(self, retriever: str) -> InMemoryPassages:
        """Return the same passages, ranked in another way; raise UnknownNameError for an unknown retriever."""
        other = copy.copy(self)
        if retriever != self.retriever.name:
            other.retriever = load_reranker(retriever)
        return other
