"""What the documents commands do."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape

from dialore.cli.output import console, note, print_json, progress, table
from dialore.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dialore.knowledge import Knowledge
    from dialore.retrieval.tokens import Tokeniser
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.documents import Chunking, DocumentReport
    from dialore.sources.documents.reading import FileFormat

_WIDEST = 300


def chunking(unit: str | None, words: int | None, overlap: int | None, dataset: str | None) -> Chunking:
    """How texts are to be split; raises UnknownNameError for a unit that is none."""
    from dialore.sources.documents import Chunking

    chosen = unit or ("whole" if dataset and words is None else "words")
    return Chunking(
        chosen,  # type: ignore[arg-type]  # checked there
        120 if words is None else words,
        1 if overlap is None else overlap,
    )


def tokeniser(chinese: str, *, stems: bool, stop_words: bool) -> Tokeniser:
    """How terms are to be split; raises UnknownNameError for a unit of Chinese that is none."""
    from dialore.retrieval.tokens import Tokeniser

    return Tokeniser(stems=stems, stop_words=stop_words, chinese=chinese)  # type: ignore[arg-type]  # checked there


def build(
    index: Path,
    files: Sequence[Path],
    *,
    dataset: str | None,
    chunking: Chunking,
    tokeniser: Tokeniser,
    file_format: str | None,
    name: str | None,
    embedder: str,
    json: bool,
) -> None:
    """Build an index and say what is in it; raises InputError as `build_documents` does."""
    from dialore.sources.documents import build_documents

    read_as = _format(file_format)
    with progress("reading") as step:
        report = build_documents(
            index,
            () if dataset else files,
            texts=_knowledge(dataset, files),
            texts_name=_texts_name(dataset),
            name=name,
            chunking=chunking,
            tokeniser=tokeniser,
            embedder=_embedder(embedder),
            vectors=embedder != "none",
            file_format=read_as,
            on_step=step,
        )
    _say(report, json=json)


def add(
    index: Path,
    files: Sequence[Path],
    *,
    dataset: str | None,
    prune: bool,
    chunking: Chunking | None,
    file_format: str | None,
    json: bool,
) -> None:
    """Add to an index and say what came of it; raises InputError as `add_documents` does."""
    from dialore.sources.documents import add_documents

    read_as = _format(file_format)
    with progress("reading") as step:
        report = add_documents(
            index,
            () if dataset else files,
            texts=_knowledge(dataset, files),
            texts_name=_texts_name(dataset),
            prune=prune,
            chunking=chunking,
            file_format=read_as,
            on_step=step,
        )
    _say(report, json=json)


def delete(index: Path, *, ids: Sequence[str], files: Sequence[str], urls: Sequence[str], json: bool) -> None:
    """Delete from an index; raises InputError where nothing is named, or as `delete_documents` does."""
    from dialore.sources.documents import delete_documents

    if not (ids or files or urls):
        raise InputError("nothing to delete is named", mend="give --id, --file or --url")
    report = delete_documents(index, ids=ids, files=files, urls=urls)
    for missing in report.missing:
        note(f"not there: {missing}")
    _say(report, json=json)


def search(query: str, indices: Sequence[Path], *, top: int, retriever: str, json: bool) -> None:
    """Search indices; raises InputError as `open_documents` does."""
    from dialore.dialogue import Dialogue
    from dialore.sources.base import Findings
    from dialore.sources.documents import RETRIEVERS, open_documents

    chosen = next((known for known in RETRIEVERS if known == retriever), None)
    if chosen is None:
        raise UnknownNameError("retriever", retriever, RETRIEVERS)
    if not query.strip():
        raise InputError("the query is empty", mend="say what to look for")
    with closing(open_documents(indices, retriever=chosen)) as source:
        asked = Dialogue.model_validate({"id": "query", "turns": [query]})
        found = Findings.of(asyncio.run(source.search(query, asked, top)))
    for said in found.notes:
        note(said)
    if json:
        for piece in found:
            print_json(piece.model_dump(include={"id", "text", "score", "detail"}))
        return
    out = console()
    for place, piece in enumerate(found, start=1):
        out.print(f"[bold]{place}[/]  {escape(_short(piece.text))}")
        out.print(f"   [dim]{escape(_where(piece))} · {piece.score:.4f} · {piece.id}[/]")
    if not found:
        note("nothing fits")


def show(index: Path, *, passages: bool, json: bool) -> None:
    """List documents or passages."""
    from dialore.sources.documents import DocumentIndex

    with DocumentIndex(index) as opened:
        if passages:
            for piece in opened.passages():
                if json:
                    print_json(piece.model_dump(include={"id", "text", "detail"}))
                else:
                    typer.echo(f"{piece.id}\t{' '.join(piece.text.split())}")
            return
        if json:
            for document in opened.documents():
                print_json(document.model_dump())
            return
        rows = table(">passages", ">size", "document")
        for document in opened.documents():
            size = f"{document.bytes / 1024:,.1f} kB" if document.bytes else ""
            rows.add_row(f"{document.passages:,}", size, escape(document.name))
        console().print(rows)


def stats(index: Path, *, json: bool) -> None:
    """Say what an index holds."""
    from dialore.sources.documents import DocumentIndex

    with DocumentIndex(index) as opened:
        data: dict[str, Any] = opened.stats()
    if json:
        print_json(data)
        return
    out = console()
    out.print(f"[bold]{escape(data['name'])}[/]  {data['passages']:,} passages of {data['documents']:,} documents")
    vectors = f"{data['embedder']}, {data['dimension']} components" if data["embedder"] else "none"
    out.print(f"[dim]{escape(data['path'])} · {data['bytes'] / 2**20:.1f} MB · vectors: {escape(vectors)}[/]")
    ways = {"split into passages": data["chunking"], "split into terms": data["tokeniser"]}
    for what, settings in ways.items():
        out.print(f"[dim]{what}: {', '.join(f'{key} {value}' for key, value in settings.items())}[/]")


def _format(name: str | None) -> FileFormat | None:
    from dialore.sources.documents import FILE_FORMATS

    if name is not None and name not in FILE_FORMATS:
        raise UnknownNameError("format", name, FILE_FORMATS)
    return next((known for known in FILE_FORMATS if known == name), None)


def _embedder(spec: str) -> Embedder | None:
    if spec == "none":
        return None
    from dialore.retrieval.embedding import load_embedder

    return load_embedder(spec)


def _knowledge(dataset: str | None, files: Sequence[Path]) -> Iterator[str]:
    """The knowledge sentences of a data set's files."""
    if dataset is None:
        return iter(())
    from dialore.datasets import knowledge_texts

    return (text for path in files for text in knowledge_texts(dataset, path))


def _texts_name(dataset: str | None) -> str:
    return f"dataset:{dataset}" if dataset else "texts"


def _say(report: DocumentReport, *, json: bool) -> None:
    for sentence in report.rejects:
        note(f"left out: {sentence}")
    if report.rejected > len(report.rejects):
        note(f"left out: {report.rejected - len(report.rejects):,} more")
    if json:
        print_json(report.model_dump())
        return
    counts = {name: getattr(report, name) for name in ("added", "deleted", "duplicates")}
    done = [f"{count:,} {name}" for name, count in counts.items() if count]
    done += [f"{report.unchanged:,} documents unchanged"] if report.unchanged else []
    said = ", ".join(done) or "nothing to change"
    note(f"{said}: {report.path} has {report.passages:,} passages of {report.documents:,} documents")


def _where(piece: Knowledge) -> str:
    detail = piece.passage
    place = detail.url or (Path(detail.file).name if detail.file else "")
    page = f"page {detail.page}" if detail.page else ""
    return " · ".join(part for part in (detail.title, place, page, detail.index) if part)


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 2]} …"
