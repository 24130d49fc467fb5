"""Rows to train a small model on: what a prompted model, people, or hard matching did at the stages of a method."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.agent import Agent
from dialore.errors import InputError, UnknownNameError
from dialore.experiments.store import FILE, RunStore
from dialore.experiments.systems import load_dialogues, open_systems
from dialore.files import load_json
from dialore.llm.distilled import Row, lines_of
from dialore.llm.fake import FakeModel
from dialore.llm.model import Completion, LanguageModel, OnToken, Request
from dialore.llm.recording import Recorded
from dialore.llm.structured import candidates
from dialore.methods.dcrag import Dcrag, DemandsOutput, SelectedFacts
from dialore.methods.edit import read_questions
from dialore.methods.registry import method_class, method_prompts
from dialore.methods.scg_qp import SearchDecision
from dialore.methods.stage_runner import LLMRunner, StageCall, T, Text
from dialore.prompts.library import PromptLibrary
from dialore.response import Demands, Grounding, Response, StageTrace
from dialore.retrieval.graph.matching import concept_key
from dialore.text import content_lemmas

if TYPE_CHECKING:
    from pydantic import BaseModel

    from dialore.dialogue import Dialogue
    from dialore.experiments.config import RunConfig
    from dialore.knowledge import Knowledge
    from dialore.sources.graph import Graph

_WRITING = {"response-generation", "draft", "write", "check"}  # stages that write the response, or come after it
_MOST, _AROUND = 12, 300
"""Demands of a kind at most, as `dcrag` takes them, and facts of a concept that are looked at, the heaviest."""
_UNFIT = re.compile(r"\b(?:your?|favou?rite|opinions?|he|she|him|her|his)\b|[你他她]", re.IGNORECASE)
_SPLITS = {"dev": 435, "test": 417, "train": 5878}
"""The sizes of COQ's splits (EDIT, Table 1), in whose proportions contexts are split."""


def stages_of(what: str) -> set[str]:
    """Return the stages that are meant: one, `METHOD/STAGE`, or all of a method before its response."""
    method, _, stage = what.partition("/")
    known = set(method_prompts(method_class(method), PromptLibrary()))
    named = {what} if stage else {stage_name for stage_name in known if stage_name.rpartition("/")[2] not in _WRITING}
    if not named or named - known:
        raise UnknownNameError(f"stage of {method} before the response", what, known)
    return named


# --- what a model did


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
                yield from _recorded_answers(Recorded.model_validate_json(line))
        except (ValueError, TypeError) as error:
            message = f"{path}, line {number}: neither a response with its trace nor a recorded call"
            raise InputError(message, hint="name a run's folder, responses in JSONL, or a recording") from error


def rows_of(response: Grounding) -> Iterator[Row]:
    """Yield the answers in a response's trace, those left out that a fallback stood in for."""
    for traced in response.trace:
        if not traced.messages or not traced.prompt or traced.outcome not in {"ok", "repaired"}:
            continue
        is_text = "text" in traced.output
        output = traced.completion.strip() if is_text else json.dumps(traced.output, ensure_ascii=False)
        messages = [message["content"] for message in traced.messages]
        yield Row.of(traced.prompt, messages, output, response.id, traced.model)


def _recorded_answers(call: Recorded) -> Iterator[Row]:
    """Yield the answer of a recorded call; none of a repair, or where an object was wanted and it is none."""
    output = call.text.strip()
    if call.output_schema is not None:
        value_read = next((value for value in candidates(output) if isinstance(value, dict)), None)
        output = json.dumps(value_read, ensure_ascii=False) if value_read is not None else ""
    if output and call.made_with and not call.label.endswith("/repair"):
        messages = [message.content for message in call.messages]
        yield Row.of(call.made_with, messages, output, call.label.partition("/")[0], call.made_by or call.model)


# --- what people did, and what hard matching finds


