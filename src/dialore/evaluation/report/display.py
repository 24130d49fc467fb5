"""The page of dialogues: responses side by side, with what they draw on and every stage."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from dialore.response_text import longest_chain, notes_of, origin_of, steps_of, summary

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.response import Response


@dataclass(frozen=True, slots=True)
class Conversation:
    """A dialogue and what the methods answered; with a heading, title and text, a part of the page begins with it."""

    dialogue: Dialogue
    responses: Sequence[Response]
    heading: tuple[str, str] | None = None


def render_page(conversations: Sequence[Conversation], *, title: str, made: str = "", pace: str = "") -> str:
    """Return the page as HTML, with a sentence on how the responses were made, and on the time axis of their traces."""
    from dialore import pages

    return pages.render(
        "demo/page.html.j2",
        title=title,
        styles=("page/dialogue.css", "demo/page.css"),
        made=made,
        pace=pace,
        milliseconds=_milliseconds,
        notes_of=notes_of,
        pretty=_pretty,
        summary=summary,
        steps_of=steps_of,
        longest_chain=longest_chain,
        origin_of=origin_of,
        marked=_mark_words,
        conversations=conversations,
    )


def _mark_words(text: str, used: Sequence[Knowledge], dialogue: Dialogue) -> Markup:
    """Return the response with the words marked that its knowledge brought in, as far as they stand there literally."""
    facts = [item.fact for item in used if item.fact]
    ends = {fact.head for fact in facts} | {fact.tail for fact in facts}
    known = dialogue.history.lower()
    new = (re.escape(end) for end in ends if end.strip() and end.lower() not in known)
    terms = sorted(new, key=len, reverse=True)
    if not terms:
        return escape(text)
    # A word boundary where the phrase begins or ends with a letter; Chinese has none.
    parts = re.split(rf"(?<![a-zA-Z])({'|'.join(terms)})(?![a-zA-Z])", text, flags=re.IGNORECASE)
    mark = Markup("<mark>{}</mark>")  # every second part is a phrase
    return Markup("").join(mark.format(part) if number % 2 else escape(part) for number, part in enumerate(parts))


def _pretty(text: str) -> str:
    """JSON with line breaks; any other text as it is."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except ValueError:
        return text


def _milliseconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1000:,.0f} ms" if seconds >= 0.001 else "<1 ms"
