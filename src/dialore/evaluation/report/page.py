"""An HTML page of dialogues, responses, their knowledge and traces."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from dialore import pages
from dialore.evaluation.report.display import (
    cited_numbers,
    cited_parts,
    cost,
    figures_of,
    in_words,
    longest_chain,
    notes_of,
    origin_of,
    steps_of,
    used_knowledge,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.response import Response, StageTrace

_TICKS = 4
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
    used = used_knowledge(response)
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
        "figures": in_words(figures_of(response.trace)),
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
        "notes": notes_of(stage),
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
