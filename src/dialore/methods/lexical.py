"""Lexical: knowledge for the concepts that the dialogue mentions, quoted as it was found; no language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pydantic import BaseModel

from dialore.errors import InputError
from dialore.methods.base import OverSources, check_least
from dialore.methods.demands import link, mentions, retrieve_facts
from dialore.parallel import gather
from dialore.prompts.history import on_one_line
from dialore.response import Citation, Demands, Grounding, Response, StageTrace
from dialore.retrieval.reranking import load_reranker
from dialore.text import is_mentioned, split_sentences

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.llm.model import OnToken
    from dialore.methods.stages import StageCall, StageContext

T = TypeVar("T", bound=BaseModel)
HOW_TO_ADD_A_MODEL = "set DIALORE_BASE_URL and DIALORE_MODEL, or --base-url and --model"
_FOUND = {"en": "From what was found: ", "zh": "找到的知识："}
_NOTHING = {"en": "Nothing was found for this dialogue.", "zh": "没有找到与这段对话有关的知识。"}


@dataclass(frozen=True)
class Lexical(OverSources):
    """The response quotes the best-fitting piece of knowledge, and says so: a fact as a sentence, or one of a passage.

    It shows what other methods would have to go by, and stands in for them where no language model is set. Its demands
    are concepts: those that the latest turns mention are the queries, those of the last turn the topics. Facts of them
    and pieces of every other source are ranked by the cosine of their embeddings with the last two turns. The response
    quotes and cites the best that says something new.

    Attributes:
        top: pieces asked of each source.
        turns: the latest turns whose concepts are looked up.
    """

    name: ClassVar[str] = "lexical"
    paper: ClassVar[str] = "our own, an extractive baseline"
    summary: ClassVar[str] = "no model: knowledge of the concepts mentioned, its best piece quoted as the response"
    optional_sources: ClassVar[tuple[str, ...]] = ("graph", "documents", "persona", "memory", "web")
    calls: ClassVar[str] = "0"
    stages: ClassVar[tuple[str, ...]] = ()

    top: int = 20
    turns: int = 3

    def __post_init__(self) -> None:
        check_least(self, top=1, turns=1)

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Look up what is mentioned, search every other source, rank all of it together."""
        demands = Demands()
        facts: list[Knowledge] = []
        if (graph := self.graph) is not None:
            own = (_FOUND[dialogue.language], _NOTHING[dialogue.language])  # what this method said itself in a chat
            others = tuple(turn for turn in dialogue.turns if not turn.text.startswith(own))
            latest = dialogue.model_copy(update={"turns": others})
            links = link("concept-mentions", lambda: mentions(graph, latest, self.turns), stage)
            text, language = dialogue.last.text, dialogue.language
            last = [concept.name for concept in links if is_mentioned(concept.phrase, [text], language)]
            demands = Demands(explicit=[concept.name for concept in links], maintained=last)
            facts = await retrieve_facts(graph, links, dialogue, stage, self.top)
        further = [source for source in (self.persona, self.memory, self.documents, self.web) if source is not None]
        query = dialogue.last.text
        passages = await gather(*(stage.search(f"{source.name}-search", source, query, self.top) for source in further))
        pieces = [*facts, *(piece for result in passages for piece in result)]
        with stage.step("ranking") as step:
            order = load_reranker().rerank(" ".join(dialogue.texts[-2:]), [piece.text for piece in pieces], len(pieces))
            ranked = [pieces[row].model_copy(update={"score": round(score, 4)}) for row, score in order]
            step.output = {"ranked": [{"id": piece.id, "score": piece.score} for piece in ranked]}
        return Grounding(knowledge=ranked, demands=demands)

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Ground, then quote the first piece that says something new."""
        grounding = await self.ground(dialogue, stage)
        new = next((piece for piece in grounding.knowledge if not _is_said(piece, dialogue)), None)
        text, cited = _NOTHING[dialogue.language], []
        if new is not None:
            lead = _FOUND[dialogue.language]
            text = lead + _quoted(new, dialogue)
            cited = [Citation(start=len(lead), end=len(text), knowledge=new.id)]
        stage.send(text)
        return grounding.response(text, cited)


def _is_said(piece: Knowledge, dialogue: Dialogue) -> bool:
    parts = [piece.fact.head, piece.fact.tail] if piece.kind == "fact" else [piece.text]
    return all(is_mentioned(part, dialogue.texts, dialogue.language) for part in parts)


def _quoted(piece: Knowledge, dialogue: Dialogue) -> str:
    """Return the piece, of a passage the sentence that is nearest to the last turn."""
    sentences = split_sentences(piece.text) if piece.kind == "passage" else []
    if len(sentences) < 2:
        return on_one_line(piece.text)
    return " ".join(sentences[load_reranker().rerank(dialogue.last.text, sentences, 1)[0][0]].split())


class NullRunner:
    """The responder of agents without a language model: it refuses every stage, and says how to add a model."""

    name = "no model"

    async def answer(self, call: StageCall[T], step: StageTrace, on_token: OnToken | None = None) -> T | None:
        """Refuse; raises InputError."""
        raise InputError(f"{call.prompt} needs a language model", hint=HOW_TO_ADD_A_MODEL)
