"""`dialore documents`: build an index of passages, change it, look into it, ask it."""

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field
from typer import Argument, Context, Option

from dialore.cli.options import DataSet, Json, one_of, options_as, set_option
from dialore.cli.output import Table, console, escape, note, note_rejects, print_json, progress, say
from dialore.datasets import data_set, knowledge_pieces
from dialore.datasets.published import data_file
from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.retrieval.chunking import Chunking
from dialore.retrieval.documents.filters import metadata_of
from dialore.retrieval.documents.indexing import DocumentReport, add_documents, build_documents, delete_documents
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.loaders.formats import FILE_FORMATS
from dialore.retrieval.loaders.reader import Reader
from dialore.settings import Strict
from dialore.sources.base import SearchResult
from dialore.sources.documents import RETRIEVERS, DocumentIndex, narrow, open_documents
from dialore.text import count_noun

app = typer.Typer(no_args_is_help=True)

_MAX_TEXT_CHARS = 300
_PASSAGE_FIELDS = {"id", "text", "title", "url", "file", "page", "index", "metadata"}
_MAX_LISTED = 10
_Index = Annotated[str, Argument(metavar="INDEX", help="The index: a file, or postgresql://user@host/database#name.")]
_Meta = Annotated[
    list[str] | None, Option(metavar="NAME=VALUE", help="Metadata of every passage, to filter by; JSON or text.")
]
_Groups = Annotated[str | None, Option(metavar="A,B", help="Who may read them: groups of a service's keys.")]
_ReadSet = Annotated[list[str] | None, set_option("dialore.cli.documents:ReadSettings", "dialore settings documents")]
_BuildSet = Annotated[list[str] | None, set_option("dialore.cli.documents:BuildSettings", "dialore settings documents")]


class ReadSettings(Strict):
    """How files are read."""

    format: str | None = Field(
        default=None, description=f"Read all files in this format: {', '.join(FILE_FORMATS)}. Default: by their names."
    )
    ocr: bool = Field(default=False, description="Read scanned pages of PDFs, too, by the extra ocr.")
    include_hidden: bool = Field(
        default=False, description="Read hidden content of Office files, too: sheets, rows, columns, slides, text."
    )
    read_seconds: float = Field(default=120, ge=1, description="Maximum seconds for reading one file.")
    read_memory: int = Field(default=2000, ge=200, description="Maximum megabytes for reading files.")

    def reader(self) -> Reader:
        """Return a reader of files."""
        return Reader(
            seconds=self.read_seconds,
            memory=self.read_memory * 10**6,
            ocr=self.ocr,
            include_hidden=self.include_hidden,
        )


class BuildSettings(ReadSettings):
    """How files are read and split, when an index is built."""

    name: str | None = Field(default=None, description="The index's name. Default: the file's.")
    chunk_words: int | None = Field(default=None, ge=1, description="Words of a passage. Default: 120.")
    overlap: int = Field(default=1, ge=0, description="Sentences that a passage repeats.")


def _inputs(
    settings: ReadSettings,
    files: Sequence[Path] | None,
    dataset: str | None,
    meta: Sequence[str] | None,
    groups: str | None,
) -> dict[str, Any]:
    """Return what goes into an index: files, or the knowledge of a data set; with format and metadata."""
    file_format = None if settings.format is None else one_of("format", settings.format, FILE_FORMATS)
    inputs: dict[str, Any] = {"file_format": file_format, "metadata": metadata_of(meta or (), groups)}
    if dataset is None:
        if not files:
            raise InputError("no file is named", hint="name files or folders, or a data set by --dataset")
        return {**inputs, "files": files}
    paths = files or [*data_set(dataset).bundled.values()][:1] or [data_file(dataset)]
    texts = itertools.chain.from_iterable(knowledge_pieces(dataset, path) for path in paths)
    return {**inputs, "texts": texts, "texts_name": f"dataset:{dataset}"}


