"""The shapes of judges' answers; those whose size depends on what is judged are made when asked for."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal

from pydantic import BaseModel, Field, create_model

Pick = Literal["A", "B", "same"]


class Engagingness(BaseModel):
    """MEEP's score."""

    score: float = Field(ge=0, le=100)


class Quality(BaseModel):
    """Informativeness and overall score, asked together (DCRAG, Table 20)."""

    informativeness: int = Field(ge=1, le=5)
    overall: int = Field(ge=1, le=5)


class Statements(BaseModel):
    """What a response claims."""

    statements: list[str]


class Questions(BaseModel):
    """What a response may have been said in reply to."""

    questions: list[str] = Field(min_length=1)
    noncommittal: bool


class Scores(BaseModel):
    """One whole number for each of what was judged, in its order."""

    scores: list[int]


class Verdicts(BaseModel):
    """Whether each statement follows."""

    verdicts: list[bool]


@lru_cache(maxsize=64)
def scores_shape(name: str, count: int, top: int) -> type[Scores]:
    """So many scores from 1 to `top`."""
    scores = Annotated[list[Annotated[int, Field(ge=1, le=top)]], Field(min_length=count, max_length=count)]
    return create_model(name, __base__=Scores, scores=(scores, ...))


@lru_cache(maxsize=256)
def verdicts_shape(count: int) -> type[Verdicts]:
    """So many verdicts."""
    verdicts = Annotated[list[bool], Field(min_length=count, max_length=count)]
    return create_model("Verdicts", __base__=Verdicts, verdicts=(verdicts, ...))


@lru_cache(maxsize=256)
def picks_shape(name: str, key: str, count: int) -> type[BaseModel]:
    """Numbers from 1 to `count`, under the key that the prompt names."""
    return create_model(name, **{key: (list[Annotated[int, Field(ge=1, le=count)]], ...)})  # type: ignore[call-overload,no-any-return]


@lru_cache(maxsize=64)
def preferences_shape(criteria: tuple[str, ...]) -> type[BaseModel]:
    """A pick for each criterion."""
    return create_model("Preferences", **dict.fromkeys(criteria, (Pick, ...)))  # type: ignore[call-overload,no-any-return]
