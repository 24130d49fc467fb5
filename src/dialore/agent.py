"""An agent answers dialogues: a method, and a responder that does its stages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, Self

from dialore.errors import StageError, is_fatal
from dialore.methods.base import Method, form_of
from dialore.methods.citations import mark_used
from dialore.methods.stages import Responder, Stages
from dialore.parallel import bounded_map
from dialore.response import Grounding, Response

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.llm.model import OnText


class Agent:
    """Answers dialogues by one method.

    Args:
        method: the method.
        responder: who does its stages.
        cite: whether responses cite their knowledge (`Response.citations`).

    Raises:
        UnknownNameError: the method's `prompting` is none.
    """

    def __init__(self, method: Method, responder: Responder, *, cite: bool = False) -> None:
        self.method = method
        self.responder = responder
        self.cite = cite
        self._form = form_of(method)
        self.closing: list[object] = []
        """What `close` closes: models, sources, a workbench."""

    async def respond(
        self, dialogue: Dialogue, on_text: OnText | None = None, on_stage: OnText | None = None
    ) -> Response:
        """Answer a dialogue's last turn. A failure is a Response too: `failed`, with its partial trace.

        `on_text` gets the response's text as it is written, `on_stage` the name of each stage that begins.

        Raises:
            InputError: the set-up is wrong for every dialogue: a prompt that is missing or malformed.
            ModelError: likewise, an endpoint that refuses (wrong key, model or address).
        """
        stage = Stages(self.responder, self.method.name, dialogue, on_text, on_stage, cite=self.cite, form=self._form)
        try:
            response = await self.method.respond(dialogue, stage)
        except StageError as error:
            response = Response(status="failed", error=_error(error))
        else:
            self._settle(response, dialogue, stage)
        return response.model_copy(update=self._record(dialogue, stage))

    @staticmethod
    def _settle(response: Response, dialogue: Dialogue, stage: Stages) -> None:
        """Mark what a response cites and draws on; one without text has failed."""
        if not response.text.strip():
            response.status, response.error = "failed", f"dialogue {dialogue.id}: the response came out empty"
        given = {piece.id for piece in response.knowledge}
        citations = response.citations or stage.citations(response.text)
        response.citations = [each for each in citations if each.knowledge in given]
        cited = {each.knowledge for each in response.citations}
        response.knowledge = mark_used(response.knowledge, response.text, dialogue.texts, dialogue.language, cited)

    async def ground(self, dialogue: Dialogue) -> Grounding:
        """Find what a response to the dialogue needs to know, without writing it; raises as `respond` does."""
        stage = Stages(self.responder, self.method.name, dialogue, form=self._form)
        try:
            grounding = await self.method.ground(dialogue, stage)
        except StageError as error:
            grounding = Grounding(status="failed", error=_error(error))
        return grounding.model_copy(update=self._record(dialogue, stage))

    def _record(self, dialogue: Dialogue, stage: Stages) -> dict[str, object]:
        """What a result tells of how it was made, for failed ones too."""
        trace = sorted(stage.trace, key=lambda traced: traced.started)
        made = {"id": dialogue.id, "method": self.method.name, "by": self.responder.name}
        waited = trace[0].started if trace else 0.0
        return {**made, "usage": stage.usage, "seconds": stage.seconds - waited, "waited": waited, "trace": trace}

    async def stream(self, dialogue: Dialogue, on_stage: OnText | None = None) -> AsyncIterator[str | Response]:
        """The response's text piece by piece, then the whole Response; raises as `respond` does."""
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        task = asyncio.create_task(self.respond(dialogue, pieces.put_nowait, on_stage))
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            yield await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def respond_all(self, dialogues: Iterable[Dialogue], *, concurrency: int = 8) -> AsyncIterator[Response]:
        """Answer many dialogues, so many at a time, each response as soon as it is there.

        Workers each answer whole dialogues, so that no stage waits for the slowest of a batch. Raises as `respond`;
        the dialogues under way are then dropped.
        """
        finished: asyncio.Queue[Response | None] = asyncio.Queue()

        async def answer(dialogue: Dialogue) -> None:
            finished.put_nowait(await self.respond(dialogue))

        task = asyncio.create_task(bounded_map(dialogues, answer, limit=concurrency))
        task.add_done_callback(lambda _: finished.put_nowait(None))
        try:
            while (response := await finished.get()) is not None:
                yield response
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Close what the agent was given to close."""
        for item in self.closing:
            done: Any = item.close()  # type: ignore[attr-defined]
            if asyncio.iscoroutine(done):
                await done

    async def __aenter__(self) -> Self:
        """The agent itself."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close it."""
        await self.close()


def _error(error: StageError) -> str:
    """What failed; raises the error underneath where it would befall every dialogue: bad input, a spent budget."""
    if is_fatal(error.cause):
        raise error.cause from error
    return str(error)
