"""An agent answers dialogues: a method, and a stage runner."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from dialore.dialogue import Dialogue, dialogue_of
from dialore.errors import InputError, StageError, is_fatal
from dialore.methods.base import Method, prompt_variant_of
from dialore.methods.citations import mark_used
from dialore.methods.stages import OnStage, StageContext
from dialore.parallel import bounded_map, check_event_loop, listening, wait_for
from dialore.response import Grounding, Response

if TYPE_CHECKING:
    from dialore.dialogue import Given, Messages
    from dialore.methods.stage_runner import StageRunner

Listener: TypeAlias = Callable[[str], object]
"""Gets each piece of a text as it is written; may be async."""


class Agent:
    """Answers dialogues by one method. Make one with `create_agent`.

    A dialogue is a `Dialogue`, the last turn's text, the turns' texts, or chat messages by `messages=`. Each `..._sync`
    is for code without `await`, and works where an event loop runs, too (Jupyter): on a loop in a thread of its own.

    Args:
        method: the method.
        stage_runner: who does its stages.
        cite: whether responses cite their knowledge (`Response.citations`); those of a method with `cites` always do.
        rerank: what puts the pieces that sources find in order, see `StageContext`.

    Raises:
        UnknownNameError: the method's `prompt_variant` is none.
    """

    def __init__(self, method: Method, stage_runner: StageRunner, *, cite: bool = False, rerank: str = "") -> None:
        self.method, self.stage_runner, self.rerank = method, stage_runner, rerank
        self.cite = cite or getattr(method, "cites", False)
        self._prompt_variant = prompt_variant_of(method)
        self.closing: list[object] = []
        """The things that `close` closes: models, sources, a session."""

    async def respond(
        self,
        dialogue: Given | None = None,
        on_token: Listener | None = None,
        on_stage: OnStage | None = None,
        *,
        on_draft: Listener | None = None,
        messages: Messages | None = None,
    ) -> Response:
        """Answer a dialogue's last turn. A failure is a Response too: `failed`, with its partial trace.

        `on_token` gets the response's text as it is written, `on_stage` the name of each stage that begins, `on_draft`
        what is written before it is known whether it is the response. They may be async: then they are awaited one
        call after the other, and before the response is returned.

        Raises:
            InputError: what is given is no dialogue, the set-up is wrong for every dialogue (a prompt that is missing
                or malformed), or no event loop of asyncio runs.
            ModelError: likewise, an endpoint that refuses (wrong key, model or address).
        """
        check_event_loop()
        dialogue = dialogue_of(dialogue, messages)
        if on_token is None and on_stage is None and on_draft is None:
            return await self._respond(dialogue, self._context(dialogue, cite=self.cite))
        async with listening(on_token, on_stage, on_draft) as (token, stage_name, draft):
            stage = self._context(dialogue, token, stage_name, on_draft=draft, cite=self.cite)
            return await self._respond(dialogue, stage)

    async def _respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        try:
            response = await self.method.respond(dialogue, stage)
        except StageError as error:
            response = Response(status="failed", error=_error(error), knowledge=stage.given)
        else:
            await asyncio.to_thread(self._settle, response, dialogue, stage)  # a long turn takes its time
        return response.model_copy(update=self._record(dialogue, stage))

    @staticmethod
    def _settle(response: Response, dialogue: Dialogue, stage: StageContext) -> None:
        """Mark what a response cites and draws on; one without text has failed."""
        if not response.text.strip():
            response.status, response.error = "failed", f"dialogue {dialogue.id}: the response came out empty"
        given = {piece.id for piece in response.knowledge}
        citations = response.citations or stage.citations(response.text)
        response.citations = [citation for citation in citations if citation.knowledge in given]
        numbers = response.numbers
        response.citations = [
            citation.model_copy(update={"number": numbers[citation.knowledge]}) for citation in response.citations
        ]
        cited = {citation.knowledge for citation in response.citations}
        # What the draft was shown it may have told: only what was looked up later has to go beyond it.
        early = [piece for piece in response.knowledge if piece.id in response.drafted_from]
        later = [piece for piece in response.knowledge if piece.id not in response.drafted_from]
        asked = response.text, dialogue.texts, dialogue.language, cited
        response.knowledge = [*mark_used(later, *asked, response.draft), *mark_used(early, *asked)]

    async def ground(self, dialogue: Given) -> Grounding:
        """Find what a response to the dialogue needs to know, without writing it; raises as `respond` does."""
        check_event_loop()
        dialogue = dialogue_of(dialogue)
        stage = self._context(dialogue)
        try:
            grounding = await self.method.ground(dialogue, stage)
        except StageError as error:
            grounding = Grounding(status="failed", error=_error(error))
        return grounding.model_copy(update=self._record(dialogue, stage))

    def _context(self, dialogue: Dialogue, *listeners: Any, **options: Any) -> StageContext:  # noqa: ANN401 - of StageContext
        """Return the context of a response that begins."""
        options |= {"prompt_variant": self._prompt_variant, "rerank": self.rerank}
        return StageContext(self.stage_runner, self.method.name, dialogue, *listeners, **options)

    def _record(self, dialogue: Dialogue, stage: StageContext) -> dict[str, object]:
        trace = sorted(stage.trace, key=lambda traced: traced.started)
        made = {"id": dialogue.id, "method": self.method.name, "model": self.stage_runner.name}
        queued_s = trace[0].started if trace else 0.0
        return {**made, "usage": stage.usage, "seconds": stage.seconds - queued_s, "queued_s": queued_s, "trace": trace}

    async def stream(
        self,
        dialogue: Given | None = None,
        on_stage: OnStage | None = None,
        *,
        on_draft: Listener | None = None,
        messages: Messages | None = None,
    ) -> AsyncIterator[str | Response]:
        """Yield the response's text piece by piece, then the whole Response; raise as `respond` does."""
        check_event_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        responding = self.respond(dialogue, pieces.put_nowait, on_stage, on_draft=on_draft, messages=messages)
        task = asyncio.create_task(responding)
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            yield await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def respond_all(
        self,
        dialogues: Iterable[Given],
        *,
        concurrency: int = 8,
        ordered: bool = False,
        progress: bool | Callable[[int, int | None], object] = False,
    ) -> AsyncIterator[Response]:
        """Answer many dialogues, so many at a time, each response as soon as it is there.

        Workers each answer whole dialogues, so that no stage waits for the slowest of a batch. Raises as `respond`;
        the dialogues under way are then dropped.

        Args:
            dialogues: the dialogues.
            concurrency: the most under way.
            ordered: give the responses in the dialogues' order.
            progress: True for a line on standard error, or what is told how many are answered, of how many (None where
                that is not known).
        """
        if isinstance(dialogues, str | Dialogue | Mapping) or not isinstance(dialogues, Iterable):
            raise InputError(f"many dialogues cannot be {dialogues!r:.80}", hint="give a list: respond_all([dialogue])")
        if type(concurrency) is not int or concurrency < 1:
            raise InputError(f"concurrency cannot be {concurrency!r}", hint="give a number from 1: concurrency=8")
        check_event_loop()
        finished: asyncio.Queue[tuple[int, Response] | None] = asyncio.Queue()
        tell = progress if callable(progress) else _say_progress if progress else lambda _done, _total: None
        total = len(dialogues) if isinstance(dialogues, Sized) else None

        async def answer(item: tuple[int, Given]) -> None:
            finished.put_nowait((item[0], await self.respond(item[1])))

        task = asyncio.create_task(bounded_map(enumerate(dialogues), answer, limit=concurrency))
        task.add_done_callback(lambda _: finished.put_nowait(None))
        held: dict[int, Response] = {}
        answered = given = 0
        try:
            while (next_answer := await finished.get()) is not None:
                answered += 1
                tell(answered, total)
                held[next_answer[0]] = next_answer[1]
                while held and (not ordered or given in held):
                    yield held.pop(given if ordered else next_answer[0])
                    given += 1
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def respond_sync(
        self, dialogue: Given | None = None, on_token: Listener | None = None, *, messages: Messages | None = None
    ) -> Response:
        """`respond`, without `await`."""
        return wait_for(self.respond(dialogue, on_token, messages=messages))

    def stream_sync(
        self, dialogue: Given | None = None, *, messages: Messages | None = None
    ) -> Iterator[str | Response]:
        """`stream`, for a plain `for`."""
        stream = self.stream(dialogue, messages=messages)

        async def following() -> str | Response | None:
            return await anext(stream, None)

        try:
            while (piece := wait_for(following())) is not None:
                yield piece
        finally:
            wait_for(stream.aclose())  # type: ignore[attr-defined]

    async def close(self) -> None:
        """Close what the agent was given to close."""
        for item in self.closing:
            done: Any = item.close()  # type: ignore[attr-defined]
            if asyncio.iscoroutine(done):
                await done

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        wait_for(self.close())

    def __repr__(self) -> str:
        return f"Agent({', '.join(f'{name}={value!r}' for name, value in self._parts().items())})"

    def _repr_html_(self) -> str:
        from dialore import pages

        return pages.environment().get_template("page/parts.html.j2").render(parts=self._parts())

    def _parts(self) -> dict[str, object]:
        """Its method, its model, its sources, and the options that are not the method's defaults."""
        fields = getattr(self.method, "__dataclass_fields__", {})
        set_to = {name: getattr(self.method, name) for name in fields}
        options = {
            name: getattr(value, "name", value) for name, value in set_to.items() if value != fields[name].default
        }
        return {"method": self.method.name, "model": self.stage_runner.name, **options}


def _say_progress(done: int, total: int | None) -> None:
    sys.stderr.write(f"\r{done}{f' of {total}' if total is not None else ''} answered" + "\n" * (done == total))
    sys.stderr.flush()


def _error(error: StageError) -> str:
    """Return what failed; raise the error underneath where every dialogue would meet it: bad input, a spent budget."""
    if is_fatal(error.cause):
        raise error.cause from None  # `from error` would make a cycle: the cause of `error` is this error
    return str(error)
