"""The terminal while an answer comes: the stage at work, how long that has been, and what is written."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from dialore.agent import Agent
from dialore.cli.output import console
from dialore.dialogue import Dialogue
from dialore.methods.base import steps_of
from dialore.methods.stages import StageName
from dialore.response import Response


class Waiting:
    """The state of an answer that is awaited; drawn anew several times a second."""

    def __init__(self, steps: int) -> None:
        self.draft = self.text = ""
        self._steps, self._stage, self._begun = steps, "", time.monotonic()
        self._spinner = Spinner("dots", style="cyan")

    def begin(self, stage: StageName) -> None:
        """Show that a stage has begun."""
        of = f" · {stage.step} of {max(self._steps, stage.step)}" if stage.step and self._steps > 1 else ""
        self._stage = f"{stage.replace('-', ' ')}{of}"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the stage at work and the seconds; above it as much of the text's end as there is room for."""
        if written := self.text or self.draft:
            lines = Text(written, style="" if self.text else "dim").wrap(console, options.max_width)
            yield from lines[-max(1, console.height - 4) :]
        self._spinner.update(text=Text(f"{self._stage} · {time.monotonic() - self._begun:.0f} s", style="dim"))
        yield self._spinner


async def watch(agent: Agent, dialogue: Dialogue, say: Callable[[str], None] | None = None) -> Response:
    """Return the response, shown while it comes on a terminal; elsewhere `say` gets its text piece by piece."""
    shown, out = Waiting(steps_of(agent.method)), console(stderr=True)
    live = Live(get_renderable=lambda: shown, console=out, refresh_per_second=8, transient=True)

    def draft(text: str) -> None:
        shown.draft += text

    with live if out.is_terminal else contextlib.nullcontext():
        async with contextlib.aclosing(agent.stream(dialogue, shown.begin, on_draft=draft)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if isinstance(piece, Response):
                    return piece
                shown.text += piece
                if say is not None and not out.is_terminal:
                    say(piece)
    raise RuntimeError("a stream ends in its response")
