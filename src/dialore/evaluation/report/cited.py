"""Citations as they are shown: small numbers after what they ground, in the order in which they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dialore.response import Response

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def cited_numbers(response: Response) -> dict[str, int]:
    """The number of each piece of knowledge that is cited, by its id: 1 for the one that is cited first."""
    ordered = sorted(response.citations, key=lambda each: each.end)
    return {name: number for number, name in enumerate(dict.fromkeys(each.knowledge for each in ordered), start=1)}


def cited_parts(response: Response) -> list[tuple[str, list[int]]]:
    """The response's text in parts, each with the numbers that stand after it; one part where nothing is cited."""
    numbers = cited_numbers(response)
    after: dict[int, list[int]] = {}
    for each in response.citations:
        after.setdefault(each.end, []).append(numbers[each.knowledge])
    ends = [*sorted(after), len(response.text)]
    starts = [0, *ends[:-1]]
    parts = [
        (response.text[start:end], sorted(set(after.get(end, [])))) for start, end in zip(starts, ends, strict=True)
    ]
    return [part for part in parts if part[0]]


def raised(numbers: list[int]) -> str:
    """Numbers as they stand after a word: ¹ ³ as `¹˒³`."""
    return "˒".join(str(number).translate(_RAISED) for number in numbers)
