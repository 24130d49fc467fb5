"""The growth benchmark: build time, latency, memory and disk of graphs, documents and runs of rising sizes.

Each size is measured in processes of its own and kept in one JSON file as soon as it is measured: the same command
again measures only the sizes that are missing. Charts (SVG) are drawn beside the file from all sizes that it holds.
"""

# No deferred annotations here: typer reads them.
import json as jsons
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.documents import measure_documents
from benchmarks.graph import measure_graph
from benchmarks.measure import child, folder, show, tell
from dialore.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

Figures = dict[str, float]
_QUESTIONS = 100
_CONNECTIONS = 64
# Of each kind: what its sizes count, and what is drawn in its four panels, by label and unit.
CHARTS: dict[str, tuple[str, dict[str, dict[str, str]]]] = {
    "graph": (
        "facts",
        {
            "build, seconds": {"build_s": "build", "build_cpu_s": "of the CPU"},
            "50 + 50 facts, ms": {"p50_ms": "p50", "p95_ms": "p95", "hub_p50_ms": "hub, p50", "hub_p95_ms": "hub, p95"},
            "memory, MB": {"build_memory_mb": "build", "memory_mb": "reader"},
            "disk, MB": {"disk_mb": "file"},
        },
    ),
    "documents": (
        "passages",
        {
            "build, seconds": {"build_s": "build", "build_cpu_s": "of the CPU"},
            "10 passages, p50 ms": {"bm25_ms": "BM25", "dense_ms": "dense", "fused_ms": "fused", "exact_ms": "exact"},
            "memory, MB": {"build_memory_mb": "build", "memory_mb": "reader"},
            "disk, MB": {"disk_mb": "index"},
        },
    ),
    "runs": (
        "dialogues",
        {
            "run, seconds": {"build_s": "run", "resume_s": "resume"},
            "a dialogue, CPU ms": {"cpu_ms": "CPU"},
            "memory, MB": {"memory_mb": "run"},
            "disk, MB": {"disk_mb": "run"},
        },
    ),
}


def growth(
    out: Annotated[Path, typer.Argument(help="The folder that growth.json and the charts go to.")],
    graph: Annotated[list[int] | None, typer.Option(help="Facts of a graph; several times.")] = None,
    documents: Annotated[list[int] | None, typer.Option(help="Passages of an index; several times.")] = None,
    runs: Annotated[list[int] | None, typer.Option(help="Dialogues of a run; several times.")] = None,
    method: Annotated[str, typer.Option("--method", "-M", help="The method of the runs.")] = "dcrag",
    work: Annotated[Path | None, typer.Option(help="Where files lie meanwhile. [default: a temporary folder]")] = None,
) -> None:
    """Measure growth over sizes and draw it; sizes that are measured already are passed over.

    Without sizes, the charts are drawn anew.
    """
    sizes = {"graph": graph or [], "documents": documents or [], "runs": runs or []}
    measure: dict[str, Callable[[Path, int], Figures]] = {
        "graph": _graph,
        "documents": _documents,
        "runs": lambda _here, size: _run(method, size),
    }
    out.mkdir(parents=True, exist_ok=True)
    path = out / "growth.json"
    kept: dict[str, dict[str, Figures]] = jsons.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for kind, wanted in sizes.items():
        for size in wanted:
            if str(size) in kept.get(kind, {}):
                continue
            tell(f"{kind}: {size:,}")
            with folder() if work is None else folder(work / f"{kind}-{size}") as here:
                kept.setdefault(kind, {})[str(size)] = measure[kind](here, size)
            kept[kind] = dict(sorted(kept[kind].items(), key=lambda entry: int(entry[0])))
            path.write_text(jsons.dumps(kept, indent=1) + "\n", encoding="utf-8")
    for kind, found in kept.items():
        unit = CHARTS[kind][0]
        show(kind, [{unit: int(size), **figures} for size, figures in found.items()])
        (out / f"growth-{kind}.svg").write_text(draw(kind, found), encoding="utf-8")


def _graph(here: Path, facts: int) -> Figures:
    found = measure_graph(here, facts, _QUESTIONS, rivals=False)
    build, asked = found["build"], found["asked"]
    plain, hub = asked["plain"]["asked again"], asked["hub"]["asked again"]
    return {
        "build_s": build["seconds"],
        "build_cpu_s": build["cpu_seconds"],
        "p50_ms": plain["p50"],
        "p95_ms": plain["p95"],
        "hub_p50_ms": hub["p50"],
        "hub_p95_ms": hub["p95"],
        "open_ms": asked["open_ms"],
        "build_memory_mb": build["peak_memory_mb"],
        "memory_mb": asked["graph_memory_mb"].get("all", 0),
        "disk_mb": build["size_mb"],
    }


def _documents(here: Path, passages: int) -> Figures:
    found = measure_documents(here, passages, _QUESTIONS)
    build, asked = found["build"], found["asked"]
    latencies = {f"{name}_ms": asked[name]["p50"] for name in ("bm25", "dense", "fused")}
    latencies |= {f"{name}_p95_ms": asked[name]["p95"] for name in ("bm25", "dense", "fused")}
    if "exact" in asked:
        latencies |= {"exact_ms": asked["exact"]["p50"], "recall": asked["recall"]}
    memory = {"build_memory_mb": build["peak_memory_mb"], "memory_mb": asked["memory_mb"]}
    return {
        "build_s": build["seconds"],
        "build_cpu_s": build["cpu_seconds"],
        **latencies,
        "open_ms": asked["open_ms"],
        **memory,
        "disk_mb": build["size_mb"],
    }


def _run(method: str, dialogues: int) -> Figures:
    found = child("run", "rehearsed", method, dialogues, _CONNECTIONS)
    return {
        "build_s": found["seconds"],
        "resume_s": found["resume_seconds"],
        "cpu_ms": found["cpu_ms"],
        "memory_mb": found["peak_memory_mb"],
        "disk_mb": found["disk_mb"],
    }


def draw(kind: str, found: dict[str, Figures]) -> str:
    """Four panels over the sizes, both axes logarithmic, as SVG; raises MissingExtraError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("the charts", "report") from None
    import io

    unit, panels = CHARTS[kind]
    sizes = [int(size) for size in found]
    figure = Figure(figsize=(11, 3), layout="constrained")
    for axes, (title, lines) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        for key, label in lines.items():
            axes.plot(
                sizes, [each.get(key, math.nan) for each in found.values()], marker="o", markersize=3, label=label
            )
        axes.set(xscale="log", yscale="log", xlabel=unit)
        axes.set_title(title, loc="left", fontsize=10)
        axes.grid(alpha=0.3)
        if len(lines) > 1:
            axes.legend(fontsize=8, frameon=False)
    file = io.StringIO()
    # Without a date, the same figures make the same file.
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
