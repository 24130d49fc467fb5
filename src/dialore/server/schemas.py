"""The schemas on the wire: the grounds of a response, as clients get them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dialore.methods.stages import CUT_OFF
from dialore.response import Response

if TYPE_CHECKING:
    from dialore.knowledge import Knowledge
    from dialore.response import Grounding


def grounding_of(result: Grounding, trace: str, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return what a result rests on, as clients get it: citations, what was given, demands, the trace.

    `notes` say what of the request was passed over.
    """
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
    found = {"trace": trace, "method": result.method, "citations": cited, "demands": demands, "knowledge": knowledge}
    return {**found, "notes": list(notes)} if notes else found


def told(piece: Knowledge) -> dict[str, Any]:
    """Return a piece of knowledge with where to look it up; of a file its name alone, not where it lies here."""
    where = piece.passage.where
    if "file" in where:
        where["file"] = where["file"].replace("\\", "/").rpartition("/")[2]
    return {"id": piece.id, "kind": piece.kind, "source": piece.source, "text": piece.text, **where}


def finish_reason(response: Response) -> str:
    """`length` where the response was cut off, else `stop`."""
    cut = (each for each in response.trace if CUT_OFF in each.notes)
    return "length" if any(each.output.get("text") == response.text for each in cut) else "stop"
