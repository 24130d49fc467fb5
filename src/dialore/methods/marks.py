"""Text of others as it stands in prompts: data, on one line, between marks that it cannot close."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dialore.knowledge import Knowledge


def as_data(text: str, *marks: str) -> str:
    """A text on one line, without any tag of the marks' names.

    Args:
        text: what somebody else wrote.
        marks: names of the tags that a prompt puts around it: `knowledge` for `<knowledge>` and `</knowledge>`.
    """
    pattern = _tags(marks)
    while marks and pattern.search(text):  # what is taken out may leave a tag that stood around it
        text = pattern.sub(" ", text)
    return " ".join(text.split())


@functools.lru_cache(maxsize=32)
def _tags(marks: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<\s*/?\s*(?:{'|'.join(map(re.escape, marks))})\b[^>]*>", re.IGNORECASE)


def on_one_line(piece: Knowledge) -> Knowledge:
    """A piece whose text can be no further line of a prompt."""
    return piece.model_copy(update={"text": as_data(piece.text)})
