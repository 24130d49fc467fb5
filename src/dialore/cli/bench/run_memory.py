"""The most memory that runs of several sizes take: `python -m dialore.cli.bench.run_memory METHOD N AT_ONCE`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.cli.bench.dialogues import made_up
from dialore.cli.bench.measures import peak_memory
from dialore.errors import InputError
from dialore.experiments.config import make_config
from dialore.experiments.run import run_experiment
from dialore.llm.rehearsal import Rehearsal
from dialore.sources.graph import open_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dialore.llm.model import LanguageModel
    from dialore.settings import ModelSettings


def peak_of_runs(
    method: str, sizes: Sequence[int], at_once: int, step: Callable[[str, int, int | None], None]
) -> dict[str, float]:
    """Peak memory in MB by number of dialogues, each run in a process of its own, by rehearsal, without an endpoint.

    Raises:
        InputError: a run failed.
    """
    found: dict[str, float] = {}
    for size in sizes:
        step(f"memory of {size:,} dialogues", 0, None)
        command = [sys.executable, "-m", __name__, method, str(size), str(at_once)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise InputError(f"the run of {size} dialogues failed: {done.stderr[-300:]}", mend="report this")
        found[str(size)] = round(int(done.stdout.split()[-1]) / 2**20, 1)
    return found


def _run(method: str, size: int, at_once: int) -> int:
    """The peak of this process, in bytes, after a run over so many made-up dialogues."""
    few = 200
    with tempfile.TemporaryDirectory(prefix="dialore-bench-") as folder:
        path = Path(folder) / "dialogues.jsonl"
        with closing(open_graph(None)) as graph, path.open("w", encoding="utf-8") as file:
            dialogues = made_up(graph, few)
            for number in range(size):
                one = dialogues[number % few].model_copy(update={"id": f"bench-{number}", "reference": "Yes."})
                file.write(one.model_dump_json() + "\n")
        given = {"name": "bench", "dataset": {"name": "jsonl", "path": str(path)}, "systems": [method]}
        config = make_config(given | {"concurrency": at_once})
        ended = asyncio.run(run_experiment(config, Path(folder) / "run", _rehearse))
        if ended.ok != size:
            raise InputError(f"{ended.failed} responses failed: {ended.failures[:1]}", mend="report this")
    return _own_peak()


def _own_peak() -> int:
    """The peak since this program began: what getrusage tells holds that of the process that started it, too."""
    status = Path("/proc/self/status")
    if not status.exists():
        return peak_memory()
    line = next(line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _rehearse(settings: ModelSettings, name: str | None) -> LanguageModel:
    return Rehearsal()


if __name__ == "__main__":
    sys.stdout.write(f"{_run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))}\n")
