"""Write the pages and figures of docs/ that are made of the code: `python scripts/make_docs.py`; --check only compares.

Pages of methods, metrics, the command line and the Python API; drawings of each method's stages and of the concepts.
Which stages of a method run at once is taken from docs/figures/steps.json, which --trace makes anew by running the
demo. Either way docs/fidelity.md, which is written by hand, is checked: what its tables name must exist.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib
import inspect
import itertools
import json
import re
import sys
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import yaml

import dialore
from dialore.cli.app import app
from dialore.cli.demo import PARTS, demo_folder, open_part
from dialore.cli.documents import BuildSettings
from dialore.cli.options import JudgeSettings
from dialore.cli.train import part_names
from dialore.cli.training import TrainSettings
from dialore.datasets import data_set_names
from dialore.errors import InputError
from dialore.evaluation.human.sheets import criteria_sets
from dialore.evaluation.registry import Context, load_metric, metric_names
from dialore.experiments.config import DatasetConfig, RunConfig, SystemConfig
from dialore.llm.model import Completion, OnToken, Request, Wrapper
from dialore.llm.recording import Replay
from dialore.methods.registry import (
    create_method,
    describe_method,
    method_class,
    method_names,
    method_options,
)
from dialore.prompts.library import PromptLibrary
from dialore.settings import Settings, SourceSettings, Strict
from dialore.sources.declared import Declaration
from dialore.sources.registry import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dialore.response import StageTrace

DOCS = Path(__file__).parents[1] / "docs"
SIGNATURES = DOCS.parent / "tests" / "data" / "signatures.txt"
_MADE = "<!-- Made by scripts/make_docs.py of the code: change it there. -->\n"
_METHODS = """\
A method answers a dialogue. `dialore methods` lists them, `dialore methods NAME` explains one, `-M NAME` chooses one,
`-o OPTION=VALUE` sets an option, and `--set model.stages.STAGE=MODEL` has a stage done by another model.
"""
_METRICS = """\
`dialore score RUN -x NAME` measures by one; every figure has a 95% bootstrap interval. What a metric cannot do without
and has not is said: such a figure is "not available", with the reason, and never 0. `judge` is a language model by
`--model` and `--base-url`, `nli` a model by `--set nli=NAME`, `language-model` one by
`--set language_model=NAME`; the rest is data. The two geometric
means are made of other scores of a run, where all of those are there.

The tables and plots of `score` and `report` show overlap, consistency, recall and other shares in per cent, like BLEU
and Distinct. They compare directly with the tables of SAFARI and MSDP. `--json`, CSV, `check` and Python have these
shares from 0 to 1. Judges' scores are on the scale of their definition; DCRAG prints those of 1 to 5 times 20.

If a dialogue has several `references`, metrics of single responses take the best one. BLEU counts the n-grams of all
references and the closest length, as sacrebleu and coco-caption do.

Overlap is measured in the language of the reference, whatever the language of the turns: Chinese by character (or by
word, `--set tokens=word`), English as ParlAI normalises it, any other language by words of Unicode.
"""
_SIGNIFICANCE = """
## Significance

`report`, `check --against` and `Run.compare` test two systems by paired randomisation: the outputs for a dialogue are
swapped between the systems, in all ways for up to 13 dialogues that differ, else in 9,999 random ways (1,999 for
Distinct and GeoMean). The p-value is never below the smallest attainable one, 2 / 2^n for n dialogues, so that fewer
than six dialogues have neither a mark nor an interval of the difference. Turns of one conversation are swapped
together. Metrics of single responses are also tested by Wilcoxon's test, exact for up to 13 dialogues that differ, and
the larger p counts. Holm's correction is over the systems compared on a metric.

Equal systems that differ with p < 0.05 and p < 0.01, in per cent of simulated comparisons
(`python scripts/measure_significance.py`). Cells have 1,000 comparisons up to 15 dialogues (standard errors 0.7 and
0.3), and 300 from 20 on (`--times 300`; standard errors 1.3 and 0.6):

