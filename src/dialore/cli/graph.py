"""`dialore graph`: build a commonsense graph, look into it, ask it, change it."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer import Argument, Option

from dialore.cli.options import Json, one_of
from dialore.cli.output import Table, console, escape, note, note_rejects, print_json, progress, say, say_json_text
from dialore.cli.render import show_ranked
from dialore.dialogue import Dialogue
from dialore.errors import GraphError, InputError
from dialore.knowledge import Fact
from dialore.response import Demands
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.graph.changes import GraphEditor, compact_graph
from dialore.retrieval.graph.checking import problems_of
from dialore.retrieval.graph.facts import EXPORT_FORMATS, FILE_FORMATS, Rejects, export_graph, lines_of, read_facts
from dialore.retrieval.graph.starter import NAME, starter_graph
from dialore.retrieval.graph.store import GraphStore
from dialore.retrieval.graph.writing import build_graph
from dialore.sources.graph import open_graph
from dialore.text import check_language, detect_language

_CHUNK = 20_000
_NAMES_COMPARED = 300_000
"""A larger graph's names are not compared one by one for a "did you mean"."""

app = typer.Typer(no_args_is_help=True)
_File = Annotated[Path, Argument(metavar="GRAPH", help="The graph's file.")]
_Files = Annotated[list[Path], Argument(metavar="FILES...", help="TSV, JSONL or ConceptNet assertions; .gz too.")]
_Format = Annotated[str | None, Option("--format", metavar="tsv|jsonl|conceptnet", help="Where it cannot be guessed.")]
_Graph = Annotated[str, Option("--graph", "-g", metavar="PATH|starter", help="The graph.")]


@app.command("build")
def build(
    files: _Files,
    out: Annotated[Path, Option(metavar="FILE", help="Where the graph goes.")],
    language: Annotated[
        list[str] | None,
        Option("--language", "-l", metavar="en|zh", help="Of a ConceptNet dump, keep these; may be repeated."),
    ] = None,
    file_format: _Format = None,
    name: Annotated[str | None, Option(help="The graph's name. (default: the file's)")] = None,
    force: Annotated[bool, Option("--force", help="Overwrite a file that is no graph.")] = False,
    json: Json = False,
) -> None:
    """Build a graph file; an old one stays in place until the new one is whole.

    TSV lines are head, relation, tail and perhaps a weight, or relation
    first; JSONL objects have these keys; ConceptNet is its assertions dump
    as published. Lines with a weight of 0 or less, such as false ones that
    a label marks, and ATOMIC's tail "none" are left out and counted.

    [bold]Examples[/bold]
    dialore graph build facts.tsv --out my.graph
    dialore graph build assertions.csv.gz -l en -l zh --out conceptnet.graph
    dialore respond talk.json --graph my.graph
    """
    _check_target(out, files, force=force)
    rejects = Rejects()
    with progress("reading facts") as step:
        facts = _facts(files, file_format, language, rejects, step)
        embedder: Any = load_embedder()
        report = build_graph(facts, out, name=name or out.stem, embedder=embedder, on_step=step)
    note_rejects(rejects.first, rejects.count)
    if json:
        left_out = report.left_out + rejects.left_out.total()
        print_json({**report.model_dump(), "left_out": left_out, "rejected": rejects.count})
        return
    merged = f", {report.merged:,} duplicates merged" if report.merged else ""
    size = f"{report.bytes / 2**20:.1f} MB, {report.seconds:.1f} s"
    note(f"{report.facts:,} facts of {report.concepts:,} concepts{merged}: {report.path} ({size})")


