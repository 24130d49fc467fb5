"""The graph benchmark's figures as tables."""

from __future__ import annotations

from typing import Any

from dialore.cli.output import console, table

_SETS = {"plain": "without a hub", "hub": "with a hub"}


def show(figures: dict[str, Any]) -> None:
    """Print the figures beside what they should be at 3.3M facts."""
    out = console()
    graph, build, demands = figures["graph"], figures["build"], figures["demands"]
    degrees = ", ".join(f"{degree:,}" for degree in graph["largest_degrees"])
    out.print(f"[bold]{build['facts']:,} facts, {build['concepts']:,} concepts[/], the largest of {degrees} facts")
    rows = table("10 queries and 10 topics to 50 + 50 facts", ">p50 ms", ">p95 ms", ">p99 ms", "wanted at 3.3M facts")
    for name, words in _SETS.items():
        for kind, wanted in (("again", "p50 under 5, p95 under 15"), ("first_time", ""), ("facts_and_cosines", "")):
            spread = demands[name][kind]
            label = {
                "again": words,
                "first_time": f"{words}, never asked before",
                "facts_and_cosines": f"{words}, ranked facts alone",
            }
            rows.add_row(label[kind], *(f"{spread[key]:.2f}" for key in ("p50", "p95", "p99")), f"[dim]{wanted}[/]")
    out.print(rows)
    rows = table("", ">measured", "wanted at 3.3M facts")
    memory = demands["memory"]
    rows.add_row("open", f"{demands['open_ms']:.1f} ms", "[dim]under 100 ms[/]")
    if beyond := memory["beyond_interpreter"]:
        words = f"{beyond['all']:.0f} MB, {beyond['mapped']:.0f} of them pages of files"
        rows.add_row("memory beyond the interpreter", words, "[dim]under 300 MB[/]")
    rows.add_row("build", f"{build['seconds']:.0f} s", "[dim]under 180 s[/]")
    rows.add_row("its peak memory", f"{build['peak_memory_mb']:,.0f} MB", "")
    rows.add_row("size", f"{build['bytes'] / 2**20:.0f} MB", "[dim]under 600 MB[/]")
    out.print(rows)
    if stores := figures.get("stores"):
        out.print(_stores(stores))


def _stores(stores: dict[str, Any]) -> Any:  # noqa: ANN401 - a rich table
    rows = table(
        "facts of 20 concepts, in two sets", ">build s", ">MB", ">open ms", ">p50 ms", ">p95 ms", ">p99 ms",
        ">with hub p50", ">p95", ">p99", ">times ours", ">memory MB", "answers",
    )  # fmt: skip
    for name, store in stores.items():
        times = " / ".join(f"{store['times_ours'][kind]:.1f}" for kind in _SETS)
        rows.add_row(
            name,
            "" if name == "dialore" else f"{store['build_s']:.0f}",
            f"{store['bytes'] / 2**20:.0f}",
            f"{store['open_ms']:,.0f}",
            *(f"{store[kind][key]:.2f}" for kind in _SETS for key in ("p50", "p95", "p99")),
            times,
            f"{store['memory_mb']:,.0f}" if store["memory_mb"] is not None else "",
            "equal" if store["equal"] else "[red]different[/]",
        )
    return rows