@app.command("build")
def build(
    context: Context,
    index: _Index,
    files: Annotated[
        list[Path] | None,
        Argument(metavar="[FILES...]", help="Files, and folders with all below; else what there is of --dataset."),
    ] = None,
    dataset: DataSet = None,
    chunk: Annotated[
        str | None, Option(metavar="words|sentence|whole", help="A passage. (default: words; for a data set whole)")
    ] = None,
    embedder: Annotated[str, Option(metavar="SPEC|none", help="Makes vectors: static, onnx:FOLDER, ...")] = "static",
    meta: _Meta = None,
    groups: _Groups = None,
    changes: _BuildSet = None,
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
    dialore documents build scans scans/ --set ocr=true
    dialore respond talk.json --documents handbook
    """
    settings = options_as(BuildSettings, context)
    inputs = _inputs(settings, files, dataset, meta, groups)
    unit: Any = chunk or ("whole" if dataset and settings.chunk_words is None else "words")
    encoder = None if embedder == "none" else load_embedder(embedder)
    inputs |= {"name": settings.name, "chunking": Chunking(unit, settings.chunk_words or 120, settings.overlap)}
    inputs |= {"embedder": encoder, "vectors": encoder is not None}
    with progress("reading") as step, settings.reader() as reader:
        report = build_documents(index, **inputs, reader=reader, on_step=step)
    _show_report(report, json=json)


@app.command("add")
def add(
    context: Context,
    index: _Index,
    files: Annotated[list[Path], Argument(metavar="FILES...", help="Files, and folders with all below.")],
    dataset: DataSet = None,
    meta: _Meta = None,
    groups: _Groups = None,
    changes: _ReadSet = None,
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
    settings = options_as(ReadSettings, context)
    inputs = _inputs(settings, files, dataset, meta, groups)
    with progress("reading") as step, settings.reader() as reader:
        report = add_documents(index, **inputs, reader=reader, prune=prune, on_step=step)
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
            print_json(piece.model_dump(include={*_PASSAGE_FIELDS, "score"}))
        return
    out = console()
    for rank, piece in enumerate(result, start=1):
        text = piece.text if len(piece.text) <= _MAX_TEXT_CHARS else f"{piece.text[: _MAX_TEXT_CHARS - 2]} …"
        location = piece.url or (Path(piece.file).name if piece.file else "")
        places = (piece.title, location, f"page {piece.page}" if piece.page else "", piece.index)
        out.print(f"[bold]{rank}[/]  {escape(text)}")
        out.print(f"   [dim]{escape(' · '.join(filter(None, places)))} · {piece.score:.4f} · {escape(piece.id)}[/]")
    if not result:
        note("nothing fits")


@app.command("show")
def show(
    index: _Index,
    passages: Annotated[bool, Option("--passages", help="Every passage, with its id.")] = False,
    json: Json = False,
) -> None:
    """Show how an index was built and its documents, or all passages.

    [bold]Examples[/bold]
    dialore documents show handbook
    dialore documents show handbook --passages --json
    """
    with DocumentIndex(index) as opened:
        if passages:
            for piece in opened.passages():
                if json:
                    print_json(piece.model_dump(include=_PASSAGE_FIELDS))
                else:
                    say(f"{piece.id}\t{' '.join(piece.text.split())}")
            return
        data: dict[str, Any] = opened.stats()
        documents = list(opened.documents())
    if json:
        print_json({**data, "files": [document.model_dump() for document in documents]})
        return
    out = console()
    counts = _count_contents(data["passages"], data["documents"])
    out.print(f"[bold]{escape(data['name'])}[/]  {counts}")
    vectors = f"{data['embedder']}, {data['dimension']} components" if data["embedder"] else "none"
    out.print(f"[dim]{escape(data['path'])} · {data['bytes'] / 2**20:.1f} MB · vectors: {escape(vectors)}[/]")
    chunking = ", ".join(f"{key} {value}" for key, value in data["chunking"].items())
    out.print(f"[dim]split into passages: {escape(chunking)}[/]")
    rows = Table(">passages", ">size", "document")
    for document in documents:
        size = f"{document.bytes / 1024:,.1f} kB" if document.bytes else ""
        rows.add_row(f"{document.passages:,}", size, document.name)
    out.print(rows)


def _show_report(report: DocumentReport, *, json: bool) -> None:
    note_rejects(report.rejects[:_MAX_LISTED], report.rejected)
    for sentence in report.notices[:_MAX_LISTED]:
        note(sentence)
    if len(report.notices) > _MAX_LISTED:
        note(f"{count_noun(len(report.notices) - _MAX_LISTED, 'notices')} more: --json lists all")
    if report.skipped:
        names = ", ".join(Path(file).name for file in report.skipped[:_MAX_LISTED])
        more = ", ..." if len(report.skipped) > _MAX_LISTED else ""
        note(f"passed over, their names do not say how to read them: {len(report.skipped):,} ({names}{more})")
    if json:
        print_json(report.model_dump())
        return
    if report.gone:
        names = ", ".join(Path(file).name for file in report.gone[:_MAX_LISTED])
        more = ", ..." if len(report.gone) > _MAX_LISTED else ""
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