@app.command("stats")
def stats(
    graph: Annotated[str, Argument(metavar="[GRAPH]", help="The graph's file, or starter.")] = "starter",
    top: Annotated[int, Option(min=0, help="How many of the best-connected concepts to name.")] = 10,
    json: Json = False,
) -> None:
    """Count a graph's facts, concepts and relations.

    [bold]Examples[/bold]
    dialore graph stats
    dialore graph stats my.graph --json
    """
    with closing(open_graph(graph)) as opened:
        store, meta = opened.store, opened.store.meta
        relations, degrees = _count(store)
        best = [(store.concept(int(number)), int(degrees[number])) for number in np.argsort(-degrees)[:top]]
        data: dict[str, Any] = {"name": meta.name, "path": str(store.path), "facts": meta.facts}
        data |= {"concepts": meta.concepts, "languages": meta.languages, "relations": relations}
        data |= {"best_connected": dict(best), "embedder": meta.embedder, "fingerprint": meta.fingerprint}
        data |= {"bytes": store.path.stat().st_size}
    if json:
        print_json(data)
        return
    out = console()
    size = f"{data['bytes'] / 2**20:.1f} MB"
    counts = f"{meta.facts:,} facts, {meta.concepts:,} concepts, {', '.join(meta.languages)}"
    out.print(f"[bold]{escape(meta.name)}[/]  {escape(counts)}")
    out.print(f"[dim]{escape(data['path'])} · {size} · vectors: {escape(meta.embedder)} · {meta.fingerprint}[/]")
    rows = [(name, f"{count:,}", f"{count / max(1, meta.facts):.1%}") for name, count in relations.items()]
    out.print(Table("relation", ">facts", ">share", rows=rows))
    if best:
        out.print("best connected: " + escape(", ".join(f"{concept} ({degree:,})" for concept, degree in best)))


@app.command("show")
def show(
    concept: Annotated[str, Argument(metavar="CONCEPT", help="A word or phrase.")],
    graph: _Graph = "starter",
    limit: Annotated[int, Option(min=1, help="How many facts to show, the heaviest first.")] = 50,
    json: Json = False,
) -> None:
    """Show the facts of one concept.

    [bold]Examples[/bold]
    dialore graph show "sore throat"
    dialore graph show 饺子 --json
    """
    with closing(open_graph(graph)) as opened:
        facts_found = opened.facts_of(concept)
        if not facts_found:
            linked = opened.link([concept])
            if not linked or linked[0].how == "contained":
                near = [link.name for link in linked] or _alike(concept, opened.store)
                hint = f"did you mean {' or '.join(near)}?" if near else "try another word for it"
                raise InputError(f"no concept {concept!r} in the graph {opened.name}", hint=hint)
            note(f"{concept!r} stands in the graph as {linked[0].name!r}")
            facts_found = opened.facts_of(linked[0].name)
    if json:
        fields = ("head", "relation", "tail", "weight", "provenance", "graph", "id")
        facts = [{name: getattr(fact, name) for name in fields} for fact in facts_found[:limit]]
        print_json([{**fact, "weight": round(fact["weight"], 4)} for fact in facts])
        return
    rows = Table("head", "relation", "tail", ">weight", "from")
    for fact in facts_found[:limit]:
        rows.add_row(fact.head, fact.relation, fact.tail, f"{fact.weight:g}", fact.provenance)
    console().print(rows)
    if len(facts_found) > limit:
        note(f"{len(facts_found) - limit} more facts: --limit {len(facts_found)}")


