"""What holds for any model that runs here, whatever its kind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.llm.model import LanguageModel, Request


async def check_pieces_join_to_the_text(model: LanguageModel, request: Request) -> None:
    pieces: list[str] = []
    streamed = await model.complete(request, pieces.append)
    assert "".join(pieces) == streamed.text == (await model.complete(request)).text
    assert len(pieces) > 1


async def check_stopped(model: LanguageModel, request: Request, stop: str, whole: str) -> None:
    """The text and the stream of a request that stops there are the whole's up to there."""
    pieces: list[str] = []
    stopped = await model.complete(request, pieces.append)
    assert stopped.text == whole[: whole.find(stop)] == "".join(pieces)
    assert stopped.finish_reason == "stop"
    assert stopped.usage.completion_tokens < request.sampling.max_tokens


async def check_batched(model: LanguageModel, requests: Sequence[Request]) -> None:
    """Requests that wait are answered at once, each as it is answered alone."""
    alone = [await model.complete(request) for request in requests]
    together = await asyncio.gather(*[model.complete(request) for request in requests])
    assert [completion.text for completion in together] == [completion.text for completion in alone]
    assert [completion.usage for completion in together] == [completion.usage for completion in alone]
    assert len({completion.seconds for completion in together}) == 1
