"""The data of the report's dialogue browser: an index of all dialogues, and details in compressed chunks.

Each chunk is JSON, gzipped and in base64, inflated by the page when one of its dialogues is opened. Prompts repeat
from response to response, so long texts stand once in a chunk and are pointed at.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.evaluation.report.cited import cited_numbers, cited_parts
from dialore.evaluation.report.comparison import combiner
from dialore.evaluation.report.steps import steps_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import About, Metric
    from dialore.evaluation.report.data import ScoredResponse, SystemScores
    from dialore.evaluation.report.steps import Steps

_CHUNK = 25
_SHARED = 60
"""Texts as long as this are kept once a chunk."""


class Browser:
    """Collects what the browser shows, a system after another; at most so many dialogues of each data set.

    Args:
        systems: every system, in the order of the report.
        labels: their names.
        abouts: the metrics.
        limit: how many dialogues of each data set.
    """

    def __init__(
        self, systems: Sequence[SystemScores], labels: Sequence[str], abouts: Sequence[About], limit: int
    ) -> None:
        self._labels, self._limit = list(labels), limit
        self._abouts = {about.name: about for about in abouts}
        self._metrics: dict[str, Metric] = {about.name: combiner(about.name) for about in abouts}
        self._datasets = list(dict.fromkeys(system.dataset for system in systems))
        self._entries: dict[tuple[int, str], dict[str, Any]] = {}
        self._counts = [0] * len(self._datasets)
        self.chunks: list[str] = []

    def add(self, number: int, system: SystemScores, responses: Iterable[ScoredResponse]) -> None:
        """Take in a system's responses; all are read, those of the first dialogues are kept.

        Args:
            number: the system's place.
            system: the system.
            responses: what it answered, in the data set's order.
        """
        dataset = self._datasets.index(system.dataset)
        waiting = _Chunk()
        for scored in responses:
            entry = self._entry(dataset, scored.dialogue)
            if entry is None:
                continue
            response = scored.response
            outcomes = {stage.outcome for stage in response.trace}
            brief = {
                "text": response.text,
                "status": response.status,
                "unparsed": "unparsed" in outcomes,
                "repaired": "repaired" in outcomes,
                "repetition": scored.repetition,
                "values": self._values(scored),
                "chunk": len(self.chunks),
                "place": waiting.add(_detail(scored, self._measures(scored))),
            }
            entry["answers"].setdefault(str(number), []).append(brief)
            if len(waiting) >= _CHUNK:
                self.chunks.append(waiting.packed())
                waiting = _Chunk()
        if len(waiting):
            self.chunks.append(waiting.packed())

    def index(self) -> str:
        """The index, packed: systems, metrics, and every dialogue with its answers' texts."""
        entries = list(self._entries.values())
        self._mark_disagreement(entries)
        metrics = [
            {"name": about.name, "level": about.level, "higher": about.higher_is_better}
            for about in self._abouts.values()
        ]
        return pack({"systems": self._labels, "datasets": self._datasets, "metrics": metrics, "dialogues": entries})

    @property
    def size(self) -> int:
        """How many dialogues it shows."""
        return len(self._entries)

    def _entry(self, dataset: int, dialogue: Dialogue) -> dict[str, Any] | None:
        key = (dataset, dialogue.id)
        if key not in self._entries:
            if self._counts[dataset] >= self._limit:
                return None
            self._counts[dataset] += 1
            self._entries[key] = {
                "id": dialogue.id,
                "dataset": dataset,
                "language": dialogue.language,
                "topic": dialogue.topic or "",
                "persona": list(dialogue.persona),
                "turns": [[turn.speaker, turn.text] for turn in dialogue.turns],
                "reference": dialogue.reference or "",
                "gold": [_text_of(item) for item in dialogue.knowledge],
                "plan": _plan(dialogue.sources) if "sources" in dialogue.model_fields_set else None,
                "answers": {},
            }
        return self._entries[key]

    def _values(self, scored: ScoredResponse) -> dict[str, float]:
        """Values of metrics that single responses have, for sorting and for disagreement."""
        found = {}
        for name, measure in scored.measures.items():
            if measure.problem is None and name in self._abouts and self._abouts[name].level == "response":
                value = self._metrics[name].combine(np.array([measure.values]))
                if not math.isnan(value):
                    found[name] = round(value, 6)
        return found

    def _measures(self, scored: ScoredResponse) -> list[list[Any]]:
        """Name, value or None, problem with reason, and detail, of every metric of the report."""
        values = self._values(scored)
        found = []
        for name, about in self._abouts.items():
            measure = scored.measures.get(name)
            if measure is None or (about.level == "corpus" and measure.problem is None):
                continue
            problem = f"{measure.problem}: {measure.reason}" if measure.problem else ""
            found.append([name, values.get(name), problem, measure.detail])
        return found

    def _mark_disagreement(self, entries: Sequence[dict[str, Any]]) -> None:
        """How far a dialogue's systems lie apart, as a share of the metric's whole range, on average over metrics."""
        ranges: dict[str, tuple[float, float]] = {}
        for entry in entries:
            for _, values in _spread_values(entry):
                for name, value in values.items():
                    low, high = ranges.get(name, (value, value))
                    ranges[name] = (min(low, value), max(high, value))
        for entry in entries:
            by_metric: dict[str, list[float]] = {}
            for _, values in _spread_values(entry):
                for name, value in values.items():
                    by_metric.setdefault(name, []).append(value)
            apart = [
                (max(found) - min(found)) / (ranges[name][1] - ranges[name][0])
                for name, found in by_metric.items()
                if len(found) > 1 and ranges[name][1] > ranges[name][0]
            ]
            entry["apart"] = round(sum(apart) / len(apart), 4) if apart else None


