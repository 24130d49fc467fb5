"""`dialore mcp`: agents and sources as tools of other agents."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from dialore.cli.options import Spread, takes_settings
from dialore.cli.output import note
from dialore.errors import import_optional
from dialore.settings import read_settings

_Said = Annotated[Mapping[str, object], Spread("dialore.settings:Settings", "said")]
_PORT = 8018


@takes_settings
def mcp(
    said: _Said,
    file: Annotated[
        Path | None, Argument(metavar="[FILE]", help="Settings, dialore.toml. Else DIALORE_SETTINGS.")
    ] = None,
    http: Annotated[bool, Option("--http", help="Over HTTP, at /mcp, instead of stdio.")] = False,
    host: Annotated[str | None, Option(metavar="ADDRESS", help="Default: 127.0.0.1.")] = None,
    port: Annotated[int, Option(min=0, max=65535, help="(default: 8018)")] = _PORT,
    user: Annotated[str, Option(metavar="NAME", help="Whose memory is read and kept.")] = "mcp",
) -> None:
    """Offer agents and sources as tools of the Model Context Protocol.

    The tools are ground, respond, search_documents, search_graph and remember.
    Over stdio the client starts this command. Over HTTP the keys, hosts and
    limits hold that the file has for the service.

    [bold]Examples[/bold]
    dialore mcp dialore.toml
    dialore mcp --documents handbook.idx --http
    """
    import_optional("mcp.server.mcpserver", "dialore mcp", "mcp")
    from dialore.server.mcp import serve

    where = {"server.port": port} | ({} if host is None else {"server.host": host})
    settings = read_settings(file, {**said, **where})
    if http:
        note(f"serving http://{settings.server.host}:{port}/mcp")
    asyncio.run(serve(settings, over_http=http, user=user))
