"""Training data of small sequence models: rows of stages, people's queries, and COQ's questions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.datasets import data_set, split_dialogues
from dialore.errors import InputError, import_optional
from dialore.llm.distilled import read_rows, shorten_prompt
from dialore.llm.local import pretrained_arguments
from dialore.prompts.history import render_history
from dialore.training.finetune import Target
from dialore.training.trainer import SCRATCH

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue

Targets = tuple[list[Target], list[Target]]
USES = {
    "stages": "Does stages of methods, several by one model: `--set model.stages.STAGE=trained:FOLDER`.",
    "query": "Writes the search query of a dialogue: `--set model.stages.query-generation=hf:FOLDER` of "
    "`search-query`.",
    "question": "Writes open questions about a context: `--set model.stages.question-generation=hf:FOLDER` of "
    "`edit`, with `-o trained=true`.",
}
_MARKS = '{}[]":,\\\n'


def stage_targets(path: Path, *, whole: bool = False) -> tuple[Targets, dict[str, Any]]:
    """Return the targets of rows, those to train on and those held out, and what the model's card says of them.

    The lines that stand in every prompt of a task are its instruction, which the model need not read: the card has
    them, for they are left out of what it is asked, too. With `whole` it reads prompts as they were sent (SCG-QP, A.2).

    Raises:
        InputError: the file cannot be read, or holds too few dialogues to hold any out.
    """
    rows = read_rows(path)
    fixed = {
        task: find_fixed_lines([row.input for row in rows if row.task == task])
        for task in sorted({r.task for r in rows})
    }
    targets: Targets = ([], [])
    for row in rows:
        read = row.input if whole else shorten_prompt(row.task, row.input, fixed[row.task])
        made = Target.after(read, row.output, row.dialogue)
        targets[row.split == "valid"].append(made)
    counts = Counter(row.task for row in rows)
    data = {"dataset": ", ".join(sorted({row.by for row in rows})), "tasks": dict(sorted(counts.items()))}
    return _drop_trained(targets, path), {
        "fixed": fixed,
        "whole": whole,
        "data": _describe(data, len(targets[0]), path),
    }


def find_fixed_lines(inputs: Sequence[str]) -> list[str]:
    """Return the lines that every input has, in order; none where there is only one."""
    if len(set(inputs)) < 2:
        return []
    every = set.intersection(*(set(text.split("\n")) for text in inputs))
    return [line for line in dict.fromkeys(inputs[0].split("\n")) if line in every and line.strip()]


def query_targets(dialogues: Iterable[Dialogue]) -> list[Target]:
    """Return the queries that people typed, each after the turns' texts, as `search-query` shows them."""
    return [
        Target.after("\n".join(turn.text for turn in dialogue.turns), str(query), dialogue.id)
        for dialogue in dialogues
        if (query := dialogue.extra.get("query"))
    ]


def question_targets(dialogues: Iterable[Dialogue]) -> list[Target]:
    """COQ's questions, each list after its context (EDIT, Section 3.2.2), as `edit` shows it with `trained`."""
    return [
        Target.after(render_history(dialogue), dialogue.reference, dialogue.id)
        for dialogue in dialogues
        if dialogue.reference
    ]


def data_targets(what: str, name: str, files: Sequence[Path]) -> tuple[list[Target], list[Target], dict[str, Any]]:
    """Return queries or questions of a data set's training file and held-out file, and what the card says of the first.

    Raises:
        InputError: the data set has none of the kind.
    """
    lists = []
    for path in files:
        dialogues = split_dialogues(data_set(name).read(path), cut="all")
        lists.append(query_targets(dialogues) if what == "query" else question_targets(dialogues))
        if not lists[-1]:
            needed = "wizard-of-internet" if what == "query" else "coq, or what `dialore distill --coq` writes"
            raise InputError(f"{path} has no {what} to learn", hint=f"give {needed}")
    train, held = lists
    known = {target.parts for target in train}
    return (
        train,
        [target for target in held if target.parts not in known],
        _describe({"dataset": name}, len(train), files[0]),
    )


def lacking(base: str, targets: Sequence[Target]) -> list[str]:
    """Return the marks of JSON, and the line break, that a base model's tokenizer cannot write (T5's has no braces)."""
    if base == SCRATCH:
        return []
    transformers = import_optional("transformers", "training", "finetune")
    tokenizer = transformers.AutoTokenizer.from_pretrained(**pretrained_arguments(base))
    used = {mark for target in targets for text, _ in target.parts for mark in _MARKS if mark in text}
    return [mark for mark in _MARKS if mark in used and _round_trip(tokenizer, f"a{mark}a") != f"a{mark}a"]


def _round_trip(tokenizer: Any, text: str) -> str:  # noqa: ANN401 - transformers ships no types
    decoded: str = tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"], skip_special_tokens=True)
    return decoded.replace(" ", "")


def _drop_trained(targets: Targets, path: Path) -> Targets:
    """Return the targets without held-out ones that are trained on word for word (short, common turns)."""
    known = {target.parts for target in targets[0]}
    held = [target for target in targets[1] if target.parts not in known]
    if not held:
        raise InputError(f"{path}: no dialogue is held out", hint="one in ten is: gather some dozens of dialogues")
    return targets[0], held


def _describe(data: dict[str, Any], count: int, path: Path) -> dict[str, Any]:
    return {**data, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "responses": count}
