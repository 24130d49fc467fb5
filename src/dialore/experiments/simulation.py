"""Conversations of a method with a simulated user: a model that plays a person who wants to know something."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import ValidationError

from dialore.datasets import WholeDialogue, data_set, gold_text
from dialore.datasets.files import json_entries
from dialore.datasets.handbook import item_of
from dialore.datasets.plain import Jsonl
from dialore.dialogue import Dialogue, Utterance, conversation_of, dialogue_from
from dialore.errors import BudgetError, InputError, UnknownNameError, describe
from dialore.evaluation.conversations import METRICS, Standing
from dialore.experiments.config import DatasetConfig, RunConfig
from dialore.experiments.run import Progress, facts_of, load_dialogues, open_systems
from dialore.experiments.store import PROMPTS, Job, RunStore, System
from dialore.llm.thoughts import strip_thoughts
from dialore.methods.base import Method
from dialore.methods.cleaning import FAULTS
from dialore.parallel import bounded_map
from dialore.response import Response
from dialore.session import Connect, Session, open_model
from dialore.settings import SourceSettings
from dialore.text import LANGUAGES, asks, detect_language, words

if TYPE_CHECKING:
    from dialore.agent import Agent
    from dialore.methods.stages import StageContext

PATIENCE = {"patient": 6, "doubtful": 5, "brisk": 3}
"""The number of answers that a user of each temper takes."""
_PROMPT = "user/turn"
_GREETING = {"en": "Hello! How can I help you?", "zh": "您好，有什么可以帮您？"}
"""The message that a user's first turn answers; it is no part of the conversation."""
_NO_ANSWER = {"en": "Sorry, I have no answer to that.", "zh": "抱歉，这个我答不上来。"}
"""The reply that a user gets where the model's answer was none, twice: an echo, or a script."""
_STOP = re.compile(r"\b(?:DONE|LEAVE)\b")
_AS_SERVICE = re.compile(
    r"\b(?:how (?:can|may) i (?:help|assist)|i (?:can|will) (?:help|assist) you)\b"
    r"|\b(?:can|may) i (?:help|assist) you|\b(?:happy|glad|here) to (?:help|assist)\b|feel free to ask"
    r"|\bsorry, but i (?:(?:don't|do not) have (?:any |enough )?(?:information|details)"
    r"|(?:can't|cannot) (?:assist|help|provide|answer))\b"
    r"|\bprovide (?:me with )?more (?:details|information|context)"
    r"|有什么(?:可以|能)帮|为您服务|抱歉，我(?:没有(?:足够|相关|这方面)|无法|不能(?:提供|回答|帮))|请(?:您)?提供更多|随时(?:问我|告诉我)",
    re.IGNORECASE,
)
"""Phrases of the side that answers: where the user's model says one, it speaks for the wrong side."""
_OTHER_SIDE = "the simulated user speaks for the other side"
_CORRECTION = re.compile(
    r"\b(?:no,|not what i|i meant|that(?:'s| is)(?: not|n't) |i (?:already|just) (?:said|told|asked)|wrong|actually,"
    r"|you (?:didn't|did not)|are you sure)|不是(?:这|问)|我(?:是说|的意思|问的是)|不对|你没|答非所问|说过了|确定吗",
    re.IGNORECASE,
)
_FIRST_WORDS = 50  # words of a user that the share of different ones is taken of: it falls with length