| dialogues | means | BLEU-4 | Distinct-2 | GeoMean |
|---:|---:|---:|---:|---:|
| 2 | 0.0, 0.0 | 0.0, 0.0 | 0.0, 0.0 | 0.0, 0.0 |
| 3 | 0.0, 0.0 | 0.0, 0.0 | 0.0, 0.0 | 0.0, 0.0 |
| 4 | 0.0, 0.0 | 0.0, 0.0 | 0.0, 0.0 | 0.0, 0.0 |
| 5 | 0.0, 0.0 | 0.0, 0.0 | 0.0, 0.0 | 0.0, 0.0 |
| 6 | 2.7, 0.0 | 2.5, 0.0 | 1.8, 0.0 | 3.2, 0.0 |
| 8 | 5.3, 0.7 | 4.7, 0.9 | 3.1, 0.4 | 5.3, 1.3 |
| 10 | 5.2, 0.6 | 5.8, 1.2 | 3.7, 0.7 | 4.5, 1.1 |
| 15 | 5.8, 0.6 | 5.4, 1.2 | 4.4, 0.6 | 5.3, 1.2 |
| 20 | 5.3, 1.3 | 6.7, 1.3 | 3.7, 1.3 | 3.3, 0.7 |
| 30 | 4.0, 2.0 | 3.3, 1.7 | 6.0, 1.3 | 5.3, 0.3 |
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
        *([f"![Stages of {method['name']}](figures/{method['name']}.svg)\n"] if method["stages"] else []),
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
    needed = [f"`{name}`" for name in method["required_sources"]]
    taken = [f"`{name}`" for name in method["optional_sources"]]
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
    return head + _table(rows) + _SIGNIFICANCE


def _table(rows: list[tuple[str, ...]]) -> str:
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)


# --- docs/cli.md and docs/api.md

_CLI = """\
Every command tells its options by `--help`; `dialore --install-completion` completes them in your shell. The exit code
is 0 where all was done, 1 where some of a batch failed, 2 for bad input: one line on standard error says what is wrong
and how to mend it. Everyday settings have an option of their own. Any setting is set by `--set section.field=value`, by
its variable, or in the file of `--settings`; options win over variables, these over the file. `dialore settings` lists
them, and the tables below.
"""


def cli_page() -> str:
    """docs/cli.md."""
    parts = []
    for path, command in _commands(typer.main.get_command(app), "dialore"):
        about, _, shown = re.sub(r"\[/?[a-z ]+\]", "", command.help or "").partition("\nExamples\n")
        lines = [line.strip() for line in shown.partition("\n\n")[0].splitlines()]
        examples = f"\n```text\n{chr(10).join(lines)}\n```\n" if lines else ""
        has_options = any(param.opts[0] != "--help" for param in command.params)
        table = f"\n{_options(command.params)}" if has_options else ""
        parts.append(f"\n## {path}\n\n{about.strip()}\n{examples}{table}")
    parts += [f"\n## Settings: {title}\n\n{_settings(kind)}" for title, kind in _SETTINGS.items()]
    return f"# The command line\n\n{_MADE}\n{_CLI}" + "".join(parts)


_SETTINGS: dict[str, type[Strict]] = {
    "commands that answer": Settings,
    "runs": RunConfig,
    "judges and metrics": JudgeSettings,
    "reading documents": BuildSettings,
    "training": TrainSettings,
}


