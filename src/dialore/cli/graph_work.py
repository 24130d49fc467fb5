"""What the graph commands do."""

from __future__ import annotations

import difflib
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape

from dialore.agent import open_graph
from dialore.cli.output import console, note, print_json, progress, table
from dialore.cli.report import show_ranked
from dialore.errors import GraphError, InputError, UnknownNameError
from dialore.text import check_language, detect_language

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from dialore.knowledge import Fact
    from dialore.sources.graph.facts import Rejects
    from dialore.sources.graph.source import Graph
    from dialore.sources.graph.store import FactStore

_CHUNK = 20_000
_NAMES_COMPARED = 300_000
"""A larger graph's names are not compared one by one for a "did you mean"."""


def build(
    files: Sequence[Path],
    out: Path,
    *,
    languages: Sequence[str] | None,
    file_format: str | None,
    name: str | None,
    force: bool,
    json: bool,
) -> None:
    """Build a graph file and say what is in it; raises GraphError as `build_graph` and `read_facts` do."""
    from dialore.retrieval.embedding import load_embedder
    from dialore.sources.graph.facts import Rejects
    from dialore.sources.graph.writing import build_graph

    _check_target(out, files, force=force)
    rejects = Rejects()
    with progress("reading facts") as step:
        facts = facts_of_files(files, file_format, languages, rejects, step)
        embedder: Any = load_embedder()
        report = build_graph(facts, out, name=name or out.stem, embedder=embedder, on_step=step)
    say_rejects(rejects)
    if json:
        print_json({**report.model_dump(), "rejected": rejects.count})
        return
    merged = f", {report.merged:,} duplicates merged" if report.merged else ""
    size = f"{report.bytes / 2**20:.1f} MB, {report.seconds:.1f} s"
    note(f"{report.facts:,} facts of {report.concepts:,} concepts{merged}: {report.path} ({size})")


def facts_of_files(
    files: Sequence[Path],
    file_format: str | None,
    languages: Sequence[str] | None,
    rejects: Rejects,
    step: Callable[[str, int, int | None], None],
) -> Iterator[Fact]:
    """The facts of several files, with progress; raises GraphError as `read_facts` does."""
    from dialore.sources.graph.facts import FILE_FORMATS, read_facts

    kept = [check_language(language) for language in languages] if languages else ["en", "zh"]
    if file_format is not None and file_format not in FILE_FORMATS:
        raise UnknownNameError("format", file_format, FILE_FORMATS)
    chosen = next((known for known in FILE_FORMATS if known == file_format), None)
    return (
        fact
        for path in files
        for fact in read_facts(
            path,
            file_format=chosen,
            languages=kept,  # type: ignore[arg-type]
            progress=_told(path, step),
            rejects=rejects,
        )
    )


def _told(path: Path, step: Callable[[str, int, int | None], None]) -> Callable[[int], None]:
    size = path.stat().st_size if path.is_file() else None
    return lambda done: step(f"reading {path.name}", done, size)


def say_rejects(rejects: Rejects) -> None:
    """Show the first of the lines that were left out."""
    for sentence in rejects.first:
        note(f"left out: {sentence}")
    if rejects.count > len(rejects.first):
        note(f"left out: {rejects.count - len(rejects.first):,} more lines")


def _check_target(out: Path, files: Sequence[Path], *, force: bool) -> None:
    """Keep a slip of the pen from overwriting data: only a graph, or nothing, gives way to a graph."""
    if out.is_dir():
        raise GraphError(f"{out} is a folder", mend="name a file, e.g. --out my.graph")
    if any(path.exists() and out.exists() and out.samefile(path) for path in files):
        raise GraphError(f"{out} is one of the files to be read", mend="name another --out")
    if out.is_file() and not force:
        from dialore.sources.graph.store import GraphStore

        try:
            GraphStore(out).close()
        except GraphError as error:
            raise GraphError(f"{out} is there and is not a graph", mend="--force overwrites it") from error


def stats(name: str, *, top: int, json: bool) -> None:
    """Count facts by relation and name the best-connected concepts."""
    with closing(open_graph(name)) as graph:
        meta = graph.store.meta
        relations, degrees = _count(graph.store)
        best = [(graph.store.concept(int(place)), int(degrees[place])) for place in np.argsort(-degrees)[:top]]
        path = getattr(graph.store, "path", None)  # a graph on a server has none
        data: dict[str, Any] = {"name": meta.name, "path": str(path or name), "facts": meta.facts}
        data |= {"concepts": meta.concepts, "languages": meta.languages, "relations": relations}
        data |= {"best_connected": dict(best), "embedder": meta.embedder, "fingerprint": meta.fingerprint}
        data |= {"bytes": path.stat().st_size if path else 0}
    if json:
        print_json(data)
        return
    out = console()
    size = f"{data['bytes'] / 2**20:.1f} MB"
    out.print(
        f"[bold]{escape(meta.name)}[/]  {meta.facts:,} facts, {meta.concepts:,} concepts, {', '.join(meta.languages)}"
    )
    out.print(f"[dim]{escape(data['path'])} · {size} · vectors: {escape(meta.embedder)} · {meta.fingerprint}[/]")
    rows = table("relation", ">facts", ">share")
    for relation, count in relations.items():
        rows.add_row(relation, f"{count:,}", f"{count / max(1, meta.facts):.1%}")
    out.print(rows)
    if best:
        out.print("best connected: " + escape(", ".join(f"{concept} ({degree:,})" for concept, degree in best)))


