"""`dialore memory`: list, export and delete what a service remembers of a user."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from typer import Argument, Option

from dialore.cli.options import Json
from dialore.cli.output import Table, console, note, print_json
from dialore.errors import InputError
from dialore.files import write_whole

if TYPE_CHECKING:  # they need the extra `serve`
    from dialore.server.store import ServerStore, User

T = TypeVar("T")
Store = Annotated[str, Argument(metavar="STORE", help="The service's store: a SQLite file or a postgresql:// address.")]
_Name = Annotated[str, Argument(metavar="USER", help="The user, as requests name them; the page's is `page`.")]
_Key = Annotated[str, Option("--key", metavar="NAME", help="The key that asks for them; local where none is.")]
app = typer.Typer(no_args_is_help=True)


@app.command("list")
def show(
    store: Store,
    user: _Name,
    key: _Key = "local",
    history: Annotated[bool, Option("--history", help="Also what holds no longer.")] = False,
    as_of: Annotated[datetime | None, Option(metavar="DATE", help="What held then.")] = None,
    json: Json = False,
) -> None:
    """Show what is remembered, the newest first.

    [bold]Examples[/bold]
    dialore memory list store.sqlite ann --history
    dialore memory list store.sqlite ann --as-of 2026-05-01
    """
    moment = None if as_of is None else as_of.replace(tzinfo=UTC)
    statements = _with(store, user, key, lambda kept, who: kept.statements(who, history=history, as_of=moment))
    if json:
        print_json([{"id": fact.id, **fact.model_dump(mode="json", exclude_defaults=True)} for fact in statements])
        return
    shown = Table("!id", "!text", "said", "from", "until")
    for fact in statements:
        moments = (fact.said, fact.begins, fact.holds_until)
        shown.add_row(fact.id, fact.text, *(f"{moment:%Y-%m-%d}" if moment else "" for moment in moments))
    console().print(shown)


@app.command("export")
def export(
    store: Store,
    user: _Name,
    out: Annotated[Path, Argument(metavar="OUT", help="The JSONL file that it goes to.")],
    key: _Key = "local",
) -> None:
    """Write all that is remembered, also what holds no longer, as a file for `sources.memory`.

    [bold]Examples[/bold]
    dialore memory export store.sqlite ann ann.jsonl
    """
    statements = _with(store, user, key, lambda kept, who: kept.statements(who, history=True))
    lines = (statement.model_dump_json(exclude_defaults=True) + "\n" for statement in statements)
    write_whole(out, lines, private=True)
    note(f"{len(statements)} statements: {out}")


@app.command("delete")
def delete(
    store: Store,
    user: _Name,
    identifier: Annotated[str, Argument(metavar="ID", help="The statement's id, as `list` shows it.")],
    key: _Key = "local",
) -> None:
    """Delete a statement. Statements are corrected by the API, the page or MCP.

    [bold]Examples[/bold]
    dialore memory delete store.sqlite ann passage:0123456789ab
    """
    if not _with(store, user, key, lambda kept, who: kept.forget(who, identifier)):
        problem = f"nothing of the id {identifier} is kept of the user"
        raise InputError(problem, hint="`dialore memory list` gives the ids")
    note(f"deleted {identifier}")


def _with(place: str, user: str, key: str, work: "Callable[[ServerStore, User], Awaitable[T]]") -> T:
    """Return what a store gives of a user; raises InputError where there is no store."""
    from dialore.server.store import User

    return ask_store(place, lambda store: work(store, User(key, user)))


def ask_store(place: str, work: "Callable[[ServerStore], Awaitable[T]]") -> T:
    """Return what a store gives; raises InputError where there is no store."""
    from dialore.server.store import ServerStore

    if "://" not in place and not Path(place).is_file():
        raise InputError(f"no such store: {place}", hint="it is `store` of [server], else store.sqlite in its folder")

    async def ask() -> T:
        store = ServerStore(place)
        try:
            await store.open()
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(ask())
