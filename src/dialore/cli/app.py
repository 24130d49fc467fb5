"""The command tree: each command's module is imported when the command is used, which a list of them need not pay."""

# No deferred annotations here: typer reads them.
import logging
import pkgutil
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

from dialore import __version__
from dialore.cli.output import say

_TYPER: dict[str, Any] = {
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["--help", "-h"], "max_content_width": 120},
    "pretty_exceptions_enable": False,
}
_COMMANDS = {
    "ask": "Answer one question, and show what the answer draws on.",
    "respond": "Answer the last turn of one dialogue or of many.",
    "ground": "Find what a response needs to know, and stop there.",
    "chat": "Talk with a method; responses stream in.",
    "run": "Answer a data set by several systems, into a folder from which the run can be resumed.",
    "distill": "Write what was done at a method's stages as rows to train a small model on.",
    "score": "Score a run, each figure with its 95% interval; judges are asked by --model and --base-url.",
    "report": "Report scored runs: tables with significance, ablations, people, cost, failures, plots, every dialogue.",
    "check": "Check a scored run against limits or another run; exits 1 where a figure does not hold.",
    "judge": "Have a judge compare systems of a run; it is asked by --model and --base-url.",
    "bench": "Measure calls a second, latency and tokens a second of your endpoint.",
    "demo": "Nine dialogues, answered by several methods, side by side.",
    "serve": "Serve agents to any client of OpenAI's API, with what they rest on.",
    "mcp": "Offer agents and sources as tools of the Model Context Protocol.",
    "methods": "List the methods, or one with its hyper-parameters, switches and stages.",
    "prompts": "List the prompts with version and hash, print one, or export all to change them.",
    "models": "List the trained parts in a folder, show one's card, or score a model against held-out rows.",
    "settings": "List the settings that --set takes, with their defaults and environment variables.",
    "train": "Train a part of a method from a data set, or from rows of `distill`.",
    "import": "Read responses made elsewhere into a run, for score, report, judge and annotate.",
}
_GROUPS = {
    "graph": "Build a commonsense graph, look into it, ask it, change it.",
    "documents": "Build an index of documents, change it, look into it, ask it.",
    "data": "List data sets, look into their published files, convert them.",
    "samples": "Build a base of samples to prompt with (for msdp).",
    "annotate": "Export blind sheets for people to judge by, import them, agreement.",
    "feedback": "What users said of a service's responses.",
    "memory": "List, export and delete what a service remembers of a user.",
}
_HOMES = {"ask": "respond:ask", "ground": "respond:ground"}
_HOMES |= {"check": "report:check", "mcp": "serve:mcp", "import": "imports:import_files"}
"""Commands that are not the function of their name in the module of their name."""


class _LazyGroup(TyperGroup):
    """Commands of which only names and help are known until they are used."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's own click has no public names
        """Return the command that arguments name, whole."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is None:
            return name, command, rest
        home = f"{name}:app" if name in _GROUPS else _HOMES.get(str(name), f"{name}:{name}")
        loaded = pkgutil.resolve_name(f"dialore.cli.{home}")
        if isinstance(loaded, typer.Typer):
            group = typer.main.get_group(loaded)
            group.help = command.help
            return name, group, rest
        alone = typer.Typer(add_completion=False, **_TYPER)
        alone.command(name)(loaded)
        return name, typer.main.get_command(alone), rest


app = typer.Typer(cls=_LazyGroup, no_args_is_help=True, **_TYPER)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"dialore {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say on standard error what goes on.")] = False,
) -> None:
    """Knowledge-grounded dialogue with large language models.

    Find what a response needs to know, get it from a commonsense graph,
    and write a response whose grounds can be seen.

    [bold]Start here[/bold]
    dialore demo              nine dialogues, several methods, nothing to set up
    dialore chat              talk; /why shows the grounds
    dialore ask "What helps against a sore throat?"
    dialore respond talk.json --trace trace.jsonl
    echo '{"turns": ["My throat hurts."]}' | dialore respond -

    [bold]Go live[/bold]
    export DIALORE_BASE_URL=http://localhost:11434/v1 DIALORE_MODEL=llama3.1

    Without an endpoint you see what was found, and how to add a model.
    """
    if verbose:
        logging.getLogger("dialore").setLevel(logging.INFO)


for _name, _help in (_COMMANDS | _GROUPS).items():
    app.command(_name, help=_help)(lambda: None)
