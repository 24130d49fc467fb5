"""A response in words: its text with citation marks, where knowledge comes from, its steps, and what it cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from textwrap import shorten
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dialore.knowledge import Knowledge
    from dialore.llm.model import Usage
    from dialore.response import Grounding, Response, StageTrace

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_NUMBER = re.compile(r"-\d+\Z")
_BY = {"model": "the model's", "documents": "the base's"}


def superscript(numbers: list[int]) -> str:
    """Numbers as they stand after a word: ¹ ³ as `¹˒³`."""
    return "˒".join(str(number).translate(_RAISED) for number in numbers)


def origin_of(item: Knowledge) -> str:
    """Return where a piece of knowledge comes from, in words: source, title and section, file; else whose it is."""
    location = item.location
    name = location.get("title") or item.persona or item.question
    if "section" in location:
        name += f" § {location['section']}"
    page = f"p. {item.page}" if item.page else ""
    provenance = item.provenance if item.source == "web" else ""
    parts = (item.source, name, PurePath(item.file).name, page, provenance)
    return " · ".join(part for part in parts if part)


def mark_citations(response: Response) -> str:
    """Return the response's text with what it cites by number, as in `Honey soothes it [1].`, in it."""
    return "".join(text + (f" [{', '.join(map(str, numbers))}]" if numbers else "") for text, numbers in response.parts)


@dataclass(slots=True)
class Steps:
    """The steps of a response: sources planned (None where nothing is), and name and words of each stage's summary.

    Of open questions it has the `text` and the `answers`: whose each is (`by`), its `text`, whether it is `chosen`.
    """

    plan: list[str] | None = None
    told: list[tuple[str, str]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def short(self) -> list[tuple[str, str]]:
        """The same in a few words: name and words of each."""
        lines = [(name, shorten(words, 160, placeholder=" …")) for name, words in self.told]
        if self.plan is not None:
            lines.insert(0, ("Plan", " → ".join(self.plan) or "NULL: no source is needed"))
        if self.questions:
            chosen = Counter(a["by"] for question in self.questions for a in question["answers"] if a["chosen"])
            taken = ", ".join(f"{count} {by}" for by, count in chosen.items()) or "none"
            lines.append(("Asks", f"{len(self.questions)} open questions; answers taken: {taken}"))
        return lines


def steps_of(response: Response) -> Steps:
    """Return the steps of a response, as far as its trace has such."""
    outputs = [stage.output for stage in response.trace]
    asked: list[dict[str, Any]] = next((output["answers"] for output in outputs if "answers" in output), [])
    return Steps(
        plan=None if response.plan is None else [name.upper() for name in response.plan],
        told=[
            (name, words)
            for name, _, words in (stage.summary.partition(": ") for stage in response.trace if stage.summary)
        ],
        questions=[
            {
                "text": row["question"],
                "answers": [
                    {"by": _BY[by], "text": text, "chosen": by == row["by"]} for by, text in row["from"].items()
                ],
            }
            for row in asked
        ],
    )


def notes_of(stage: StageTrace) -> list[str]:
    """Return what was noted of a stage, its error last."""
    return [*stage.notes, *([stage.error] if stage.error else [])]


def longest_chain(stages: Sequence[StageTrace]) -> int:
    """Return how many model calls stand one after the other at most: the sequential steps, whatever their speed.

    A stage waited for what ended last before it began, but (EDIT's questions) for none of another number.
    """
    ended: list[tuple[float, int, str]] = []
    for stage in sorted(stages, key=lambda item: (item.started, item.started + item.seconds)):
        number = _NUMBER.search(stage.stage)
        own = number[0] if number else ""
        before = [item for item in ended if item[0] <= stage.started and (not own or item[2] in {"", own})]
        depth = max(before)[1] if before else 0
        ended.append((stage.started + stage.seconds, depth + bool(stage.usage.calls), own))
    return max((depth for _, depth, _ in ended), default=0)


def in_words(trace: Iterable[StageTrace]) -> list[str]:
    """Return what traces count, in words: links, facts found by kind, and stages that were not parsed at once."""
    figures: Counter[str] = Counter()
    for stage in trace:
        output = stage.output
        figures[stage.outcome] += stage.outcome in {"unparsed", "repaired"}
        if isinstance(links := output.get("links"), list):
            figures["linked"] += len(links)
        if stage.stage == "fact-retrieval":
            counts = {"facts found": output.get("found")}
            counts |= {kind: (output.get(kind) or {}).get("found") for kind in ("foreseen", "unforeseen")}
            figures.update({kind: count for kind, count in counts.items() if count is not None})
    names = ("linked", "facts found", "foreseen", "unforeseen")
    phrases = [f"{figures[name]} {name}" for name in names if name in figures]
    phrases.append("1 parse failure" if figures["unparsed"] == 1 else f"{figures['unparsed']} parse failures")
    return phrases + ([f"{figures['repaired']} repaired"] if figures["repaired"] else [])


def cost(usage: Usage, seconds: float) -> str:
    """Return calls, tokens and time in words."""
    calls = "1 call" if usage.calls == 1 else f"{usage.calls} calls"
    if usage.cached:
        calls += f" ({usage.cached} cached)"
    tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    retried = f", {usage.retries} retries" if usage.retries else ""
    time = f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
    return f"{calls}, {tokens}{retried}, {time}" if usage.calls else f"no model call, {time}"


def summary(result: Grounding) -> str:
    """One line about one result: what it cost, and the figures of its trace."""
    return " · ".join([cost(result.usage, result.seconds), *in_words(result.trace)])
