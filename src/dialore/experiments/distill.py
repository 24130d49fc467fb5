"""Rows to train a small model on: what a model answered at the stages of a method, in a run or a recording."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.errors import InputError, UnknownNameError
from dialore.experiments.store import FILE, RunStore
from dialore.files import load_json
from dialore.llm.distilled import Row, lines_of
from dialore.llm.loose_json import candidates
from dialore.llm.recording import Recorded
from dialore.methods.edit import read_questions
from dialore.methods.registry import method_class, method_prompts
from dialore.prompts.library import PromptLibrary
from dialore.response import Grounding, Response
from dialore.text import content_lemmas

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue

_RESPONSE_STAGES = {"response-generation", "draft", "write", "check"}
"""Stages that write the response, or follow it."""
_UNFIT = re.compile(r"\b(?:your?|favou?rite|opinions?|he|she|him|her|his)\b|[你他她]", re.IGNORECASE)
_SPLITS = {"dev": 435, "test": 417, "train": 5878}
"""The sizes of COQ's splits (EDIT, Table 1), in whose proportions contexts are split."""


def stages_of(name: str) -> set[str]:
    """Return the stages of a name: the stage of `METHOD/STAGE`, or all stages of `METHOD` before its response."""
    method, _, stage = name.partition("/")
    known = set(method_prompts(method_class(method), PromptLibrary()))
    stages = {name} if stage else {other for other in known if other.rpartition("/")[2] not in _RESPONSE_STAGES}
    if not stages or stages - known:
        raise UnknownNameError(f"stage of {method} before the response", name, known)
    return stages


def read_answers(path: Path) -> Iterator[Row]:
    """Yield the rows of a finished run (folder or `run.sqlite`), of responses with traces, or of a recording."""
    if path.is_dir() or path.name == FILE:
        with RunStore.open(path if path.is_dir() else path.parent) as store:
            for _, _, response in store.responses():
                yield from rows_of(response)
        return
    for number, line in enumerate(lines_of(path), 1):
        try:
            if "trace" in load_json(line):
                yield from rows_of(Response.model_validate_json(line))
            else:
                yield from _rows_of_call(Recorded.model_validate_json(line))
        except (ValueError, TypeError) as error:
            message = f"{path}, line {number}: neither a response with its trace nor a recorded call"
            raise InputError(message, hint="name a run's folder, responses in JSONL, or a recording") from error


def rows_of(response: Grounding) -> Iterator[Row]:
    """Yield the answers in a response's trace, except those that a fallback replaced."""
    for step in response.trace:
        if not step.messages or not step.prompt or step.outcome not in {"ok", "repaired"}:
            continue
        is_text = "text" in step.output
        output = step.completion.strip() if is_text else json.dumps(step.output, ensure_ascii=False)
        messages = [message["content"] for message in step.messages]
        yield Row.of(step.prompt, messages, output, response.id, step.model)


def _rows_of_call(call: Recorded) -> Iterator[Row]:
    """Yield the answer of a recorded call; nothing for a repair, or if an object was requested and it is none."""
    if not call.made_with or call.label.endswith("/repair"):
        return
    output = call.text.strip()
    if call.output_schema is not None:
        values = [value for value in candidates(output) if isinstance(value, dict)]
        output = json.dumps(values[0], ensure_ascii=False) if values else ""
    if output:
        messages = [message.content for message in call.messages]
        yield Row.of(call.made_with, messages, output, call.label.partition("/")[0], call.made_by or call.model)


# --- COQ (EDIT, Section 3.2.1)


def contexts_of(run: Path) -> dict[str, Dialogue]:
    """Return the dialogues of a run by their IDs; raise InputError if it is no run."""
    with RunStore.open(run if run.name != FILE else run.parent) as store:
        return {dialogue.id: dialogue for dialogue in map(store.dialogue, range(store.size))}


def coq_entries(rows: Iterable[Row], contexts: Mapping[str, Dialogue]) -> Iterator[dict[str, object]]:
    """Yield contexts with their questions, without those that EDIT's annotators would drop as far as words can tell.

    A question is dropped if it shares no content word with its context, is about taste or opinion, or refers to a
    person by a pronoun. A context without questions is dropped as well. All questions of Table 6 are kept.
    """
    for row in rows:
        context = contexts[row.dialogue]
        known = set(content_lemmas(" ".join(context.texts), context.language))
        proper = [question for question in read_questions(row.output) or [] if not _UNFIT.search(question)]
        questions = [question for question in proper if known & set(content_lemmas(question, context.language))]
        if questions:
            yield {"context": "\n".join(context.texts), "questions": questions}


def coq_splits(entries: Iterable[dict[str, object]]) -> dict[str, list[dict[str, object]]]:
    """Return entries in splits of the published proportions, drawn by context; raise InputError for fewer than 3."""
    drawn = sorted(entries, key=lambda entry: hashlib.blake2b(str(entry["context"]).encode()).digest())
    total = len(drawn)
    if total < len(_SPLITS):
        raise InputError(f"{total} contexts have a fit question: too few to split", hint="ask about more contexts")
    splits = {}
    for name, size in _SPLITS.items():
        count = len(drawn) if name == "train" else max(1, round(total * size / sum(_SPLITS.values())))
        splits[name], drawn = drawn[:count], drawn[count:]
    return splits