def _settings(kind: type[Strict]) -> str:
    rows: list[tuple[str, ...]] = [("setting", "what it does", "variable"), ("---",) * 3]
    listed = kind.list_settings()
    rows += [(f"`{each.path}`", each.help, f"`{each.variable}`" if each.variable else "") for each in listed]
    return _table(rows)


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - click's
    context = typer.Context(group, resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.resolve_command(context, [name])[1]
        if hasattr(command, "list_commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _options(params: Iterable[Any]) -> str:
    rows: list[tuple[str, ...]] = [("option", "what it does"), ("---", "---")]
    for param in params:
        names = ", ".join(f"`{name}`" for name in (param.opts if param.param_type_name == "option" else []))
        form = f"`{param.metavar or param.name.upper()}`" if not getattr(param, "is_flag", False) else ""
        if param.opts[0] != "--help":
            rows.append((" ".join(filter(None, [names, form])), re.sub(r"\\(?=\[)", "", param.help or "")))
    return _table(rows)


_API = """\
These names are all that most programs need; [From Python](python.md) shows them at work. Whoever adds a method, a
source, a metric or a data set needs those of the packages below, too.
"""
_FURTHER = (
    "dialore.methods.base:Method",
    "dialore.methods.stages:StageContext",
    "dialore.sources.base:KnowledgeSource",
    "dialore.sources.graph",
    "dialore.retrieval.graph",
    "dialore.datasets",
    "dialore.datasets.base:Talk",
    *(
        f"dialore.evaluation.base:{name}"
        for name in ("MetricInfo", "Sample", "SampleScore", "Mean", "Proportion", "unavailable")
    ),
)


def api_page() -> str:
    """docs/api.md: names alone; the site fills in their docstrings."""
    parts = ["\n## dialore\n", *(f"\n::: dialore.{name}\n" for name in dialore.__all__)]
    for module, places in itertools.groupby(_FURTHER, lambda place: place.partition(":")[0]):
        names = [name for place in places if (name := place.partition(":")[2])]
        names = names or importlib.import_module(module).__all__
        parts += [f"\n## {module}\n", *(f"\n::: {module}.{name}\n" for name in names)]
    return f"# The Python API\n\n{_MADE}\n{_API}" + "".join(parts)


def signatures() -> str:
    """Return the signature of every public name, a line each: what a change of them is seen by."""
    lines = []
    for place in ("dialore", *_FURTHER):
        module, _, alone = place.partition(":")
        package = importlib.import_module(module)
        for name in [alone] if alone else sorted(package.__all__):
            value = getattr(package, name)
            lines.append(f"{module}.{name}{_signature(value)}")
            if inspect.isclass(value):
                lines += [
                    f"{module}.{name}.{method}{_signature(getattr(value, method))}"
                    for method in sorted(vars(value))
                    if not method.startswith("_") and callable(getattr(value, method))
                ]
    return "\n".join(lines) + "\n"


def _signature(value: Any) -> str:  # noqa: ANN401 - whatever is public
    """Return a signature as text; of pydantic's models the fields, whose types each version writes in another way."""
    if fields := getattr(value, "model_fields", None):
        return f"({', '.join(fields)})"
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))
    except (TypeError, ValueError):
        return ""


PAGES = {"methods.md": methods_page, "metrics.md": metrics_page, "cli.md": cli_page, "api.md": api_page}


# --- figures

FIGURES = DOCS / "figures"
_STEPS = FIGURES / "steps.json"
_DEMO = {"": "weekend-in-london", "further": "stars-over-the-lake"}  # dialogues of the demo in which most stages run
Row = tuple[str, list[tuple[str, str]]]
"""A caption, and boxes: each with its label and its kind, `model` or `own`."""


def figures() -> dict[str, str]:
    """Return every drawing, by the name of its file."""
    steps = json.loads(_STEPS.read_text("utf-8"))
    made = {}
    for name in method_names():
        stages = [stage["name"] for stage in describe_method(method_class(name), PromptLibrary())["stages"]]
        rows = [(caption, [tuple(box) for box in boxes]) for caption, boxes in steps.get(name, ())]
        if stages:
            made[f"{name}.svg"] = draw(rows or [(f"step {n}", [(stage, "model")]) for n, stage in enumerate(stages, 1)])
    return made | {f"{name}.svg": draw(rows) for name, rows in _concepts().items()}


