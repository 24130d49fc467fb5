"""English documents cut into sentences, punctuation kept, for pools of knowledge."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# White space before what may start a sentence and after what may end one; not after titles and initials.
_BREAK = re.compile(
    r"(?<=[.!?…\"'”’)\]])"
    r"(?<!\bMr\.)(?<!\bMs\.)(?<!\bMrs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bvs\.)(?<!\bJr\.)(?<!\bSr\.)(?<!\b[A-Z]\.)"
    r"\s+(?=[\"'“‘(\[]*[A-Z0-9])"
)
_ENDS = re.compile(r"[.!?…][\"'”’)\]]*$")


def sentences_of(text: str) -> Iterator[str]:
    """The sentences of an English text; line ends part them too."""
    for line in text.splitlines():
        pending = ""
        for piece in _BREAK.split(line.strip()):
            pending = f"{pending} {piece}".strip()
            if _ENDS.search(pending):
                yield pending
                pending = ""
        if pending:
            yield pending
