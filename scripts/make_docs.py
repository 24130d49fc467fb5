"""Write docs/methods.md and docs/metrics.md from the code: `python scripts/make_docs.py`; --check only compares."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dialore.evaluation.registry import Context, load_metric, metric_names
from dialore.methods.registry import MethodDescription, describe_method, method_class, method_names

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
    described = [describe_method(method_class(name)) for name in method_names()]
    head = f"# Methods\n\n{_MADE}\n{_METHODS}\n"
    rows = [("method", "what it does", "calls", "sources"), ("---",) * 4]
    rows += [(f"[`{each.name}`](#{each.name})", each.summary, each.calls, _sources(each)) for each in described]
    return head + _table(rows) + "".join(_method(each) for each in described)


def _method(method: MethodDescription) -> str:
    parts = [
        f"\n## {method.name}\n",
        f"{method.paper}. Calls: {method.calls}. Sources: {_sources(method)}.\n",
        method.about,
    ]
    if method.options:
        rows = [("option", "default", "what it does"), ("---",) * 3]
        rows += [(f"`{one.name}`", f"`{_shown(one.default)}`", one.help) for one in method.options]
        parts += ["", _table(rows).rstrip("\n")]
    rows = [("stage", "prompt", "answer"), ("---",) * 3]
    rows += [(f"`{one.name}`", f"`{one.prompt}`", one.output) for one in method.stages]
    return "\n".join([*parts, "", _table(rows)])


def _sources(method: MethodDescription) -> str:
    needed = [f"`{name}`" for name in method.needs]
    taken = [f"`{name}`" for name in method.takes]
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


def main() -> int:
    """Write the pages, or with --check say which are not what the code says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    old = [name for name, make in PAGES.items() if (DOCS / name).read_text("utf-8") != make()] if check else []
    if not check:
        for name, make in PAGES.items():
            (DOCS / name).write_text(make(), encoding="utf-8")
    for name in old:
        print(f"docs/{name} is out of date: run python scripts/make_docs.py")
    return bool(old)


if __name__ == "__main__":
    sys.exit(main())
