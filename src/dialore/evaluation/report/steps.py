"""The steps of a response for readers: plan, the stages' own summaries, open questions, draft and edit."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from dialore.text import HAN

if TYPE_CHECKING:
    from dialore.response import Response, StageTrace

Pieces = list[tuple[str, bool]]
"""A text in pieces, each with whether the other version lacks it."""
_TOKEN = re.compile(rf"[{HAN}]|[^\W{HAN}]+(?:['’][^\W{HAN}]+)*|\s+|.", re.DOTALL)
_SHORT = 160
_BY = {"model": "the model's", "documents": "the base's"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to an open question: whose it is, and whether it was chosen."""

    by: str
    text: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Question:
    """An open question and the answers to it; where there are two, one was chosen."""

    text: str
    answers: list[Answer]


@dataclass(frozen=True, slots=True)
class Versions:
    """A draft and its edit, each as pieces with whether the other lacks them.

    Attributes:
        before: the draft.
        after: the edit; nothing where it keeps the draft word for word.
        kept: which of them was sent, `draft` or `edit`.
        why: why.
        votes: what was preferred in each order, in words.
    """

    before: Pieces
    after: Pieces
    kept: str
    why: str
    votes: list[str]

    @property
    def draft(self) -> Markup:
        """The draft as HTML, with what the edit takes out marked."""
        return _marked(self.before, "del")

    @property
    def edit(self) -> Markup:
        """The edit, with what it puts in marked."""
        return _marked(self.after, "ins")


@dataclass(slots=True)
class Steps:
    """The steps of a response, each where its method has it.

    Attributes:
        plan: the sources in order; empty for NULL, None where nothing is planned.
        told: the summaries of its stages in order, each as name and words.
        questions: open questions with their answers.
        versions: draft and edit.
    """

    plan: list[str] | None = None
    told: list[tuple[str, str]] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    versions: Versions | None = None

    @property
    def short(self) -> list[tuple[str, str]]:
        """The same in a few words: name and words of each."""
        lines = [(name, shorten(words, _SHORT, placeholder=" …")) for name, words in self.told]
        if self.plan is not None:
            lines.insert(0, ("Plan", " → ".join(self.plan) or "NULL: no source is needed"))
        if self.questions:
            chosen = [answer.by for question in self.questions for answer in question.answers if answer.chosen]
            taken = ", ".join(f"{chosen.count(by)} {by}" for by in dict.fromkeys(chosen)) or "none"
            lines.append(("Asks", f"{len(self.questions)} open questions; answers taken: {taken}"))
        if self.versions is not None:
            lines.append(("Kept", f"the {self.versions.kept} ({self.versions.why})"))
        return lines


def steps_of(response: Response) -> Steps:
    """The steps of a response, as far as its trace has such."""
    told = [stage.summary.partition(": ") for stage in response.trace if stage.summary]
    asked: list[dict[str, Any]] = next(
        (stage.output["answers"] for stage in response.trace if "answers" in stage.output), []
    )
    choice = next((stage for stage in response.trace if {"draft", "edit"} <= stage.output.keys()), None)
    return Steps(
        plan=None if response.plan is None else [name.upper() for name in response.plan],
        told=[(name, words) for name, _, words in told],
        questions=[
            Question(row["question"], [Answer(_BY[by], text, by == row["by"]) for by, text in row["from"].items()])
            for row in asked
            if "from" in row  # runs of before this was kept have none
        ],
        versions=None if choice is None else _versions(choice),
    )


def _versions(choice: StageTrace) -> Versions:
    draft, edit = str(choice.output["draft"]), str(choice.output["edit"])
    before, after = changes(draft, edit)
    votes = [f"{order}: {preferred}" for order, preferred in choice.output.get("votes", {}).items()]
    same = draft.split() == edit.split()
    return Versions(before, [] if same else after, str(choice.output["kept"]), "; ".join(choice.notes), votes)


def changes(before: str, after: str) -> tuple[Pieces, Pieces]:
    """Two versions of a text in pieces: what goes is marked in the first, what comes in the second."""
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    first: Pieces = []
    second: Pieces = []
    for kind, start, stop, from_, to in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        first += [("".join(old[start:stop]), kind != "equal")] if start < stop else []
        second += [("".join(new[from_:to]), kind != "equal")] if from_ < to else []
    return first, second


def _marked(pieces: Pieces, tag: str) -> Markup:
    marked = Markup(f"<{tag}>{{}}</{tag}>")  # noqa: S704 - a tag of our own
    return Markup("").join(marked.format(text) if is_changed else text for text, is_changed in pieces)