class _Said:
    """A language model that returns one answer, under the name of the model that gave it."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self._text = name, text

    async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
        return Completion(text=self._text, model=self.name)

    async def close(self) -> None:
        """Nothing to close."""


async def people(config: RunConfig, stages: set[str]) -> list[Row]:
    """Return what people did in a data set with searches: their queries, and whether they searched at all."""
    known = ("search-query/query-generation", "scg-qp/search-decision")
    if others := stages.difference(known):
        raise UnknownNameError("stage that people did", min(others), known)
    rows: list[Row] = []
    prompts = PromptLibrary(config.sources.prompts)
    for dialogue in load_dialogues(config.dataset):
        query = dialogue.extra.get("query")
        decision = SearchDecision(kind="passive" if query else "none")
        turns = [turn.text for turn in dialogue.turns]
        for stage, answer in zip(known, (query, decision.model_dump_json()), strict=True):
            if stage in stages and answer:
                shape = Text if stage == known[0] else SearchDecision
                step = StageTrace(stage=stage)
                call = StageCall(stage, dialogue, shape, {"turns": turns}, "")
                await LLMRunner(_Said("people", str(answer)), prompts).answer(call, step)
                step.output = {"text": answer} if shape is Text else decision.model_dump()
                rows += rows_of(Grounding(id=dialogue.id, trace=[step]))
    return rows


async def match_stages(config: RunConfig) -> list[Row]:
    """Return what hard matching answers at the stages of `dcrag`, where it finds demands; raise as `open_systems`."""
    rows: list[Row] = []
    async with open_systems(config, lambda *_: FakeModel()) as opened:
        method = opened.agents[0, 0].method
        if not isinstance(method, Dcrag):
            raise InputError("hard matching answers the stages of dcrag", hint="let a model answer")
        matching = Matching(getattr(method.graph, "graphs", [method.graph])[0], opened.prompts)
        for dialogue in load_dialogues(config.dataset):
            if matching.demands(dialogue).queries:
                rows += rows_of(await Agent(method, matching).ground(dialogue))
    return rows


class Matching:
    """Answers the stages of `dcrag` from the real response, for where there is no capable model.

    A demand is a concept that a fact of the graph joins to one of the response: said in the history, an explicit query;
    between two such concepts, an implicit one; of the response, a topic, maintained where the history has it, else
    extended. A fact is selected whose one end the history says and whose other the response.
    """

    name = "hard matching"
    is_slow = False

    def __init__(self, graph: Graph, prompts: PromptLibrary) -> None:
        self._graph, self._prompts = graph, prompts

    async def answer(self, call: StageCall[T], step: StageTrace, on_token: OnToken | None = None) -> T | None:
        """See `StageRunner`."""
        value: BaseModel
        variables: Mapping[str, Any] = call.variables
        if issubclass(call.output, DemandsOutput):
            value = call.output.of(self.demands(call.dialogue))
        else:
            value = SelectedFacts(selected=self._select(variables["facts"], call.dialogue))
        model: LanguageModel = _Said(self.name, value.model_dump_json())
        return await LLMRunner(model, self._prompts).answer(call, step)

    def _said(self, texts: Sequence[str]) -> dict[str, str]:
        """Return the concepts that texts mention, by what they are known by."""
        return {concept_key(link.name): link.name for link in self._graph.mentions(texts)}

    def _around(self, name: str) -> dict[str, str]:
        """Return the concepts that facts join to one, by what they are known by."""
        facts = self._graph.facts_of(name)[:_AROUND]
        return {concept_key(end): end for fact in facts for end in (fact.head, fact.tail) if end != name}

    def demands(self, dialogue: Dialogue) -> Demands:
        """Return the demands that the response shows."""
        before, response = self._said(dialogue.texts), self._said([dialogue.reference or ""])
        around = {key: self._around(before[key]) for key in before}
        met = {key: [other for other in around[key] if other in response and other != key] for key in before}
        topics = dict.fromkeys(other for others in met.values() for other in others)
        ends = [self._around(response[topic]) for topic in topics]
        explicit = [key for key in before if met[key]]
        reached = {key for end in ends for key in end}
        between = {key: name for entity in explicit for key, name in around[entity].items() if key in reached}
        return Demands(
            explicit=[before[key] for key in explicit][:_MOST],
            implicit=[name for key, name in between.items() if key not in before | response][:_MOST],
            maintained=[response[key] for key in topics if key in before][:_MOST],
            extended=[response[key] for key in topics if key not in before][:_MOST],
        )

    def _select(self, facts: Sequence[Knowledge], dialogue: Dialogue) -> list[int]:
        """Return the numbers of the facts between history and response."""
        before, response = self._said(dialogue.texts), self._said([dialogue.reference or ""])
        selected = []
        for number, piece in enumerate(facts, 1):
            head, tail = concept_key(piece.fact.head), concept_key(piece.fact.tail)
            if (head in before and tail in response) or (tail in before and head in response):
                selected.append(number)
        return selected


# --- COQ (EDIT, Section 3.2.1)


def contexts_of(run: Path) -> dict[str, Dialogue]:
    """Return the dialogues of a run by their ids; raise InputError where it is none."""
    with RunStore.open(run if run.name != FILE else run.parent) as store:
        return {dialogue.id: dialogue for dialogue in map(store.dialogue, range(store.size))}


def coq_entries(rows: Iterable[Row], contexts: Mapping[str, Dialogue]) -> Iterator[dict[str, object]]:
    """Contexts with their questions, those left out that EDIT's annotators would drop as far as words can tell.

    A question goes that shares no content word with its context, is about taste or opinion, or names a person of it by
    a pronoun; a context without a question left goes, too. All of Table 6's questions stay.
    """
    for row in rows:
        context = contexts[row.dialogue]
        known = set(content_lemmas(" ".join(context.texts), context.language))
        asked = [question for question in read_questions(row.output) or [] if not _UNFIT.search(question)]
        fit = [question for question in asked if known & set(content_lemmas(question, context.language))]
        if fit:
            yield {"context": "\n".join(context.texts), "questions": fit}


def coq_splits(entries: Iterable[dict[str, object]]) -> dict[str, list[dict[str, object]]]:
    """Entries in splits of the published proportions, drawn by contexts; raises InputError of fewer than three."""
    drawn = sorted(entries, key=lambda entry: hashlib.blake2b(str(entry["context"]).encode()).digest())
    if len(drawn) < len(_SPLITS):
        raise InputError(f"{len(drawn)} contexts have a fit question: too few to split", hint="ask about more contexts")
    splits, whole = {}, len(drawn)
    for name, size in _SPLITS.items():
        count = max(1, round(whole * size / sum(_SPLITS.values()))) if name != "train" else len(drawn)
        splits[name], drawn = drawn[:count], drawn[count:]
    return splits
