"""Tools that every benchmark shares: child processes, times, memory, and one table."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.errors import DialoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[1]


def child(module: str, *arguments: object, stdin: str = "") -> Any:  # noqa: ANN401 - whatever its JSON holds
    """Run a function of a benchmark in a process of its own, so that its time and memory are its own.

    Args:
        module: the benchmark, for example "graph".
        arguments: the function's name, as `answer_parent` knows it, and its arguments.
        stdin: text to write to its standard input.

    Raises:
        DialoreError: the process failed; the message ends with its last line.
    """
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise DialoreError(f"the step {module} {' '.join(map(str, arguments))} failed: {last}")
    return json.loads(done.stdout)


def answer_parent(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Be the process that `child` starts: call the named function with the other arguments, as text; print JSON."""
    print(json.dumps(functions[sys.argv[1]](*sys.argv[2:])))


def tell(step: str) -> None:
    """Say on standard error what is being done."""
    print(step, file=sys.stderr, flush=True)


@contextmanager
def folder(chosen: Path | None = None) -> Iterator[Path]:
    """Yield the chosen folder, made where it is missing; else a temporary one."""
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="dialore-bench-") as made:
        yield Path(made)


def size_of(path: Path) -> int:
    """Bytes on disk of a file, or of all files of a folder."""
    return sum(file.stat().st_blocks * 512 for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())


def timed(ask: Callable[[Any], object], questions: Sequence[Any]) -> list[float]:
    """Milliseconds that each question took."""
    times = []
    for question in questions:
        begun = time.perf_counter()
        ask(question)
        times.append((time.perf_counter() - begun) * 1000)
    return times


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile, interpolated; of one value, that value."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th and 99th percentile."""
    return {f"p{percent}": round(percentile(values, percent), 3) for percent in (50, 95, 99)}


def peak_memory() -> float:
    """Return the peak memory of this process in MB; on Linux without that of the process that started it."""
    if found := _status().get("VmHWM"):
        return found
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def resident() -> dict[str, float]:
    """Return this process's resident memory in MB: all, its own, and pages of files; empty if unknown."""
    found = _status()
    names = {"all": "VmRSS", "own": "RssAnon", "mapped": "RssFile"}
    return {name: found[key] for name, key in names.items() if key in found}


def _status() -> dict[str, float]:
    """Figures of /proc/self/status in MB."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if line.endswith("kB"))
    return {name: int(value.split()[0]) / 1024 for name, value in pairs}


def show(title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Print a table: a column for each key of the first row, numbers to the right."""
    from dialore.cli.output import Table, console, escape

    numbers = {key for key in rows[0] if any(isinstance(row.get(key), int | float) for row in rows)}
    shown = Table(*(f">{key}" if key in numbers else key for key in rows[0]), title=escape(title) or None)
    for row in rows:
        shown.add_row(*(escape(_cell(row.get(key))) for key in rows[0]))
    console().print(shown)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)


def report(figures: dict[str, Any], as_json: bool, tables: Callable[[dict[str, Any]], None]) -> None:
    """Print a benchmark's figures as JSON or as its tables, with the machine's cores and load."""
    figures |= {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    tables(figures)
    print(f"{figures['cores']} cores, load {figures['load']}")
