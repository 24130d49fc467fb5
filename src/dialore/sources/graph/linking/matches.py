"""What the readers of phrases share: matches of concepts, and how they were made."""

from __future__ import annotations

from typing import Literal, NamedTuple

How = Literal["exact", "lemma", "variant", "contained", "nearest"]

LONGEST = 6
"""Content words of the longest concept that is looked for inside a phrase."""


class Match(NamedTuple):
    """A concept found in a phrase.

    Attributes:
        start: the first content word, or Chinese character, that it covers.
        end: the one after the last.
        concept: its id.
        how: how the words that it covers name it.
        phrase: those words.
        whole: whether it leaves out no word that matters, function words included.
    """

    start: int
    end: int
    concept: int
    how: How
    phrase: str
    whole: bool


class Reading(NamedTuple):
    """The matches of a phrase, in its order, and how many content words or characters it has."""

    matches: tuple[Match, ...]
    size: int

    @property
    def covered(self) -> int:
        """How many of its content words or characters the matches cover."""
        return sum(match.end - match.start for match in self.matches)
