"""How a response came about, in a reader's words: the plan, the queries, the questions, the draft; from its trace."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from markupsafe import Markup

from dialore.text import HAN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dialore.response import Response, StageTrace

Pieces = list[tuple[str, bool]]
"""A text in pieces, each with whether the other version lacks it."""
_TOKEN = re.compile(rf"[{HAN}]|[^\W{HAN}]+(?:['’][^\W㐀-鿿]+)*|\s+|.", re.DOTALL)
_KINDS = {
    "information": "asks for information",
    "opinion": "asks for an opinion",
    "passive": "asks for nothing",
    "none": "needs no search",
}
_WHOSE = {"draft-first": {"A": "draft", "B": "edit"}, "edit-first": {"A": "edit", "B": "draft"}}
_BY = {"model": "the model's", "documents": "the base's"}
_STAGES = {"model": "model-answer", "documents": "base-answer"}
_NOBODY = "nobody had an answer"


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
    """What a trace tells, each part where the method has it.

    Attributes:
        plan: the sources in order; empty for NULL, None where nothing is planned.
        told: other steps in a row, each with its name.
        questions: open questions with their answers.
        versions: draft and edit.
        brief: the names among `told` that belong to the few words.
    """

    plan: list[str] | None = None
    told: list[tuple[str, str]] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    versions: Versions | None = None
    brief: frozenset[str] = frozenset()

    @property
    def short(self) -> list[tuple[str, str]]:
        """The same in a few words: name and words of each."""
        lines: list[tuple[str, str]] = []
        if self.plan is not None:
            lines.append(("Plan", " → ".join(self.plan) or "NULL: no source is needed"))
        lines += [(name, words) for name, words in self.told if name in self.brief]
        if self.questions:
            chosen = [answer.by for question in self.questions for answer in question.answers if answer.chosen]
            lines.append(("Asks", f"{len(self.questions)} open questions; answers taken: {_counted(chosen)}"))
        if self.versions is not None:
            lines.append(("Kept", f"the {self.versions.kept} ({self.versions.why})"))
        return lines


def steps_of(response: Response) -> Steps:
    """The steps of a response, as far as its trace has such."""
    trace = {stage.stage: stage for stage in response.trace}
    # Generated knowledge that the response draws on is shown with what it draws on.
    drawn = any(item.used and item.source == "model" for item in response.knowledge)
    return Steps(
        plan=None if response.plan is None else [name.upper() for name in response.plan],
        told=[pair for pair in _told(trace) if pair[1]],
        questions=_questions(trace),
        versions=_versions(trace),
        brief=frozenset({"Directive", "Query"} | (set() if drawn else {"Knowledge written"})),
    )


def _told(trace: Mapping[str, StageTrace]) -> Iterable[tuple[str, str]]:
    if mending := trace.get("plan-mending"):
        yield "Plan mended", "; ".join(mending.notes)
    if decision := trace.get("search-decision"):
        kind = str(decision.output.get("kind", ""))
        yield "The turn", _KINDS.get(kind, kind)
    yield "Topic", _text(trace.get("topic-tracking"))
    yield "Directive", _text(trace.get("commonsense-directive"))
    if search := trace.get("web-search"):
        yield "Query", str(search.output.get("query", ""))
        yield "Searched in", str(search.output.get("source", ""))
    else:
        yield "Query", _text(trace.get("query-generation"))
    if linking := trace.get("query-linking"):
        yield "Concepts", "; ".join(map(str, linking.output.get("links") or []))
    if samples := trace.get("knowledge-samples"):
        found, scores = samples.output.get("found") or [], samples.output.get("scores") or []
        nearest = f", the nearest {found[-1]} ({scores[-1]:.2f})" if scores else ""
        yield "Samples", f"{len(found)}{nearest}"
        yield "Knowledge written", _text(trace.get("knowledge-generation"))


def _questions(trace: Mapping[str, StageTrace]) -> list[Question]:
    integrated = trace.get("answer-integration")
    rows = integrated.output.get("answers") if integrated is not None else None
    return [_question(number, row, trace) for number, row in enumerate(rows or [], start=1)]


def _question(number: int, row: Mapping[str, str], trace: Mapping[str, StageTrace]) -> Question:
    # Two answers were chosen from; of one alone, the other said that it has none.
    some = list(_STAGES) if f"answer-choice-{number}" in trace else [row.get("by", "")]
    there = [] if row.get("why") == _NOBODY else [by for by in some if by in _STAGES]
    texts = {by: _text(trace.get(f"{_STAGES[by]}-{number}")) for by in there}
    answers = [Answer(_BY[by], text, by == row.get("by")) for by, text in texts.items() if text]
    return Question(row.get("question", ""), answers)


def _versions(trace: Mapping[str, StageTrace]) -> Versions | None:
    choice = trace.get("choice")
    if choice is None or "draft" not in choice.output:
        return None
    draft, edit = str(choice.output["draft"]), str(choice.output["edit"])
    before, after = changes(draft, edit)
    votes = [
        f"{order.replace('-', ' ')}: {whose.get(str(asked.output.get('better')), 'no difference')}"
        for order, whose in _WHOSE.items()
        if (asked := trace.get(f"preference-{order}")) is not None
    ]
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


def _text(stage: StageTrace | None) -> str:
    """What a stage wrote."""
    if stage is None or stage.outcome == "failed":
        return ""
    return " ".join(str(stage.output.get("text", "")).split())


def _counted(words: list[str]) -> str:
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words)) or "none"
