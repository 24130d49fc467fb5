"""The run benchmark's figures on the terminal."""

from __future__ import annotations

from typing import Any

from dialore.cli.output import console, table


def show(figures: dict[str, Any]) -> None:
    """Print every figure beside what is wanted of it."""
    out, plan = console(), figures["plan"]
    out.print(
        f"[bold]{plan['method']}[/bold] against a local endpoint, latency lognormal: median {plan['median']} ms, "
        f"sigma {plan['sigma']:g}; {plan['connections']} connections; {figures['cores']} cores, load {figures['load']}"
    )
    rows = table("!way", ">dialogues", ">calls", ">seconds", ">half by", ">CPU/call", ">of the ideal", "wanted")
    for loop in figures["loops"]:
        ours = loop is figures["loops"][0]
        rows.add_row(
            loop["way"],
            f"{loop['dialogues']:,}" if loop["dialogues"] else "",
            f"{loop['calls']:,}",
            f"{loop['seconds']:.1f}",
            f"{loop['half']:.1f} s" if loop["half"] is not None else "",
            f"{loop['cpu'] * 1000:.2f} ms",
            f"{loop['over_ideal']:.1%}",
            "95%" if ours else "",
        )
    out.print(rows)
    rows = table("beside", ">value", "wanted")
    theirs = figures["loops"][0]["endpoint_cpu"]
    rows.add_row("CPU a call of the endpoint, on the same cores", f"{theirs * 1000:.2f} ms", "")
    for size, peak in figures.get("memory", {}).items():
        rows.add_row(f"peak memory of a run over {int(size):,} dialogues", f"{peak:,.1f} MB", "the same at any size")
    if scoring := figures.get("scoring"):
        said = f"{scoring['responses']:,} responses by {scoring['metrics']} metrics without a model"
        rows.add_row(f"measuring {said}", f"{scoring['measuring']:.1f} s", "")
        rows.add_row("their figures, with intervals", f"{scoring['combining']:.1f} s", "together under 60 s")
        rows.add_row("CPU of both", f"{scoring['cpu']:.1f} s", "")
    out.print(rows)
    for name, reason in (figures.get("scoring") or {}).get("unavailable", {}).items():
        out.print(f"not available: {name}: {reason}")
