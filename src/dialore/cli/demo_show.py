"""The demo in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.rule import Rule
from rich.table import Table

from dialore.cli.figures import summary
from dialore.cli.output import console, table
from dialore.cli.page import origin_of
from dialore.evaluation.report.cited import cited_numbers, cited_parts, raised
from dialore.evaluation.report.steps import steps_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from dialore.cli.page import Conversation
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.response import Response

_COLUMN = 33
"""Characters that a column of a method wants, where they stand side by side."""
_LIVE = """\
[bold]Go live[/] with any OpenAI-compatible endpoint:
  export DIALORE_BASE_URL=https://api.openai.com/v1 DIALORE_MODEL=... DIALORE_API_KEY=...
or start Ollama, which is found by itself. Then:
  dialore chat                                        talk; /why shows the grounds
  dialore respond talk.json --html trace.html         {"turns": ["...", "..."]}"""


def show(conversations: Sequence[Conversation], made: str, page: Path) -> None:
    """Print conversations, how the responses came about, where the page is, and how to go live."""
    out = console()
    for conversation in conversations:
        dialogue = conversation.dialogue
        if conversation.heading is not None:
            out.print(Rule(f"[bold]{escape(conversation.heading.title)}[/]", characters="═"))
            out.print(f"[dim]{escape(conversation.heading.text)}[/]\n")
        out.print(Rule(f"[bold]{escape(dialogue.topic or dialogue.id)}[/]", align="left"))
        out.print(_turns(dialogue))
        wide = out.width >= _COLUMN * len(conversation.responses)
        (_side_by_side if wide else _stacked)(out, conversation.responses)
    if any(stage.differs for each in conversations for response in each.responses for stage in response.trace):
        out.print("[yellow]≈[/] a prompt differs from the recorded one: retrieval or a prompt has changed since")
    out.print(f"[dim]{made}[/]")
    out.print(f"Every stage, prompt and piece of knowledge: [bold]{escape(str(page))}[/]\n", soft_wrap=True)
    out.print(_LIVE, soft_wrap=True)


def _turns(dialogue: Dialogue) -> Table:
    rows = Table.grid(padding=(0, 1))
    rows.add_column(justify="right")
    rows.add_column(overflow="fold")
    for turn in dialogue.turns:
        colour = "cyan" if turn.speaker == dialogue.last.speaker else "green"
        rows.add_row(f"[{colour}]{escape(turn.speaker)}:[/]", escape(turn.text))
    for sentence in dialogue.persona:
        rows.add_row("", f"[dim]({escape(dialogue.responder)}: {escape(sentence)})[/]")
    return rows


def _name(response: Response) -> str:
    differs = any(stage.differs for stage in response.trace)
    return response.method + (" [yellow]≈[/]" if differs else "")


def _text(response: Response) -> str:
    if response.status == "failed":
        return f"[red]{escape(response.error or 'failed')}[/]"
    return "".join(escape(text) + raised(numbers) for text, numbers in cited_parts(response))


def _drew(response: Response) -> str:
    used = [item for item in response.knowledge if item.used]
    if not response.knowledge:
        return "[dim]nothing was looked up[/]"
    if not used:
        facts = "facts" if all(item.kind == "fact" for item in response.knowledge) else "pieces"
        return f"[dim]none of {len(response.knowledge)} {facts}[/]"
    numbers = cited_numbers(response)
    used.sort(key=lambda item: numbers.get(item.id, len(numbers) + 1))
    return "\n".join(f"{_mark(item, numbers)} {escape(item.text)}{_origin(item)}" for item in used)


def _mark(item: Knowledge, numbers: dict[str, int]) -> str:
    return raised([numbers[item.id]]) if item.id in numbers else "•"


def _origin(item: Knowledge) -> str:
    words = item.set if item.kind == "fact" else origin_of(item)
    return f" [dim]({escape(words)})[/]" if words else ""


def _way(response: Response) -> str:
    """How it came about, for methods that plan, direct, ask or draft; empty for others."""
    return "\n".join(f"[dim]{name}:[/] {escape(words)}" for name, words in steps_of(response).short)


def _side_by_side(out: Console, responses: Sequence[Response]) -> None:
    rows = table(*(_name(response) for response in responses), shares=[1] * len(responses))
    rows.add_row(*map(_text, responses), end_section=True)
    ways = [_way(response) for response in responses]
    if any(ways):
        rows.add_row(*ways, end_section=True)
    rows.add_row(*map(_drew, responses))
    rows.add_row(*(f"[dim]{escape(summary(response))}[/]" for response in responses))
    out.print(rows)


def _stacked(out: Console, responses: Sequence[Response]) -> None:
    rows = table("!method", "response", "draws on", shares=[1, 3, 2])
    for response in responses:
        below = "".join(f"\n{part}" for part in (_way(response), f"[dim]{escape(summary(response))}[/]") if part)
        rows.add_row(_name(response), _text(response) + below, _drew(response), end_section=True)
    out.print(rows)