class _Chunk:
    """Details that are packed together."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._items: list[Any] = []

    def __len__(self) -> int:
        """How many details it holds."""
        return len(self._items)

    def add(self, detail: dict[str, Any]) -> int:
        """Keep a detail; its place."""
        self._items.append(self._pointed(detail))
        return len(self._items) - 1

    def packed(self) -> str:
        """The chunk, packed."""
        return pack({"texts": list(self._texts), "items": self._items})

    def _pointed(self, value: Any) -> Any:  # noqa: ANN401 - plain data
        if isinstance(value, str) and len(value) >= _SHARED:
            return {"$": self._texts.setdefault(value, len(self._texts))}
        if isinstance(value, list):
            return [self._pointed(item) for item in value]
        if isinstance(value, dict):
            return {name: self._pointed(item) for name, item in value.items()}
        return value


def pack(data: object) -> str:
    """JSON, gzipped, in base64; the same data gives the same text. What is no number becomes null."""
    text = json.dumps(_finite(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
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


def _spread_values(entry: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    return [(number, answers[0]["values"]) for number, answers in entry["answers"].items()]


def _detail(scored: ScoredResponse, measures: list[list[Any]]) -> dict[str, Any]:
    response = scored.response
    numbers = cited_numbers(response)
    steps = steps_of(response)
    usage = response.usage
    return {
        "by": response.by,
        "error": response.error or "",
        "seconds": response.seconds,
        "usage": [usage.calls, usage.prompt_tokens, usage.completion_tokens, usage.cached, usage.retries],
        "parts": cited_parts(response),
        "plan": steps.plan,
        "steps": _steps(steps),
        "demands": response.demands.model_dump() if response.demands else None,
        "knowledge": [
            [item.text, item.kind, item.source, item.score, item.used, item.set, numbers.get(item.id, 0), item.triple]
            for item in response.knowledge
        ],
        "stages": [
            {
                "name": stage.stage,
                "by": stage.by,
                "outcome": stage.outcome,
                "started": stage.started,
                "seconds": stage.seconds,
                "tokens": stage.usage.prompt_tokens + stage.usage.completion_tokens,
                "prompt": stage.prompt,
                "messages": [[message.get("role", ""), message.get("content", "")] for message in stage.messages],
                "completion": stage.completion,
                "output": json.dumps(_finite(stage.output), ensure_ascii=False) if stage.output else "",
                "notes": [*stage.notes, *([stage.error] if stage.error else [])],
            }
            for stage in response.trace
        ],
        "measures": measures,
    }


def _plan(sources: Iterable[str]) -> list[str]:
    return [name.upper() for name in sources]


def _steps(steps: Steps) -> dict[str, Any]:
    """What a trace tells, as data; what it does not tell has no name in it."""
    versions = steps.versions
    found = {
        "told": steps.told,
        "questions": [
            [each.text, [[answer.by, answer.text, answer.chosen] for answer in each.answers]]
            for each in steps.questions
        ],
        "versions": versions and [versions.before, versions.after, versions.kept, versions.why, versions.votes],
    }
    return {name: value for name, value in found.items() if value}


def _text_of(item: str | dict[str, Any]) -> str:
    if isinstance(item, str):
        return item
    return str(item.get("text") or item.get("sentence") or json.dumps(item, ensure_ascii=False))