def goals_of(config: RunConfig) -> list[Dialogue]:
    """Return a dialogue with its `Standing` for each goal: the handbook's answerable questions, else every dialogue.

    A dialogue says its user's `goal`, `about`, `temper`, `answer` and `wrong` by keys of these names; the goal is the
    user's turns where it does not. Raises InputError where there is none, or a temper is unknown.
    """
    dialogues = list(load_dialogues(config.dataset.model_copy(update={"limit": None})))
    dialogues = [dialogue for dialogue in dialogues if (item := item_of(dialogue)) is None or item.answer]
    if not dialogues:
        raise InputError(f"no dialogue in {config.dataset.path} has a goal", hint="see docs/simulate.md")
    limit = min(config.dataset.limit or len(dialogues), len(dialogues))
    chosen = random.Random(config.dataset.seed).sample(range(len(dialogues)), limit)  # noqa: S311 - a sample
    goals = []
    for number, position in enumerate(sorted(chosen)):
        dialogue = dialogues[position]
        item, tempers = item_of(dialogue), config.user.tempers
        own = dialogue.extra if item is None else item.model_dump(include={"answer", "wrong"})
        own = {name: own[name] for name in own.keys() & {"goal", "about", "temper", "answer", "wrong"}}
        defaults = {"goal": _words_of(dialogue), "temper": tempers[number % len(tempers)]}
        try:
            standing = Standing.model_validate(defaults | own)
        except ValidationError as error:
            location = _location_of(dialogue.id, config.dataset.name, config.dataset.path)
            raise InputError(f"{location}: {describe(error)}", hint="see docs/simulate.md") from error
        if standing.temper not in PATIENCE:
            location = _location_of(dialogue.id, config.dataset.name, config.dataset.path)
            raise UnknownNameError(f"temper in {location}", standing.temper, PATIENCE)
        extra = {name: value for name, value in dialogue.extra.items() if name not in {"handbook", "answerability"}}
        extra["conversation"] = standing.model_dump(mode="json")
        goals.append(dialogue.model_copy(update={"extra": extra, "reference": None, "knowledge": ()}))
    return goals


def _location_of(identifier: str, dataset: str, path: Path) -> str:
    """Return the file and the id of a dialogue, with its line if the file holds dialogues in our own form."""
    location = str(path)
    if isinstance(data_set(dataset), Jsonl):
        for place, data in json_entries(path, Jsonl.form):
            if dialogue_from(data, place=place.where).id == conversation_of(identifier):
                location = place.where
    return f"{location} ({identifier})"


@dataclass(frozen=True)
class _SimulatedUser(Method):
    """A person who wants something, as a method: it answers the responder's last turn."""

    name: ClassVar[str] = "user"
    paper = summary = calls = ""
    standing: Standing

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Write the person's next turn, once more where it speaks for the other side; failed where it does so again."""
        told: dict[str, Any] = self.standing.model_dump(include={"goal", "about", "temper"})
        text = await stage.text(_PROMPT, cites=(), again=False, **told)
        if _AS_SERVICE.search(text):
            text = await stage.text(_PROMPT, cites=(), suffix="again", again=True, **told)
        if _AS_SERVICE.search(text):
            return Response(status="failed", text=text, error=_OTHER_SIDE)
        return Response(text=text)


