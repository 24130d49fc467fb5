"""The data of the report's dialogue browser: an index of all dialogues, and the details of their responses.

Each of the two is JSON, gzipped and in base64; the page inflates the details when a dialogue is opened.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.datasets import gold_text
from dialore.evaluation.report.comparison import combiner
from dialore.evaluation.report.display import cited_numbers, cited_parts, notes_of, steps_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import About
    from dialore.evaluation.report.data import ScoredResponse

_STAGE = {"stage", "by", "outcome", "started", "seconds", "usage", "prompt", "messages", "completion", "output"}


class Browser:
    """Collects what the browser shows, response by response; at most so many dialogues of each data set."""

    def __init__(self, names: Sequence[str], datasets: Sequence[str], abouts: Sequence[About], limit: int) -> None:
        self._names, self._of, self._limit = list(names), list(datasets), limit
        self._datasets = list(dict.fromkeys(datasets))
        self._abouts = {about.name: about for about in abouts}
        self._metrics = {about.name: combiner(about.name) for about in abouts if about.level == "response"}
        self._entries: dict[tuple[int, str], dict[str, Any]] = {}
        self._counts = [0] * len(self._datasets)
        self._details: list[dict[str, Any]] = []

    @property
    def size(self) -> int:
        """How many dialogues it shows."""
        return len(self._entries)

    def add(self, number: int, scored: ScoredResponse) -> None:
        """Take in a response of the system of that number, in the data set's order."""
        entry = self._entry(self._datasets.index(self._of[number]), scored.dialogue)
        if entry is None:
            return
        response = scored.response
        outcomes = {stage.outcome for stage in response.trace}
        values = self._values(scored)
        brief = {
            "text": response.text,
            "status": response.status,
            "unparsed": "unparsed" in outcomes,
            "repaired": "repaired" in outcomes,
            "repetition": scored.repetition,
            "values": values,
            "place": len(self._details),
        }
        entry["answers"].setdefault(str(number), []).append(brief)
        self._details.append(_detail(scored) | {"measures": self._measures(scored, values)})

    def packed(self) -> dict[str, str]:
        """The index (systems, metrics, every dialogue with its answers' texts) and the details, by the page's ids."""
        entries = list(self._entries.values())
        _mark_disagreement(entries)
        metrics = [
            {"name": about.name, "level": about.level, "higher": about.higher_is_better}
            for about in self._abouts.values()
        ]
        index = {"systems": self._names, "datasets": self._datasets, "metrics": metrics, "dialogues": entries}
        return {"index": pack(index), "details": pack(self._details)}

    def _entry(self, dataset: int, dialogue: Dialogue) -> dict[str, Any] | None:
        key = (dataset, dialogue.id)
        if key not in self._entries:
            if self._counts[dataset] >= self._limit:
                return None
            self._counts[dataset] += 1
            has_plan = "sources" in dialogue.model_fields_set
            self._entries[key] = {
                "id": dialogue.id,
                "dataset": dataset,
                "language": dialogue.language,
                "topic": dialogue.topic or "",
                "persona": list(dialogue.persona),
                "turns": [[turn.speaker, turn.text] for turn in dialogue.turns],
                "reference": dialogue.reference or "",
                "gold": [gold_text(item) or json.dumps(item, ensure_ascii=False) for item in dialogue.knowledge],
                "plan": [name.upper() for name in dialogue.sources] if has_plan else None,
                "answers": {},
            }
        return self._entries[key]

    def _values(self, scored: ScoredResponse) -> dict[str, float]:
        """Values of metrics that single responses have, for sorting and for disagreement."""
        found = {}
        for name, measure in scored.measures.items():
            if measure.problem is None and name in self._metrics:
                value = self._metrics[name].combine(np.array([measure.values]))
                if not math.isnan(value):
                    found[name] = round(value, 6)
        return found

    def _measures(self, scored: ScoredResponse, values: dict[str, float]) -> list[list[Any]]:
        """Name, value or None, problem with reason, and detail, of every metric of the report."""
        return [
            [name, values.get(name), f"{it.problem}: {it.reason}" if it.problem else "", it.detail]
            for name, about in self._abouts.items()
            if (it := scored.measures.get(name)) is not None and (about.level == "response" or it.problem)
        ]


def _mark_disagreement(entries: Sequence[dict[str, Any]]) -> None:
    """How far a dialogue's systems lie apart, as a share of the metric's whole range, on average over metrics."""
    by_metric: dict[str, list[float]] = {}
    own = []
    for entry in entries:
        values: dict[str, list[float]] = {}
        for answers in entry["answers"].values():
            for name, value in answers[0]["values"].items():
                values.setdefault(name, []).append(value)
                by_metric.setdefault(name, []).append(value)
        own.append(values)
    ranges = {name: max(values) - min(values) for name, values in by_metric.items()}
    for entry, values in zip(entries, own, strict=True):
        apart = [(max(v) - min(v)) / ranges[name] for name, v in values.items() if len(v) > 1 and ranges[name] > 0]
        entry["apart"] = round(sum(apart) / len(apart), 4) if apart else None


def pack(data: object) -> str:
    """JSON, gzipped, in base64; the same data gives the same text. What is no number becomes null."""
    text = json.dumps(_finite(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def unpack(text: str) -> Any:  # noqa: ANN401 - plain data
    """What `pack` was given."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


def _finite(value: Any) -> Any:  # noqa: ANN401 - plain data
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value if isinstance(value, str | int | bool | None) else str(value)


def _detail(scored: ScoredResponse) -> dict[str, Any]:
    response = scored.response
    numbers = cited_numbers(response)
    return response.model_dump(include={"by", "error", "seconds", "usage", "demands"}) | {
        "parts": cited_parts(response),
        "steps": dataclasses.asdict(steps_of(response)),
        "knowledge": [
            [item.text, item.kind, item.source, item.score, item.used, item.set, numbers.get(item.id, 0), item.triple]
            for item in response.knowledge
        ],
        "stages": [stage.model_dump(include=_STAGE) | {"notes": notes_of(stage)} for stage in response.trace],
    }
