"""Feedback of a service's users: counted, written as data, and its dialogues answered anew."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.evaluation.statistics import wilson
from dialore.experiments.config import config_of
from dialore.experiments.import_responses import import_responses
from dialore.experiments.run import Progress, run_experiment
from dialore.files import write_whole
from dialore.session import Connect, open_model

if TYPE_CHECKING:
    from dialore.settings import Settings

Row = dict[str, Any]
"""Feedback as `ServerStore.feedback` returns it: `good`, `reason`, `better`, and the trace with its `result`."""
_BEFORE = "before"
"""The name of the system that answered in the service."""
_SIDES = {"user": "user", "assistant": "system"}


def summary(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the share of bad responses by method, source and planned source, with its interval, the worst first."""
    bad: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for row in rows:
        result = row["result"]
        named = [("method", result.get("method"))]
        named += [("source", source) for source in result.get("sources") or ["none"]]
        named += [("planned", source) for source in result.get("plan") or ()]
        for key in named:
            bad[key[0], str(key[1])].append(not row["good"])
    table = []
    for (kind, name), values in bad.items():
        low, high = wilson(sum(values), len(values))
        share = sum(values) / len(values)
        table.append({"what": kind, "name": name, "responses": len(values), "bad": share, "low": low, "high": high})
    return sorted(table, key=lambda entry: (-entry["bad"], -entry["responses"], entry["what"], entry["name"]))


def as_dialogues(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield the dialogues that were answered, each with the better answer, where there is one, as its reference."""
    for row in rows:
        result = row["result"]
        turns = [{"speaker": _SIDES[message["role"]], "text": message["content"]} for message in result["messages"]]
        feedback = {name: row[name] for name in ("good", "reason", "better")}
        extra = {"feedback": feedback, "instructions": result["instructions"]}
        dialogue = {"id": row["trace"], "turns": turns, "persona": result["persona"], "extra": extra}
        if memory := result.get("memory"):
            dialogue["memory"] = memory
        yield dialogue | ({"reference": row["better"]} if row["better"] else {})


def lacks_memory(row: Row) -> bool:
    """Return whether a response drew on memory that its trace does not hold."""
    result = row["result"]
    return "memory" in (result.get("sources") or ()) and not result.get("memory")


def as_conversations(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield whole conversations, each as long as it is known, for `dialore import --conversations`."""
    kept: list[list[dict[str, str]]] = []
    for row in sorted(rows, key=lambda row: -len(row["result"]["messages"])):
        for dialogue in as_dialogues([{**row, "better": ""}]):
            turns = [*dialogue["turns"], {"speaker": "system", "text": row["result"]["text"]}]
            if not any(longer[: len(turns)] == turns for longer in kept):
                kept.append(turns)
                yield dialogue | {"turns": turns}


def as_responses(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield the responses that were given, as `dialore import` reads them, under the name `before`."""
    for row in rows:
        yield {"id": row["trace"], "text": row["result"]["text"], "system": _BEFORE}


def as_pairs(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield pairs for preference training: the messages, the better answer as chosen, and the one given as rejected."""
    for row in rows:
        if row["better"] and not row["good"]:
            result = row["result"]
            told = "\n".join([*result["persona"], *result["instructions"]])
            system = [{"role": "system", "content": told}] if told else []
            chosen, rejected = ([{"role": "assistant", "content": it}] for it in (row["better"], result["text"]))
            yield {"prompt": [*system, *result["messages"]], "chosen": chosen, "rejected": rejected}


def write_lines(path: Path, entries: Iterable[Mapping[str, Any]]) -> int:
    """Write entries as JSONL, whole or not at all; gives how many there are."""
    lines = [json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries]
    write_whole(path, lines, private=True)
    return len(lines)


async def replay(
    rows: Sequence[Row],
    settings: Settings,
    folder: Path,
    connect: Connect = open_model,
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Answer dialogues anew, into a run that has the former responses beside; what is answered already is kept."""
    dialogues, before = folder.with_name(f"{folder.name}.jsonl"), folder.with_name(f"{folder.name}.before.jsonl")
    write_lines(dialogues, as_dialogues(rows))
    write_lines(before, as_responses(rows))
    dataset = {"name": "jsonl", "path": str(dialogues)}
    config = config_of(settings, settings.method, settings.knowledge, name=folder.name, dataset=dataset)
    await run_experiment(config, folder, connect, on_progress=on_progress)
    import_responses(folder, [(_BEFORE, before)], None)
