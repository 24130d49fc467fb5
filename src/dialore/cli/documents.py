"""`dialore documents`: build an index of passages, change it, look into it, ask it."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from dialore.cli.options import DATA_SETS, Json, one_of, takes_settings
from dialore.cli.output import Table, console, escape, note, note_rejects, print_json, progress, say
from dialore.datasets import data_set, knowledge_pieces
from dialore.datasets.published import data_file
from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.retrieval.chunking import Chunking
from dialore.retrieval.documents.filters import metadata_of
from dialore.retrieval.documents.indexing import DocumentReport, add_documents, build_documents, delete_documents
from dialore.retrieval.documents.store import Piece
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.loaders.reader import Reader
from dialore.retrieval.loaders.reading import FILE_FORMATS
from dialore.sources.base import SearchResult
from dialore.sources.documents import RETRIEVERS, DocumentIndex, narrow, open_documents
from dialore.text import count_noun

app = typer.Typer(no_args_is_help=True)

_WIDEST = 300
_SHOWN = 10
_Index = Annotated[str, Argument(metavar="INDEX", help="The index: a file, or postgresql://user@host/database#name.")]
_Files = Annotated[list[Path], Argument(metavar="FILES...", help="Files, and folders with all below.")]
_FORMATS = "text|lines|markdown|html|pdf|docx|pptx|xlsx|jsonl|csv|eml|epub"


@dataclass(frozen=True, slots=True)
class _Reading:
    """Options of how files are read, and what is noted of their passages."""

    dataset: Annotated[
        str | None, Option(metavar="NAME", help="Take this data set's knowledge.", autocompletion=DATA_SETS)
    ] = None
    file_format: Annotated[str | None, Option("--format", metavar=_FORMATS, help="Read all files like this.")] = None
    meta: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="Metadata of every passage, to filter by; JSON or text.")
    ] = None
    groups: Annotated[str | None, Option(metavar="A,B", help="Who may read them: groups of a service's keys.")] = None
    ocr: Annotated[bool, Option("--ocr", help="Read scanned pages of PDFs, too, by the extra ocr.")] = False
    include_hidden: Annotated[
        bool, Option("--include-hidden", help="Read what Office files hide, too: sheets, rows, columns, slides, text.")
    ] = False
    read_seconds: Annotated[float, Option(min=1, help="That reading one file may take.")] = 120
    read_memory: Annotated[int, Option(metavar="MB", min=200, help="That reading files may take.")] = 2000

    def given(self, files: Sequence[Path] | None) -> dict[str, Any]:
        """Return what is taken in: the files, or the knowledge of the data set that they are of; with metadata."""
        read_as = one_of("format", self.file_format, FILE_FORMATS) if self.file_format is not None else None
        given = {"file_format": read_as, "metadata": metadata_of(self.meta or (), self.groups)}
        if self.dataset is None:
            if not files:
                raise InputError("no file is named", hint="name files or folders, or a data set by --dataset")
            return {**given, "files": files}
        files = files or [*data_set(self.dataset).bundled.values()][:1] or [data_file(self.dataset)]
        texts = (Piece(*piece) for path in files for piece in knowledge_pieces(self.dataset, path))
        return {**given, "texts": texts, "texts_name": f"dataset:{self.dataset}"}

    @property
    def reader(self) -> Reader:
        """A reader of files."""
        return Reader(
            seconds=self.read_seconds,
            memory=self.read_memory * 10**6,
            ocr=self.ocr,
            include_hidden=self.include_hidden,
        )


@app.command("build")
@takes_settings
def build(
    reading: _Reading,
    index: _Index,
    files: Annotated[
        list[Path] | None,
        Argument(metavar="[FILES...]", help="Files, and folders with all below; else what there is of --dataset."),
    ] = None,
    chunk: Annotated[
        str | None, Option(metavar="words|sentence|whole", help="A passage. (default: words; for a data set whole)")
    ] = None,
    chunk_words: Annotated[int | None, Option(min=1, help="Words a passage; sentences whole. (default: 120)")] = None,
    overlap: Annotated[int, Option(min=0, help="Sentences that a passage repeats.")] = 1,
    name: Annotated[str | None, Option(help="The index's name. (default: the file's)")] = None,
    embedder: Annotated[str, Option(metavar="SPEC|none", help="Makes vectors: static, onnx:FOLDER, ...")] = "static",
    json: Json = False,
) -> None:
    """Build an index; an old one stays in place until the new one is whole.

    Text, Markdown, HTML, PDF, Word, PowerPoint, Excel, CSV, EPUB, messages
    (.eml) and JSONL ({"text", "title", "url", ...} or a string a line; .gz
    too). What cannot be read is shown and left out.

    [bold]Examples[/bold]
    dialore documents build handbook docs/ manual.pdf
    dialore documents build base notes.txt --chunk sentence
    dialore documents build wow --dataset wizard-of-wikipedia valid.json.gz
    dialore respond talk.json --documents handbook
    """
    given = reading.given(files)
    unit: Any = chunk or ("whole" if reading.dataset and chunk_words is None else "words")
    encoder = None if embedder == "none" else load_embedder(embedder)
    given |= {"name": name, "chunking": Chunking(unit, chunk_words or 120, overlap)}
    given |= {"embedder": encoder, "vectors": encoder is not None}
    with progress("reading") as step, reading.reader as reader:
        report = build_documents(index, **given, reader=reader, on_step=step)
    _show_report(report, json=json)


@app.command("add")
@takes_settings
def add(
    index: _Index,
    files: _Files,
    reading: _Reading,
    prune: Annotated[bool, Option("--prune", help="Drop documents whose files vanished from the folders.")] = False,
    json: Json = False,
) -> None:
    """Add files to an index; those it has are read again only if they changed.

    All of it is there afterwards, or nothing. Who asks the index goes on
    meanwhile, and sees the change at the next question. Files are split as
    the index was built.

    [bold]Examples[/bold]
    dialore documents add handbook docs/ --prune
    dialore documents add handbook news.jsonl
    """
    given = reading.given(files)
    with progress("reading") as step, reading.reader as reader:
        report = add_documents(index, **given, reader=reader, prune=prune, on_step=step)
    _show_report(report, json=json)


@app.command("delete")
def delete(
    index: _Index,
    identifier: Annotated[list[str] | None, Option("--id", metavar="ID", help="A passage's id.")] = None,
    file: Annotated[list[str] | None, Option(metavar="PATH", help="A document, or a folder with all below.")] = None,
    url: Annotated[list[str] | None, Option(metavar="URL", help="What passages are from.")] = None,
    json: Json = False,
) -> None:
    """Delete passages by id, by document or by url; each may be repeated.

    [bold]Examples[/bold]
    dialore documents delete handbook --file docs/old.md
    dialore documents delete handbook --id passage:0a1b2c3d4e5f
    """
    if not (identifier or file or url):
        raise InputError("nothing to delete is named", hint="give --id, --file or --url")
    report = delete_documents(index, ids=identifier or [], files=file or [], urls=url or [])
    for missing in report.missing:
        note(f"not there: {missing}")
    _show_report(report, json=json)


@app.command("search")
def search(
    query: Annotated[str, Argument(metavar="QUERY", help="Words, a question, or a whole dialogue.")],
    indices: Annotated[list[str], Argument(metavar="INDEX...", help="One or more; asked as one.")],
    top: Annotated[int, Option(min=1, help="How many passages.")] = 10,
    retriever: Annotated[str, Option(metavar="fused|bm25|dense", help="By words, vectors, or both fused.")] = "fused",
    where: Annotated[str | None, Option(metavar="CONDITIONS", help="Of metadata: year >= 2024 and lang = en")] = None,
    json: Json = False,
) -> None:
    """Search one or more indices.

    [bold]Examples[/bold]
    dialore documents search "how do I reset it?" handbook
    dialore documents search 怎么重置 handbook faq --top 3 --json
    dialore documents search "opening hours" handbook --where "year >= 2024"
    """
    chosen = one_of("retriever", retriever, RETRIEVERS)
    if not query.strip():
        raise InputError("the query is empty", hint="say what to look for")
    with closing(open_documents(indices, retriever=chosen, indices_only=True)) as source:
        asked = Dialogue.model_validate({"id": "query", "turns": [query]})
        wanted = narrow(source, where) if where else source
        result = SearchResult.of(asyncio.run(wanted.search(query, asked, top)))
    for line in result.notes:
        note(line)
    if json:
        for piece in result:
            print_json(piece.model_dump(include={"id", "text", "score", "detail"}))
        return
    out = console()
    for rank, piece in enumerate(result, start=1):
        text = piece.text if len(piece.text) <= _WIDEST else f"{piece.text[: _WIDEST - 2]} …"
        detail = piece.passage
        location = detail.url or (Path(detail.file).name if detail.file else "")
        places = (detail.title, location, f"page {detail.page}" if detail.page else "", detail.index)
        out.print(f"[bold]{rank}[/]  {escape(text)}")
        out.print(f"   [dim]{escape(' · '.join(filter(None, places)))} · {piece.score:.4f} · {escape(piece.id)}[/]")
    if not result:
        note("nothing fits")


@app.command("list")
def list_documents(
    index: _Index,
    passages: Annotated[bool, Option("--passages", help="Every passage, with its id.")] = False,
    json: Json = False,
) -> None:
    """List an index's documents, or its passages.

    [bold]Examples[/bold]
    dialore documents list handbook
    dialore documents list handbook --passages --json
    """
    with DocumentIndex(index) as opened:
        if passages:
            for piece in opened.passages():
                if json:
                    print_json(piece.model_dump(include={"id", "text", "detail"}))
                else:
                    say(f"{piece.id}\t{' '.join(piece.text.split())}")
            return
        rows = Table(">passages", ">size", "document")
        for document in opened.documents():
            if json:
                print_json(document.model_dump())
            size = f"{document.bytes / 1024:,.1f} kB" if document.bytes else ""
            rows.add_row(f"{document.passages:,}", size, document.name)
        if not json:
            console().print(rows)


@app.command("stats")
def stats(index: _Index, json: Json = False) -> None:
    """Count an index's documents and passages, and say how it was built.

    [bold]Example[/bold]
    dialore documents stats handbook
    """
    with DocumentIndex(index) as opened:
        data: dict[str, Any] = opened.stats()
    if json:
        print_json(data)
        return
    out = console()
    counts = _count_contents(data["passages"], data["documents"])
    out.print(f"[bold]{escape(data['name'])}[/]  {counts}")
    vectors = f"{data['embedder']}, {data['dimension']} components" if data["embedder"] else "none"
    out.print(f"[dim]{escape(data['path'])} · {data['bytes'] / 2**20:.1f} MB · vectors: {escape(vectors)}[/]")
    chunking = ", ".join(f"{key} {value}" for key, value in data["chunking"].items())
    out.print(f"[dim]split into passages: {escape(chunking)}[/]")


def _show_report(report: DocumentReport, *, json: bool) -> None:
    note_rejects(report.rejects[:_SHOWN], report.rejected)
    for sentence in report.notices[:_SHOWN]:
        note(sentence)
    if len(report.notices) > _SHOWN:
        note(f"{count_noun(len(report.notices) - _SHOWN, 'notices')} more: --json lists all")
    if report.skipped:
        names = ", ".join(Path(file).name for file in report.skipped[:_SHOWN])
        more = ", ..." if len(report.skipped) > _SHOWN else ""
        note(f"passed over, their names do not say how to read them: {len(report.skipped):,} ({names}{more})")
    if json:
        print_json(report.model_dump())
        return
    if report.gone:
        names = ", ".join(Path(file).name for file in report.gone[:_SHOWN])
        more = ", ..." if len(report.gone) > _SHOWN else ""
        files = f"{len(report.gone):,} ({names}{more})"
        note(f"files that are gone, but still in the index: {files}; delete them by `documents add --prune`")
    contents = _count_contents(report.passages, report.documents)
    note(f"{_summary(report)}: {report.path} has {contents}")


def _count_contents(passages: int, documents: int) -> str:
    return f"{count_noun(passages, 'passages')} of {count_noun(documents, 'documents')}"


def _summary(report: DocumentReport) -> str:
    """Return what changed, documents before passages."""
    documents = {
        "added": report.added_documents,
        "changed": report.changed_documents,
        "deleted": report.deleted_documents,
        "unchanged": report.unchanged,
    }
    passages = {"added": report.added, "deleted": report.deleted, "left out as duplicates": report.duplicates}
    parts: list[str] = []
    for unit, counts in (("documents", documents), ("passages", passages)):
        changes = [f"{count:,} {name}" for name, count in counts.items() if count]
        if changes:
            parts.append(f"{unit}: {', '.join(changes)}")
    if report.restricted:
        parts.append(f"restricted to groups: {report.restricted:,} of the passages added")
    return "; ".join(parts) or "nothing to change"
