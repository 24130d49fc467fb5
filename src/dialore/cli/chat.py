"""`dialore chat`: talk, and look at the grounds."""

# No deferred annotations here: typer reads them.
from typing import Annotated

import typer

from dialore.cli.options import Json, KnowledgeSettings, ModelSettings, takes_settings


@takes_settings
def chat(
    models: ModelSettings,
    knowledge: KnowledgeSettings,
    method: Annotated[str, typer.Option("--method", "-M", metavar="NAME", help="The method to begin with.")] = "dcrag",
    language: Annotated[
        str | None, typer.Option("--language", "-l", metavar="en|zh", help="[default: found from the text]")
    ] = None,
    json: Json = False,
) -> None:
    r"""Talk with a method; responses stream in.

    While you chat: /why shows what the last response drew on, /trace every
    stage of it, /method NAME changes the method, /graph describes the graph,
    /reset begins anew, /save FILE keeps the dialogue, /help, /quit.

    [bold]Examples[/bold]
    dialore chat
    dialore chat --base-url http://localhost:8000/v1 --model my-model
    printf 'My throat hurts.\n/why\n' | dialore chat

    Nothing is cached unless --cache says so.
    """
    from dialore.cli.chat_session import run

    run(models, knowledge, method, language, json=json)
