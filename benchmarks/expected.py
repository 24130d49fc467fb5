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
_COUNT = "responses"
_COSTS = ("calls", "prompt_tokens", "completion_tokens")


def expected(
    run: Annotated[Path, typer.Argument(help="A scored run of one of the files that are kept.")],
    write: Annotated[bool, typer.Option("--write", help="Keep this run's scores in place of the old ones.")] = False,
    folder: Annotated[Path, typer.Option("--folder", help="Where scores are kept.")] = FOLDER,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare a run's scores with those that are expected of it; exits 1 where one is worse, or missing.

    A score is worse where it lies beyond the expected 95% interval, on the wrong side. Costs are shown beside. A run is
    compared with one of the same name, model and number of responses.
    """
    with RunStore.open(run) as store:
        results = RunResults([store])
        systems = results.systems()
        better = {about.name: about.higher_is_better for about in results.metrics()}
        if len({system.model for system in systems}) > 1:
            raise InputError(f"{run} has several models", hint="run each into a folder of its own")
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
    rows: list[dict[str, Any]] = []
    for system in dict.fromkeys([*before, *found]):
        old, new = before.get(system, {}), found.get(system, {})
        if old and new and old[_COUNT] != new[_COUNT]:
            problem = f"{system} has {new[_COUNT][0]:.0f} responses here and {old[_COUNT][0]:.0f} there"
            raise InputError(f"{problem}: these do not compare", hint="run it whole, without --limit")
        rows += [
            {"system": system, "score": score, **_compared(old.get(score), new.get(score), better.get(score))}
            for score in dict.fromkeys([*old, *new])
        ]
    report({"name": name, "scores": rows}, json, lambda _: show(f"{name}: expected and found", rows))
    if any(row["verdict"] in {"worse", "missing"} for row in rows):
        raise typer.Exit(1)


def _kept(system: SystemScores) -> dict[str, list[float | None]]:
    """Return the scores of a system with their intervals, and its costs a response."""
    failed = system.counts.get("failed", 0)
    count = system.counts.get("ok", 0) + failed
    scores = {
        name: [_rounded(score.value), _rounded(score.low), _rounded(score.high)]
        for name, score in system.scores.items()
        if score.value is not None
    }
    costs = {name: system.totals.get(name, 0) / max(1, count) for name in _COSTS}
    beside = {_COUNT: count, "failed": failed, **costs}
    return scores | {name: [_rounded(value), None, None] for name, value in beside.items()}


def _compared(old: list[float | None] | None, new: list[float | None] | None, higher: bool | None) -> dict[str, Any]:
    """Return both figures and a verdict; `higher` says which way is better, None that neither is."""
    value, low, high = old or (None, None, None)
    now = new[0] if new else None
    verdict = "new" if old is None else "missing" if now is None else "as expected"
    if now is not None and higher is not None and low is not None and high is not None and not low <= now <= high:
        verdict = "better" if (now > high) == higher else "worse"
    return {"expected": value, "low": low, "high": high, "found": now, "verdict": verdict}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
