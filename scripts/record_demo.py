"""Record the demo: every method of every part on its bundled dialogues against an endpoint, into recordings.jsonl.

    python scripts/record_demo.py --base-url http://127.0.0.1:8000/v1 --model my-model

Lines are keyed by dialogue, method and stage and sorted by that key, so that recording anew gives a readable diff. The
file is replaced only when every response came out well. Answers are cached, so that a broken-off recording goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.cli.demo import PARTS, demo_folder, open_part
from dialore.errors import DialoreError
from dialore.files import write_whole
from dialore.llm.connection import connect
from dialore.llm.recording import Recorder, Replay

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from dialore.cli.demo import Part
    from dialore.dialogue import Dialogue
    from dialore.llm.model import LanguageModel
    from dialore.llm.recording import Recorded
    from dialore.response import Response

MADE_BY = "a capable instruction-tuned model"


async def answer(
    model: LanguageModel, work: Sequence[tuple[Part, Sequence[Dialogue]]], methods: Sequence[str] = ()
) -> list[Response]:
    """Return every response of these methods, of all where none is named, all asked for at once; closes the model."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(model.close)
        jobs = []
        for part, dialogues in work:
            agents = await stack.enter_async_context(open_part(part, model))
            agents = [agent for agent in agents if not methods or agent.method.name in methods]
            jobs += [agent.respond(dialogue) for dialogue in dialogues for agent in agents]
        return await asyncio.gather(*jobs)


def is_kept(label: str, known: Set[str], redone: Set[str], methods: Sequence[str]) -> bool:
    """Return whether a line of the old file stays, by its label: dialogue, method and stage."""
    dialogue, method = label.split("/")[:2]
    return dialogue in known and (dialogue not in redone or (bool(methods) and method not in methods))


def as_published(line: Recorded, made_by: str) -> str:
    """Return a line without what was particular to the recording: the model's local name, cache hits, retries."""
    usage = line.usage.model_copy(update={"cached": 0, "retries": 0}) if line.usage else None
    return (
        line.model_copy(update={"model": made_by, "made_by": made_by, "usage": usage}).model_dump_json(by_alias=True)
        + "\n"
    )


def record(arguments: argparse.Namespace) -> int:
    """Record and replace the file; gives the exit code."""
    every = [(part, part.dialogues()) for part in PARTS]
    known = {dialogue.id for _, dialogues in every for dialogue in dialogues}
    wanted = {dialogue.id for part, dialogues in every if part.name in arguments.only for dialogue in dialogues}
    wanted |= set(arguments.only)
    if unknown := wanted - known - {part.name for part in PARTS}:
        print(f"no such part or dialogue: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    redone = wanted & known or known
    work = [(part, [dialogue for dialogue in dialogues if dialogue.id in redone]) for part, dialogues in every]
    model = connect(
        arguments.model, arguments.base_url, timeout=arguments.timeout, cache=arguments.cache, concurrency=64
    )
    if model is None:
        print("no endpoint: give --base-url", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "fresh.jsonl"
        responses = asyncio.run(
            answer(replace(model, recorder=Recorder(fresh)), [pair for pair in work if pair[1]], arguments.method)
        )
        for response in responses:
            print(f"{response.id} {response.method}: {response.text or response.error}")
        if any(response.status == "failed" for response in responses):
            print("some responses failed: nothing was written", file=sys.stderr)
            return 1
        lines = {line.label: as_published(line, arguments.made_by) for line in Replay(fresh).lines}
    if arguments.out.is_file():
        old = {line.label: line.model_dump_json(by_alias=True) + "\n" for line in Replay(arguments.out).lines}
        lines |= {label: text for label, text in old.items() if is_kept(label, known, redone, arguments.method)}
    write_whole(arguments.out, "".join(lines[label] for label in sorted(lines)))
    print(f"{len(lines)} calls: {arguments.out}")
    return 0


def main() -> None:
    """Read the arguments and record."""
    parser = argparse.ArgumentParser(description="Record the demo against an endpoint.")
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model")
    parser.add_argument("--made-by", default=MADE_BY, help="who answers, as the demo will say")
    parser.add_argument("--only", action="append", default=[], help="a part or a dialogue's id; other lines are kept")
    parser.add_argument("--method", action="append", default=[], help="a method; other methods' lines are kept")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds for one answer")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "dialore-record-demo.sqlite")
    parser.add_argument("--out", type=Path, default=demo_folder() / "recordings.jsonl")
    try:
        sys.exit(record(parser.parse_args()))
    except DialoreError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