def _concepts() -> dict[str, list[Row]]:
    return {
        "turn": [
            ("what was said", [("dialogue: history, persona", "own")]),
            ("what the reply needs", [("demands: queries, topics", "model")]),
            ("where it may be", [(name, "own") for name in KINDS if name not in {"samples", "sources"}]),
            ("what was found", [("knowledge: id, text, source, score", "own")]),
            ("what is said", [("response: text, citations", "model"), ("trace: every stage", "own")]),
        ],
        "wiring": [
            ("what you say", [("dialore.toml", "own"), ("DIALORE_...", "own"), ("options", "own")]),
            ("opens and closes", [("session", "own")]),
            ("what it opens", [("model", "model"), ("sources", "own"), ("method", "own")]),
            ("answers", [("agent", "own")]),
            ("who asks it", [(each, "own") for each in ("command line", "Python", "dialore serve", "dialore mcp")]),
        ],
    }  # fmt: skip


_STYLE = """text { font: 13px system-ui, sans-serif; fill: #1c2430; text-anchor: middle; }
.caption { font-size: 12px; fill: #5b6472; text-anchor: end; }
rect { rx: 7px; stroke-width: 1.3px; fill: #ffffff; stroke: #8a94a3; }
.model { fill: #e3ecfb; stroke: #2f62b5; }
path { stroke: #8a94a3; stroke-width: 1.3px; fill: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ef; } .caption { fill: #a3acba; }
  rect { fill: #232936; stroke: #77818f; } .model { fill: #1f3357; stroke: #7fa8ec; } path { stroke: #77818f; }
}"""


def draw(rows: Sequence[Row]) -> str:
    """Return a drawing of rows from top to bottom: what stands in one row runs at once, blue boxes ask a model."""
    left, high, gap, apart = 150, 34, 12, 30
    widths = [[len(label) * 7.1 + 24 for label, _ in boxes] for _, boxes in rows]
    wide = max(sum(each) + gap * (len(each) - 1) for each in widths)
    parts = []
    for place, ((caption, boxes), sizes) in enumerate(zip(rows, widths, strict=True)):
        y, x = place * (high + apart) + 6, left + (wide - sum(sizes) - gap * (len(sizes) - 1)) / 2
        parts.append(f'<text class="caption" x="{left - 16}" y="{y + 22}">{escape(caption)}</text>')
        if place:
            middle = left + wide / 2
            parts.append(f'<path d="M{middle:.0f} {y - apart + 4}V{y - 5}m-4-5l4 5l4-5"/>')
        for (label, kind), size in zip(boxes, sizes, strict=True):
            parts.append(f'<rect class="{kind}" x="{x:.0f}" y="{y}" width="{size:.0f}" height="{high}"/>')
            parts.append(f'<text x="{x + size / 2:.0f}" y="{y + 22}">{escape(label)}</text>')
            x += size + gap
    box = f"0 0 {left + wide + 6:.0f} {len(rows) * (high + apart) - apart + 12}"
    size = f'width="{left + wide + 6:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" {size}>\n<style>{_STYLE}</style>\n' + (
        "\n".join(parts) + "\n</svg>\n"
    )


def rows_of(trace: Sequence[StageTrace]) -> list[Row]:
    """Return a response's stages in rows, by how many model calls each waited for; first those without a call."""
    ended: list[tuple[float, int]] = []
    placed: list[tuple[tuple[int, bool], str]] = []
    for stage in sorted(trace, key=lambda each: (each.started, each.started + each.seconds)):
        depth, asks = max((depth for end, depth in ended if end <= stage.started), default=0), bool(stage.usage.calls)
        ended.append((stage.started + stage.seconds, depth + asks))
        placed.append(((depth, asks), re.sub(r"-\d+$", "", stage.stage)))
    placed.sort(key=lambda each: each[0])
    rows: list[Row] = []
    for (depth, asks), group in groupby(placed, key=lambda each: each[0]):
        names = [name for _, name in group]
        labels = [f"{name} × {names.count(name)}" if names.count(name) > 1 else name for name in dict.fromkeys(names)]
        rows.append(
            (f"step {depth + 1}" if asks else "no model", [(one, "model" if asks else "own") for one in labels])
        )
    return rows


