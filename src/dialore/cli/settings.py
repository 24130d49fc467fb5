"""`dialore settings`: everything that `--set` takes."""

import pkgutil
from typing import Annotated

from typer import Argument

from dialore.cli.options import Json, one_of
from dialore.cli.output import Table, console, print_json

_CLASSES = {
    "agent": "dialore.settings:Settings",
    "run": "dialore.experiments.config:RunConfig",
    "judge": "dialore.cli.options:JudgeSettings",
    "documents": "dialore.cli.documents:BuildSettings",
    "train": "dialore.cli.training:TrainSettings",
}


def settings(
    command: Annotated[
        str,
        Argument(metavar="[agent|run|judge|documents|train]", help="The commands that take them."),
    ] = "agent",
    json: Json = False,
) -> None:
    """List the settings that --set takes, with their defaults and environment variables.

    [bold]Examples[/bold]
    dialore settings
    dialore settings run
    dialore ask "Hello!" --set model.temperature=0 --set model.timeout=30
    """
    listed = list(pkgutil.resolve_name(_CLASSES[one_of("kind of settings", command, [*_CLASSES])]).list_settings())
    if json:
        rows = [
            {"name": setting.path, "default": setting.default, "variable": setting.variable, "help": setting.help}
            for setting in listed
        ]
        print_json(rows)
        return
    table = Table("!setting", "default", "what it does", "variable")
    for setting in listed:
        default = "" if setting.default in (None, "", [], {}) else str(setting.default)
        table.add_row(setting.path, default, setting.help, setting.variable)
    console().print(table)
