"""Write docs/methods.md and docs/metrics.md from the code: `python scripts/make_docs.py`; --check only compares.

Either way docs/fidelity.md, which is written by hand, is checked: what its tables name must exist.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import yaml

from dialore.cli.app import app
from dialore.datasets import data_set_names
from dialore.errors import InputError
from dialore.evaluation.human.sheets import criteria_sets
from dialore.evaluation.registry import Context, load_metric, metric_names
from dialore.experiments.config import DatasetConfig, RunConfig, SystemConfig
from dialore.methods.registry import (
    create_method,
    describe_method,
    method_class,
    method_names,
    method_options,
)
from dialore.prompts.library import PromptLibrary
from dialore.settings import SourceSettings
from dialore.sources.declared import Declaration
from dialore.text import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[1] / "docs"
_MADE = "<!-- Made by scripts/make_docs.py of the code: change it there. -->\n"
_METHODS = """\
A method answers a dialogue. `dialore methods` lists them, `dialore methods NAME` explains one, `-M NAME` chooses one,
`-o OPTION=VALUE` sets an option, and `--stage-model STAGE=MODEL` has a stage done by another model.
"""
_METRICS = """\
`dialore score RUN -x NAME` measures by one; every figure has a 95% bootstrap interval. What a metric cannot do without
and has not is said: such a figure is "not available", with the reason, and never 0. `judge` is a language model by
`--model` and `--base-url`, `nli` a model by `--nli`, `language-model` one by `--language-model`; the rest is data.
The two geometric means are made of other scores of a run, where all of those are there.
"""


def methods_page() -> str:
    """docs/methods.md."""
    described = [describe_method(method_class(name), PromptLibrary()) for name in method_names()]
    head = f"# Methods\n\n{_MADE}\n{_METHODS}\n"
    rows = [("method", "what it does", "calls", "sources"), ("---",) * 4]
    rows += [
        (f"[`{each['name']}`](#{each['name']})", each["summary"], each["calls"], _sources(each)) for each in described
    ]
    return head + _table(rows) + "".join(_method(each) for each in described)


def _method(method: dict[str, Any]) -> str:
    parts = [
        f"\n## {method['name']}\n",
        f"{method['paper']}. Calls: {method['calls']}. Sources: {_sources(method)}.\n",
        method["about"],
    ]
    if method["options"]:
        rows = [("option", "default", "what it does"), ("---",) * 3]
        rows += [(f"`{one['name']}`", f"`{_shown(one['default'])}`", one["help"]) for one in method["options"]]
        parts += ["", _table(rows).rstrip("\n")]
    rows = [("stage", "prompt", "answer"), ("---",) * 3]
    rows += [(f"`{one['name']}`", f"`{one['prompt']}`", one["output"]) for one in method["stages"]]
    return "\n".join([*parts, "", _table(rows)])


def _sources(method: dict[str, Any]) -> str:
    needed = [f"`{name}`" for name in method["needs"]]
    taken = [f"`{name}`" for name in method["takes"]]
    return "; ".join(filter(None, [", ".join(needed), f"if given {', '.join(taken)}" if taken else ""])) or "none"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def metrics_page() -> str:
    """docs/metrics.md."""
    from dialore.evaluation.geomean import ABOUT, RAGAS_ABOUT

    abouts = [load_metric(name, Context()).about for name in metric_names()] + [ABOUT, RAGAS_ABOUT]
    head = f"# Metrics\n\n{_MADE}\n{_METRICS}\n"
    rows = [("metric", "what it measures", "best", "needs", "from"), ("---",) * 5]
    rows += [
        (
            f"`{about.name}`",
            about.definition,
            "high" if about.higher_is_better else "low",
            ", ".join(about.needs) or "-",
            about.paper,
        )
        for about in abouts
    ]
    return head + _table(rows)


def _table(rows: list[tuple[str, ...]]) -> str:
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)


PAGES = {"methods.md": methods_page, "metrics.md": metrics_page}


# --- docs/fidelity.md

_EXAMPLES = DOCS.parent / "examples"
_SOURCE = DOCS.parent / "src" / "dialore"
_STATUS = re.compile(r"\*\*(As published|Differs|Cannot be had here|Beyond the paper|No experiment)\*\*(.*)")
NUMBERED = {  # by folder of examples, how many tables and figures the paper has
    "dcrag": (20, 6),
    "safari": (12, 2),
    "scg-qp": (3, 4),
    "edit": (6, 3),
    "msdp": (17, 10),
}


def fidelity_problems(page: str) -> list[str]:
    """What is wrong with the tables of docs/fidelity.md, a line each; nothing where all is well."""
    names, found = _names(), []
    sections = {part.partition("\n")[0].lower(): part for part in page.split("\n## ")[1:]}
    for folder, numbered in NUMBERED.items():
        rows = [line.strip("| ").split(" | ") for line in sections.get(folder, "").splitlines() if line[:1] == "|"]
        for row in rows[2:]:
            at = f"{folder}: {row[0]}"
            if len(row) != 3:
                found.append(f"{at}: {len(row)} cells")
                continue
            _, where, how = row
            spans = re.findall(r"`([^`]+)`", where)
            found += [f"{at}: there is no {span}" for span in spans if not _exists(span, names)]
            if where != "-" and not spans and "](" not in where:
                found.append(f"{at}: it does not say where")
            status = _STATUS.match(how)
            if status is None or (status[1] in {"Differs", "Cannot be had here", "Beyond the paper"} and not status[2]):
                found.append(f"{at}: it does not say how far it is as published, or why not")
        linked = set(
            re.findall(rf"examples/{folder}/([\w-]+)\.yaml", " ".join(row[1] for row in rows if len(row) == 3))
        )
        files = {path.stem for path in (_EXAMPLES / folder).glob("*.yaml")}
        found += [f"{folder}: {name} is a file in one place only" for name in sorted(linked ^ files)]
        for kind, count in zip(("Table", "Figure"), numbered, strict=True):
            told = {number for row in rows for number in _numbers(kind, row[0])}
            found += [f"{folder}: {kind} {each} is not told" for each in sorted(set(range(1, count + 1)) ^ told)]
    return found


def _names() -> set[str]:
    """Names of methods, their options and stages, metrics, criteria, data sets, and keys of experiment files."""
    methods = [describe_method(method_class(name), PromptLibrary()) for name in method_names()]
    shapes = (RunConfig, DatasetConfig, SystemConfig, SourceSettings, Declaration)
    return {
        *method_names(),
        *(option["name"] for method in methods for option in method["options"]),
        *(stage["name"] for method in methods for stage in method["stages"]),
        *metric_names(),
        *criteria_sets(),
        *data_set_names(),
        *(field for shape in shapes for field in shape.model_fields),
    }


def _exists(span: str, names: set[str]) -> bool:
    """Whether there is what a code span names: a file, a function in one, a command with its options, or a name."""
    if span.startswith("dialore "):
        return _is_command(span.split()[1:])
    if span.startswith("prompts/"):
        return (_SOURCE / span).is_dir() or all((_SOURCE / f"{span}.{language}.md").exists() for language in LANGUAGES)
    if span.startswith("scripts/"):
        return (DOCS.parent / span).exists()
    first, _, rest = span.partition(": ")
    if first.endswith(".py"):
        path = _SOURCE / first
        return path.exists() and (not rest or bool(re.search(rf"\b(def|class) {rest}\b", path.read_text("utf-8"))))
    return first in names and (not rest or _is_setting(first, yaml.safe_load(rest)))


def _is_setting(option: str, value: object) -> bool:
    """Whether a method that has the option takes the value; of any other name every value will do."""
    having = [name for name in method_names() if option in method_options(method_class(name))]
    return not having or any(_takes(name, {option: value}) for name in having)


def _takes(method: str, options: dict[str, object]) -> bool:
    try:
        create_method(method, dict.fromkeys((*method_class(method).needs, "documents"), object()), options)
    except InputError:
        return False
    return True


def _is_command(words: list[str]) -> bool:
    command: Any = typer.main.get_command(app)
    for word in words:
        if word.startswith("-"):
            if not any(word in param.opts for param in command.params):
                return False
        elif word not in getattr(command, "commands", {}):
            return False
        else:
            context = typer.Context(command, resilient_parsing=True)
            command = command.resolve_command(context, [word])[1]  # with the options of its settings
    return True


def _numbers(kind: str, text: str) -> Iterator[int]:
    """The numbers of "Tables 4, 5 and 6" or "Figure 5", ranges such as "7 to 11" in full."""
    for said in re.findall(rf"{kind}s? ([\d]+(?:(?:, | and | to )\d+)*)", text):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", said):
            yield from range(int(first), int(last or first) + 1)


def main() -> int:
    """Write the pages, or with --check say which are not what the code says; say what is wrong with fidelity.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    old = [name for name, make in PAGES.items() if (DOCS / name).read_text("utf-8") != make()] if check else []
    if not check:
        for name, make in PAGES.items():
            (DOCS / name).write_text(make(), encoding="utf-8")
    for name in old:
        print(f"docs/{name} is out of date: run python scripts/make_docs.py")
    problems = fidelity_problems((DOCS / "fidelity.md").read_text("utf-8"))
    for problem in problems:
        print(f"docs/fidelity.md: {problem}")
    return bool(old or problems)


if __name__ == "__main__":
    sys.exit(main())
