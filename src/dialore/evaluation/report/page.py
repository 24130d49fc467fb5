"""An HTML page of dialogues, responses, their knowledge and traces, and the figures that traces add up to."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from dialore import pages
from dialore.evaluation.report.cited import cited_numbers, cited_parts
from dialore.evaluation.report.steps import steps_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.llm.model import Usage
    from dialore.response import Response, StageTrace

_TICKS = 4
_NUMBER = re.compile(r"-\d+\Z")
_DEMANDS = (
    ("explicit", "Queries said", "entities that the history mentions"),
    ("implicit", "Queries inferred", "entities that lie behind it"),
    ("maintained", "Topics kept", "of the history, to stay with"),
    ("extended", "Topics to bring up", "new ones, for the next turn"),
)


@dataclass(frozen=True, slots=True)
class Heading:
    """What stands above the first conversation of a part."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A dialogue and what the methods answered; with a heading, a part of the page begins with it."""

    dialogue: Dialogue
    responses: Sequence[Response]
    heading: Heading | None = None


def render_page(conversations: Sequence[Conversation], *, title: str, made: str = "", pace: str = "") -> str:
    """The page as HTML.

    Args:
        conversations: what it shows.
        title: its title.
        made: one sentence on how the responses came about.
        pace: what the time axis of traces means, where it is not plain time.
    """
    return pages.render(
        "demo/page.html.j2",
        title=title,
        styles=("page/dialogue.css", "demo/page.css"),
        made=made,
        pace=pace,
        demand_kinds=_DEMANDS,
        conversations=[_conversation(each, number) for number, each in enumerate(conversations, start=1)],
    )


def _conversation(conversation: Conversation, number: int) -> dict[str, Any]:
    dialogue = conversation.dialogue
    return {
        "anchor": f"d{number}",
        "first": number == 1,
        "heading": conversation.heading,
        "id": dialogue.id,
        "name": dialogue.topic or dialogue.id,
        "language": dialogue.language,
        "turns": [
            {"text": t.text, "speaker": t.speaker, "mine": t.speaker == dialogue.last.speaker} for t in dialogue.turns
        ],
        "persona": _persona(dialogue),
        "responses": [
            _response(response, dialogue, f"d{number}r{place}")
            for place, response in enumerate(conversation.responses, start=1)
        ],
    }


def _persona(dialogue: Dialogue) -> list[tuple[str, int]]:
    """The responder's persona sentences, each with how many documents belong to it."""
    documents = dialogue.extra.get("documents")
    under = documents if isinstance(documents, dict) else {}
    return [(sentence, len(under.get(sentence) or ())) for sentence in dialogue.persona]


def _response(response: Response, dialogue: Dialogue, anchor: str) -> dict[str, Any]:
    numbers = cited_numbers(response)
    used = sorted(
        (item for item in response.knowledge if item.used), key=lambda item: numbers.get(item.id, len(numbers) + 1)
    )
    calls = [stage for stage in response.trace if stage.usage.calls]
    return {
        "anchor": anchor,
        "method": response.method,
        "by": response.by,
        "failed": response.status == "failed",
        "error": response.error,
        "text": Markup("").join(
            _marked(text, used, dialogue) + _raised(after) for text, after in cited_parts(response)
        ),
        "way": steps_of(response),
        "given": "facts" if all(item.kind == "fact" for item in response.knowledge) else "pieces",
        "used": [_chip(item, numbers.get(item.id)) for item in used],
        "unused": [_chip(item) for item in response.knowledge if not item.used],
        "demands": response.demands,
        "cost": cost(response.usage, response.seconds),
        "figures": figures_of(response.trace).words(),
        "calls": len(calls),
        "steps": longest_chain(response.trace),
        "differs": any(stage.differs for stage in response.trace),
        "ticks": _ticks(response.seconds),
        "stages": [_stage(stage, response.seconds) for stage in response.trace],
    }


def _raised(numbers: Sequence[int]) -> Markup:
    return Markup("<sup>{}</sup>").format(", ".join(map(str, numbers))) if numbers else Markup("")


def _chip(item: Knowledge, number: int | None = None) -> dict[str, Any]:
    return {
        "text": item.text,
        "number": number,
        "set": item.set,
        "used": item.used,
        "origin": "" if item.kind == "fact" else origin_of(item),
        "hint": " · ".join(part for part in (item.triple, f"{item.score:.3f}", item.origin) if part),
    }


def origin_of(item: Knowledge) -> str:
    """Where a piece of knowledge comes from, in words: its source, the page or persona sentence, the question."""
    about = item.passage.title or item.passage.persona or item.passage.question
    where = item.passage.provenance if item.source == "web" else ""
    return " · ".join(str(part) for part in (item.source, about, where) if part)


def _marked(text: str, used: Sequence[Knowledge], dialogue: Dialogue) -> Markup:
    """The response with the words marked that its knowledge brought in, as far as they stand there literally."""
    ends = {end for item in used if item.kind == "fact" for end in (item.fact.head, item.fact.tail)}
    known = dialogue.history.lower()
    new = (re.escape(end) for end in ends if end.strip() and end.lower() not in known)
    found = sorted(new, key=len, reverse=True)
    if not found:
        return escape(text)
    # A word boundary where the phrase begins or ends with a letter; Chinese has none.
    pattern = re.compile(rf"(?<![a-zA-Z])(?:{'|'.join(found)})(?![a-zA-Z])", re.IGNORECASE)
    marked, end = Markup(""), 0
    for match in pattern.finditer(text):
        marked += escape(text[end : match.start()]) + Markup("<mark>{}</mark>").format(match[0])
        end = match.end()
    return marked + escape(text[end:])