@app.command("retrieve")
def retrieve(
    query: Annotated[list[str] | None, Option("--query", "-q", help="A query; may be repeated.")] = None,
    topic: Annotated[list[str] | None, Option("--topic", "-t", help="A topic; may be repeated.")] = None,
    history: Annotated[str | None, Option(help="What the facts are ranked by. (default: queries and topics)")] = None,
    language: Annotated[str | None, Option("--language", "-l", metavar="en|zh", help="(default: the text's)")] = None,
    top: Annotated[int, Option(min=1, help="Facts to keep of each set.")] = 10,
    ranking: Annotated[str, Option(metavar="default|paper", help="paper: cosine with the history alone.")] = "default",
    graph: _Graph = "starter",
    json: Json = False,
) -> None:
    """Retrieve the facts between and around queries and topics, ranked.

    Foreseen facts lie between a query and a topic; unforeseen ones hold
    either.

    [bold]Example[/bold]
    dialore graph retrieve -q "sore throat" -t honey --history "It hurts."
    """
    queries, topics = query or [], topic or []
    if not queries and not topics:
        raise InputError("nothing to look for", hint="give --query, --topic or both")
    text = history or " ".join([*queries, *topics])
    spoken = check_language(language) if language else detect_language(text)
    dialogue = Dialogue.model_validate({"id": "retrieve", "language": spoken, "turns": [text]})
    with closing(open_graph(graph, ranking)) as opened:
        retrieved = opened.retrieve(Demands(explicit=queries, maintained=topics), dialogue, top)
    if json:
        links = [{"phrase": e.phrase, "concept": e.name, "how": e.how, "score": e.score} for e in retrieved.links]
        data: dict[str, Any] = {"links": links, "unlinked": retrieved.unlinked}
        data |= {"foreseen_found": retrieved.foreseen_found, "unforeseen_found": retrieved.unforeseen_found}
        print_json({**data, "foreseen": retrieved.foreseen, "unforeseen": retrieved.unforeseen})
        return
    out = console()
    for link in retrieved.links:
        out.print(f"{escape(link.phrase)} [dim]->[/] {escape(link.name)} [dim]({link.how}, {link.score})[/]")
    for phrase in retrieved.unlinked:
        out.print(f"{escape(phrase)} [dim]->[/] [yellow]no concept[/]")
    for kind, count in (("foreseen", retrieved.foreseen_found), ("unforeseen", retrieved.unforeseen_found)):
        facts = getattr(retrieved, kind)
        out.print(f"\n[bold]{kind}[/]: {count:,} facts" + (f", the best {len(facts)}" if len(facts) < count else ""))
        if facts:
            show_ranked(out, facts)


@app.command("add")
def add(graph: _File, files: _Files, file_format: _Format = None, json: Json = False) -> None:
    """Add facts to a graph; of one that is there, the heavier is kept.

    The change is one transaction. Readers may continue: each question sees
    the graph before or after it. To change a weight, delete and add the fact.

    [bold]Example[/bold]
    dialore graph add my.graph more.tsv
    """
    _change("add", graph, files, file_format, json=json)


@app.command("delete")
def delete(graph: _File, files: _Files, file_format: _Format = None, json: Json = False) -> None:
    """Delete facts from a graph, whatever their weight.

    [bold]Example[/bold]
    dialore graph delete my.graph wrong.tsv
    """
    _change("delete", graph, files, file_format, json=json)


@app.command("compact")
def compact(graph: _File, json: Json = False) -> None:
    """Rewrite a graph that was changed often without its unused pages.

    [bold]Example[/bold]
    dialore graph compact my.graph
    """
    before = graph.stat().st_size if graph.is_file() else 0
    compact_graph(graph)
    after = graph.stat().st_size
    if json:
        print_json({"path": str(graph), "bytes_before": before, "bytes": after})
    else:
        note(f"{graph}: {before / 2**20:.1f} MB before, {after / 2**20:.1f} MB now")


@app.command("verify")
def verify(graph: _File, json: Json = False) -> None:
    """Check a graph file: its pages, and each table against the others.

    Exit code 1 if something is wrong.

    [bold]Example[/bold]
    dialore graph verify my.graph
    """
    problems = problems_of(graph)
    if json:
        print_json({"problems": problems})
    else:
        say("\n".join(f"{graph}: {problem}" for problem in problems) or f"{graph} is whole")
    if problems:
        raise typer.Exit(1)


