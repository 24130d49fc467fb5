"""COQ, Context-Open-Question (EDIT, 2024): contexts with open questions about what lies beyond them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, Field

from dialore.datasets.base import DataSet, Talk, WholeDialogue
from dialore.datasets.files import read_entries


class _Entry(BaseModel):
    context: str = Field(min_length=1)
    questions: list[str] = Field(min_length=1)


class COQ(DataSet):
    """JSON or JSONL of `{"context", "questions": [...]}`: no dialogues, but what EDIT's question model is trained on.

    The authors have published no file that we know of; this is the pair that Section 3.2 describes. The context is the
    one turn, the questions, joined by spaces, the reference (the sequence Q of Section 3.2.2), and
    `extra["questions"]` the list of them.
    """

    name = "coq"
    languages = ("en",)
    paper = "EDIT (2024), Section 3.2"
    licence = "unpublished"
    where = "its authors"
    form = "a JSON list or JSONL of {`context`, `questions`}"

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """A dialogue of a context and its questions each."""
        for place, entry in read_entries(path, _Entry, self.published):
            questions = [question.strip() for question in entry.questions if question.strip()]
            if not questions:
                raise place.error("all blank", "questions")
            talk = Talk(f"{self.name}-{place.number}", "en")
            talk.pair(entry.context, " ".join(questions), extra={"questions": questions})
            yield from talk.whole()
