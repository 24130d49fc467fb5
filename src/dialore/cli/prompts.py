"""`dialore prompts`: the prompts as files, to read and to change."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from dialore.cli.options import Json
from dialore.cli.output import Table, console, note, print_json, say
from dialore.errors import InputError
from dialore.files import write_whole
from dialore.methods.registry import GROUP, method_class
from dialore.plugins import loadable, names_of
from dialore.prompts.library import Prompt, PromptLibrary
from dialore.text import check_language

app = typer.Typer(no_args_is_help=True)
_Folder = Annotated[Path | None, Option("--prompts", metavar="FOLDER", help="Prompts that override ours.")]
_Language = Annotated[str | None, Option("--language", "-l", metavar="en|zh", help="Only this language.")]


@app.command("list")
def list_prompts(language: _Language = None, prompts: _Folder = None, json: Json = False) -> None:
    """List every prompt with its version and hash.

    [bold]Example[/bold]
    dialore prompts list --language zh
    """
    wanted = check_language(language) if language else None
    listed = [prompt for prompt in _library(prompts) if wanted in {None, prompt.language}]
    if json:
        print_json([_describe(prompt) for prompt in listed])
        return
    rows = [(p.name, p.language, str(p.front.version), p.hash, p.front.output) for p in listed]
    console().print(Table("!prompt", "language", ">version", "hash", "output", rows=rows))


@app.command("show")
def show_prompt(
    name: Annotated[str, Argument(metavar="NAME", help="METHOD/STAGE, e.g. dcrag/query-production.")],
    language: Annotated[str, Option("--language", "-l", metavar="en|zh", help="In which language.")] = "en",
    prompts: _Folder = None,
    json: Json = False,
) -> None:
    """Print a prompt file as it is.

    [bold]Example[/bold]
    dialore prompts show dcrag/topic-planning --language zh
    """
    prompt = _library(prompts).get(name, check_language(language))
    if json:
        print_json({**_describe(prompt), "text": prompt.text})
    else:
        say(prompt.text.rstrip("\n"))


@app.command("export")
def export_prompts(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="Where they go; made if it is not there.")],
    force: Annotated[bool, Option("--force", help="Overwrite files that are there.")] = False,
    json: Json = False,
) -> None:
    """Write the prompts into a folder, to be changed and given back with --prompts.

    [bold]Examples[/bold]
    dialore prompts export my-prompts
    dialore respond talk.json --prompts my-prompts
    """
    library = _library()
    targets = {folder / f"{prompt.name}.{prompt.language}.md": prompt.text for prompt in library}
    there = [path for path in targets if path.exists()]
    if there and not force:
        more = f" (and {len(there) - 1} more)" if len(there) > 1 else ""
        raise InputError(f"{there[0]} is already there{more}", hint="--force overwrites")
    for path, text in targets.items():
        write_whole(path, text)
    if json:
        print_json({"folder": str(folder), "prompts": [str(path) for path in targets]})
    else:
        note(f"{len(targets)} prompts written to {folder}; use them with --prompts {folder}")


def _library(overrides: Path | None = None) -> PromptLibrary:
    """Return the prompts of all methods, with those that lie beside methods of other packages."""
    list(loadable(names_of(GROUP), method_class))
    return PromptLibrary(overrides)


def _describe(prompt: Prompt) -> dict[str, object]:
    front = prompt.front
    described = {"name": prompt.name, "language": prompt.language, "version": front.version, "hash": prompt.hash}
    return {**described, "output": front.output, "sampling": front.sampling.model_dump(exclude_none=True)}
