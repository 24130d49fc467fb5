"""Conversations of a method with a simulated user: a model that plays a person who wants to know something."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from dialore.datasets import WholeDialogue, data_set
from dialore.datasets.handbook import item_of
from dialore.dialogue import Dialogue, Utterance, as_several
from dialore.errors import BudgetError, InputError
from dialore.evaluation.base import conversation_of
from dialore.evaluation.conversations import BROKEN, DONE, METRICS, Standing
from dialore.experiments.config import DatasetConfig, RunConfig
from dialore.experiments.run import Progress, facts_of, load_dialogues, open_systems
from dialore.experiments.store import PROMPTS, Job, RunStore, System
from dialore.llm.model import Budgeted
from dialore.methods.base import Method
from dialore.parallel import bounded_map
from dialore.response import Response
from dialore.session import Connect, Session, connect_model
from dialore.settings import SourceSettings
from dialore.text import LANGUAGES, Language

if TYPE_CHECKING:
    from dialore.agent import Agent
    from dialore.experiments.run import Opened
    from dialore.methods.stages import StageContext

PATIENCE = {"patient": 6, "doubtful": 5, "brisk": 3}
"""How many answers a user of each temper takes."""
PROMPT = "user/turn"
_GREETINGS: dict[Language, str] = {"en": "Hello! How can I help you?", "zh": "您好，有什么可以帮您？"}
"""The message that a user's first turn answers; it is no part of the conversation."""
_STOPS = re.compile(r"\b(?:DONE|LEAVE)\b")
_OFFERS = re.compile(
    r"\b(?:how (?:can|may) i (?:help|assist)|(?:can|may) i help you|(?:happy|glad|here) to (?:help|assist))\b"
    r"|有什么(?:可以|能)帮|为您服务|请问您需要",
    re.IGNORECASE,
)


class ConversationGoal(BaseModel):
    """What a simulated user wants, and who they are.

    Attributes:
        id: the name of its conversation.
        text: what they want to know, in words.
        about: who they are.
        opening: what they say where their model fails at once.
        answer: facts that reach the goal, and `wrong` forms, as the handbook test has them; see `Standing`.
        dialogue: fields of the conversation's dialogues: the responder's persona, topic, and the rest.
    """

    id: str
    language: Language
    text: str
    about: str = ""
    temper: str
    opening: str
    answer: list[list[str]] = []
    wrong: list[list[str]] = []
    dialogue: dict[str, Any] = {}


def goals_of(config: RunConfig) -> list[ConversationGoal]:
    """Return the goals of a run's data set: of the handbook test its answerable questions, else every dialogue's.

    A dialogue says its user's `goal`, `about`, `temper`, `answer` and `wrong` by keys of these names; the goal is the
    user's turns where it does not.

    Raises:
        InputError: there is none, a temper is unknown, or the data set cannot be read.
    """
    goals: list[ConversationGoal] = []
    for dialogue in load_dialogues(config.dataset.model_copy(update={"limit": None})):
        extra, item = dict(dialogue.extra), item_of(dialogue)
        if item is not None and not item.answer:
            continue
        checked = item.model_dump() if item is not None else extra
        said = [turn.text for turn in dialogue.turns if turn.speaker == dialogue.last.speaker]
        temper = extra.get("temper") or config.user.tempers[len(goals) % len(config.user.tempers)]
        if temper not in PATIENCE:
            raise InputError(f"dialogue {dialogue.id}: no temper {temper!r}", hint=f"one of {', '.join(PATIENCE)}")
        own = {"goal", "about", "temper", "answer", "wrong", "handbook", "answerability"}
        kept = {"persona": dialogue.persona, "topic": dialogue.topic, "spoken": dialogue.spoken}
        kept["extra"] = {name: value for name, value in extra.items() if name not in own}
        goals.append(
            ConversationGoal(
                id=dialogue.id,
                language=dialogue.language,
                text=str(extra.get("goal") or " ".join(said)),
                about=" ".join(map(str, as_several(extra.get("about") or []))),
                temper=temper,
                opening=said[-1],
                answer=checked.get("answer") or [],
                wrong=checked.get("wrong") or [],
                dialogue=kept,
            )
        )
    if not goals:
        raise InputError(f"no dialogue in {config.dataset.path} has a goal", hint="a goal has facts as its `answer`")
    limit = min(config.dataset.limit or len(goals), len(goals))
    chosen = sorted(random.Random(config.dataset.seed).sample(range(len(goals)), limit))  # noqa: S311 - a sample
    return [goals[place] for place in chosen]


