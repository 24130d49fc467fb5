"""Results in words for people, and as lines for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.padding import Padding
from rich.rule import Rule

from dialore.cli.figures import cost, figures_of, summary, total
from dialore.cli.output import console, table
from dialore.evaluation.report.cited import cited_numbers, cited_parts, raised
from dialore.llm.model import Usage
from dialore.response import Response

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.response import Demands, Grounding, StageTrace

    Result = Response | Grounding

_KINDS = (
    ("explicit", "queries said"),
    ("implicit", "queries inferred"),
    ("maintained", "topics kept"),
    ("extended", "topics to bring up"),
)


def as_line(result: Result, *, trace: bool = False) -> dict[str, Any]:
    """A result as its JSON object; empty fields, and the trace unless wanted, are left out."""
    data = result.model_dump(mode="json", exclude_none=True, exclude=None if trace else {"trace"})
    for name in ("citations", "plan"):
        if not data.get(name, True):
            del data[name]
    return data


def dumps(data: object) -> str:
    """JSON on one line."""
    return json.dumps(data, ensure_ascii=False)


def show(result: Result, dialogue: Dialogue | None) -> None:
    """One result in words: what was answered, what it drew on, one line of figures."""
    out = console()
    out.print(
        Rule(f"[bold]{escape(result.id)}[/] · [cyan]{escape(result.method)}[/] · {escape(result.by)}", align="left")
    )
    if dialogue is not None:
        out.print(f"[dim]{escape(dialogue.last.speaker)}:[/] {escape(dialogue.last.text)}")
    if result.status == "failed":
        out.print(f"[bold red]failed[/] {escape(result.error or '')}\n")
        return
    if isinstance(result, Response):
        out.print(f"[bold green]{escape(dialogue.responder if dialogue else 'response')}:[/] {_numbered(result)}")
        show_used(out, result)
    else:
        if result.demands is not None:
            show_demands(out, result.demands)
        show_ranked(out, result.knowledge)
    out.print(f"[dim]{summary(result)}[/]\n")


def show_used(out: Console, response: Response) -> None:
    """What a response drew on, of what it was given; what it cites first, by number."""
    knowledge, numbers = response.knowledge, cited_numbers(response)
    used = sorted((item for item in knowledge if item.used), key=lambda item: numbers.get(item.id, len(numbers) + 1))
    if not knowledge:
        out.print("[dim]no knowledge was looked up[/]")
    elif not used:
        out.print(f"[dim]drew on none of the {len(knowledge)} pieces of knowledge that it was given[/]")
    else:
        out.print(f"[dim]drew on {len(used)} of {len(knowledge)} pieces of knowledge:[/]")
        for item in used:
            number = f"{raised([numbers[item.id]])} " if item.id in numbers else ""
            out.print(Padding(f"{number}{_label(item)}{escape(item.text)}", (0, 0, 0, 2)))


def show_cited(out: Console, response: Response) -> None:
    """What each number stands for, where the text itself was shown without: its spans and its knowledge."""
    texts = {item.id: item.text for item in response.knowledge}
    for name, number in cited_numbers(response).items():
        said = [response.text[each.start : each.end] for each in response.citations if each.knowledge == name]
        out.print(f"[dim]{raised([number])} {escape(' … '.join(dict.fromkeys(said)))}: {escape(texts[name])}[/]")


def _numbered(response: Response) -> str:
    return "".join(f"{escape(text)}[cyan]{raised(numbers)}[/]" for text, numbers in cited_parts(response))


def show_demands(out: Console, demands: Demands) -> None:
    """The four lists of demands."""
    for kind, words in _KINDS:
        out.print(f"[dim]{words:>19}:[/] {escape(', '.join(getattr(demands, kind)) or '-')}")


def show_ranked(out: Console, knowledge: Sequence[Knowledge]) -> None:
    """Knowledge as a ranked table."""
    if not knowledge:
        out.print("[dim]no knowledge was found[/]")
        return
    rows = table(">#", "knowledge", ">score", "set", "source")
    for place, item in enumerate(knowledge, start=1):
        rows.add_row(str(place), escape(item.text), f"{item.score:.3f}", item.set, escape(item.origin))
    out.print(rows)


def _label(item: Knowledge) -> str:
    colour = {"foreseen": "green", "unforeseen": "yellow"}.get(item.set)
    return f"[{colour}]{item.set}[/] " if colour else ""


def show_trace(out: Console, trace: Iterable[StageTrace]) -> None:
    """Every stage as a row: when it began, how long it took, what it cost, what was noted."""
    rows = table("!stage", "by", ">began", ">took", ">tokens", "outcome and notes")
    for stage in trace:
        tokens = stage.usage.prompt_tokens + stage.usage.completion_tokens
        said = [stage.outcome, *stage.notes, *([stage.error] if stage.error else [])]
        times = (f"{stage.started * 1000:.0f} ms", f"{stage.seconds * 1000:.0f} ms")
        rows.add_row(stage.stage, escape(stage.by), *times, f"{tokens:,}" if tokens else "", escape("; ".join(said)))
    out.print(rows)


def totals(results: Iterable[Result], *, to_stderr: bool = False) -> None:
    """A table of all results, a row a method."""
    by_method: dict[str, list[Result]] = {}
    for result in results:
        by_method.setdefault(result.method, []).append(result)
    rows = table("method", ">ok", ">failed", "cost", "parsing and retrieval", title="in all")
    for method, group in by_method.items():
        failed = sum(result.status == "failed" for result in group)
        usage = sum((result.usage for result in group), Usage())
        words = total([figures_of(result.trace) for result in group]).words()
        spent = cost(usage, sum(result.seconds for result in group))
        rows.add_row(method, str(len(group) - failed), str(failed), spent, ", ".join(words))
    console(stderr=to_stderr).print(rows)
