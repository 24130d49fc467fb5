"""Figures of responses: what a trace says about calls, tokens, parsing and retrieval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dialore.llm.model import Usage
    from dialore.response import Grounding, Response, StageTrace


@dataclass(slots=True)
class Figures:
    """Counts that add up.

    Attributes:
        unparsed: stages whose answer could not be parsed, so that the fallback was used.
        repaired: stages that needed a repair turn.
        linked: demands or mentions that were linked to a concept.
        foreseen: foreseen facts found; None where the method knows no such thing.
        unforeseen: unforeseen facts found.
        found: facts found, of methods that do not tell the two apart.
    """

    unparsed: int = 0
    repaired: int = 0
    linked: int | None = None
    foreseen: int | None = None
    unforeseen: int | None = None
    found: int | None = None

    def words(self) -> list[str]:
        """The counts in words, those that are there."""
        said = [f"{count} {name}" for name, count in self._facts() if count is not None]
        said.append(f"{self.unparsed} parse failures" if self.unparsed != 1 else "1 parse failure")
        if self.repaired:
            said.append(f"{self.repaired} repaired")
        return said

    def _facts(self) -> list[tuple[str, int | None]]:
        names = (("linked", self.linked), ("facts found", self.found))
        return [*names, ("foreseen", self.foreseen), ("unforeseen", self.unforeseen)]

    def data(self) -> dict[str, int]:
        """The counts for JSON, those that are there."""
        named = {"unparsed": self.unparsed, "repaired": self.repaired, "linked": self.linked, "found": self.found}
        named |= {"foreseen": self.foreseen, "unforeseen": self.unforeseen}
        return {name: count for name, count in named.items() if count is not None}


def figures_of(trace: Iterable[StageTrace]) -> Figures:
    """The figures of one response's trace."""
    figures = Figures()
    for stage in trace:
        figures.unparsed += stage.outcome == "unparsed"
        figures.repaired += stage.outcome == "repaired"
        output = stage.output
        if isinstance(links := output.get("links"), list):
            figures.linked = (figures.linked or 0) + len(links)
        if stage.stage != "fact-retrieval":
            continue
        for kind in ("foreseen", "unforeseen"):
            if isinstance(counts := output.get(kind), dict):
                setattr(figures, kind, counts.get("found"))
        if isinstance(found := output.get("found"), int):
            figures.found = found
    return figures


def total(figures: Sequence[Figures]) -> Figures:
    """The sum of figures, field by field; a field that none has stays None."""
    summed = Figures()
    for item in figures:
        for name, count in item.data().items():
            setattr(summed, name, (getattr(summed, name) or 0) + count)
    return summed


def cost(usage: Usage, seconds: float) -> str:
    """Calls, tokens and time in words."""
    calls = "1 call" if usage.calls == 1 else f"{usage.calls} calls"
    if usage.cached:
        calls += f" ({usage.cached} cached)"
    tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    retried = f", {usage.retries} retries" if usage.retries else ""
    time = f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
    return f"{calls}, {tokens}{retried}, {time}" if usage.calls else f"no model call, {time}"


def summary(result: Response | Grounding) -> str:
    """One line about one result."""
    return " · ".join([cost(result.usage, result.seconds), *figures_of(result.trace).words()])
