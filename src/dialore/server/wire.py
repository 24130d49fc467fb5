"""What goes over the wire: what system messages say, and what a response rests on, as clients get it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dialore.methods.stages import CUT_OFF
from dialore.response import Response

if TYPE_CHECKING:
    from dialore.knowledge import Knowledge
    from dialore.response import Grounding


def grounding_of(result: Grounding, trace: str) -> dict[str, Any]:
    """What a result rests on, as clients get it: citations with their places, what was given, demands, the trace."""
    known = {piece.id: piece for piece in result.knowledge}
    cited = []
    if isinstance(result, Response):
        numbers = result.numbers
        cited = [
            {"number": numbers[each.knowledge], "start": each.start, "end": each.end, **told(known[each.knowledge])}
            for each in result.citations
        ]
    demands = result.demands.model_dump(exclude={"thoughts"}) if result.demands else None
    knowledge = [
        {**told(piece), "score": piece.score, "probability": piece.probability, "used": piece.used}
        for piece in result.knowledge
    ]
    return {"trace": trace, "method": result.method, "citations": cited, "demands": demands, "knowledge": knowledge}


def told(piece: Knowledge) -> dict[str, Any]:
    """A piece of knowledge with where to look it up; of a file its name alone, not where it lies here."""
    where = piece.passage.where
    if "file" in where:
        where["file"] = where["file"].replace("\\", "/").rpartition("/")[2]
    return {"id": piece.id, "kind": piece.kind, "source": piece.source, "text": piece.text, **where}


def finish_reason(response: Response) -> str:
    """`length` where the response was cut off, else `stop`."""
    cut = (each for each in response.trace if CUT_OFF in each.notes)
    return "length" if any(each.output.get("text") == response.text for each in cut) else "stop"


_SAID = re.compile(
    r"(?:You are|You[’']re|Your name is|I am|I[’']m|My name is)\b"
    r"(?! (?:not|to|only|never|always|allowed|asked|required|here|free)\b)"
    "|[你您我](?:是|叫|的名字)"
)
_FIRST = (
    (re.compile(r"^You(?: are|[’']re)\b"), "I am"),
    (re.compile(r"\b[Yy]our\b"), "my"),
    (re.compile(r"^my\b"), "My"),
    (re.compile(r"^[你您]"), "我"),
)
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")


def split_system(texts: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What system messages say, sentence by sentence: who the responder is, in the first person, and everything else.

    A sentence tells who the responder is where it begins with "You are" or "Your name is", in either person; "You are
    to" and everything else is an instruction.
    """
    persona: list[str] = []
    instructions: list[str] = []
    for sentence in (part.strip() for text in texts for part in _END.split(text)):
        bare = _BULLET.sub("", sentence)
        if not bare:
            continue
        if not _SAID.match(bare):
            instructions.append(bare)
            continue
        for pattern, first in _FIRST:
            bare = pattern.sub(first, bare)
        persona.append(bare)
    return tuple(persona), tuple(instructions)
