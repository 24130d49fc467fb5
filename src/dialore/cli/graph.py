"""`dialore graph`: build a commonsense graph, look into it, ask it, change it."""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from dialore.sources.graph import Graph as OpenGraph
from dialore.sources.graph import open_graph
from dialore.text import check_language, count_noun, detect_language

_CHUNK = 20_000
_MAX_FACTS, _MAX_CONCEPTS = 50, 10
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
    concepts = count_noun(report.concepts, "concepts")
    note(f"{count_noun(report.facts, 'facts')} of {concepts}{merged}: {report.path} ({size})")


@app.command("show")
def show(
    concept: Annotated[str | None, Argument(metavar="[CONCEPT]", help="A word or phrase. (default: the graph)")] = None,
    graph: _Graph = "starter",
    limit: Annotated[
        int | None, Option(min=1, help="Facts or concepts to list. (default: 50 facts, 10 concepts)")
    ] = None,
    json: Json = False,
) -> None:
    """Show the facts of one concept, or count a graph's facts, concepts and relations.

    [bold]Examples[/bold]
    dialore graph show "sore throat"
    dialore graph show 饺子 --json
    dialore graph show --graph my.graph
    """
    with closing(open_graph(graph)) as opened:
        if concept is None:
            _show_figures(_figures(opened.store, limit or _MAX_CONCEPTS), json=json)
        else:
            _show_facts(_facts_of(concept, opened), limit or _MAX_FACTS, json=json)


def _facts_of(concept: str, graph: OpenGraph) -> Sequence[Fact]:
    """Return the facts of a concept, or of the concept that it is linked to; raise InputError if there is none."""
    facts = graph.facts_of(concept)
    if facts:
        return facts
    links = graph.link([concept])
    if not links or links[0].how == "contained":
        near = [link.name for link in links] or _similar_names(concept, graph.store)
        hint = f"did you mean {' or '.join(near)}?" if near else "try another word for it"
        raise InputError(f"no concept {concept!r} in the graph {graph.name}", hint=hint)
    note(f"{concept!r} stands in the graph as {links[0].name!r}")
    return graph.facts_of(links[0].name)


def _show_facts(facts: Sequence[Fact], limit: int, *, json: bool) -> None:
    if json:
        fields = ("head", "relation", "tail", "weight", "provenance", "graph", "id")
        listed = [{name: getattr(fact, name) for name in fields} for fact in facts[:limit]]
        print_json([{**fact, "weight": round(fact["weight"], 4)} for fact in listed])
        return
    rows = Table("head", "relation", "tail", ">weight", "from")
    for fact in facts[:limit]:
        rows.add_row(fact.head, fact.relation, fact.tail, f"{fact.weight:g}", fact.provenance)
    console().print(rows)
    if len(facts) > limit:
        note(f"{len(facts) - limit} more facts: --limit {len(facts)}")


def _figures(store: GraphStore, limit: int) -> dict[str, Any]:
    """Return the figures of a graph as plain data."""
    meta = store.meta
    relations, degrees = _count(store)
    best = [(store.concept(int(number)), int(degrees[number])) for number in np.argsort(-degrees)[:limit]]
    return {
        "name": meta.name,
        "path": str(store.path),
        "facts": meta.facts,
        "concepts": meta.concepts,
        "languages": meta.languages,
        "relations": relations,
        "best_connected": dict(best),
        "embedder": meta.embedder,
        "fingerprint": meta.fingerprint,
        "bytes": store.path.stat().st_size,
    }