@app.command("export")
def export(
    graph: _File,
    out: Annotated[Path | None, Option(metavar="FILE", help="(default: standard output)")] = None,
    file_format: Annotated[
        str | None, Option("--format", metavar="tsv|jsonl", help="(default: by the file's name, else tsv)")
    ] = None,
) -> None:
    """Write a graph's facts to a file that a graph can be built of again.

    [bold]Examples[/bold]
    dialore graph export my.graph --out facts.jsonl.gz
    dialore graph export my.graph | cut -f 2 | sort | uniq -c
    """
    graph = starter_graph() if str(graph) == NAME and not graph.exists() else graph
    ending = "jsonl" if out is not None and out.name.removesuffix(".gz").endswith((".jsonl", ".ndjson")) else "tsv"
    chosen = one_of("format", file_format or ending, EXPORT_FORMATS)
    if out is not None and out.exists() and graph.exists() and out.samefile(graph):
        raise GraphError(f"{out} is the graph itself", hint="name another --out")
    with GraphStore(graph) as store:
        if out is None:
            for line in lines_of(store, chosen):
                say_json_text(line) if chosen == "jsonl" else say(line)
            return
        with progress("writing facts") as step:
            done = export_graph(store, out, chosen, step)
    note(f"{done:,} facts: {out}")


def _change(verb: str, graph: Path, files: Sequence[Path], file_format: str | None, *, json: bool) -> None:
    """Change a graph and say what came of it; raises GraphError as `GraphEditor.commit` and `read_facts` do."""
    rejects = Rejects()
    editor = GraphEditor(graph)
    with progress("reading facts") as step:
        facts = _facts(files, file_format, None, rejects, step, keep_all=verb == "delete")
        getattr(editor, verb)(facts)
        step("changing the graph", 0, None)
        report = editor.commit()
    note_rejects(rejects.first, rejects.count)
    if json:
        left_out = report.left_out + rejects.left_out.total()
        print_json({**report.model_dump(), "left_out": left_out, "rejected": rejects.count})
    else:
        done = {name: getattr(report, name) for name in ("added", "updated", "deleted", "unchanged", "missing")}
        summary = ", ".join(f"{count:,} {name}" for name, count in done.items() if count) or "nothing to change"
        note(f"{summary}: {graph} has {report.facts:,} facts of {report.concepts:,} concepts")


def _facts(
    files: Sequence[Path],
    file_format: str | None,
    languages: Sequence[str] | None,
    rejects: Rejects,
    step: Callable[[str, int, int | None], None],
    *,
    keep_all: bool = False,
) -> Iterator[Fact]:
    """Return the facts of several files, with progress; raise GraphError as `read_facts` does."""
    kept = [check_language(language) for language in languages or ("en", "zh")]
    chosen = one_of("format", file_format, FILE_FORMATS) if file_format is not None else None

    def read(path: Path) -> Iterator[Fact]:
        size = path.stat().st_size if path.is_file() else None
        told: dict[str, Any] = {"progress": lambda done: step(f"reading {path.name}", done, size), "rejects": rejects}
        return read_facts(path, file_format=chosen, languages=kept, keep_all=keep_all, **told)

    return (fact for path in files for fact in read(path))


def _check_target(out: Path, files: Sequence[Path], *, force: bool) -> None:
    """Keep a slip of the pen from overwriting data: only a graph, or nothing, gives way to a graph."""
    if out.is_dir():
        raise GraphError(f"{out} is a folder", hint="name a file, e.g. --out my.graph")
    if any(path.exists() and out.exists() and out.samefile(path) for path in files):
        raise GraphError(f"{out} is one of the files to be read", hint="name another --out")
    if out.is_file() and not force:
        try:
            GraphStore(out).close()
        except GraphError as error:
            raise GraphError(f"{out} is there and is not a graph", hint="--force overwrites it") from error


def _count(store: GraphStore) -> tuple[dict[str, int], np.ndarray[Any, np.dtype[np.int64]]]:
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
    return {meta.relations[number]: int(relations[number]) for number in order if relations[number]}, degrees


def _alike(concept: str, store: GraphStore) -> list[str]:
    """Names that are nearly written so."""
    if store.meta.concepts > _NAMES_COMPARED:
        return []
    names = map(store.concept, range(store.meta.concepts))
    return difflib.get_close_matches(concept, [name for name in names if abs(len(name) - len(concept)) < 4], n=3)