@dataclass(frozen=True)
class SimulatedUser(Method):
    """A person who wants something, as a method: it answers the responder's last turn."""

    name: ClassVar[str] = "user"
    paper: ClassVar[str] = "none"
    summary: ClassVar[str] = "plays a person with a goal and a temper"
    calls: ClassVar[str] = "1"
    goal: ConversationGoal

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Write the person's next turn; one that speaks for the other side is written once more."""
        goal = self.goal
        told = {"goal": goal.text, "about": goal.about, "temper": goal.temper}
        for suffix in ("", "again"):
            text = await stage.text(PROMPT, cites=(), suffix=suffix, **told)
            if not _OFFERS.search(text):
                return Response(text=text)
        return Response(text=text, status="failed", error="the simulated user offers help, as the other side would")


@dataclass(slots=True)
class _Conversation:
    """A conversation under way: what was said, and what the next turn has to know of it."""

    goal: ConversationGoal
    turns: list[Utterance] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    tokens: int = 0
    count: int = 0

    def asked(self, text: str) -> Dialogue:
        """Return the dialogue that the responder is to answer after the user says this."""
        goal = self.goal
        standing = Standing(
            turn=self.count + 1, known=self.known, tokens=self.tokens, answer=goal.answer, wrong=goal.wrong
        )
        kept = dict(goal.dialogue)
        kept["extra"] = {**kept.get("extra", {}), "conversation": standing.model_dump() | {"temper": goal.temper}}
        turns = (*self.turns, Utterance(speaker="user", text=text))
        return Dialogue(id=f"{goal.id}@{self.count + 1}", language=goal.language, turns=turns, **kept)

    def heard(self, dialogue: Dialogue, response: Response) -> None:
        """Take a turn of the responder's in."""
        self.turns = [*dialogue.turns, Utterance(speaker="system", text=response.text)]
        self.known = list(dict.fromkeys([*self.known, *(" ".join(each.text.split()) for each in response.knowledge)]))
        self.tokens += response.usage.prompt_tokens + response.usage.completion_tokens
        self.count += 1

    def from_user(self) -> Dialogue:
        """Return the conversation as the user's model is shown it: the sides exchanged, after a greeting."""
        sides = {"user": "system", "system": "user"}
        greeting = Utterance(speaker="user", text=_GREETINGS[self.goal.language])
        turns = [greeting, *(Utterance(speaker=sides[turn.speaker], text=turn.text) for turn in self.turns)]
        return Dialogue(id=f"{self.goal.id}@{self.count + 1}", language=self.goal.language, turns=turns)


