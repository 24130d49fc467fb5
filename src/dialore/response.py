"""Response and grounding, each with its trace: every stage's prompt, completion, time and tokens."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from dialore.knowledge import Knowledge
from dialore.llm.model import Usage


class Demands(BaseModel):
    """The knowledge demands of a response (DCRAG, Section 3.2): queries and topics, each of two kinds.

    Attributes:
        explicit: queries that the history mentions.
        implicit: queries that are inferred from it.
        maintained: topics of the history that the response should keep.
        extended: new topics that the response may bring up.
        thoughts: the reasoning behind each list, by the list's name.
    """

    explicit: list[str] = Field(default_factory=list)
    implicit: list[str] = Field(default_factory=list)
    maintained: list[str] = Field(default_factory=list)
    extended: list[str] = Field(default_factory=list)
    thoughts: dict[str, str] = Field(default_factory=dict)

    @property
    def queries(self) -> list[str]:
        """Explicit and implicit queries, without repeats."""
        return list(dict.fromkeys([*self.explicit, *self.implicit]))

    @property
    def topics(self) -> list[str]:
        """Maintained and extended topics, without repeats."""
        return list(dict.fromkeys([*self.maintained, *self.extended]))


Outcome = Literal["ok", "repaired", "unparsed", "failed"]


class StageTrace(BaseModel):
    """The record of one stage.

    Attributes:
        stage: the stage's name, e.g. `query-production`.
        model: the name of the model that did it, or `dialore` for retrieval and repairs.
        outcome: `ok`; `repaired` after one repair turn; `unparsed`, the fallback was used; `failed`.
        started: seconds since the response was begun.
        seconds: how long it took.
        prompt: name, version and hash of the prompt file.
        messages: the prompt as sent.
        completion: the raw answer, the last where there was a repair.
        output: the stage's structured output.
        summary: its output in a line for readers, `Query: honey yield`; empty where it has nothing to show.
        usage: calls and tokens.
        notes: what was mended, dropped, or fell back, one sentence each.
        prompt_changed: the prompt is not the one that the replayed recording was made with.
        recorded_with: the version of the prompt file that was recorded, where the file has changed since.
        error: why it failed or was unparsed.
    """

    stage: str
    model: str = "dialore"
    outcome: Outcome = "ok"
    started: float = 0.0
    seconds: float = 0.0
    prompt: str = ""
    messages: list[dict[str, str]] = Field(default_factory=list)
    completion: str = ""
    output: dict[str, Any] = Field(default_factory=dict)
    summary: str = ""
    usage: Usage = Field(default_factory=Usage)
    notes: list[str] = Field(default_factory=list)
    prompt_changed: bool = False
    recorded_with: str = ""
    error: str = ""


class Citation(BaseModel):
    """A span of the response and the knowledge that grounds it.

    Attributes:
        start: offset of the span's first character.
        end: offset after its last character.
        knowledge: the id of the knowledge.
        number: the number that the response shows for the knowledge, from 1; 0 before the response is finished.
    """

    start: int
    end: int
    knowledge: str
    number: int = 0


class Grounding(BaseModel):
    """The knowledge that a method found for a response, before it is written.

    A method fills in demands, plan and knowledge; the agent adds the rest.

    Attributes:
        id: the dialogue's id.
        method: the method's name.
        status: `ok` or `failed`; a failed one keeps its partial trace and its error.
        model: the name of the model that did the stages, or `no model`.
        demands: the queries and topics of the response, for methods that ask for them.
        plan: the sources to be used in order, for methods that plan; empty for NULL.
        kinds: the kind of each source that was planned over, by its name.
        knowledge: what was found, best first; in a response `used` marks what it draws on.
        usage: calls and tokens of all stages.
        seconds: wall-clock time from the start of the first stage.
        queued_s: seconds before it, in which the response waited for its turn.
        trace: every stage, in order of their start.
        error: what failed, and the mend.
    """

    id: str = ""
    method: str = ""
    status: Literal["ok", "failed"] = "ok"
    model: str = ""
    demands: Demands | None = None
    plan: list[str] | None = None
    kinds: dict[str, str] | None = None
    knowledge: list[Knowledge] = Field(default_factory=list)
    usage: Usage = Field(default_factory=Usage)
    seconds: float = 0.0
    queued_s: float = 0.0
    trace: list[StageTrace] = Field(default_factory=list)
    error: str | None = None

    def __repr_args__(self) -> Iterator[tuple[str, object]]:
        """Yield what a notebook shows of it: everything else is in its fields."""
        yield from ((name, value) for name in ("id", "method", "text", "error") if (value := getattr(self, name, None)))
        yield "knowledge", len(self.knowledge)
        yield "calls", self.usage.calls
        yield "seconds", round(self.seconds, 2)

    def _repr_html_(self) -> str:
        from dialore import pages

        return pages.environment().get_template("page/response.html.j2").render(response=self)

    def response(self, text: str, citations: Sequence[Citation] = ()) -> Response:
        """Return the response with this text on these grounds."""
        grounds = {name: getattr(self, name) for name in ("demands", "plan", "kinds", "knowledge")}
        return Response(text=text, citations=list(citations), **grounds)

    def drafted(self, text: str, draft: str, shown: Sequence[Knowledge]) -> Response:
        """Return the response with this text on these grounds, its draft, and what the draft was written from."""
        return self.response(text).model_copy(update={"draft": draft, "drafted_from": [piece.id for piece in shown]})


def failed_sources(trace: Iterable[StageTrace]) -> dict[str, str]:
    """Return the error messages of sources that could not be asked, by their names."""
    failures: dict[str, str] = {}
    for stage in trace:
        failures |= stage.output.get("failures", {})
    return failures


class Response(Grounding):
    """A method's answer to a dialogue, with its grounds.

    Attributes:
        text: the answer; empty where the response failed, or was made elsewhere and says nothing.
        citations: spans of the text and their grounds.
        draft: what was written before it was known what the response needs; empty where there is none.
        drafted_from: ids of the knowledge that the draft was shown.
    """

    text: str = ""
    citations: list[Citation] = Field(default_factory=list)
    draft: str = ""
    drafted_from: list[str] = Field(default_factory=list)

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each piece of knowledge that is cited, by its id: 1 for the one that is cited first."""
        ordered = sorted(self.citations, key=lambda citation: citation.end)
        return {
            name: number
            for number, name in enumerate(dict.fromkeys(citation.knowledge for citation in ordered), start=1)
        }

    @property
    def parts(self) -> list[tuple[str, list[int]]]:
        """The text in parts, each with the numbers that stand after it; one part where nothing is cited."""
        numbers = self.numbers
        after: dict[int, list[int]] = {}
        for citation in self.citations:
            after.setdefault(citation.end, []).append(numbers[citation.knowledge])
        spans = itertools.pairwise([0, *sorted(after), len(self.text)])
        parts = ((self.text[start:end], sorted(set(after.get(end, [])))) for start, end in spans)
        return [part for part in parts if part[0]]

    @property
    def used(self) -> list[Knowledge]:
        """The knowledge that the response drew on: what it cites in the order of the numbers, then the rest."""
        numbers = self.numbers
        used = (item for item in self.knowledge if item.used)
        return sorted(used, key=lambda item: numbers.get(item.id, len(numbers) + 1))