def _count(store: FactStore) -> tuple[dict[str, int], np.ndarray[Any, np.dtype[np.int64]]]:
    """Facts by relation, the most frequent first, and each concept's number of facts."""
    meta = store.meta
    relations = np.zeros(len(meta.relations), np.int64)
    degrees = np.zeros(meta.concepts, np.int64)
    with progress("counting") as step:
        for start in range(0, meta.concepts, _CHUNK):
            end = min(start + _CHUNK, meta.concepts)
            edges = store.edges_of(range(start, end))
            own = (edges.head >= start) & (edges.head < end)
            relations += np.bincount(edges.relation[own], minlength=len(relations))
            degrees += np.bincount(edges.head[own], minlength=meta.concepts)
            degrees += np.bincount(edges.tail[own], minlength=meta.concepts)
            step("", end, meta.concepts)
    order = np.argsort(-relations, kind="stable")
    return {meta.relations[place]: int(relations[place]) for place in order if relations[place]}, degrees


def show(concept: str, name: str, *, limit: int, json: bool) -> None:
    """Show a concept's facts, the heaviest first; raises UnknownNameError where the graph does not have it."""
    with closing(open_graph(name)) as graph:
        found = graph.facts_of(concept)
        if not found:
            linked = graph.linker.link(concept, detect_language(concept))
            if linked and linked[0].how != "contained":
                note(f"{concept!r} stands in the graph as {linked[0].name!r}")
                found = graph.facts_of(linked[0].name)
            else:
                raise _unknown(concept, [link.name for link in linked], graph)
    if json:
        print_json([{"head": f.head, "relation": f.relation, "tail": f.tail, **_rest(f)} for f in found[:limit]])
        return
    rows = table("head", "relation", "tail", ">weight", "from")
    for fact in found[:limit]:
        rows.add_row(escape(fact.head), fact.relation, escape(fact.tail), f"{fact.weight:g}", escape(fact.provenance))
    console().print(rows)
    if len(found) > limit:
        note(f"{len(found) - limit} more facts: --limit {len(found)}")


def _rest(fact: Fact) -> dict[str, object]:
    return {"weight": round(fact.weight, 4), "provenance": fact.provenance, "graph": fact.graph, "id": fact.id}


def _unknown(concept: str, linked: list[str], graph: Graph) -> InputError:
    near = linked
    store = graph.store
    if not near and store.meta.concepts <= _NAMES_COMPARED:
        names = (store.concept(number) for number in range(store.meta.concepts))
        near = difflib.get_close_matches(concept, [each for each in names if abs(len(each) - len(concept)) < 4], n=3)
    mend = f"did you mean {' or '.join(near)}?" if near else "try another word for it"
    return InputError(f"no concept {concept!r} in the graph {graph.name}", mend=mend)


def retrieve(
    queries: list[str],
    topics: list[str],
    name: str,
    *,
    history: str | None,
    language: str | None,
    top: int,
    ranking: str,
    reranker: str | None,
    json: bool,
) -> None:
    """Show how phrases link, and the foreseen and unforeseen facts between and around them."""
    from dialore.dialogue import Dialogue
    from dialore.response import Demands
    from dialore.retrieval.embedding import load_embedder
    from dialore.sources.graph.source import Graph

    if not queries and not topics:
        raise InputError("nothing to look for", mend="give --query, --topic or both")
    text = history or " ".join([*queries, *topics])
    spoken = check_language(language) if language else detect_language(text)
    dialogue = Dialogue.model_validate({"id": "retrieve", "language": spoken, "turns": [text]})
    with closing(open_graph(name)) as opened:
        graph = Graph(opened.store, opened.embedder, ranking, load_embedder(reranker) if reranker else None)
        found = graph.retrieve(Demands(explicit=queries, maintained=topics), dialogue, top)
    if json:
        links = [{"phrase": e.phrase, "concept": e.name, "how": e.how, "score": e.score} for e in found.links]
        sets = {
            kind: [item.model_dump(mode="json") for item in getattr(found, kind)] for kind in ("foreseen", "unforeseen")
        }
        counts = {"foreseen_found": found.foreseen_found, "unforeseen_found": found.unforeseen_found}
        print_json({"links": links, "unlinked": found.unlinked, **counts, **sets})
        return
    out = console()
    for link in found.links:
        out.print(f"{escape(link.phrase)} [dim]->[/] {escape(link.name)} [dim]({link.how}, {link.score})[/]")
    for phrase in found.unlinked:
        out.print(f"{escape(phrase)} [dim]->[/] [yellow]no concept[/]")
    for kind, count in (("foreseen", found.foreseen_found), ("unforeseen", found.unforeseen_found)):
        facts = getattr(found, kind)
        out.print(f"\n[bold]{kind}[/]: {count:,} facts" + (f", the best {len(facts)}" if len(facts) < count else ""))
        if facts:
            show_ranked(out, facts)
