"""Measures of judged responses, in a JSONL file that a second run goes on from."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING

from dialore.errors import InputError
from dialore.evaluation.base import Measure
from dialore.experiments.scoring import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from dialore.evaluation.base import Metric
    from dialore.evaluation.judgements import Judgement

MODELS = {"judge", "nli", "language-model"}
"""What makes a metric worth keeping the measures of; all others are measured anew."""
_CHUNK = 64


class MeasureFile:
    """Measures by metric and judgement, appended as they come; a line cut off by a crash is passed over.

    Args:
        path: the file; it and its folder are made when the first measure is kept.

    Raises:
        InputError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Measure] = {}
        self._cut_off = False
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {path}: {error}", mend="name another file with --measures") from error
        for line in text.split("\n"):
            self._read(line)
        self._cut_off = bool(text) and not text.endswith("\n")

    def _read(self, line: str) -> None:
        try:
            entry = json.loads(line)
            values = tuple(float(value) for value in entry["values"])
            found = Measure(values, entry["problem"], entry["reason"], entry["detail"])
            self._known[entry["key"]] = found
        except (ValueError, KeyError, TypeError):
            return

    def get(self, metric: Metric, judgement: Judgement) -> Measure | None:
        """What is known; None where nothing is, or where measuring failed."""
        found = self._known.get(_key(metric, judgement))
        return None if found is None or found.problem == "failed" else found

    def keep(self, metric: Metric, found: Mapping[str, Measure], judgements: Mapping[str, Judgement]) -> None:
        """Append measures by judgement id; they are in the file when this returns."""
        lines = []
        for name, one in found.items():
            key = _key(metric, judgements[name])
            self._known[key] = one
            said = {"item": name, "metric": metric.about.name, "key": key, **dataclasses.asdict(one)}
            lines.append(json.dumps(said, ensure_ascii=False) + "\n")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write("\n" * self._cut_off + "".join(lines))
        except OSError as error:
            raise InputError(f"cannot write {self._path}: {error.strerror}", mend="see --measures") from error
        self._cut_off = False


def _key(metric: Metric, judgement: Judgement) -> str:
    """A hash of all that a measure depends on: metric, its identity (judge and prompts), dialogue and response."""
    identity = str(getattr(metric, "identity", ""))
    parts = [metric.about.name, identity, judgement.dialogue.model_dump_json(), judgement.response.model_dump_json()]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


async def measure_judgements(
    metric: Metric,
    judgements: Sequence[Judgement],
    file: MeasureFile,
    *,
    at_once: int = 64,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Measure]:
    """A metric's measures of judged responses, by judgement id; those of models that are known are not asked again.

    Args:
        metric: what is measured.
        judgements: of what.
        file: what is known, and where the rest is kept.
        at_once: the most responses measured at a time.
        on_progress: told of metric, responses done, and responses in all.

    Raises:
        ModelError: a judge's endpoint refuses for every response.
        BudgetError: the budget is spent; what is measured is kept.
    """
    by_id = {one.id: one for one in judgements}
    asks_model = bool(MODELS & set(metric.about.needs))
    found: dict[str, Measure] = {}
    for name, one in by_id.items():
        known = file.get(metric, one) if asks_model else None
        if known is not None:
            found[name] = known
    waiting = [one for name, one in by_id.items() if name not in found]
    free = asyncio.Semaphore(at_once)

    async def measured(one: Judgement) -> Measure:
        async with free:
            return await measure(metric, one.dialogue, one.response)

    for begin in range(0, len(waiting), _CHUNK):
        some = waiting[begin : begin + _CHUNK]
        outcomes = await asyncio.gather(*(measured(one) for one in some), return_exceptions=True)
        fresh = {one.id: outcome for one, outcome in zip(some, outcomes, strict=True) if isinstance(outcome, Measure)}
        found |= fresh
        if asks_model:
            file.keep(metric, fresh, by_id)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if on_progress is not None:
            on_progress(metric.about.name, begin + len(some), len(waiting))
    return found
