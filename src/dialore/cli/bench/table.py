"""The pipeline benchmark's figures as a table."""

from __future__ import annotations

from typing import Any

from dialore.cli.output import console, table

_BOUND = "[dim]{}[/]"


def show(figures: dict[str, Any]) -> None:
    """Print the figures beside what they should be."""
    plan = figures["plan"]
    out = console()
    out.print(
        f"[bold]{plan['method']}[/] on {plan['graph']}, {figures['graph_facts']:,} facts, {plan['dialogues']} dialogues"
    )
    rows = table("measured", ">median", ">p95", "wanted")
    wanted = {"cpu_per_call_ms": "under 2 ms", "cpu_per_response_ms": "under 15 ms", "import_ms": "under 200 ms"}
    names = {
        "cpu_per_call_ms": "our CPU a model call",
        "cpu_per_response_ms": "our CPU a response",
        "wall_per_response_ms": f"wall clock a response, model calls of {plan['latency']} ms",
        "import_ms": "import of dialore",
    }
    for name, words in names.items():
        spread = figures[name]
        rows.add_row(
            words, f"{spread['median']:,.1f} ms", f"{spread['p95']:,.1f} ms", _BOUND.format(wanted.get(name, ""))
        )
    rows.add_row("peak memory", f"{figures['peak_memory_mb']:,.0f} MB", "", _BOUND.format("under 400 MB"))
    out.print(rows)
    out.print(_ratios(figures))


def _ratios(figures: dict[str, Any]) -> Any:  # noqa: ANN401 - a rich table
    rows = table("ratio, the same on any machine", ">value", "wanted")
    dcrag = figures["plan"]["method"] == "dcrag"
    rows.add_row("model calls a response", f"{figures['calls_per_response']:g}", "6" if dcrag else "")
    rows.add_row("sequential steps", f"{figures['sequential_steps']:g}", "4" if dcrag else "")
    if figures["wall_over_latency"] is not None:
        rows.add_row("wall clock over latency", f"{figures['wall_over_latency']:.2f}", "a little over the steps")
    rows.add_row("our CPU a call over the HTTP library's", f"{figures['cpu_per_call_over_bare_http']:.2f}", "")
    rows.add_row("prompt in a cacheable prefix", f"{figures['cacheable_prefix_share']:.1%}", "at least 80%")
    if batch := figures.get("batch"):
        words = f"{batch['dialogues']} dialogues at once, {batch['calls']} calls, over"
        rows.add_row(f"{words} the ideal", f"{batch['over_ideal']:.1%}", "")
        rows.add_row(f"{words} the HTTP library", f"{batch['over_bare_http']:.1%}", "at least 95%")
    return rows