async def trace_steps() -> dict[str, list[Row]]:
    """Return the rows of every method of the demo, its recording replayed at three tenths of a second a call."""
    replay = Replay(demo_folder() / "recordings.jsonl", match="label")

    class Slow(Wrapper):
        async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
            completion = await replay.complete(request, on_token)
            await asyncio.sleep(0.3)
            return completion

    found = {}
    for part in PARTS:
        (dialogue,) = (each for each in part.dialogues() if each.id == _DEMO[part.folder])
        async with open_part(part, Slow(replay)) as agents:
            for agent in agents:
                await agent.ground(dialogue)  # what is loaded once is loaded
                response = await agent.respond(dialogue)
                found[response.method] = rows_of(response.trace)
    return found


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
    """Return what is wrong with the tables of docs/fidelity.md, a line each; nothing where all is well."""
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
    """Return whether there is what a code span names: a file, a function in it, a command with options, a name."""
    if span.startswith("dialore "):
        return _is_command(span.split()[1:])
    if span.startswith("prompts/"):
        return (_SOURCE / span).is_dir() or (_SOURCE / f"{span}.en.md").exists()
    if span.startswith("scripts/"):
        return (DOCS.parent / span).exists()
    first, _, rest = span.partition(": ")
    if first.endswith(".py"):
        path = _SOURCE / first
        return path.exists() and (not rest or bool(re.search(rf"\b(def|class) {rest}\b", path.read_text("utf-8"))))
    return first in names and (not rest or _is_setting(first, yaml.safe_load(rest)))


def _is_setting(option: str, value: object) -> bool:
    """Return whether a method that has the option takes the value; of any other name every value will do."""
    having = [name for name in method_names() if option in method_options(method_class(name))]
    return not having or any(_takes(name, {option: value}) for name in having)


def _takes(method: str, options: dict[str, object]) -> bool:
    try:
        create_method(method, dict.fromkeys((*method_class(method).required_sources, "documents"), object()), options)
    except InputError:
        return False
    return True


_command_tree = functools.cache(lambda: typer.main.get_command(app))


def _is_command(words: list[str]) -> bool:
    command: Any = _command_tree()
    settings = {setting.path for kind in _SETTINGS.values() for setting in kind.list_settings()}
    for before, word in zip(["", *words], words, strict=False):
        if before == "--set":
            if word.partition("=")[0] not in settings:
                return False
        elif word.startswith("-"):
            if not any(word in param.opts for param in command.params):
                return False
        elif words[0] == "train" and word in part_names():
            continue
        elif word not in getattr(command, "commands", {}):
            return False
        else:
            context = typer.Context(command, resilient_parsing=True)
            command = command.resolve_command(context, [word])[1]  # with the options of its settings
    return True


def _numbers(kind: str, text: str) -> Iterator[int]:
    """Yield the numbers of "Tables 4, 5 and 6" or "Figure 5", ranges such as "7 to 11" in full."""
    for said in re.findall(rf"{kind}s? ([\d]+(?:(?:, | and | to )\d+)*)", text):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", said):
            yield from range(int(first), int(last or first) + 1)


def main() -> int:
    """Write what is made, or with --check say what is not what the code says; say what is wrong with fidelity.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--trace", action="store_true", help="run the demo for figures/steps.json first")
    arguments = parser.parse_args()
    if arguments.trace:
        _STEPS.write_text(json.dumps(asyncio.run(trace_steps()), indent=1) + "\n", encoding="utf-8")
    made = {DOCS / name: make() for name, make in PAGES.items()}
    made |= {FIGURES / name: text for name, text in figures().items()} | {SIGNATURES: signatures()}
    old = [path for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
    if not arguments.check:
        for path in old:
            path.write_text(made[path], encoding="utf-8")
        old = []
    for path in old:
        print(f"{path.relative_to(DOCS.parent)} is out of date: run python scripts/make_docs.py")
    problems = fidelity_problems((DOCS / "fidelity.md").read_text("utf-8"))
    for problem in problems:
        print(f"docs/fidelity.md: {problem}")
    return bool(old or problems)


if __name__ == "__main__":
    sys.exit(main())
