"""`dialore prompts`: the prompts as files, to read and to change."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from dialore.cli.options import Json
from dialore.cli.output import Table, console, note, print_json, say
from dialore.errors import InputError
from dialore.files import write_whole
from dialore.methods.registry import GROUP, method_class
from dialore.plugins import loadable, names_of
from dialore.prompts.library import Prompt, PromptLibrary
from dialore.text import check_language


def prompts(
    name: Annotated[str | None, Argument(metavar="[NAME]", help="METHOD/STAGE, e.g. dcrag/query-production.")] = None,
    language: Annotated[
        str | None, Option("--language", "-l", metavar="en|zh", help="Only this language. (default of a prompt: en)")
    ] = None,
    prompts: Annotated[Path | None, Option("--prompts", metavar="FOLDER", help="Prompts that override ours.")] = None,
    export: Annotated[Path | None, Option(metavar="FOLDER", help="Write all prompts into a folder.")] = None,
    force: Annotated[bool, Option("--force", help="With --export: overwrite files.")] = False,
    json: Json = False,
) -> None:
    """List the prompts with version and hash, print one, or export all to change them.

    [bold]Examples[/bold]
    dialore prompts --language zh
    dialore prompts dcrag/topic-planning --language zh
    dialore prompts --export my-prompts
    dialore respond talk.json --set sources.prompts=my-prompts
    """
    list(loadable(names_of(GROUP), method_class))  # methods of other packages add their prompts
    library = PromptLibrary(prompts)
    if export is not None:
        _export(PromptLibrary(), export, force=force, json=json)
    elif name is not None:
        prompt = library.get(name, check_language(language or "en"))
        if json:
            print_json({**_describe(prompt), "text": prompt.text})
        else:
            say(prompt.text.rstrip("\n"))
    else:
        wanted = check_language(language) if language else None
        _list([prompt for prompt in library if wanted in {None, prompt.language}], json=json)


def _list(listed: list[Prompt], *, json: bool) -> None:
    if json:
        print_json([_describe(prompt) for prompt in listed])
        return
    rows = [(p.name, p.language, str(p.front.version), p.hash, p.front.output) for p in listed]
    console().print(Table("!prompt", "language", ">version", "hash", "output", rows=rows))


def _export(library: PromptLibrary, folder: Path, *, force: bool, json: bool) -> None:
    targets = {folder / f"{prompt.name}.{prompt.language}.md": prompt.text for prompt in library}
    existing = [path for path in targets if path.exists()]
    if existing and not force:
        more = f" (and {len(existing) - 1} more)" if len(existing) > 1 else ""
        raise InputError(f"{existing[0]} is already there{more}", hint="--force overwrites")
    for path, text in targets.items():
        write_whole(path, text)
    if json:
        print_json({"folder": str(folder), "prompts": [str(path) for path in targets]})
    else:
        note(f"{len(targets)} prompts written to {folder}; use them with --set sources.prompts={folder}")


def _describe(prompt: Prompt) -> dict[str, object]:
    front = prompt.front
    described = {"name": prompt.name, "language": prompt.language, "version": front.version, "hash": prompt.hash}
    return {**described, "output": front.output, "sampling": front.sampling.model_dump(exclude_none=True)}
