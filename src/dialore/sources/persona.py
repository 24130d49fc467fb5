"""The persona: sentences about the responder, each of which may own documents (SAFARI, Section 3).

A dialogue brings its own persona (`Dialogue.persona`) and the documents under its sentences
(`extra["documents"]`: `{sentence: [document, ...]}`); a file stands in for dialogues that bring none.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import BeforeValidator, StringConstraints, TypeAdapter, ValidationError

from dialore.errors import InputError, SourceError
from dialore.files import load_json, parse_yaml, read_text
from dialore.knowledge import Knowledge, Passage, stable_id
from dialore.retrieval.fusion import DECIMALS
from dialore.sources.base import HeldSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dialore.dialogue import Dialogue
    from dialore.retrieval.dialogue_ranking import DialogueRanker
    from dialore.retrieval.reranking import Reranker

    Ranker = Reranker | DialogueRanker

Persona = dict[str, tuple[str, ...]]
"""Persona sentences in order, each with the documents under it."""

_Line = Annotated[str, StringConstraints(strict=True, strip_whitespace=True)]
_Lines = Annotated[tuple[_Line, ...] | None, BeforeValidator(lambda text: [text] if isinstance(text, str) else text)]
_PERSONA = TypeAdapter(dict[_Line, _Lines])
_FORMS = "a list of sentences, or {sentence: [document, ...]}"
_MEND = f"a persona file has a sentence a line, or is YAML or JSON: {_FORMS}"


_SHIPPED_RETRIEVERS = ("dialogue", "fused")


class _PersonaRanked(HeldSource):
    """The base of sources that a `DialogueRanker` can rank as well.

    The shipped retrievers are loaded at the first search, because most dialogues have no persona to rank. Others are
    loaded at once, because they may be missing or damaged.
    """

    def __init__(self, retriever: str | Ranker | None, persona: PersonaSource | None = None) -> None:
        self._retriever, self._persona = retriever, persona
        if retriever is not None and retriever not in _SHIPPED_RETRIEVERS:
            self._retriever = _load_retriever(retriever)

    @functools.cached_property
    def retriever(self) -> Ranker:  # type: ignore[override]
        """The retriever of this source, or that of its persona if it has none of its own."""
        if self._retriever is None and self._persona is not None:
            return self._persona.retriever
        return _load_retriever(self._retriever or "fused")

    def _rank(self, query: str, dialogue: Dialogue, pieces: Sequence[Knowledge], top: int) -> list[tuple[int, float]]:
        """See `HeldSource`."""
        from dialore.retrieval.dialogue_ranking import DialogueRanker

        if not isinstance(self.retriever, DialogueRanker):
            return super()._rank(query, dialogue, pieces, top)
        if self.kind == "persona":
            persona = {piece.text: tuple(piece.documents) for piece in pieces}
            scores = self.retriever.sentences(query, dialogue, persona)
        else:
            scores = self.retriever.documents(query, dialogue, [piece.text for piece in pieces])
        order = np.argsort(-scores, kind="stable")[: max(0, top)]
        return [(int(at), round(float(scores[at]), DECIMALS)) for at in order]


class PersonaSource(_PersonaRanked):
    """The persona sentences that fit a query; each item's `documents` has the documents under it.

    `persona` stands in where a dialogue has none; its documents also serve a dialogue's sentences that have none of
    their own. The retriever is a `Reranker` or its spec (`bm25`, `dense`, `fused`, ...), or `dialogue`, a
    `DialogueRanker`; `trained:FOLDER` is one that `dialore train retriever` made. Of the specs that see the query alone
    `fused` finds the most persona sentences in KBP's dev split (Recall@1 of .67, dense .65, BM25 .62, by the last two
    turns).
    """

    kind = "persona"

    def __init__(
        self,
        persona: Mapping[str, Sequence[str]] | None = None,
        *,
        retriever: str | Ranker = "fused",
        name: str = "persona",
    ) -> None:
        self.name = name
        self.persona: Persona = {sentence: tuple(under) for sentence, under in (persona or {}).items()}
        super().__init__(retriever)

    def of(self, dialogue: Dialogue) -> Persona:
        """Return the persona that speaks in a dialogue: its own, else this source's."""
        if not dialogue.persona:
            return self.persona
        given = dialogue.extra.get("documents")
        under = {} if given is None else _mapping(given)
        if under is None:
            message = f"dialogue {dialogue.id}: its documents are no mapping of persona sentences to lists of texts"
            raise SourceError(message, hint='write "documents": {"persona sentence": ["document", ...]}')
        return {line: under.get(line.strip(), self.persona.get(line.strip(), ())) for line in dialogue.persona}

    def _held(self, dialogue: Dialogue, scope: Sequence[Knowledge] = ()) -> list[Knowledge]:
        """Return the persona's sentences with the documents under them."""
        return [
            Knowledge(
                id=stable_id("persona", sentence),
                kind="persona",
                text=sentence,
                source="persona",
                documents=list(under),
            )
            for sentence, under in self.of(dialogue).items()
        ]


