"""`dialore serve` and `mcp`: agents behind OpenAI's API, and as tools of other agents."""

import asyncio
from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

from dialore.cli.options import (
    AgentSet,
    BaseUrl,
    Documents,
    Graph,
    Method,
    MethodOption,
    Model,
    SettingsFile,
    Sources,
    agent_settings,
)
from dialore.cli.output import note, say
from dialore.errors import import_optional

_MCP_PORT = 8018
_File = Annotated[Path | None, Argument(metavar="[FILE]", help="dialore.toml: the same as --settings.")]
_Host = Annotated[str | None, Option("--host", metavar="ADDRESS", help="Default: 127.0.0.1.")]
_Port = Annotated[int | None, Option("--port", min=0, max=65535, help="Default: 8017, of mcp 8018.")]


def serve(
    context: Context,
    file: _File = None,
    settings: SettingsFile = None,
    method: Method = None,
    model: Model = None,
    base_url: BaseUrl = None,
    documents: Documents = None,
    graph: Graph = None,
    sources: Sources = None,
    option: MethodOption = None,
    changes: AgentSet = None,
    host: _Host = None,
    port: _Port = None,
    new_key: Annotated[str | None, Option(metavar="NAME", help="Make a key and show what the file is to hold.")] = None,
) -> None:
    """Serve agents to any client of OpenAI's API, with what they rest on.

    Each agent is a model: dialore, and dialore/NAME for each further method
    and each agents.NAME of the file. Documents, facts and persona may be
    added while it runs.

    [bold]Examples[/bold]
    dialore serve
    dialore serve --settings dialore.toml --port 9000
    dialore serve -M weave -M vanilla --documents handbook.idx
    dialore serve --new-key app

    It answers this machine alone, unless --host says otherwise, which needs keys.
    """
    import_optional("fastapi", "dialore serve", "serve")
    from dialore.server.app import serve as run
    from dialore.server.middleware import new_key as make_key

    if new_key is not None:
        key, mark = make_key()
        say(f'# {new_key}: {key}\n# It is not shown again. In dialore.toml:\n[[server.keys]]\nname = "{new_key}"')
        say(f'sha256 = "{mark}"\n# knowledge = true   # to let it change the knowledge')
        say('# groups = ["staff"]  # to let it read passages of these groups; ["*"]: of all')
        return
    chosen = agent_settings(context, file)
    address = f"http://{chosen.server.host}:{chosen.server.port}"
    note(f"a page at {address}, and OpenAI's API at {address}/v1")
    run(chosen)


def mcp(
    context: Context,
    file: _File = None,
    settings: SettingsFile = None,
    method: Method = None,
    model: Model = None,
    base_url: BaseUrl = None,
    documents: Documents = None,
    graph: Graph = None,
    sources: Sources = None,
    option: MethodOption = None,
    changes: AgentSet = None,
    http: Annotated[bool, Option("--http", help="Over HTTP, at /mcp, instead of stdio.")] = False,
    host: _Host = None,
    port: _Port = None,
    user: Annotated[str, Option(metavar="NAME", help="Whose memory is read and kept.")] = "mcp",
) -> None:
    """Offer agents and sources as tools of the Model Context Protocol.

    The tools are ground, respond, search_documents, search_graph and remember.
    Over stdio the client starts this command. Over HTTP the keys, hosts and
    limits hold that the file has for the service.

    [bold]Examples[/bold]
    dialore mcp --settings dialore.toml
    dialore mcp --documents handbook.idx --http
    """
    import_optional("mcp.server.mcpserver", "dialore mcp", "mcp")
    from dialore.server.mcp import serve as run

    chosen = agent_settings(context, file)
    if port is None:  # a service of the same file has the port that this names
        server = chosen.server.model_copy(update={"port": _MCP_PORT})
        chosen = chosen.model_copy(update={"server": server})
    if http:
        note(f"serving http://{chosen.server.host}:{chosen.server.port}/mcp")
    asyncio.run(run(chosen, over_http=http, user=user))
