"""The lexical responder: does the stages of three methods by concepts, embeddings and templates alone."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from pydantic import BaseModel

from dialore.errors import InputError
from dialore.methods.lexical.demands import plan_topics, produce_queries, revise
from dialore.methods.lexical.reading import Reading
from dialore.methods.lexical.reply import reply
from dialore.methods.lexical.selection import select
from dialore.methods.lexical.tables import table
from dialore.methods.stages import StageAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.llm.model import OnText
    from dialore.methods.stages import StageCall
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph.several import Graphs
    from dialore.sources.graph.source import Graph

T = TypeVar("T", bound=BaseModel)
_Work = tuple[dict[str, Any], list[str]]
_REMEMBERED = 32
"""Dialogues whose reading is kept: the stages of one come one after the other, those of several mixed."""
_PIECE = re.compile(r"[一-鿿]{1,2}[，。！？、：；]*|\S+\s*|\s+")


class LexicalResponder:
    """Does the stages of `vanilla`, `t-rag` and `dcrag` without a language model: plainly, and the same every time.

    Args:
        graph: the graph whose concepts the dialogue is read by; None for `vanilla`.
        embedder: tells how near texts are to the dialogue.
    """

    methods: ClassVar[tuple[str, ...]] = ("vanilla", "t-rag", "dcrag")

    def __init__(self, graph: Graph | Graphs | None, embedder: Embedder) -> None:
        self.graph = graph
        self.embedder = embedder
        self._readings: OrderedDict[tuple[str, tuple[str, ...]], Reading] = OrderedDict()
        self._does: dict[str, Callable[[StageCall[Any], Reading], _Work]] = {
            "vanilla/response-generation": _respond,
            "t-rag/response-generation": _respond,
            "dcrag/query-production": _produce_queries,
            "dcrag/topic-planning": _plan_topics,
            "dcrag/cross-revision": _revise,
            "dcrag/fact-selection": _select,
            "dcrag/response-generation": _respond,
        }

    @property
    def name(self) -> str:
        """Its name in traces."""
        return "lexical responder"

    async def answer(self, call: StageCall[T], on_text: OnText | None = None) -> StageAnswer[T]:
        """Do one stage; `on_text` gets the response word by word.

        Raises:
            InputError: the stage is another method's, which needs a language model.
        """
        work = self._does.get(call.prompt)
        if work is None:
            method = call.prompt.partition("/")[0]
            raise InputError(
                f"{method} needs a language model: the lexical responder has no way to do {call.prompt}",
                mend="give one with --model and --base-url, or DIALORE_MODEL and DIALORE_BASE_URL; "
                f"without one there are {', '.join(self.methods)}",
            )
        value, notes = work(call, self._read(call.dialogue))
        if on_text is not None and "text" in value:
            for piece in _PIECE.findall(value["text"]):
                on_text(piece)
        return StageAnswer(value=call.output.model_validate(value), notes=notes)

    def _read(self, dialogue: Dialogue) -> Reading:
        """The dialogue's reading, shared by its stages."""
        key = (dialogue.id, dialogue.texts)
        reading = self._readings.get(key)
        if reading is None:
            reading = self._readings[key] = Reading(dialogue, self.graph, self.embedder)
            while len(self._readings) > _REMEMBERED:
                self._readings.popitem(last=False)
        self._readings.move_to_end(key)
        return reading


def _produce_queries(call: StageCall[Any], reading: Reading) -> _Work:
    return _shaped(call, reading, produce_queries(reading).model_dump()), []


def _plan_topics(call: StageCall[Any], reading: Reading) -> _Work:
    return _shaped(call, reading, plan_topics(reading).model_dump()), []


def _revise(call: StageCall[Any], reading: Reading) -> _Work:
    given = cast("dict[str, list[str]]", call.variables["demands"])
    found = revise(reading, given).model_dump()
    return _shaped(call, reading, found, thought="revised"), []


def _select(call: StageCall[Any], reading: Reading) -> _Work:
    facts = cast("Sequence[Knowledge]", call.variables["facts"])
    return {"selected": select(reading, facts, cast("int", call.variables["limit"]))}, []


def _respond(call: StageCall[Any], reading: Reading) -> _Work:
    facts = cast("Sequence[Knowledge]", call.variables.get("facts", ()))
    given = cast("dict[str, list[str]]", call.variables.get("demands", {}))
    said = reply(reading, facts, given.get("extended", ()))
    return {"text": said.text}, said.notes


def _shaped(call: StageCall[Any], reading: Reading, found: dict[str, Any], thought: str = "") -> dict[str, Any]:
    """Lists of entities in the shape wanted, with thoughts where it has them."""
    thoughts = table("replies", reading.dialogue.language)["thoughts"]
    shaped: dict[str, Any] = {}
    for name in call.output.model_fields:
        kind = name.removesuffix("_thoughts")
        if kind == name:
            shaped[name] = found[name]
        else:
            shaped[name] = thoughts[thought or kind] if reading.mentions else thoughts["none"]
    return shaped
