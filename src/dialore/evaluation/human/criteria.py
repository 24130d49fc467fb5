"""Criteria of human evaluation: what annotators are asked, by paper, in English and Chinese."""

from __future__ import annotations

import functools
from importlib import resources
from typing import TYPE_CHECKING, Literal

import yaml
from pydantic import BaseModel, ConfigDict

from dialore.errors import UnknownNameError

if TYPE_CHECKING:
    from dialore.text import Language

Form = Literal["pairwise", "likert", "ranking"]
SIDES = ("A", "B", "tie")
_TIE_ZH = "平局"


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Words(_Frozen):
    """A text in both languages."""

    en: str
    zh: str

    def in_(self, language: Language) -> str:
        """The text in one of them."""
        return self.zh if language == "zh" else self.en


class Criterion(_Frozen):
    """One question.

    Attributes:
        title: its name for annotators.
        compare: the question where responses stand side by side.
        rate: the question where one stands alone.
        scale: the least and the most that one may give.
        anchors: what points of the scale mean.
    """

    title: Words
    compare: Words
    rate: Words
    scale: tuple[int, int]
    anchors: dict[int, Words]


class CriteriaSet(_Frozen):
    """The questions of one paper's evaluation.

    Attributes:
        title: what the sheet is headed by.
        paper: where it is from.
        form: the form that the paper asks in.
        shows: what annotators see besides the dialogue: `persona`, `knowledge`, `topic`.
        judges: whether responses or search queries are judged.
        guide: what annotators are told first.
        criteria: the questions, by name.
    """

    title: Words
    paper: str
    form: Form
    shows: tuple[Literal["persona", "knowledge", "topic"], ...] = ()
    judges: Literal["response", "query"] = "response"
    guide: Words
    criteria: dict[str, Criterion]


def sides(language: Language) -> tuple[str, ...]:
    """What annotators of pairs choose from, in their language."""
    return (*SIDES[:2], _TIE_ZH) if language == "zh" else SIDES


@functools.cache
def criteria_sets() -> dict[str, CriteriaSet]:
    """Every set by name."""
    text = (resources.files("dialore") / "data" / "report" / "criteria.yaml").read_text(encoding="utf-8")
    return {name: CriteriaSet.model_validate(given) for name, given in yaml.safe_load(text).items()}


def criteria_set(name: str) -> CriteriaSet:
    """A set by name.

    Raises:
        UnknownNameError: there is none of that name.
    """
    sets = criteria_sets()
    if name not in sets:
        raise UnknownNameError("set of criteria", name, sets)
    return sets[name]
