"""Judges that compare systems: two in both orders (Zheng et al., NeurIPS 2023, Section 3.4), or several in one prompt.

One prompt for several makes their scores comparable (SCG-QP, Appendix; EDIT, Section 4.1.3).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, create_model

from dialore.errors import InputError, UnknownNameError
from dialore.evaluation.base import Mean, MetricInfo, Problem, Sample, SampleScore, about_of, unavailable
from dialore.evaluation.judges.asking import JudgeClient, Pick, UnjudgedError, asker_of, list_shape, queries_of, spoken
from dialore.evaluation.statistics import Rate, win_rate
from dialore.parallel import gather

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.evaluation.registry import Context
    from dialore.response import Response

Judged = Literal["responses", "queries"]
CRITERIA: dict[Judged, tuple[str, ...]] = {
    "responses": ("naturalness", "coherence", "engagingness", "informativeness", "overall"),
    "queries": ("relevance", "specificity", "usefulness", "interestingness", "overall"),
}
"""The things that can be compared: responses by DCRAG's Appendix A.3, queries by SCG-QP's guidelines."""
TOP = 10
"""The best score."""
JOINT_CRITERIA: dict[Judged, tuple[str, ...]] = {"responses": ("overall", "useful-knowledge"), "queries": ("overall",)}
"""The criteria that systems can be scored by together."""


@dataclass(frozen=True, slots=True)
class Preference:
    """A judge's preference between two systems' answers to one dialogue, by one criterion.

    `picks` are who was picked with the first system shown first, and with the second; empty for "same". The
    `conversation` is the one that the dialogue was cut from, empty where it is not known.
    """

    criterion: str
    first: str
    second: str
    picks: tuple[str, str] = ("", "")
    problem: Problem | None = None
    reason: str = ""
    conversation: str = ""

    @property
    def winner(self) -> str:
        """The system picked in both orders; empty for a tie, or where there is no preference."""
        return self.picks[0] if self.problem is None and self.picks[0] == self.picks[1] else ""

    @property
    def outcome(self) -> Literal["win", "loss", "tie"]:
        """The outcome for the first system."""
        return "tie" if not self.winner else "win" if self.winner == self.first else "loss"


def rate_of(preferences: Iterable[Preference]) -> Rate:
    """Return wins, losses and ties of the first system, with the sign test over conversations."""
    known = [choice for choice in preferences if choice.problem is None]
    talks = [choice.conversation or number for number, choice in enumerate(known)]
    return win_rate([choice.outcome for choice in known], talks)


def position_bias(preferences: Iterable[Preference]) -> float:
    """Return the share of preferences that went by the first place, less those that went by the second; NaN of none."""
    known = [choice for choice in preferences if choice.problem is None]
    by_first = sum(choice.picks == (choice.first, choice.second) for choice in known)
    by_second = sum(choice.picks == (choice.second, choice.first) for choice in known)
    return (by_first - by_second) / len(known) if known else math.nan


async def compare(
    judge: JudgeClient,
    dialogue: Dialogue,
    responses: Mapping[str, Response],
    *,
    criteria: Sequence[str] = ("overall",),
    judged: Judged = "responses",
) -> list[Preference]:
    """Compare every two systems' answers to a dialogue, by each criterion, in both orders.

    All criteria are asked about in one prompt. A system wins only where both orders agree on it. Equal answers are a
    tie, and an empty one loses, without a call.
    """
    if len(responses) < 2:
        raise InputError("a comparison wants at least two systems", hint="name another")
    check_criteria(criteria, judged)
    prompt, shape = f"pairwise-{judged}", _preferences_shape(tuple(criteria))
    texts = {system: judged_text(response, judged) for system, response in responses.items()}

    async def ask(first: str, second: str) -> dict[str, str]:
        variables = {"a": texts[first], "b": texts[second], "criteria": tuple(criteria)}
        verdict = await judge.ask(prompt, shape, dialogue, label=f"{prompt}/{first}/{second}", **variables)
        named = {"A": first, "B": second, "same": ""}
        return {criterion: named[pick] for criterion, pick in verdict.model_dump().items()}

    async def prefer(first: str, second: str) -> list[Preference]:
        problem: dict[str, Any] = {}
        forward = backward = dict.fromkeys(criteria, "")
        a, b = texts[first], texts[second]
        lacking = [system for system in (first, second) if _is_unjudged(responses[system], judged)]
        if lacking:
            reason = f"{lacking[0]} has no {'response' if judged == 'responses' else 'query'}"
            problem = {"problem": "unavailable", "reason": reason}
        elif a == b or not a or not b:  # an answer that says nothing loses
            forward = backward = dict.fromkeys(criteria, "" if a == b else first if a else second)
        else:
            try:
                forward, backward = await gather(ask(first, second), ask(second, first))
            except UnjudgedError as error:
                problem = {"problem": error.measure.problem, "reason": error.measure.reason}
        return [Preference(name, first, second, (forward[name], backward[name]), **problem) for name in criteria]

    by_pair = await gather(*(prefer(first, second) for first, second in combinations(responses, 2)))
    return [preference for some in by_pair for preference in some]


def check_criteria(criteria: Sequence[str], judged: Judged, known: Mapping[Judged, tuple[str, ...]] = CRITERIA) -> None:
    """Raise UnknownNameError where something cannot be judged by a criterion."""
    for name in criteria:
        if name not in known[judged]:
            raise UnknownNameError(f"criterion for {judged}", name, known[judged])


def judged_text(response: Response, judged: Judged) -> str:
    """Return what a judge is shown of a response: its text, or its queries; empty where it has none."""
    if response.status == "failed":
        return ""
    return spoken(response) if judged == "responses" else "; ".join(queries_of(response))


def _is_unjudged(response: Response, judged: Judged) -> bool:
    """Return whether there is nothing to compare: a failure, or no query; an empty response is compared."""
    return response.status == "failed" or (judged == "queries" and not queries_of(response))


@lru_cache(maxsize=64)
def _preferences_shape(criteria: tuple[str, ...]) -> type[BaseModel]:
    """Return a pick for each criterion."""
    return create_model("Preferences", **dict.fromkeys(criteria, (Pick, ...)))  # type: ignore[call-overload,no-any-return]


@dataclass(frozen=True)
class JointJudge(Mean):
    """A judge that scores several systems' answers to a dialogue in one prompt, 1 to 10, by one of `JOINT_CRITERIA`."""

    asker: JudgeClient | None
    criterion: str = "overall"
    judged: Judged = "responses"
    seed: int = 0

    def __post_init__(self) -> None:
        check_criteria([self.criterion], self.judged, JOINT_CRITERIA)

    @property
    def about(self) -> MetricInfo:
        """The metric's description."""
        return about_of(f"together-{self.judged}-{self.criterion}")

    @property
    def identity(self) -> str:
        """The judge, its prompt and the seed."""
        return f"{self.asker.identity(f'together-{self.judged}')}, seed {self.seed}" if self.asker is not None else ""

    async def measure(self, sample: Sample) -> SampleScore:
        """Nothing: one response alone is not scored."""
        return unavailable(f"{self.about.name} scores the systems of a run together, not a {sample.response.method}")

    async def measure_together(self, dialogue: Dialogue, responses: Mapping[str, Response]) -> dict[str, SampleScore]:
        """Return scores by system; who has no answer is left out of the prompt, and not available.

        An empty response is left out, too, and has the lowest score.
        """
        texts = {system: text for system, response in responses.items() if (text := judged_text(response, self.judged))}
        lacking = "the system has no response" if self.judged == "responses" else "the system asked no query"
        measures = dict.fromkeys(responses, unavailable(lacking))
        for system, response in responses.items():
            if not _is_unjudged(response, self.judged):
                measures[system] = SampleScore((1.0,), detail="it is empty")
        if self.asker is None:
            return measures | dict.fromkeys(texts, unavailable("no judge was given"))
        if len(texts) < 2:
            return measures | dict.fromkeys(texts, unavailable("fewer than two systems have something to be scored"))
        order = sorted(texts)  # so that it depends on neither the systems' order nor other dialogues
        random.Random(f"{self.seed}/{dialogue.id}").shuffle(order)  # noqa: S311 - no secret
        shape, name = list_shape("JointScores", "scores", TOP, len(order)), f"together-{self.judged}"
        candidates = [texts[system] for system in order]
        try:
            verdict = await self.asker.ask(name, shape, dialogue, candidates=candidates, criterion=self.criterion)
        except UnjudgedError as error:
            return measures | dict.fromkeys(texts, error.measure)
        return measures | {
            system: SampleScore((float(score),), detail=f"{rank} of {len(order)} shown")
            for rank, (system, score) in enumerate(zip(order, verdict.model_dump()["scores"], strict=True), start=1)
        }


def make(name: str, context: Context) -> JointJudge:
    """Return a metric of this file by name."""
    _, judged, criterion = name.split("-", 2)
    return JointJudge(asker_of(context), criterion, cast("Judged", judged))
