"""`dialore methods`: what there is, where it comes from, and what can be set."""

import re
from typing import Annotated, Any

from typer import Argument

from dialore.cli.options import METHODS, Json
from dialore.cli.output import Table, console, escape, print_json
from dialore.methods.registry import describe_method, method_class, method_names
from dialore.plugins import loadable
from dialore.prompts.library import PromptLibrary


def methods(
    name: Annotated[
        str | None, Argument(metavar="[NAME]", help="Only this one, with its options.", autocompletion=METHODS)
    ] = None,
    json: Json = False,
) -> None:
    """List the methods, or one with its hyper-parameters, switches and stages.

    [bold]Examples[/bold]
    dialore methods
    dialore methods dcrag
    dialore respond talk.json -M dcrag -o limit=10 -o cross_revision=false
    """
    prompts = PromptLibrary()
    classes = [method_class(name)] if name else loadable(method_names(), method_class)
    described = [describe_method(method, prompts) for method in classes]
    if json:
        print_json(described[0] if name else described)
    elif name:
        _show_one(described[0])
    else:
        out = console()
        for method in described:
            calls = re.match(r"\d*", method["calls"])
            label = f"{calls[0] if calls else '':>2} calls"
            out.print(f"[bold cyan]{escape(method['name']):<15}[/]{label}  {_sources(method)}")
            out.print(f"  {escape(method['summary'])}")
        out.print(
            "[dim]sources in brackets can be done without; `dialore methods NAME` explains its paper, options and "
            "stages, -o NAME=VALUE sets an option[/]"
        )


def _show_one(method: dict[str, Any]) -> None:
    out = console()
    out.print(f"[bold]{escape(method['name'])}[/]  {escape(method['summary'])}")
    calls, sources = escape(method["calls"] or "not said"), _sources(method)
    out.print(f"[dim]{escape(method['paper'] or 'no paper')} · calls: {calls} · sources: {sources}[/]\n")
    out.print(method["about"], markup=False)
    if method["options"]:
        rows = Table("!option", "default", "what it does")
        for option in method["options"]:
            usual = option["default"]
            rows.add_row(option["name"], str(usual).lower() if isinstance(usual, bool) else str(usual), option["help"])
        out.print(rows)
    rows = Table("!stage", "!prompt", "languages", ">version", "answer")
    for stage in method["stages"]:
        prompt = (stage["prompt"], ", ".join(stage["languages"]), str(stage["version"]))
        rows.add_row(stage["name"], *prompt, stage["output"])
    out.print(rows)
    out.print("[dim]`dialore prompts PROMPT` prints a prompt; --set model.stages.STAGE=NAME has another model do it[/]")


def _sources(method: dict[str, Any]) -> str:
    optional = (f"[{name}]" for name in method["optional_sources"])
    return escape(", ".join((*method["required_sources"], *optional)) or "-")
