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

from dialore.datasets import gold_text
from dialore.evaluation.report.cited import cited_numbers, cited_parts
from dialore.evaluation.report.comparison import combiner
from dialore.evaluation.report.steps import steps_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import About
    from dialore.evaluation.report.data import ScoredResponse
    from dialore.evaluation.report.steps import Steps

_CHUNK = 25
_SHARED = 60
"""Texts as long as this are kept once a chunk."""


class Browser:
    """Collects what the browser shows, response by response; at most so many dialogues of each data set.

    Args:
        names: every system's name, in the order of the report.
        datasets: every system's data set.
        abouts: the metrics.
        limit: how many dialogues of each data set.
    """

    def __init__(self, names: Sequence[str], datasets: Sequence[str], abouts: Sequence[About], limit: int) -> None:
        self._names, self._of, self._limit = list(names), list(datasets), limit
        self._datasets = list(dict.fromkeys(datasets))
        self._abouts = {about.name: about for about in abouts}
        self._metrics = {about.name: combiner(about.name) for about in abouts if about.level == "response"}
        self._entries: dict[tuple[int, str], dict[str, Any]] = {}
        self._counts = [0] * len(self._datasets)
        self._chunks: list[str] = []
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
            "chunk": len(self._chunks),
            "place": len(self._details),
        }
        entry["answers"].setdefault(str(number), []).append(brief)
        self._details.append(_detail(scored) | {"measures": self._measures(scored, values)})
        if len(self._details) >= _CHUNK:
            self._close_chunk()

    def packed(self) -> dict[str, str]:
        """The index (systems, metrics, every dialogue with its answers' texts) and the chunks, by the page's ids."""
        self._close_chunk()
        entries = list(self._entries.values())
        _mark_disagreement(entries)
        metrics = [
            {"name": about.name, "level": about.level, "higher": about.higher_is_better}
            for about in self._abouts.values()
        ]
        index = {"systems": self._names, "datasets": self._datasets, "metrics": metrics, "dialogues": entries}
        return {"index": pack(index), **{f"chunk-{number}": text for number, text in enumerate(self._chunks)}}

    def _close_chunk(self) -> None:
        if self._details:
            texts: dict[str, int] = {}
            items = [_pointed(detail, texts) for detail in self._details]
            self._chunks.append(pack({"texts": list(texts), "items": items}))
            self._details = []

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


def _pointed(value: Any, texts: dict[str, int]) -> Any:  # noqa: ANN401 - plain data
    """The same, with long texts replaced by their place among the chunk's."""
    if isinstance(value, str) and len(value) >= _SHARED:
        return {"$": texts.setdefault(value, len(texts))}
    if isinstance(value, list | tuple):
        return [_pointed(item, texts) for item in value]
    if isinstance(value, dict):
        return {name: _pointed(item, texts) for name, item in value.items()}
    return value


def pack(data: object) -> str:
    """JSON, gzipped, in base64; the same data gives the same text. What is no number becomes null."""
    text = _json(data, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def unpack(text: str) -> Any:  # noqa: ANN401 - plain data
    """What `pack` was given."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


def _json(data: object, **how: Any) -> str:  # noqa: ANN401 - as json.dumps
    return json.dumps(_finite(data), ensure_ascii=False, allow_nan=False, **how)


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
    steps = steps_of(response)
    usage = response.usage
    return {
        "by": response.by,
        "error": response.error or "",
        "seconds": response.seconds,
        "usage": [usage.calls, usage.prompt_tokens, usage.completion_tokens, usage.cached, usage.retries],
        "parts": cited_parts(response),
        "plan": steps.plan,
        "steps": dict(_told(steps)),
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
                "output": _json(stage.output) if stage.output else "",
                "notes": [*stage.notes, *([stage.error] if stage.error else [])],
            }
            for stage in response.trace
        ],
    }


def _told(steps: Steps) -> Iterator[tuple[str, Any]]:
    """What a trace says as data, by name; what it does not say is left out."""
    if steps.told:
        yield "told", steps.told
    if steps.questions:
        yield (
            "questions",
            [
                [each.text, [[answer.by, answer.text, answer.chosen] for answer in each.answers]]
                for each in steps.questions
            ],
        )
    if (both := steps.versions) is not None:
        yield "versions", [both.before, both.after, both.kept, both.why, both.votes]
