"""`dialore demo`: bundled dialogues, answered by every method."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli.options import Json


def demo(
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Where the page goes. [default: the cache folder]")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    json: Json = False,
) -> None:
    """Nine dialogues, answered by every method, side by side.

    Six are answered over the starter graph by vanilla, t-rag, qp-rag and
    dcrag, three over a persona, documents, a shelf of passages and samples by
    safari, scg-qp, edit, msdp and draft-ground. Completions are replayed from
    recordings; retrieval is live. Writes a page with the whole trace of every
    response.

    [bold]Examples[/bold]
    dialore demo
    dialore demo --html demo.html --open
    """
    from dialore.cli.demo_work import run

    run(html, open_page=open_page, json=json)
