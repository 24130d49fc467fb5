"""The rich console of the command line. It is a module of its own because rich is imported only when it is used."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from dialore.cli.controls import remove_controls


class SafeConsole(Console):
    """A console that shows texts of others as they are: no control characters, no emoji for `:x:`."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable without the control characters of their texts."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(remove_controls(segment.text), segment.style)
