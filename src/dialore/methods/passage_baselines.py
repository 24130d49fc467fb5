"""Baselines with passages in the prompt: retrieved ones (`rag`) or all of them (`full-context`)."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dialore.errors import DialoreError, StageError, WindowError
from dialore.methods.base import OverSources, check_least
from dialore.methods.cleaning import clean_response, prompt_line
from dialore.methods.selection import has_asked_back
from dialore.parallel import gather
from dialore.response import Grounding, Response
from dialore.retrieval.fusion import reciprocal_ranks
from dialore.sources.base import listed
from dialore.sources.declared import DeclaredSources, default_sources
from dialore.text import HAN

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.methods.stages import StageContext

_WORD = re.compile(rf"[{HAN}]|[^\W{HAN}]+")
_PASSAGES = ("documents", "memory", "web")


@dataclass(frozen=True)
class Rag(OverSources):
    """Retrieve, then answer: what most chat services over documents do, and the baseline to beat.

    One query, the last turn rewritten so that it stands alone, goes to every source of documents and to the web, the
    persona's documents among them; their rankings are fused by reciprocal ranks. The graph is asked only where these
    give nothing. The persona stands in the prompt in full. A dialogue of one turn is not rewritten: its turn stands
    alone.

    Attributes:
        top: how many passages the response is given.
        rewrite: have the model rewrite the last turn; off, it is the query as it stands.
        clarify: ask back where a question may mean several things that were found and whose answers differ.
        strict: answer from the sources alone, and say what they hold where they do not hold what is asked.
    """

    name: ClassVar[str] = "rag"
    paper: ClassVar[str] = "our own, a baseline: retrieval-augmented generation as it is usually done"
    summary: ClassVar[str] = "the best passages for the last turn, rewritten to stand alone, and an answer from them"
    calls: ClassVar[str] = "2 (1 without rewrite, or where there is nothing to rewrite)"
    stages: ClassVar[tuple[str, ...]] = ("rag/query-rewriting", "rag/response-generation")

    top: int = 5
    rewrite: bool = True
    clarify: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        check_least(self, top=1)

    @functools.cached_property
    def declared(self) -> DeclaredSources:
        """The sources that are declared, or all that are open."""
        return self.sources or default_sources(self.opened, retriever="fused")

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Return the best passages for one query, then the persona's sentences."""
        query = dialogue.last.text
        if self.rewrite and len(dialogue.turns) > 1:
            rewritten = await stage.text("rag/query-rewriting", summary="Query: {}")
            query = clean_response(" ".join(rewritten.split()), ()) or query
        passages = await self._search(_PASSAGES, query, stage) or await self._search(("graph",), query, stage)
        return Grounding(knowledge=[*passages, *_persona(self.declared, dialogue)])

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Ground, then write."""
        grounding = await self.ground(dialogue, stage)
        may_ask = self.clarify and not has_asked_back(dialogue)
        shown = _shown(grounding.knowledge)
        text = await stage.write("rag/response-generation", **shown, may_ask=may_ask, strict=self.strict)
        return grounding.response(text)

    async def _search(self, kinds: Sequence[str], query: str, stage: StageContext) -> list[Knowledge]:
        """Return the best pieces of all sources of some kinds, asked at once."""
        searches = []
        for entry in self.declared.entries:
            if entry.kind in kinds and entry.source is not None:
                top = entry.top or self.top
                searches.append(stage.search(f"retrieval-{entry.name}", entry.source, query, top))
        rankings = [pieces for pieces in await gather(*searches) if pieces]
        if len(rankings) == 1:
            return rankings[0][: self.top]
        by_id = {piece.id: piece for pieces in rankings for piece in pieces}
        fused = reciprocal_ranks([[piece.id for piece in pieces] for pieces in rankings])[: self.top]
        return [by_id[name].model_copy(update={"score": round(score, 6)}) for name, score in fused]


@dataclass(frozen=True)
class FullContext(OverSources):
    """No retrieval: the persona and every document of the dialogue and of the index in one prompt, while they fit.

    What cannot be listed (the web, a graph) cannot be given whole, and is an error.

    Attributes:
        words: how many words of documents are sent at most, a Chinese character counted as one; the default is about
            80,000 tokens. More is an error, as is what the model's window does not hold.
        truncate: leave out what comes first, of memory the oldest, until the rest fits.
    """

    name: ClassVar[str] = "full-context"
    paper: ClassVar[str] = "our own, a baseline for models with a long window"
    summary: ClassVar[str] = "the persona and all documents in one prompt, while they fit"
    optional_sources: ClassVar[tuple[str, ...]] = ("sources", "persona", "memory", "documents")
    calls: ClassVar[str] = "1"
    stages: ClassVar[tuple[str, ...]] = ("full-context/response-generation",)

    words: int = 60_000
    truncate: bool = False

    def __post_init__(self) -> None:
        check_least(self, words=1)

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Everything there is, each text once, until it is too much."""
        pieces: dict[str, Knowledge] = {}
        words = left_out = 0
        with stage.step("listing") as step:
            for entry in self.declared.entries:
                for piece in () if entry.kind == "persona" else listed(entry.source, dialogue):
                    if pieces.setdefault(piece.text, piece) is piece:
                        words += len(_WORD.findall(piece.text))
                    while words > self.words:
                        if not self.truncate:
                            raise _too_much(f"the documents have more than {self.words:,} words")
                        words -= len(_WORD.findall(pieces.pop(next(iter(pieces))).text))
                        left_out += 1
            step.output = {"passages": len(pieces), "words": words, "left_out": left_out}
        return Grounding(knowledge=[*pieces.values(), *_persona(self.declared, dialogue)])

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """List, then write."""
        grounding = await self.ground(dialogue, stage)
        try:
            text = await stage.write("full-context/response-generation", **_shown(grounding.knowledge))
        except StageError as error:
            if not isinstance(error.cause, WindowError):
                raise
            raise StageError(error.stage, error.dialogue_id, _too_much(error.cause.message)) from error
        return grounding.response(text)


def _too_much(message: str) -> DialoreError:
    hint = "take rag, which retrieves, or name fewer documents; the bound is the option words"
    return DialoreError(message, hint=hint)


def _persona(declared: DeclaredSources, dialogue: Dialogue) -> list[Knowledge]:
    sources = [entry.source for entry in declared.entries if entry.kind == "persona"]
    return [piece for source in sources for piece in listed(source, dialogue)]


def _shown(knowledge: Sequence[Knowledge]) -> dict[str, Any]:
    """Return the knowledge as prompts have it: passages, numbered where they are cited, and the persona."""
    passages = [piece for piece in knowledge if piece.kind != "persona"]
    return {
        "passages": [piece.model_copy(update={"text": prompt_line(piece)}) for piece in passages],
        "persona": [prompt_line(piece) for piece in knowledge if piece.kind == "persona"],
    }