class PersonaDocuments(_PersonaRanked):
    """The documents under persona sentences: SAFARI's source that depends on the persona.

    With persona sentences chosen before, only the documents under them are looked at; without, all of the dialogue's
    (SAFARI, Section 5.3, with and without dependency). An item's `persona` names the owning sentence. Without a
    retriever the persona's own ranks them.
    """

    kind = "documents"

    def __init__(
        self,
        persona: PersonaSource | None = None,
        *,
        retriever: str | Ranker | None = None,
        name: str = "documents",
    ) -> None:
        self.name = name
        self._owner = persona or PersonaSource()
        super().__init__(retriever, self._owner)

    def _held(self, dialogue: Dialogue, scope: Sequence[Knowledge] = ()) -> list[Knowledge]:
        """Return the documents under the persona pieces of the scope, else all; each under its first sentence."""
        persona = self._owner.of(dialogue)
        chosen = [piece for piece in scope if piece.kind == "persona"]
        if chosen:
            persona = {piece.text: persona.get(piece.text, tuple(piece.documents)) for piece in chosen}
        owner: dict[str, str] = {}
        for sentence, documents in persona.items():
            for document in documents:
                owner.setdefault(document, sentence)
        return [Knowledge.of_passage(Passage(text), self.kind, persona=owner[text]) for text in owner]


def _load_retriever(retriever: str | Ranker) -> Ranker:
    if not isinstance(retriever, str):
        return retriever
    if retriever == "dialogue":
        from dialore.retrieval.dialogue_ranking import DialogueRanker

        return DialogueRanker()
    from dialore.trained import PREFIX, open_trained

    if retriever.startswith(PREFIX):
        ranker: DialogueRanker = open_trained(retriever, "ranker")
        return ranker
    from dialore.retrieval.reranking import load_reranker

    return load_reranker(retriever)


def open_persona(path: Path | None = None) -> PersonaSource:
    """Return the persona of a file (see `read_persona`), or each dialogue's own."""
    return PersonaSource(read_persona(path) if path is not None else None)


def read_persona(path: Path) -> Persona:
    """Return the persona of a file: a sentence a line, or YAML or JSON of sentences, perhaps with documents."""
    text = read_text(path)
    suffix = (path.suffixes[-2] if path.suffix == ".gz" and len(path.suffixes) > 1 else path.suffix).lower()
    if suffix not in {".yaml", ".yml", ".json"}:
        persona: Persona | None = {line.strip(): () for line in text.split("\n") if line.strip()}
    else:
        try:
            data = load_json(text) if suffix == ".json" else parse_yaml(text, str(path), _MEND)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not valid JSON: {error}", hint=_MEND) from error
        if isinstance(data, list):
            data = dict.fromkeys(data, ()) if all(isinstance(entry, str) for entry in data) else None
        persona = _mapping(data)
    if not persona:
        raise InputError(f"{path}: {'not a persona' if persona is None else 'no persona sentence'}", hint=_MEND)
    return persona


def _mapping(data: object) -> Persona | None:
    """Return decoded data as a persona; None where it is none. A lone document needs no list."""
    try:
        persona = _PERSONA.validate_python(data)
    except ValidationError:
        return None
    return {sentence: tuple(filter(None, documents or ())) for sentence, documents in persona.items() if sentence}