def _stage(stage: StageTrace, whole: float) -> dict[str, Any]:
    span = whole or 1.0
    return {
        "name": stage.stage,
        "kind": "model" if stage.messages or stage.usage.calls else "retrieval" if stage.by == "dialore" else "other",
        "by": stage.by,
        "outcome": stage.outcome,
        "left": f"{min(100.0, 100 * stage.started / span):.2f}",
        "width": f"{min(100.0, 100 * stage.seconds / span):.2f}",
        "time": _milliseconds(stage.seconds),
        "began": _milliseconds(stage.started),
        "tokens": stage.usage.prompt_tokens + stage.usage.completion_tokens,
        "prompt": stage.prompt,
        "messages": stage.messages,
        "completion": _pretty(stage.completion),
        "output": _pretty(json.dumps(stage.output, ensure_ascii=False)) if stage.output else "",
        "notes": [*stage.notes, *([stage.error] if stage.error else [])],
        "differs": stage.differs,
    }


def _pretty(text: str) -> str:
    """JSON with line breaks; any other text as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if not isinstance(value, dict):
        return text
    lines = (
        f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(v, ensure_ascii=False)}" for name, v in value.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}" if value else "{}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1000:,.0f} ms" if seconds >= 0.001 else "<1 ms"


def _ticks(whole: float) -> list[str]:
    return ["0", *(_milliseconds(whole * place / _TICKS) for place in range(1, _TICKS + 1))]


def longest_chain(stages: Sequence[StageTrace]) -> int:
    """How many model calls stand one after the other at most: the sequential steps, whatever their speed.

    What a stage waited for is taken to be what ended last before it began; of stages that bear numbers (EDIT's
    questions), none waits for one of another number.
    """
    ended: list[tuple[float, int, str]] = []
    for stage in sorted(stages, key=lambda each: (each.started, each.started + each.seconds)):
        number = _NUMBER.search(stage.stage)
        own = number[0] if number else ""
        before = [each for each in ended if each[0] <= stage.started and (not own or each[2] in {"", own})]
        depth = max(before)[1] if before else 0
        ended.append((stage.started + stage.seconds, depth + bool(stage.usage.calls), own))
    return max((depth for _, depth, _ in ended), default=0)


@dataclass(slots=True)
class Figures:
    """Counts that add up.

    Attributes:
        unparsed: stages whose answer could not be parsed, so that the fallback was used.
        repaired: stages that needed a repair turn.
        linked: demands or mentions that were linked to a concept.
        foreseen: foreseen facts found; None where the method knows no such thing.
        unforeseen: unforeseen facts found.
        found: facts found, of methods that do not tell the two apart.
    """

    unparsed: int = 0
    repaired: int = 0
    linked: int | None = None
    foreseen: int | None = None
    unforeseen: int | None = None
    found: int | None = None

    def words(self) -> list[str]:
        """The counts in words, those that are there."""
        said = [f"{count} {name}" for name, count in self._facts() if count is not None]
        said.append(f"{self.unparsed} parse failures" if self.unparsed != 1 else "1 parse failure")
        if self.repaired:
            said.append(f"{self.repaired} repaired")
        return said

    def _facts(self) -> list[tuple[str, int | None]]:
        names = (("linked", self.linked), ("facts found", self.found))
        return [*names, ("foreseen", self.foreseen), ("unforeseen", self.unforeseen)]

    def data(self) -> dict[str, int]:
        """The counts for JSON, those that are there."""
        named = {"unparsed": self.unparsed, "repaired": self.repaired, "linked": self.linked, "found": self.found}
        named |= {"foreseen": self.foreseen, "unforeseen": self.unforeseen}
        return {name: count for name, count in named.items() if count is not None}


def figures_of(trace: Iterable[StageTrace]) -> Figures:
    """The figures of one response's trace."""
    figures = Figures()
    for stage in trace:
        figures.unparsed += stage.outcome == "unparsed"
        figures.repaired += stage.outcome == "repaired"
        output = stage.output
        if isinstance(links := output.get("links"), list):
            figures.linked = (figures.linked or 0) + len(links)
        if stage.stage != "fact-retrieval":
            continue
        for kind in ("foreseen", "unforeseen"):
            if isinstance(counts := output.get(kind), dict):
                setattr(figures, kind, counts.get("found"))
        if isinstance(found := output.get("found"), int):
            figures.found = found
    return figures


def total(figures: Sequence[Figures]) -> Figures:
    """The sum of figures, field by field; a field that none has stays None."""
    summed = Figures()
    for item in figures:
        for name, count in item.data().items():
            setattr(summed, name, (getattr(summed, name) or 0) + count)
    return summed


def cost(usage: Usage, seconds: float) -> str:
    """Calls, tokens and time in words."""
    calls = "1 call" if usage.calls == 1 else f"{usage.calls} calls"
    if usage.cached:
        calls += f" ({usage.cached} cached)"
    tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    retried = f", {usage.retries} retries" if usage.retries else ""
    time = f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
    return f"{calls}, {tokens}{retried}, {time}" if usage.calls else f"no model call, {time}"


def summary(usage: Usage, seconds: float, trace: Iterable[StageTrace]) -> str:
    """One line about one result: what it cost, and the figures of its trace."""
    return " · ".join([cost(usage, seconds), *figures_of(trace).words()])