async def run_simulation(
    config: RunConfig,
    folder: Path,
    connect: Connect = open_model,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Hold every conversation of a run that is not finished yet, each turn kept at once; gives how the run ended.

    A conversation ends where the goal is reached, the user knows or leaves, or their patience ends; see `Standing`. The
    progress counts conversations.
    """
    if len(config.systems) * len(config.models) * config.repetitions > 1 or config.batch:
        raise InputError("a simulation is of one method and one model", hint="run each into a folder of its own")
    config = config.model_copy(update={"metrics": config.metrics or METRICS})
    goals = goals_of(config)
    model, prompts = config.models[0], SourceSettings(prompts=config.sources.prompts)
    asked = {"model": config.user.model or model.model, "base_url": config.user.base_url or model.base_url}
    with RunStore.resumed(folder) as store:
        async with open_systems(config, connect) as opened, Session(prompts, connect=connect) as session:
            users = session.models(model.model_copy(update={**asked, "stages": {}}))
            if users.main is None:
                raise InputError("a simulated user is a language model", hint="set model.base_url and user.model")
            users = users.with_budget(opened.budget, config.price(model))
            facts = facts_of(config, opened) | {"goals": [goal.model_dump(mode="json") for goal in goals]}
            for language in LANGUAGES:
                facts[PROMPTS][f"{_PROMPT}.{language}"] = opened.prompts.get(_PROMPT, language).reference
            if store.facts().get("goals", facts["goals"]) != facts["goals"]:
                raise InputError(f"the run in {folder} has other goals", hint="name another folder")
            before = [store.dialogue(position) for position in range(store.size)]
            number = store.set_up(facts, opened.systems, before)[0]
            ended = {conversation_of(dialogue.id) for dialogue in before if Standing.of(dialogue).ended}
            progress = Progress(total=len(goals), before=len(ended))

            async def hold(goal: Dialogue) -> None:
                user = session.agent(_SimulatedUser(Standing.of(goal)), users)
                try:
                    failure = await _hold(goal, store, number, opened.agents[0, 0], user, config.user.turns, progress)
                except BudgetError as error:
                    progress.stopped = str(error)
                    return
                progress.ok, progress.failed = progress.ok + (not failure), progress.failed + bool(failure)
                progress.failures += [f"{goal.id}: {failure}"] if failure else []
                on_progress(progress)

            await bounded_map([goal for goal in goals if goal.id not in ended], hold, limit=config.concurrency)
        last = {conversation_of(dialogue.id): dialogue for dialogue in map(store.dialogue, range(store.size))}
        standings = [Standing.of(dialogue) for dialogue in last.values()]
        summary: dict[str, object] = {"ended": Counter(standing.ended for standing in standings)}
        summary["scripted"] = sum(standing.scripted for standing in standings)
        if config.user.real and last:
            own = {goal.id: _words_of(goal) for goal in goals}
            written = []
            for name, dialogue in last.items():
                turns = tuple(turn for turn in dialogue.turns if turn.text != own[name])
                if any(turn.speaker == "user" for turn in turns):
                    written.append(dialogue.model_copy(update={"turns": turns}))
            summary["realism"] = compare_users(written, _real_dialogues(config.user.real))
        store.keep(summary)
    return progress


async def _hold(
    goal: Dialogue, store: RunStore, number: int, agent: Agent, user: Agent, turns: int, progress: Progress
) -> str:
    """Hold one conversation to its end, after what is kept of it; gives what failed, else nothing.

    An answer that is none fails its response, not the conversation: the user is told so, and goes on or leaves. Where
    the user's model fails, the goal's own words are what the user says; where they were said just before, they leave.
    """
    done, positions = store.done(), {name: position for position, name in enumerate(store.dialogue_ids())}
    standing, talk, dialogue = Standing.of(goal), tuple[Utterance, ...](), goal
    sides = {"user": "system", "system": "user"}
    while True:
        name = f"{goal.id}@{standing.turn + 1}"
        if name in positions:
            position = positions[name]
            dialogue = store.dialogue(position)
        else:
            seen = [Utterance(speaker=sides[turn.speaker], text=turn.text) for turn in talk]
            seen.insert(0, Utterance(speaker="user", text=_GREETING[goal.language]))
            turn = await user.respond(goal.model_copy(update={"id": name, "turns": tuple(seen)}))
            progress.spend(turn)
            if failure := _failure(turn):
                return failure
            stop = _STOP.search(turn.text) if turn.status == "ok" else None
            text = turn.text if turn.status == "ok" and not stop else ""
            scripted = _words_of(goal)
            if talk and (stop or (not text and talk[-2].text == scripted)):
                _end(store, dialogue, "done" if stop and stop[0] == "DONE" else "left")
                return ""
            utterance = Utterance(speaker="user", text=text or scripted)
            now = {"turn": standing.turn + 1, "scripted": standing.scripted or not text}
            extra = {**goal.extra, "conversation": standing.model_dump(mode="json") | now}
            dialogue = goal.model_copy(update={"id": name, "turns": (*talk, utterance), "extra": extra})
            position = store.put_dialogue(dialogue)
        job = Job(position, number)
        if job in done or f"{goal.id}@{standing.turn + 2}" in positions:
            response = store.response(job)
        else:
            response = await agent.respond(dialogue)
            progress.spend(response)
            store.add(job, response)
        if failure := _failure(response):
            return failure
        text = response.text if response.status == "ok" else _NO_ANSWER[goal.language]
        standing = Standing.of(dialogue)
        if standing.reached(dialogue, text) or standing.turn >= min(turns, PATIENCE[standing.temper]):
            _end(store, dialogue, "goal" if standing.reached(dialogue, text) else "patience")
            return ""
        talk = (*dialogue.turns, Utterance(speaker="system", text=text))
        standing.known = tuple(dict.fromkeys([*standing.known, *(piece.text for piece in response.knowledge)]))
        standing.tokens += response.usage.prompt_tokens + response.usage.completion_tokens


def _failure(response: Response) -> str:
    """Return what failed, so that it is to be asked for again; empty for an answer, also for one that is none."""
    error = "" if response.status == "ok" else response.error or "the response failed"
    return "" if any(fault in error for fault in (*FAULTS, _OTHER_SIDE)) else error


def _words_of(goal: Dialogue) -> str:
    """Return the goal's own words: its user's turns."""
    return " ".join(turn.text for turn in goal.turns if turn.speaker == goal.last.speaker)


def _end(store: RunStore, dialogue: Dialogue, how: str) -> None:
    """Keep with the last turn how its conversation ended."""
    standing = {**dialogue.extra["conversation"], "ended": how}
    store.put_dialogue(dialogue.model_copy(update={"extra": {**dialogue.extra, "conversation": standing}}))


class ImportedConversations(NamedTuple):
    """Counts of imported responses, and of those from which thoughts were removed."""

    responses: int
    with_thoughts: int


def import_conversations(folder: Path, files: Sequence[tuple[str, Path]]) -> ImportedConversations:
    """Read whole conversations, such as a service's log, into a new run.

    Thoughts of the answering side are removed, from the turns that later responses answer as well. The files are
    dialogues in Dialore's own form, each with the name of its system; that of the file if it is empty. Each turn of the
    answering side is a response. The `knowledge` of a dialogue was known at every turn.
    """
    dialogues: list[Dialogue] = []
    answers: list[tuple[int, Response]] = []
    with_thoughts = 0
    systems = [System(n, name or path.stem, name or path.stem, {}, "elsewhere") for n, (name, path) in enumerate(files)]
    for system, (_, path) in zip(systems, files, strict=True):
        for whole in data_set("jsonl").read(path):
            asker = _asker(whole)
            places = [number for number, turn in enumerate(whole.turns) if number and turn.speaker != asker]
            turns = [turn if turn.speaker == asker else _without_thoughts(turn) for turn in whole.turns]
            with_thoughts += sum(turns[number] is not whole.turns[number] for number in places)
            known = tuple(gold_text(piece) for piece in whole.knowledge)
            goal = {name: whole.extra[name] for name in whole.extra.keys() & {"goal", "answer", "wrong"}}
            for count, number in enumerate(places, start=1):
                ended = "log" if number == places[-1] else ""
                try:
                    standing = Standing.model_validate({**goal, "turn": count, "known": known, "ended": ended})
                except ValidationError as error:
                    location = _location_of(whole.id, "jsonl", path)
                    raise InputError(f"{location}: {describe(error)}", hint="see docs/simulate.md") from error
                extra = {**whole.extra, "conversation": standing.model_dump(mode="json")}
                fields = {"id": f"{whole.id}@{count}", "language": whole.language, "persona": whole.persona}
                dialogues.append(Dialogue(turns=tuple(turns[:number]), extra=extra, **fields))
                response = Response(id=dialogues[-1].id, text=turns[number].text, method=system.title)
                answers.append((system.number, response))
    if not answers:
        raise InputError("no conversation has a turn that answers another", hint='turns want a "speaker" each')
    with RunStore.resumed(folder) as store:
        if store.size:
            raise InputError(f"{folder} holds a run", hint="name another folder")
        dataset = DatasetConfig(name="jsonl", path=files[0][1]).model_dump(mode="json")
        facts = {"name": folder.name, "config": {"dataset": dataset, "metrics": METRICS}}
        store.set_up(facts, systems, dialogues)
        for position, (number, response) in enumerate(answers):
            store.add(Job(position, number), response)
    return ImportedConversations(len(answers), with_thoughts)


def _without_thoughts(turn: Utterance) -> Utterance:
    """Return the turn without thoughts; the same object if it has none."""
    text = strip_thoughts(turn.text).strip()
    return turn if text == turn.text.strip() else turn.model_copy(update={"text": text})


def _asker(dialogue: Dialogue) -> str:
    """Return the side that asks: `user`, else who gives none of the data set's answers."""
    speakers = [turn.speaker for turn in dialogue.turns]
    given = (dialogue.answers if isinstance(dialogue, WholeDialogue) else None) or ()
    answering = {speakers[answer.turn] for answer in given if answer.turn < len(speakers)}
    return next((name for name in ["user", *speakers] if name in speakers and name not in answering), speakers[0])


# --- how like people they are


def _real_dialogues(spec: str) -> Iterable[Dialogue]:
    """Return real dialogues: of a file in Dialore's own form, else of a data set, `NAME` or `NAME:SPLIT`."""
    name, _, split = spec.partition(":")
    fields = {"name": "jsonl", "path": spec} if Path(spec).is_file() else {"name": name, "split": split}
    config = DatasetConfig.model_validate(fields)
    return data_set(config.name).read(config.path)


def compare_users(simulated: Iterable[Dialogue], real: Iterable[Dialogue]) -> list[dict[str, Any]]:
    """Return what tells simulated users from real ones, a row a feature, with both means and how far apart they are.

    `difference` is of the means, in standard deviations (Cohen's d); `distance` is the largest between the two
    cumulative distributions (Kolmogorov and Smirnov's), from 0, alike, to 1, never the same.
    """
    table = []
    known = _features(real)
    for name, made in _features(simulated).items():
        first, second = np.array(made), np.array(known[name])
        if not len(first) or not len(second):
            continue
        apart, spread = first.mean() - second.mean(), np.sqrt((first.var() + second.var()) / 2)
        at = np.concatenate([first, second])
        below = [np.searchsorted(np.sort(values), at, side="right") / len(values) for values in (first, second)]
        row = {"feature": name, "simulated": float(first.mean()), "real": float(second.mean())}
        row["difference"] = float(apart / spread) if spread else None
        table.append(row | {"distance": float(abs(below[0] - below[1]).max()), "n": [len(first), len(second)]})
    return table


def _features(dialogues: Iterable[Dialogue]) -> Mapping[str, list[float]]:
    """Return the features' values, of each conversation or of each turn."""
    talks = [[turn.text for turn in dialogue.turns if turn.speaker == _asker(dialogue)] for dialogue in dialogues]
    turns = [text for talk in talks for text in talk]
    spoken = [[word for text in talk for word in words(text, detect_language(text))][:_FIRST_WORDS] for talk in talks]
    return {
        "turns of the user": [float(len(talk)) for talk in talks],
        "words a turn": [float(len(words(text, detect_language(text)))) for text in turns],
        "turns that ask": [float(asks(text)) for text in turns],
        "later turns that correct": [float(bool(_CORRECTION.search(text))) for talk in talks for text in talk[1:]],
        "different of 50 words": [len(set(tokens)) / len(tokens) for tokens in spoken if tokens],
    }
