"""COQ, Context-Open-Question (EDIT, 2024): contexts with open questions about what lies beyond them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, Field

from dialore.datasets.base import DataSet, Entry, Talk
from dialore.datasets.files import json_entries, read_entries


class _Entry(BaseModel):
    context: str = Field(min_length=1)
    questions: list[str] = Field(min_length=1)


class COQ(DataSet):
    """JSON or JSONL of `{"context", "questions": [...]}`: no dialogues, but what EDIT's question model is trained on.

    The authors have published no file that we know of; `CoqContexts` is what it is made again from. The context is the
    one turn, the questions, joined by spaces, the reference (the sequence Q of Section 3.2.2), and
    `extra["questions"]` the list of them.
    """

    name = "coq"
    languages = ("en",)
    paper = "EDIT (2024), Section 3.2"
    licence = "unpublished"
    where = "its authors"
    form = "a JSON list or JSONL of {`context`, `questions`}"

    def entries(self, path: Path) -> Iterator[Entry]:
        """Yield a dialogue of a context and its questions each."""
        for place, entry in read_entries(path, _Entry, self.published, unused=self.report.unused_keys):
            questions = [question.strip() for question in entry.questions if question.strip()]
            if not questions:
                raise place.error("all blank", "questions")
            talk = Talk(None, "en")
            talk.pair(entry.context, " ".join(questions), extra={"questions": questions})
            yield from talk.whole()


_FIELDS = {
    "goodreads": ("review_sentences", "review_text"),
    "news": ("headline", "short_description"),
    "anli": ("obs1", "obs2"),
    "timetravel": ("premise", "initial", "original_ending"),
}
"""The fields of each kind of context whose texts it is made of, in order."""


class CoqContexts(DataSet):
    """The four kinds of context that COQ was made of, each known by its fields; they have no references.

    Goodreads: a review. News Category: headline and short description. aNLI: the two observations, without hypotheses.
    TimeTravel: the five sentences of the original story. Which samples of them the authors took is not said.
    """

    name = "coq-contexts"
    languages = ("en",)
    paper = "EDIT (2024), Section 3.2.1"
    licence = "see each"
    where = (
        "mengtingwan.github.io/data/goodreads.html (spoilers), Kaggle rmisra/news-category-dataset, "
        "allenai.org/data (aNLI), github.com/qkaren/Counterfactual-StoryRW"
    )
    form = "JSONL of Goodreads' reviews, News Category, aNLI or TimeTravel"

    def entries(self, path: Path) -> Iterator[Entry]:
        """Yield a dialogue of one turn, the context, each."""
        for place, entry in json_entries(path, self.published):
            fields = entry if isinstance(entry, dict) else {}
            held = {kind: [fields[name] for name in names if name in fields] for kind, names in _FIELDS.items()}
            kind = next((kind for kind, values in held.items() if values), "")
            if not kind:
                raise place.error("it is of none of the four kinds")
            talk = Talk(None, "en")
            talk.say("user", " ".join(_words(held[kind])))
            talk.answer("system", None)
            yield from talk.whole()


def _words(value: object) -> Iterator[str]:
    """Yield the words of a text, or of all texts in a list, such as Goodreads' sentences marked as spoilers."""
    if isinstance(value, list):
        for item in value:
            yield from _words(item)
    elif isinstance(value, str):
        yield from value.split()
