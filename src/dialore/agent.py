"""The public face: an agent wires a responder, sources and a method, and answers dialogues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, Field

from dialore.errors import InputError, StageError, is_fatal
from dialore.knowledge import Knowledge
from dialore.llm.model import Usage
from dialore.methods.registry import create_method, method_class, method_sources
from dialore.methods.stages import Responder, Stages
from dialore.methods.usage import mark_used
from dialore.parallel import bounded_map
from dialore.response import Demands, Response, StageTrace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.llm.model import LanguageModel, OnText
    from dialore.methods.base import Draft, Grounds, Method
    from dialore.response import Citation
    from dialore.sources.graph.ranking import Ranking
    from dialore.sources.graph.several import Graphs
    from dialore.sources.graph.source import Graph


class Grounding(BaseModel):
    """What a method finds before it writes: a retriever for other people's generators.

    Attributes:
        id: the dialogue's id.
        method: the method's name.
        status: `ok` or `failed`.
        by: what did the stages.
        demands: what was found to be needed.
        knowledge: what was found, best first.
        usage: calls and tokens.
        seconds: wall-clock time.
        trace: every stage.
        error: what failed, and the mend.
    """

    id: str
    method: str
    status: Literal["ok", "failed"] = "ok"
    by: str = ""
    demands: Demands | None = None
    knowledge: list[Knowledge] = Field(default_factory=list)
    usage: Usage = Usage()
    seconds: float = 0.0
    trace: list[StageTrace] = Field(default_factory=list)
    error: str | None = None


class Agent:
    """Answers dialogues by one method.

    Args:
        method: the method.
        responder: who does its stages.
        closing: what `close` closes: the model, the graph.
        cite: whether responses cite their knowledge (`Response.citations`).
    """

    def __init__(
        self, method: Method, responder: Responder, closing: Iterable[object] = (), *, cite: bool = False
    ) -> None:
        self.method = method
        self.responder = responder
        self.cite = cite
        self._closing = tuple(closing)

    @classmethod
    def create(
        cls,
        method: str = "dcrag",
        *,
        model: LanguageModel | None = None,
        graph: Graph | Graphs | Path | str | None = None,
        sources: Mapping[str, object] | None = None,
        stage_models: Mapping[str, LanguageModel] | None = None,
        prompts: Path | None = None,
        options: Mapping[str, object] | None = None,
        cite: bool = False,
    ) -> Self:
        """Make an agent from names.

        Args:
            method: the method's name.
            model: the language model (see `dialore.llm.connect`); None for the lexical responder.
            graph: a graph or several (`Graphs`), or the path or URL of one; None for the starter graph.
            sources: the other sources by the names that methods have for them: `documents`, `persona`, `web`, ... (see
                `dialore.sources.opening`).
            stage_models: other models for some stages, by `<stage>` or `<method>/<stage>`.
            prompts: a folder of prompts that override the package's.
            options: the method's hyper-parameters and switches.
            cite: have the model cite its knowledge by number; the responses carry what each span cites.

        Raises:
            InputError: an unknown name, a missing graph, an option that does not fit.
        """
        from dialore.sources.graph.several import Graphs

        cls_of = method_class(method)
        needs_graph = "graph" in cls_of.needs or model is None or ("graph" in method_sources(cls_of) and bool(graph))
        if model is None:
            check_lexical(method)
        opened = (graph if isinstance(graph, Graphs) else open_graph(graph)) if needs_graph else None
        try:
            made = create_method(method, {**(sources or {}), "graph": opened}, options)
            responder = create_responder(method, model, opened, prompts, stage_models)
        except BaseException:
            if opened is not None and opened is not graph:
                opened.close()
            raise
        closing = [model, *(stage_models or {}).values(), *(sources or {}).values(), opened]
        return cls(made, responder, closing, cite=cite)

    async def respond(self, dialogue: Dialogue, on_text: OnText | None = None) -> Response:
        """Answer a dialogue's last turn. A failure is a Response too: `failed`, with its partial trace.

        Args:
            dialogue: the dialogue.
            on_text: gets the response's text as it is written.

        Raises:
            InputError: the set-up is wrong for every dialogue: a prompt that is missing or malformed.
            ModelError: likewise, an endpoint that refuses (wrong key, model or address).
        """
        stage = Stages(self.responder, self.method.name, dialogue, on_text, cite=self.cite)
        response = Response(id=dialogue.id, method=self.method.name, by=self.responder.name)
        try:
            draft = await self.method.respond(dialogue, stage)
        except StageError as error:
            raise_if_fatal(error)
            response.status, response.error = "failed", str(error)
        else:
            self._fill(response, draft, dialogue, stage.citations(draft.text))
        return response.model_copy(update=_cost(stage))

    def _fill(self, response: Response, draft: Draft, dialogue: Dialogue, citations: Sequence[Citation]) -> None:
        if not draft.text.strip():
            response.status, response.error = "failed", f"dialogue {dialogue.id}: the response came out empty"
        response.text = draft.text
        response.demands, response.plan = draft.grounds.demands, draft.grounds.plan
        given = {piece.id for piece in draft.grounds.knowledge}
        response.citations = [each for each in citations if each.knowledge in given]
        cited = {each.knowledge for each in response.citations}
        response.knowledge = mark_used(draft.grounds.knowledge, draft.text, dialogue.texts, dialogue.language, cited)

    async def ground(self, dialogue: Dialogue) -> Grounding:
        """Find what a response to the dialogue needs to know, without writing it; raises as `respond` does."""
        stage = Stages(self.responder, self.method.name, dialogue)
        grounding = Grounding(id=dialogue.id, method=self.method.name, by=self.responder.name)
        try:
            found: Grounds = await self.method.ground(dialogue, stage)
        except StageError as error:
            raise_if_fatal(error)
            grounding.status, grounding.error = "failed", str(error)
        else:
            grounding.demands, grounding.knowledge = found.demands, found.knowledge
        return grounding.model_copy(update=_cost(stage))

    async def stream(self, dialogue: Dialogue) -> AsyncIterator[str | Response]:
        """The response's text piece by piece, then the whole Response; raises as `respond` does."""
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        task = asyncio.create_task(self.respond(dialogue, pieces.put_nowait))
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            yield await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def respond_all(self, dialogues: Iterable[Dialogue], *, at_once: int = 8) -> AsyncIterator[Response]:
        """Answer many dialogues, each response as soon as it is there.

        A fixed number of workers each answer whole dialogues, so that no stage waits for the slowest of a batch.

        Args:
            dialogues: the dialogues.
            at_once: how many are under way at a time.

        Raises:
            InputError: as `respond`; the dialogues under way are dropped.
            ModelError: likewise.
        """
        finished: asyncio.Queue[Response | None] = asyncio.Queue()

        async def answer(dialogue: Dialogue) -> None:
            finished.put_nowait(await self.respond(dialogue))

        task = asyncio.create_task(bounded_map(dialogues, answer, limit=at_once))
        task.add_done_callback(lambda _: finished.put_nowait(None))
        try:
            while (response := await finished.get()) is not None:
                yield response
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Close the model and the graph."""
        for item in self._closing:
            if item is None:
                continue
            done: Any = item.close()  # type: ignore[attr-defined]
            if asyncio.iscoroutine(done):
                await done

    async def __aenter__(self) -> Self:
        """The agent itself."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close it."""
        await self.close()


