"""`dialore documents`: build an index of passages, change it, look into it, ask it."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli.options import Json

app = typer.Typer(no_args_is_help=True, help="Build an index of documents, change it, look into it, ask it.")

_Index = Annotated[Path, typer.Argument(metavar="INDEX", help="The index's folder.")]
_Dataset = Annotated[
    str | None, typer.Option("--dataset", metavar="NAME", help="The files are this data set's: take its knowledge.")
]
_Format = Annotated[
    str | None,
    typer.Option("--format", metavar="text|lines|markdown|html|pdf|jsonl", help="Read all files like this."),
]
_Chunk = Annotated[
    str | None,
    typer.Option(
        "--chunk",
        metavar="words|sentence|whole",
        help="So many words a passage, one sentence, or a whole section. [default: words; for a data set whole]",
    ),
]
_Words = Annotated[
    int | None, typer.Option("--chunk-words", min=1, help="Words of a passage; sentences stay whole. [default: 120]")
]
_Overlap = Annotated[
    int | None, typer.Option("--overlap", min=0, help="Sentences that a passage repeats. [default: 1]")
]


@app.command("build")
def build(
    index: _Index,
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="Files, and folders with all below.")],
    dataset: _Dataset = None,
    chunk: _Chunk = None,
    chunk_words: _Words = None,
    overlap: _Overlap = None,
    file_format: _Format = None,
    name: Annotated[str | None, typer.Option("--name", help="The index's name. [default: the folder's]")] = None,
    embedder: Annotated[
        str, typer.Option("--embedder", metavar="SPEC|none", help="What makes the vectors: static, onnx:FOLDER, ...")
    ] = "static",
    chinese: Annotated[
        str,
        typer.Option("--chinese", metavar="search|words|characters|bigrams", help="How BM25 cuts Chinese."),
    ] = "search",
    stems: Annotated[bool, typer.Option("--stems/--no-stems", help="Whether BM25 joins walk and walking.")] = True,
    stop_words: Annotated[
        bool, typer.Option("--stop-words/--no-stop-words", help="Whether BM25 looks at function words.")
    ] = False,
    json: Json = False,
) -> None:
    """Build an index; an old one stays in place until the new one is whole.

    Text, Markdown, HTML, PDF and JSONL ({"text", "title", "url", ...} or a
    string a line; .gz too). What cannot be read is shown and left out.

    [bold]Examples[/bold]
    dialore documents build handbook docs/ manual.pdf
    dialore documents build base notes.txt --chunk sentence
    dialore documents build wow --dataset wizard-of-wikipedia valid.json.gz
    dialore respond talk.json --documents handbook
    """
    from dialore.cli import documents_work as work

    cut = work.chunking(chunk, chunk_words, overlap, dataset)
    cutter = work.cutter(chinese, stems=stems, stop_words=stop_words)
    work.build(
        index,
        files,
        dataset=dataset,
        chunking=cut,
        cutter=cutter,
        file_format=file_format,
        name=name,
        embedder=embedder,
        json=json,
    )


@app.command("add")
def add(
    index: _Index,
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="Files, and folders with all below.")],
    dataset: _Dataset = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Drop documents whose files have vanished from the folders.")
    ] = False,
    chunk: _Chunk = None,
    chunk_words: _Words = None,
    overlap: _Overlap = None,
    file_format: _Format = None,
    json: Json = False,
) -> None:
    """Add files to an index; those it has are read again only if they changed.

    All of it is there afterwards, or nothing. Who asks the index goes on
    meanwhile, and sees the change at the next question. Without --chunk and
    its like, files are cut as the index was built.

    [bold]Examples[/bold]
    dialore documents add handbook docs/ --prune
    dialore documents add handbook news.jsonl
    """
    from dialore.cli import documents_work as work

    asked = chunk is not None or chunk_words is not None or overlap is not None
    cut = work.chunking(chunk, chunk_words, overlap, dataset) if asked else None
    work.add(index, files, dataset=dataset, prune=prune, chunking=cut, file_format=file_format, json=json)


@app.command("delete")
def delete(
    index: _Index,
    identifier: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="A passage's id.")] = None,
    file: Annotated[
        list[str] | None, typer.Option("--file", metavar="PATH", help="A document, or a folder with all below.")
    ] = None,
    url: Annotated[list[str] | None, typer.Option("--url", metavar="URL", help="What passages are from.")] = None,
    json: Json = False,
) -> None:
    """Delete passages by id, by document or by url; each may be repeated.

    [bold]Examples[/bold]
    dialore documents delete handbook --file docs/old.md
    dialore documents delete handbook --id passage:0a1b2c3d4e5f
    """
    from dialore.cli import documents_work as work

    work.delete(index, ids=identifier or [], files=file or [], urls=url or [], json=json)


@app.command("search")
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words, a question, or a whole dialogue.")],
    indices: Annotated[list[Path], typer.Argument(metavar="INDEX...", help="One or more; asked as one.")],
    top: Annotated[int, typer.Option("--top", min=1, help="How many passages.")] = 10,
    retriever: Annotated[
        str, typer.Option("--retriever", metavar="fused|bm25|dense", help="By words, by vectors, or both fused.")
    ] = "fused",
    json: Json = False,
) -> None:
    """Search one or more indices.

    [bold]Examples[/bold]
    dialore documents search "how do I reset it?" handbook
    dialore documents search 怎么重置 handbook faq --top 3 --json
    """
    from dialore.cli import documents_work as work

    work.search(query, indices, top=top, retriever=retriever, json=json)


@app.command("list")
def list_documents(
    index: _Index,
    passages: Annotated[bool, typer.Option("--passages", help="Every passage, with its id.")] = False,
    json: Json = False,
) -> None:
    """List an index's documents, or its passages.

    [bold]Examples[/bold]
    dialore documents list handbook
    dialore documents list handbook --passages --json
    """
    from dialore.cli import documents_work as work

    work.show(index, passages=passages, json=json)


@app.command("stats")
def stats(index: _Index, json: Json = False) -> None:
    """Count an index's documents and passages, and say how it was built.

    [bold]Example[/bold]
    dialore documents stats handbook
    """
    from dialore.cli import documents_work as work

    work.stats(index, json=json)