async def run_simulation(
    config: RunConfig,
    folder: Path,
    connect: Connect = connect_model,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Hold every conversation of a run that is not finished yet, each turn kept at once; gives how the run ended.

    A conversation ends where the goal is reached, the user says that they know or leaves, or their patience ends. The
    progress counts conversations.

    Raises:
        InputError: more than one system, no model of the user's, a folder of another run; as `open_systems` does.
        ModelError: an endpoint that refuses.
    """
    if len(config.systems) * len(config.models) * config.repetitions > 1 or config.batch:
        raise InputError("a simulation is of one method and one model", hint="run each into a folder of its own")
    config = config.model_copy(update={"metrics": config.metrics or list(METRICS)})
    goals = goals_of(config)
    with RunStore.resumed(folder) as store:
        async with open_systems(config, connect) as opened, _users(config, opened, connect) as user_of:
            facts = facts_of(config, opened)
            prompts = {f"{PROMPT}.{name}": opened.prompts.get(PROMPT, name).reference for name in LANGUAGES}
            facts[PROMPTS] |= prompts
            facts["goals"] = hashlib.sha256("\n".join(map(repr, goals)).encode()).hexdigest()[:12]
            if store.facts().get("goals", facts["goals"]) != facts["goals"]:
                raise InputError(f"the run in {folder} has other goals", hint="name another folder")
            before = [store.dialogue(position) for position in range(store.size)]
            number = store.set_up(facts, opened.systems, before)[0]
            ended = {conversation_of(one.id) for one in before if one.extra["conversation"]["ended"]}
            progress = Progress(total=len(goals), before=len(ended))

            async def hold(goal: ConversationGoal) -> None:
                if progress.stopped:
                    return
                talk = _Conversation(goal)
                try:
                    error = await _hold(talk, store, number, opened.agents[0, 0], user_of(goal), config, progress)
                except BudgetError as spent:
                    progress.stopped = str(spent)
                    return
                progress.ok += not error
                progress.failed += bool(error)
                progress.failures += [f"{goal.id}: {error}"] if error else []
                on_progress(progress)

            await bounded_map([goal for goal in goals if goal.id not in ended], hold, limit=config.concurrency)
        if config.user.real and store.size:
            table = compare_users(conversations_of(store), real_users(config.user.real))
            store.keep({"realism": table})
    return progress


@asynccontextmanager
async def _users(
    config: RunConfig, opened: Opened, connect: Connect
) -> AsyncIterator[Callable[[ConversationGoal], Agent]]:
    """Yield what makes the user of a goal, on the user's own model and the run's budget."""
    agent, own = config.models[0], config.user
    said = {"model": own.model or agent.model, "base_url": own.base_url or agent.base_url, "stages": {}}
    async with Session(SourceSettings(prompts=config.sources.prompts), connect=connect) as session:
        models = session.models(agent.model_copy(update=said))
        if models.main is None:
            raise InputError("a simulated user is a language model", hint="set --user-model, or --base-url and --model")
        models = models.wrapped(partial(Budgeted, budget=opened.budget, price=config.price(agent)))
        yield lambda goal: session.agent(SimulatedUser(goal), models)


async def _hold(
    talk: _Conversation,
    store: RunStore,
    number: int,
    agent: Agent,
    user: Agent,
    config: RunConfig,
    progress: Progress,
) -> str:
    """Hold one conversation to its end, after what is kept of it; gives what failed, else nothing."""
    goal = talk.goal
    done, positions = store.done(), {name: place for place, name in enumerate(store.dialogue_ids())}
    most = min(config.user.turns, PATIENCE[goal.temper])
    while True:
        position = positions.get(f"{goal.id}@{talk.count + 1}")
        if position is None:
            turn = await user.respond(talk.from_user())
            progress.spend(turn)
            stop = _STOPS.search(turn.text)
            if talk.count and (stop or turn.status == "failed"):
                _end(store, talk, BROKEN if stop is None else DONE if stop[0] == "DONE" else "left")
                return turn.error or ""
            dialogue = talk.asked(goal.opening if stop or turn.status == "failed" else turn.text)
            position = store.put_dialogue(dialogue)
        else:
            dialogue = store.dialogue(position)
        job = Job(position, number)
        if job in done:
            response = store.response(job)
        else:
            response = await agent.respond(dialogue)
            progress.spend(response)
            store.add(job, response)
        if response.status == "failed":
            return response.error or "the response failed"
        standing = Standing.model_validate(dialogue.extra["conversation"])
        reached = standing.reached(dialogue, response.text)
        talk.heard(dialogue, response)
        if reached or talk.count >= most:
            _end(store, talk, "goal" if reached else "patience")
            return ""


def _end(store: RunStore, talk: _Conversation, how: str) -> None:
    """Keep with the last turn how its conversation ended."""
    position = store.dialogue_ids().index(f"{talk.goal.id}@{talk.count}")
    dialogue = store.dialogue(position)
    standing = {**dialogue.extra["conversation"], "ended": how}
    store.put_dialogue(dialogue.model_copy(update={"extra": {**dialogue.extra, "conversation": standing}}))


# --- conversations of people


def import_conversations(folder: Path, files: Sequence[tuple[str, Path]]) -> dict[str, int]:
    """Read whole conversations, such as a service's log, into a new run: every turn of the responder's is a response.

    The files are dialogues in Dialore's own form, each with the name of its system; that of the file where it is
    empty. What a dialogue says as `knowledge` was given at every turn. Gives the responses by system.

    Raises:
        InputError: a file is malformed, has no turn of a responder, or the folder holds a run.
    """
    systems, dialogues, answers = [], [], []
    for number, (name, path) in enumerate(files):
        systems.append(System(number, name or path.name.partition(".")[0], "elsewhere", {}, "elsewhere"))
        for whole in data_set("jsonl").read(path):
            asker = _asker(whole)
            kept = {name: whole.extra[name] for name in ("answer", "wrong") if name in whole.extra}
            places = [place for place, turn in enumerate(whole.turns) if place and turn.speaker != asker]
            known = [str(piece.get("text", "")) if isinstance(piece, dict) else piece for piece in whole.knowledge]
            for count, place in enumerate(places, start=1):
                standing = Standing(turn=count, ended="log" if place == places[-1] else "", known=known, **kept)
                extra = {**whole.extra, "conversation": standing.model_dump()}
                fields = {"id": f"{whole.id}@{count}", "turns": whole.turns[:place], "extra": extra}
                dialogues.append(Dialogue(language=whole.language, persona=whole.persona, **fields))
                answers.append((number, Response(text=whole.turns[place].text, model="elsewhere")))
    if not answers:
        raise InputError("no conversation has a turn that answers another", hint='turns want a "speaker" each')
    with RunStore.resumed(folder) as store:
        if store.size:
            raise InputError(f"{folder} holds a run", hint="name another folder")
        dataset = DatasetConfig(name="jsonl", path=files[0][1])
        config = {"dataset": dataset.model_dump(mode="json"), "metrics": list(METRICS)}
        numbers = store.set_up({"name": folder.name, "config": config}, systems, dialogues)
        for position, (number, response) in enumerate(answers):
            store.add(Job(position, numbers[number]), response.model_copy(update={"id": dialogues[position].id}))
    return {system.title: sum(number == system.number for number, _ in answers) for system in systems}


def _asker(dialogue: Dialogue) -> str:
    """Return the side that asks: the one that answers none of the data set's answered turns, else `user`."""
    speakers = [turn.speaker for turn in dialogue.turns]
    answers = (isinstance(dialogue, WholeDialogue) and dialogue.answers) or ()
    answering = {speakers[answer.turn] for answer in answers if answer.turn < len(speakers)}
    others = [speaker for speaker in speakers if speaker not in answering]
    return "user" if "user" in speakers and "user" not in answering else (others or speakers)[0]


# --- how like people they are


_CORRECTS = re.compile(
    r"\b(?:no,|not what i|i meant|that(?:'s| is)(?: not|n't) |i (?:already|just) (?:said|told|asked)|you (?:didn't|did not)"
    r"|wrong|actually,|are you sure)|不是(?:这个|这样|问)|我(?:是说|的意思|问的是)|不对|你没|答非所问|说过了|确定吗",
    re.IGNORECASE,
)
_FIRST_WORDS = 50
"""Words of a user that the share of different ones is taken of: it falls with length."""


def conversations_of(store: RunStore) -> list[list[str]]:
    """Return the users' turns of a run, a list a conversation."""
    last: dict[str, Dialogue] = {}
    for position in range(store.size):
        dialogue = store.dialogue(position)
        last[conversation_of(dialogue.id)] = dialogue
    return [[turn.text for turn in one.turns if turn.speaker == one.last.speaker] for one in last.values()]


def real_users(spec: str) -> list[list[str]]:
    """Return the users' turns of real dialogues: a file in Dialore's own form, else a data set, `NAME` or `NAME:SPLIT`.

    Raises:
        InputError: it cannot be read.
    """
    name, _, split = spec.partition(":")
    said = {"name": "jsonl", "path": spec} if Path(spec).is_file() else {"name": name, "split": split}
    config = DatasetConfig.model_validate(said)
    found = []
    for dialogue in data_set(config.name).read(config.path):
        asker = _asker(dialogue)
        found.append([turn.text for turn in dialogue.turns if turn.speaker == asker])
    return found


def compare_users(simulated: Sequence[Sequence[str]], real: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return what tells simulated users from real ones, a row a feature, with both means and how far apart they are.

    `difference` is of the means, in standard deviations (Cohen's d); `distance` is the largest between the two
    cumulative distributions (Kolmogorov and Smirnov's), from 0, alike, to 1, never the same.
    """
    import numpy as np

    made, known = _features(simulated), _features(real)
    table = []
    for name, values in made.items():
        first, second = np.asarray(values), np.asarray(known[name])
        if not len(first) or not len(second):
            continue
        spread = float(np.sqrt((first.var() + second.var()) / 2))
        apart = float(first.mean() - second.mean())
        at = np.concatenate([first, second])
        shares = [np.searchsorted(np.sort(each), at, side="right") / len(each) for each in (first, second)]
        table.append(
            {
                "feature": name,
                "simulated": float(first.mean()),
                "real": float(second.mean()),
                "difference": apart / spread if spread else None if apart else 0.0,
                "distance": float(np.abs(shares[0] - shares[1]).max()),
                "n": [len(first), len(second)],
            }
        )
    return table


def _features(conversations: Sequence[Sequence[str]]) -> Mapping[str, list[float]]:
    """Return the features' values, of each conversation or of each turn."""
    from dialore.text import asks, detect_language, words

    turns = [text for talk in conversations for text in talk]
    later = [text for talk in conversations for text in talk[1:]]
    spoken = [[word for text in talk for word in words(text, detect_language(text))] for talk in conversations]
    shortened = [each[:_FIRST_WORDS] for each in spoken if each]
    return {
        "turns of the user": [float(len(talk)) for talk in conversations],
        "words a turn": [float(len(words(text, detect_language(text)))) for text in turns],
        "turns that ask": [float(asks(text)) for text in turns],
        "later turns that correct or complain": [float(bool(_CORRECTS.search(text))) for text in later],
        "different words of the first 50": [len(set(each)) / len(each) for each in shortened],
    }
