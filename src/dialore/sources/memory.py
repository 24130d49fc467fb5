"""Memory: what was said in earlier conversations, by whom, when, and from when until when it held.

A dialogue brings its user's statements (`extra["memory"]`), as a service gives them; a file stands in for dialogues
that bring none. One open source thus serves many users, and never knows whose statements they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from dialore.sources.base import SearchResult
from dialore.sources.persona import PersonaSource

if TYPE_CHECKING:
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.sources.persona import Ranker
    from dialore.sources.statements import Statement


class MemorySource:
    """The statements and turns of earlier conversations of a dialogue's user, ranked as a persona is.

    What holds now is found. A question of another time ("last spring", "before") finds what held then, and turns that
    were said then; a closed statement is given with the time until which it held. What has expired is not found.

    Args:
        statements: stand in where a dialogue brings none.
        retriever: as of `PersonaSource`; `dialogue` finds the most on Multi-Session Chat (`scripts/measure_memory.py`).
    """

    name = kind = "memory"

    def __init__(self, statements: Iterable[Statement] = (), *, retriever: str | Ranker = "dialogue") -> None:
        self.statements = list(statements)
        self._ranked = PersonaSource(retriever=retriever)

    def of(self, dialogue: Dialogue) -> list[Statement]:
        """Return all statements, also closed ones, newest first; raise SourceError where they are malformed."""
        has_memory = dialogue.extra.get("memory") is not None
        if not has_memory and not self.statements:
            return []
        from dialore.sources.statements import statements_of, with_intervals

        statements = statements_of(dialogue) if has_memory else self.statements
        return with_intervals(statements, datetime.now(UTC))

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """See `KnowledgeSource`; `scope` is ignored."""
        statements = self.of(dialogue)
        if not statements:
            return SearchResult()
        from dialore.sources.statements import select_statements, to_knowledge

        candidates, of_then = select_statements(statements, query, dialogue)
        by_text = {statement.searched: statement for statement in candidates}
        asked = dialogue.model_copy(update={"persona": tuple(by_text), "extra": {}})
        ranked = await self._ranked.search(query, asked, len(by_text) if of_then else top)
        results = [(by_text[piece.text], piece.score) for piece in ranked]
        if of_then:
            results = _alternate(results, of_then)
        return SearchResult(to_knowledge(statement, dialogue, statements, score) for statement, score in results[:top])

    def every(self, dialogue: Dialogue) -> Iterator[Knowledge]:
        """See `Listed`: what holds now, oldest first."""
        statements = self.of(dialogue)
        if not statements:
            return
        from dialore.sources.statements import standing, to_knowledge

        for statement in reversed(standing(statements, datetime.now(UTC))):
            yield to_knowledge(statement, dialogue, statements)

    def close(self) -> None:
        """Nothing is held open."""


def _alternate(found: Sequence[tuple[Statement, float]], of_then: set[str]) -> list[tuple[Statement, float]]:
    """Return ranked statements in turns: one that held at the time asked about, then one that holds now alone."""
    then = [entry for entry in found if entry[0].id in of_then]
    now = [entry for entry in found if entry[0].id not in of_then]
    alternating = chain.from_iterable(zip_longest(then, now))
    return [entry for entry in alternating if entry is not None]


def open_memory(path: Path | None = None) -> MemorySource:
    """Return the statements of a JSONL file, or each dialogue's own; raise InputError if the file is malformed."""
    if path is None:
        return MemorySource()
    from dialore.sources.statements import read_statements

    return MemorySource(read_statements(path))