def _show_figures(figures: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json(figures)
        return
    out = console()
    size = f"{figures['bytes'] / 2**20:.1f} MB"
    counts = f"{figures['facts']:,} facts, {figures['concepts']:,} concepts, {', '.join(figures['languages'])}"
    out.print(f"[bold]{escape(figures['name'])}[/]  {escape(counts)}")
    origin = f"{size} · vectors: {escape(figures['embedder'])} · {figures['fingerprint']}"
    out.print(f"[dim]{escape(figures['path'])} · {origin}[/]")
    rows = Table("relation", ">facts", ">share")
    for name, count in figures["relations"].items():
        rows.add_row(name, f"{count:,}", f"{count / max(1, figures['facts']):.1%}")
    out.print(rows)
    best = [f"{concept} ({degree:,})" for concept, degree in figures["best_connected"].items()]
    if best:
        out.print("best connected: " + escape(", ".join(best)))


@app.command("search")
def search(
    query: Annotated[list[str] | None, Option("--query", "-q", help="A query; may be repeated.")] = None,
    topic: Annotated[list[str] | None, Option("--topic", "-t", help="A topic; may be repeated.")] = None,
    history: Annotated[str | None, Option(help="What the facts are ranked by. (default: queries and topics)")] = None,
    top: Annotated[int, Option(min=1, help="Facts to keep of each set.")] = 10,
    ranking: Annotated[str, Option(metavar="default|paper", help="paper: cosine with the history alone.")] = "default",
    graph: _Graph = "starter",
    json: Json = False,
) -> None:
    """Search for the facts between and around queries and topics, ranked.

    Foreseen facts lie between a query and a topic; unforeseen ones hold
    either.

    [bold]Example[/bold]
    dialore graph search -q "sore throat" -t honey --history "It hurts."
    """
    queries, topics = query or [], topic or []
    if not queries and not topics:
        raise InputError("nothing to look for", hint="give --query, --topic or both")
    text = history or " ".join([*queries, *topics])
    dialogue = Dialogue.model_validate({"id": "search", "language": detect_language(text), "turns": [text]})
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
        best = f", the best {len(facts)}" if len(facts) < count else ""
        out.print(f"\n[bold]{kind}[/]: {count_noun(count, 'facts')}{best}")
        if facts:
            show_ranked(out, facts)


@app.command("edit")
def edit(
    graph: _File,
    add: Annotated[
        list[Path] | None, Option(metavar="FILE", help="Add facts; of one that exists, keep the heavier.")
    ] = None,
    delete: Annotated[list[Path] | None, Option(metavar="FILE", help="Delete facts, whatever their weight.")] = None,
    file_format: _Format = None,
    compact: Annotated[bool, Option("--compact", help="Then copy the graph without its unused pages.")] = False,
    json: Json = False,
) -> None:
    """Add and delete facts of a graph.

    The change is one transaction, deletions first. Readers may continue: each
    question sees the graph before or after it. To change a weight, delete and
    add the fact.

    [bold]Examples[/bold]
    dialore graph edit my.graph --add more.tsv --delete wrong.tsv
    dialore graph edit my.graph --compact
    """
    files = {"delete": delete or [], "add": add or []}
    if any(files.values()):
        _change(graph, files, file_format, json=json)
    elif not compact:
        raise InputError("nothing to change", hint="give --add, --delete or --compact")
    if compact:
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
    note(f"{count_noun(done, 'facts')}: {out}")


def _change(graph: Path, files: Mapping[str, Sequence[Path]], file_format: str | None, *, json: bool) -> None:
    """Change a graph by files of facts, by verb; raises GraphError as `GraphEditor.commit` and `read_facts` do."""
    rejects = Rejects()
    editor = GraphEditor(graph)
    with progress("reading facts") as step:
        for verb, paths in files.items():
            if paths:
                getattr(editor, verb)(_facts(paths, file_format, None, rejects, step, keep_all=verb == "delete"))
        step("changing the graph", 0, None)
        report = editor.commit()
    note_rejects(rejects.first, rejects.count)
    if json:
        left_out = report.left_out + rejects.left_out.total()
        print_json({**report.model_dump(), "left_out": left_out, "rejected": rejects.count})
        return
    counts = {name: getattr(report, name) for name in ("added", "updated", "deleted", "unchanged", "missing")}
    summary = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "nothing to change"
    note(f"{summary}: {graph} has {count_noun(report.facts, 'facts')} of {count_noun(report.concepts, 'concepts')}")


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


def _similar_names(concept: str, store: GraphStore) -> list[str]:
    """Return the names of concepts that are spelled similarly."""
    if store.meta.concepts > _NAMES_COMPARED:
        return []
    names = map(store.concept, range(store.meta.concepts))
    return difflib.get_close_matches(concept, [name for name in names if abs(len(name) - len(concept)) < 4], n=3)
