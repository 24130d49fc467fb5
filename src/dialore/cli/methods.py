"""`dialore methods`: what there is, where it comes from, and what can be set."""

# No deferred annotations here: typer reads them.
import dataclasses
import inspect
import re
from typing import Annotated, Any

import typer

from dialore.cli.options import Json
from dialore.cli.output import console, print_json, table


def methods(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this one, with its options.")] = None,
    json: Json = False,
) -> None:
    """List the methods, or one with its hyper-parameters and switches.

    [bold]Examples[/bold]
    dialore methods
    dialore methods dcrag
    dialore respond talk.json -M dcrag -o limit=10 -o cross_revision=false
    """
    from dialore.methods.registry import method_class, method_names

    described = [_describe(method_class(each)) for each in ([name] if name else method_names())]
    if json:
        print_json(described[0] if name else described)
    elif name:
        _show_one(described[0])
    else:
        _show_all(described)


def _describe(cls: Any) -> dict[str, Any]:  # noqa: ANN401 - a method's class
    from dialore.methods.registry import method_options

    helps = _option_helps(inspect.getdoc(cls) or "")
    options = [
        {"name": field.name, "default": _default(field), "help": helps.get(field.name, "")}
        for field in method_options(cls).values()
    ]
    said = {"name": cls.name, "paper": cls.paper, "summary": cls.summary, "needs": list(cls.needs), "calls": cls.calls}
    return {**said, "options": options}


def _default(field: "dataclasses.Field[Any]") -> object:
    return None if field.default is dataclasses.MISSING else field.default


def _option_helps(doc: str) -> dict[str, str]:
    """The lines of a docstring's Attributes by name."""
    _, _, attributes = doc.partition("Attributes:\n")
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _show_all(described: list[dict[str, Any]]) -> None:
    rows = table("!method", "paper", "what it does", "calls", "options and defaults")
    for method in described:
        options = ", ".join(f"{option['name']}={_text(option['default'])}" for option in method["options"])
        rows.add_row(method["name"], method["paper"], method["summary"], method["calls"], options or "-")
    console().print(rows)
    console().print("[dim]`dialore methods NAME` explains the options; -o NAME=VALUE sets one[/]")


def _show_one(method: dict[str, Any]) -> None:
    out = console()
    out.print(f"[bold]{method['name']}[/]  {method['summary']}")
    needs = ", ".join(method["needs"]) or "nothing"
    out.print(f"[dim]{method['paper']} · calls: {method['calls'] or 'not said'} · needs: {needs}[/]")
    rows = table("!option", "default", "what it does")
    for option in method["options"]:
        rows.add_row(option["name"], _text(option["default"]), option["help"])
    if method["options"]:
        out.print(rows)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
