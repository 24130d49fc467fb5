"""Expected scores: what a run with this code scored, kept in `benchmarks/expected/`, and what a new run changes."""

# No deferred annotations here: typer reads them.
import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.measure import ROOT, report, show
from dialore.errors import InputError
from dialore.evaluation.report.data import SystemScores
from dialore.experiments.results import RunResults
from dialore.experiments.store import RunStore

FOLDER = ROOT / "benchmarks" / "expected"
_COSTS = ("calls", "prompt_tokens", "completion_tokens")


def expected(
    run: Annotated[Path, typer.Argument(help="A scored run of one of the files that are kept.")],
    write: Annotated[bool, typer.Option("--write", help="Keep this run's scores in place of the old ones.")] = False,
    folder: Annotated[Path, typer.Option("--folder", help="Where scores are kept.")] = FOLDER,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare a run's scores with those that are expected of it; exits 1 where one of them is significantly worse.

    A score is worse where it lies outside the expected interval on the wrong side. Costs are shown beside.
    """
    with RunStore.open(run) as store:
        results = RunResults([store])
        systems = results.systems()
        better = {about.name: about.higher_is_better for about in results.metrics()}
        name = f"{store.facts().get('name', run.name)}.{systems[0].model}".replace("/", "-").replace(":", "-")
    path = folder / f"{name}.json"
    found = {system.name: _kept(system) for system in systems}
    if write:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_module.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
        return
    if not path.is_file():
        raise InputError(f"no scores are kept for {name}", hint="keep these by --write")
    before = json_module.loads(path.read_text("utf-8"))
    rows = [
        {"system": system, "score": score, **_compared(old, found.get(system, {}).get(score), better.get(score))}
        for system, scores in before.items()
        for score, old in scores.items()
    ]
    report({"name": name, "scores": rows}, json, lambda _: show(f"{name}: expected and found", rows))
    if any(row["verdict"] in {"worse", "missing"} for row in rows):
        raise typer.Exit(1)


def _kept(system: SystemScores) -> dict[str, list[float | None]]:
    """Return the scores of a system with their intervals, and its costs a response."""
    count = (system.counts.get("ok", 0) + system.counts.get("failed", 0)) or 1
    scores = {
        name: [_rounded(score.value), _rounded(score.low), _rounded(score.high)]
        for name, score in system.scores.items()
        if score.value is not None
    }
    return scores | {name: [_rounded(system.totals.get(name, 0) / count), None, None] for name in _COSTS}


def _compared(old: list[float | None], new: list[float | None] | None, higher: bool | None) -> dict[str, Any]:
    """Return both figures and a verdict; `higher` says which way is better, None that neither is."""
    value, low, high = old
    now = new[0] if new else None
    verdict = "missing" if now is None else "as expected"
    if now is not None and higher is not None and low is not None and high is not None and not low <= now <= high:
        verdict = "better" if (now > high) == higher else "worse"
    return {"expected": value, "low": low, "high": high, "found": now, "verdict": verdict}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
