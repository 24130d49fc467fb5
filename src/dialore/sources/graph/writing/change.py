"""Adding, deleting and updating the facts of a graph that is there, while others read it."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel

from dialore.errors import GraphError
from dialore.sources.graph.store.journal import append
from dialore.sources.graph.store.version import GraphVersion
from dialore.sources.graph.writing.planning import Plan
from dialore.sources.graph.writing.swap import PATIENCE, lock, writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from dialore.knowledge import Fact
    from dialore.sources.graph.store.embed import LinearEmbedder


class ChangeReport(BaseModel):
    """What a change did.

    Attributes:
        added: facts that were not there.
        updated: facts whose weight or provenance is another now.
        deleted: facts that are gone.
        unchanged: facts that were there already, as they were to be.
        missing: facts that were to be deleted or updated and were not there.
        facts: the graph's facts after it.
        concepts: its concepts after it.
        fingerprint: its fingerprint after it.
    """

    added: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    missing: int = 0
    facts: int = 0
    concepts: int = 0
    fingerprint: str = ""


class GraphEditor:
    """Collects changes to a graph file and makes them all at once, or none.

    Nothing is read or locked before `commit`. Readers never wait: each sees the graph as it was, until it is refreshed.

    Args:
        path: the graph file.
        embedder: the one that made the graph's vectors; None loads it.

    Example:
        >>> with GraphEditor(path) as editor:
        ...     editor.add([Fact("sushi", "MadeOf", "rice", 2.0)])
        ...     editor.delete([Fact("sushi", "MadeOf", "snow")])
    """

    def __init__(self, path: Path, embedder: LinearEmbedder | None = None) -> None:
        self.path = path
        self.report = ChangeReport()
        self._embedder = embedder
        self._wanted: list[tuple[str, Fact]] = []

    def add(self, facts: Iterable[Fact]) -> None:
        """Facts to be there; of one that is there already, the heavier is kept, as when a graph is built."""
        self._wanted.extend(("add", fact) for fact in facts)

    def update(self, facts: Iterable[Fact]) -> None:
        """Facts that are there, with the weight and provenance that they shall have."""
        self._wanted.extend(("update", fact) for fact in facts)

    def delete(self, facts: Iterable[Fact]) -> None:
        """Facts to be gone, whatever their weight."""
        self._wanted.extend(("delete", fact) for fact in facts)

    def commit(self) -> ChangeReport:
        """Make the changes, in the order in which they were asked for.

        Raises:
            GraphError: no such graph; it cannot be written, or another writer has it for 30 seconds; its embedder is
                another one; a fact has a blank concept. The graph is then as it was.
        """
        wanted, self._wanted = self._wanted, []
        with _alone(self.path) as handle:
            version = GraphVersion.open(self.path)
            plan = Plan(version)
            for verb, fact in wanted:
                getattr(plan, verb)(fact)
            report = ChangeReport.model_validate(plan.counts)
            record = plan.record(lambda: self._loaded(version))
            if record is not None:
                with writing(self.path):
                    append(handle, version.end, record)
                version = version.latest()
            report.facts, report.concepts = version.meta.facts, version.meta.concepts
            report.fingerprint = version.meta.fingerprint
        self.report = report
        return report

    def _loaded(self, version: GraphVersion) -> LinearEmbedder | None:
        """The embedder of the graph's vectors; None for a graph without any."""
        meta = version.meta
        if not meta.embedder:
            return None
        if self._embedder is None:
            from dialore.retrieval.embedding import load_embedder

            self._embedder = load_embedder(meta.embedder)  # type: ignore[assignment]
        if self._embedder is None or self._embedder.fingerprint != meta.embedder_fingerprint:
            raise GraphError(
                f"{self.path} has vectors of another version of the embedder {meta.embedder}",
                mend="export it and build it again",
            )
        return self._embedder

    def __enter__(self) -> Self:
        """The editor itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:  # noqa: ANN401
        """Commit, unless the body failed."""
        if kind is None:
            self.commit()


@contextmanager
def _alone(path: Path) -> Iterator[int]:
    """The graph file open for writing, with no other writer."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            handle = os.open(path, os.O_RDWR)
        except FileNotFoundError as error:
            raise GraphError(f"no such graph: {path}", mend="build one with `dialore graph build`") from error
        except OSError as error:
            raise GraphError(f"cannot write {path}: {error.strerror}", mend="check its permissions") from error
        try:
            lock(handle, until=deadline, path=path)
            # A graph that was built anew meanwhile is another file.
            if os.fstat(handle).st_ino == path.stat().st_ino:
                yield handle
                return
        finally:
            os.close(handle)


def journal_share(path: Path) -> float:
    """How large a graph's changes are beside what was built; past a tenth or so, `rewrite` makes it quick again."""
    version = GraphVersion.open(path)
    return (version.end - version.built.file.end) / version.built.file.end


def rewrite(path: Path, embedder: LinearEmbedder | None = None) -> None:
    """Build a changed graph anew from its own facts; writers wait for it, readers do not.

    Raises:
        GraphError: as `GraphEditor.commit` and `build_graph` do.
    """
    from dialore.sources.graph.store.embedded import GraphStore
    from dialore.sources.graph.writing.build import build_graph

    with _alone(path), GraphStore(path) as store:
        if embedder is None and store.meta.embedder:
            from dialore.retrieval.embedding import load_embedder

            embedder = load_embedder(store.meta.embedder)  # type: ignore[assignment]
        build_graph(store.facts(), path, name=store.meta.name, embedder=embedder, locked=True)
