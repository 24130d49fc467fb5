"""COQ, Context-Open-Question (EDIT, 2024): contexts with open questions about what lies beyond them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from pydantic import BaseModel, Field, model_validator

from dialore.datasets.base import DataSet, Talk, WholeDialogue
from dialore.datasets.files import read_entries, read_forms


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

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """A dialogue of a context and its questions each."""
        for place, entry in read_entries(path, _Entry, self.published):
            questions = [question.strip() for question in entry.questions if question.strip()]
            if not questions:
                raise place.error("all blank", "questions")
            talk = Talk(f"{self.name}-{place.number}", "en")
            talk.pair(entry.context, " ".join(questions), extra={"questions": questions})
            yield from talk.whole()


class _Context(BaseModel):
    """An entry of a context; its fields, in order, are the text."""

    @property
    def text(self) -> str:
        """The context."""
        parts = (value if isinstance(value, list) else [value] for value in self.__dict__.values())
        return " ".join(" ".join(part for some in parts for part in some).split())


class _Review(_Context):
    review_text: str

    @model_validator(mode="before")
    @classmethod
    def _joined(cls, given: dict[str, object]) -> dict[str, object]:
        """Of sentences that are marked as spoilers or not: their texts."""
        sentences = given.get("review_sentences")
        if not isinstance(sentences, list):
            return given
        return {"review_text": " ".join(str(each[-1]) for each in sentences if isinstance(each, list) and each)}


class _News(_Context):
    headline: str
    short_description: str = ""


class _Observations(_Context):
    obs1: str
    obs2: str


class _Story(_Context):
    premise: str
    initial: str
    original_ending: str | list[str]


_FORMS: dict[str, tuple[str, type[_Context]]] = {
    "review_sentences": ("goodreads", _Review),
    "review_text": ("goodreads", _Review),
    "headline": ("news", _News),
    "obs1": ("anli", _Observations),
    "premise": ("timetravel", _Story),
}


class CoqContexts(DataSet):
    """The four kinds of context that COQ was made of, each known by its fields; nobody has answered them.

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

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """A dialogue of one turn, the context, each."""
        kinds = {shape: kind for kind, shape in _FORMS.values()}
        for place, entry in read_forms(path, {key: shape for key, (_, shape) in _FORMS.items()}, self.published):
            talk = Talk(f"{self.name}-{kinds[type(entry)]}-{place.number}", "en")  # type: ignore[index]
            talk.say("user", cast("_Context", entry).text)
            talk.answer("system", None)
            yield from talk.whole()
