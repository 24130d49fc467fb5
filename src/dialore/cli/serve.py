"""`dialore serve` and `mcp`: agents behind OpenAI's API, and as tools of other agents."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from dialore.cli.options import Spread, takes_settings
from dialore.cli.output import note, say
from dialore.errors import InputError, import_optional
from dialore.settings import Settings, read_settings

_Said = Annotated[Mapping[str, object], Spread(Settings, "said")]


@takes_settings
def serve(
    said: _Said,
    file: Annotated[Path | None, Argument(metavar="[FILE]", help="dialore.toml; else DIALORE_SETTINGS.")] = None,
    settings_file: Annotated[
        Path | None, Option("--settings", metavar="FILE", help="The same, as every other command has it.")
    ] = None,
    host: Annotated[str | None, Option(metavar="ADDRESS", help="Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, Option(min=0, max=65535, help="Default: 8017.")] = None,
    workers: Annotated[int | None, Option(min=1, help="Processes that answer. Default: 1.")] = None,
    new_key: Annotated[str | None, Option(metavar="NAME", help="Make a key and show what FILE is to hold.")] = None,
) -> None:
    """Serve agents to any client of OpenAI's API, with what they rest on.

    Each agent is a model: dialore, and dialore/NAME for each further method
    and each agents.NAME of the file. Documents, facts and persona may be
    added while it runs.

    [bold]Examples[/bold]
    dialore serve
    dialore serve dialore.toml --port 9000
    dialore serve -M weave -M vanilla --documents handbook.idx
    dialore serve --new-key app

    It answers this machine alone, unless --host says otherwise, which needs keys.
    """
    if file and settings_file:
        raise InputError("two files of settings are named", hint="name one, with or without --settings")
    import_optional("fastapi", "dialore serve", "serve")
    from dialore.server.app import serve as run
    from dialore.server.middleware import new_key as make

    if new_key is not None:
        key, mark = make()
        say(f'# {new_key}: {key}\n# It is not shown again. In dialore.toml:\n[[server.keys]]\nname = "{new_key}"')
        say(f'sha256 = "{mark}"\n# knowledge = true   # to let it change the knowledge')
        say('# groups = ["staff"]  # to let it read passages of these groups; ["*"]: of all')
        return
    where = {"server.host": host, "server.port": port, "server.workers": workers}
    given = {name: value for name, value in where.items() if value is not None}
    settings = read_settings(file or settings_file, {**said, **given})
    address = f"http://{settings.server.host}:{settings.server.port}"
    note(f"a page at {address}, and OpenAI's API at {address}/v1")
    run(settings)


@takes_settings
def mcp(
    said: _Said,
    file: Annotated[Path | None, Argument(metavar="[FILE]", help="dialore.toml; else DIALORE_SETTINGS.")] = None,
    http: Annotated[bool, Option("--http", help="Over HTTP, at /mcp, instead of stdio.")] = False,
    host: Annotated[str | None, Option(metavar="ADDRESS", help="Default: 127.0.0.1.")] = None,
    port: Annotated[int, Option(min=0, max=65535, help="(default: 8018)")] = 8018,
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
