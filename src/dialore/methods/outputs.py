"""The structured outputs of DCRAG's stages; in thought-then-generate, thoughts stand before what they lead to."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from dialore.response import Demands

_MOST = 12
"""Entities taken of one list; a model that lists more has stopped choosing."""


def _entities(value: Any) -> Any:  # noqa: ANN401 - what a model wrote
    if not isinstance(value, list):
        return value
    cleaned = (" ".join(str(item).split()).strip(" .,;，。；\"'“”") for item in value if item is not None)
    return list(dict.fromkeys(item for item in cleaned if item))[:_MOST]


Entities = Annotated[list[str], BeforeValidator(_entities)]


class Queries(BaseModel):
    """Query Production without thoughts."""

    explicit: Entities
    implicit: Entities

    def demands(self) -> Demands:
        """As demands."""
        return Demands(explicit=self.explicit, implicit=self.implicit)


class ThoughtQueries(BaseModel):
    """Query Production, thought-then-generate (DCRAG, Equations 1 and 2)."""

    explicit_thoughts: str
    explicit: Entities
    implicit_thoughts: str
    implicit: Entities

    def demands(self) -> Demands:
        """As demands."""
        thoughts = {"explicit": self.explicit_thoughts, "implicit": self.implicit_thoughts}
        return Demands(explicit=self.explicit, implicit=self.implicit, thoughts=thoughts)


class Topics(BaseModel):
    """Topic Planning without thoughts."""

    maintained: Entities
    extended: Entities

    def demands(self) -> Demands:
        """As demands."""
        return Demands(maintained=self.maintained, extended=self.extended)


class ThoughtTopics(BaseModel):
    """Topic Planning, thought-then-generate (DCRAG, Equations 3 and 4)."""

    maintained_thoughts: str
    maintained: Entities
    extended_thoughts: str
    extended: Entities

    def demands(self) -> Demands:
        """As demands."""
        thoughts = {"maintained": self.maintained_thoughts, "extended": self.extended_thoughts}
        return Demands(maintained=self.maintained, extended=self.extended, thoughts=thoughts)


class Revision(BaseModel):
    """Cross Revision without thoughts."""

    explicit: Entities
    implicit: Entities
    maintained: Entities
    extended: Entities

    def demands(self) -> Demands:
        """As demands."""
        return Demands(**self.model_dump())


class ThoughtRevision(BaseModel):
    """Cross Revision, thought-then-generate (DCRAG, Equations 5 and 6)."""

    explicit_thoughts: str
    explicit: Entities
    implicit_thoughts: str
    implicit: Entities
    maintained_thoughts: str
    maintained: Entities
    extended_thoughts: str
    extended: Entities

    def demands(self) -> Demands:
        """As demands."""
        kinds = ("explicit", "implicit", "maintained", "extended")
        return Demands(
            **{kind: getattr(self, kind) for kind in kinds},
            thoughts={kind: getattr(self, f"{kind}_thoughts") for kind in kinds},
        )


def _numbers(value: Any) -> Any:  # noqa: ANN401 - what a model wrote
    """Numbers of facts, also from "3", "[3]" and "[3]-(head, relation, tail)", the form of DCRAG's Table 17."""
    if not isinstance(value, list):
        return value
    found: list[Any] = []
    for item in value:
        match = re.match(r"\s*[\[(#]?(\d+)", item) if isinstance(item, str) else None
        found.append(int(match[1]) if match else item)
    return found


class SelectedFacts(BaseModel):
    """Fact Selection: the numbers of the facts picked, the most useful first."""

    selected: Annotated[list[int], BeforeValidator(_numbers)] = Field(description="numbers of the picked facts")