def raise_if_fatal(error: StageError) -> None:
    """Raise the error underneath where it would befall every dialogue: wrong input or configuration, a spent budget."""
    if is_fatal(error.cause):
        raise error.cause from error


def _cost(stage: Stages) -> dict[str, object]:
    ordered = sorted(stage.trace, key=lambda traced: traced.started)
    return {"usage": stage.usage, "seconds": stage.seconds, "trace": ordered}


def open_graph(graph: Graph | Path | str | None, ranking: Ranking | str = "default") -> Graph:
    """A graph: as given, from its path or a server's URL, or the starter graph.

    Args:
        graph: the graph, what opens it, or None or "starter" for the starter graph.
        ranking: how its facts are ranked; a graph that is given keeps its own.

    Raises:
        GraphError: as `open_store`.
        UnknownNameError: no ranking is called that.
    """
    from dialore.sources.graph.source import Graph
    from dialore.sources.graph.starter import NAME, starter_graph

    if isinstance(graph, Graph):
        return graph
    return Graph.open(starter_graph() if graph is None or str(graph) == NAME else graph, ranking=ranking)


def open_graphs(graphs: Sequence[str], ranking: Ranking | str = "default") -> Graph | Graphs:
    """One graph or several as one; the starter graph where none is named. Raises as `open_graph` and Graphs do."""
    from dialore.sources.graph.several import Graphs

    opened = [open_graph(graph, ranking) for graph in graphs or ["starter"]]
    return opened[0] if len(opened) == 1 else Graphs(opened)


def create_responder(
    method: str,
    model: LanguageModel | None,
    graph: Graph | Graphs | None,
    prompts: Path | None = None,
    stage_models: Mapping[str, LanguageModel] | None = None,
) -> Responder:
    """The responder for a model; without one, the lexical responder, if it can do the method."""
    if model is None:
        from dialore.methods.lexical import LexicalResponder
        from dialore.retrieval.embedding import load_embedder

        check_lexical(method)
        return LexicalResponder(graph, graph.embedder if graph is not None else load_embedder())
    from dialore.methods.model_responder import ModelResponder
    from dialore.prompts.library import PromptLibrary

    library = PromptLibrary(prompts)
    main = ModelResponder(model, library)
    if not stage_models:
        return main
    from dialore.methods.routing import RoutedResponder

    return RoutedResponder(main, {stage: ModelResponder(other, library) for stage, other in stage_models.items()})


def check_lexical(method: str) -> None:
    """Check that the lexical responder can do a method; raises InputError saying how to give a model."""
    from dialore.methods.lexical import LexicalResponder

    if method not in LexicalResponder.methods:
        can = ", ".join(LexicalResponder.methods)
        raise InputError(
            f"method {method} needs a language model", mend=f"set --base-url and --model, or take one of {can}"
        )
