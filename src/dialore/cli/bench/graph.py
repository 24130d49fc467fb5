"""The graph benchmark: a generated graph is built and asked, and other stores beside it, each in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.cli.bench import graph_table
from dialore.cli.bench.graph_prepare import SETS
from dialore.cli.bench.graph_rivals import installed
from dialore.cli.bench.measures import percentile
from dialore.cli.output import note, print_json, progress
from dialore.errors import DialoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHECKED = 20
"""Questions of each set whose answers are compared between stores."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: facts of the graph, questions of each set, whether other stores are asked, and where."""

    facts: int
    questions: int
    rivals: bool
    folder: Path | None


def run(plan: Plan, *, json: bool) -> None:
    """Measure, and print the figures as JSON or as tables; raises DialoreError where a step fails."""
    with _folder(plan.folder) as folder, progress("generating") as step:
        figures = _measure(plan, folder, step)
    if json:
        print_json(figures)
    else:
        graph_table.show(figures)


@contextmanager
def _folder(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen
        return
    with tempfile.TemporaryDirectory(prefix="dialore-bench-") as folder:
        yield Path(folder)


def _measure(plan: Plan, folder: Path, step: Any) -> dict[str, Any]:  # noqa: ANN401 - what `progress` yields
    figures: dict[str, Any] = {"plan": {**asdict(plan), "folder": str(plan.folder or "")}}
    figures["graph"] = _child("graph_prepare", "generate", folder, plan.facts, plan.questions)
    step("building", 1, 5)
    figures["build"] = _child("graph_prepare", "build", folder)
    step("asking", 2, 5)
    sets = json.loads((folder / "questions.json").read_text(encoding="utf-8"))
    told = json.dumps({"graph": str(folder / "bench.graph"), "sets": sets})
    asked = _child("graph_questions", stdin=told)
    for name in SETS:
        asked[name] = {kind: spread(times) for kind, times in asked[name].items()}
    figures["demands"] = asked
    if plan.rivals:
        step("asking other stores", 3, 5)
        _child("graph_prepare", "columns", folder)
        figures["stores"] = _stores(folder)
    return figures


def _stores(folder: Path) -> dict[str, Any]:
    """The same question asked of each store that is installed; what answers otherwise is said so."""
    asked = (folder / "asked.json").read_text(encoding="utf-8")
    stores: dict[str, Any] = {}
    answers: dict[str, Any] = {}
    for name in installed():
        built = _child("graph_rivals", name, folder, "build")
        found = _child("graph_rivals", name, folder, "ask", stdin=asked)
        answers[name] = found.pop("answers")
        stores[name] = {**built, **found, **{kind: spread(found[kind]) for kind in SETS}}
        stores[name]["equal"] = answers[name] == answers["dialore"]
    own = stores["dialore"]
    for store in stores.values():
        store["times_ours"] = {kind: store[kind]["p50"] / own[kind]["p50"] for kind in SETS}
    return stores


def spread(times: list[float]) -> dict[str, float]:
    """Median, 95th and 99th percentile."""
    return {f"p{percent}": percentile(times, percent) for percent in (50, 95, 99)}


def _child(module: str, *arguments: object, stdin: str = "") -> dict[str, Any]:
    """Run a module of this package in a process of its own, and read what it prints."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", f"dialore.cli.bench.{module}", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        note(done.stderr)
        raise DialoreError(f"the benchmark's step {module} {' '.join(map(str, arguments))} failed: {last}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
