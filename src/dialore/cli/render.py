"""Results in words for people, and as lines for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.rule import Rule

from dialore import response_text
from dialore.cli.output import Table, console, note
from dialore.dialogue import Dialogue
from dialore.knowledge import Knowledge
from dialore.llm.model import Usage
from dialore.methods.stage_runner import NullRunner
from dialore.response import Demands, Grounding, Response, StageTrace, failed_sources
from dialore.text import count_noun

Result = Response | Grounding

_KINDS = (
    ("explicit", "queries said"),
    ("implicit", "queries inferred"),
    ("maintained", "topics kept"),
    ("extended", "topics to bring up"),
)


def as_line(result: Result, *, trace: bool = False) -> dict[str, Any]:
    """Return a result as its JSON object, without what is absent, and without the trace unless it is wanted.

    Citations have their number and where to look them up; `marked` is the text with the numbers in it.
    """
    data = result.model_dump(mode="json", exclude_none=True, exclude=None if trace else {"trace"})
    if isinstance(result, Response) and not result.citations:
        del data["citations"]
    elif isinstance(result, Response):
        pieces, numbers = {item.id: item for item in result.knowledge}, result.numbers
        for citation in data["citations"]:
            piece = pieces[citation["knowledge"]]
            citation |= {"number": numbers[piece.id], "source": piece.source, **piece.location}
        data["marked"] = response_text.mark_citations(result)
    return data


def dumps(data: object) -> str:
    """JSON on one line."""
    return json.dumps(data, ensure_ascii=False)


def show(result: Result, dialogue: Dialogue | None) -> None:
    """One result in words: what was answered, what it drew on, one line of figures."""
    out = console()
    if result.status == "failed":  # which has been said on standard error
        return
    out.print(
        Rule(f"[bold]{escape(result.id)}[/] · [cyan]{escape(result.method)}[/] · {escape(result.model)}", align="left")
    )
    if dialogue is not None:
        out.print(f"[dim]{escape(dialogue.last.speaker)}:[/] {escape(dialogue.last.text)}")
    if isinstance(result, Response):
        out.print(f"[bold green]{escape(dialogue.responder if dialogue else 'response')}:[/] {answer(result)}")
    if isinstance(result, Response) and not is_without_model(result):
        show_used(out, result)
    else:
        show_found(out, result)
    out.print(f"[dim]{escape(response_text.summary(result))}[/]\n")


def note_failed_sources(result: Result) -> None:
    """Name the sources that could not be asked on standard error, with the reasons."""
    for name, error in failed_sources(result.trace).items():
        note(f"{result.id}, {result.method}: source {name} could not be asked: {error}")


def is_without_model(result: Result) -> bool:
    """Return whether no language model wrote the response, so that what was found is the better part of it."""
    return result.model == NullRunner.name


def show_found(out: Console, result: Result, most: int | None = None) -> None:
    """Show the demands, and the knowledge found for them: all of it, or the best so many pieces."""
    if result.demands is not None:
        show_demands(out, result.demands)
    show_ranked(out, result.knowledge[:most])
    if most is not None and len(result.knowledge) > most:
        out.print(f"[dim]and {len(result.knowledge) - most} more[/]")


def show_grounds(out: Console, response: Response, most: int) -> None:
    """Show what each number of a response stands for: spans, knowledge, place; without a model the best found."""
    if is_without_model(response):
        show_found(out, response, most)
        return
    pieces = {item.id: item for item in response.knowledge}
    for name, number in response.numbers.items():
        cited = (citation for citation in response.citations if citation.knowledge == name)
        spans = dict.fromkeys(response.text[citation.start : citation.end] for citation in cited)
        words = f"{escape(' … '.join(spans))}: {escape(pieces[name].text)}"
        out.print(f"[dim]{response_text.superscript([number])} {words}[/]{show_origin(pieces[name])}")


def show_used(out: Console, response: Response) -> None:
    """Show what a response drew on, of what it was given; what it cites first, by number."""
    knowledge, numbers, used = response.knowledge, response.numbers, response.used
    pieces = count_noun(len(knowledge), "pieces of knowledge")
    if not knowledge:
        searched = any("found" in stage.output for stage in response.trace)
        out.print(f"[dim]{'nothing that was found was kept' if searched else 'no knowledge was looked up'}[/]")
    elif not used:
        out.print(f"[dim]drew on none of {pieces} that it was given[/]")
    else:
        out.print(f"[dim]drew on {len(used)} of {pieces}:[/]")
        for item in used:
            number = f"{response_text.superscript([numbers[item.id]])} " if item.id in numbers else ""
            colour = {"foreseen": "green", "unforeseen": "yellow"}.get(item.set)
            label = f"[{colour}]{item.set}[/] " if colour else ""
            where = "" if item.kind == "fact" else show_origin(item)
            out.print(Padding(f"{number}{label}{escape(item.text)}{where}", (0, 0, 0, 2)))


def answer(response: Response) -> str:
    """Return what was answered, with the numbers of what it cites; of one that failed, why."""
    if response.status == "failed":
        return f"[red]{escape(response.error or 'failed')}[/]"
    return "".join(f"{escape(text)}[cyan]{response_text.superscript(numbers)}[/]" for text, numbers in response.parts)


def show_demands(out: Console, demands: Demands) -> None:
    """Show the lists of demands that hold any."""
    for kind, words in _KINDS:
        if entities := getattr(demands, kind):
            out.print(f"[dim]{words:>19}:[/] {escape(', '.join(entities))}")


def show_ranked(out: Console, knowledge: Sequence[Knowledge]) -> None:
    """Knowledge as a ranked table."""
    if not knowledge:
        out.print("[dim]no knowledge was found[/]")
        return
    sets = any(item.set for item in knowledge)  # foreseen and unforeseen facts
    rows = Table(">#", "knowledge", ">score", *(["set"] if sets else []), "source")
    for rank, item in enumerate(knowledge, start=1):
        cells = [item.text, f"{item.score:.3f}", *([item.set] if sets else []), item.origin]
        rows.add_row(str(rank), *cells)
    out.print(rows)


def show_trace(out: Console, trace: Iterable[StageTrace]) -> None:
    """Show every stage as a row: when it began, how long it took, what it cost, what was noted."""
    rows = Table("!stage", "model", ">began", ">took", ">tokens", "outcome and notes")
    for stage in trace:
        tokens = stage.usage.prompt_tokens + stage.usage.completion_tokens
        notes = [stage.outcome, *response_text.notes_of(stage)]
        times = (f"{stage.started * 1000:.0f} ms", f"{stage.seconds * 1000:.0f} ms")
        figures = (*times, f"{tokens:,}" if tokens else "")
        rows.add_row(stage.stage, stage.model, *figures, "; ".join(notes))
    out.print(rows)


def totals(results: Iterable[Result], *, to_stderr: bool = False) -> None:
    """Show a table of all results, a row a method."""
    by_method: dict[str, list[Result]] = {}
    for result in results:
        by_method.setdefault(result.method, []).append(result)
    rows = Table("method", ">ok", ">failed", "cost", "parsing and retrieval", title="in all")
    for method, group in by_method.items():
        failed = sum(result.status == "failed" for result in group)
        usage = sum((result.usage for result in group), Usage())
        words = response_text.in_words(stage for result in group for stage in result.trace)
        spent = response_text.cost(usage, sum(result.seconds for result in group))
        rows.add_row(method, str(len(group) - failed), str(failed), spent, ", ".join(words))
    console(stderr=to_stderr).print(rows)


def show_origin(item: Knowledge) -> str:
    """Return where a piece of knowledge comes from, as it stands behind it."""
    words = item.set if item.kind == "fact" else response_text.origin_of(item)
    return f" [dim]({escape(words)})[/]" if words else ""
