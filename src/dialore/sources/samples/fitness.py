"""Which samples are good to prompt with: how much of a response is its knowledge, and which knowledge stands alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore.text import is_mentioned, normalise, words

if TYPE_CHECKING:
    from dialore.sources.samples.sample import Sample
    from dialore.text import Language

_LONGEST = 20
"""Words of knowledge at most."""
_POINTING: dict[Language, tuple[str, ...]] = {"en": ("it", "this"), "zh": ("它", "这", "该", "此")}
_BRACKETS = frozenset("()（）")


def overlap(knowledge: str, response: str, language: Language, run: int = 1) -> float:
    """The share of a response's words that stand in its knowledge, from 0 to 1 (MSDP, Sections 2.2 and 4.2).

    Words are lower-cased and without punctuation. Chinese is taken by characters, so that two cuts of the same phrase
    into words cannot hide it.

    Args:
        knowledge: the gold knowledge.
        response: the response.
        language: of both.
        run: words count only in a row of at least so many that all stand in the knowledge. 1 is the paper's formula;
            its authors' released code counts rows of 10.
    """
    tokens = _tokens(response, language)
    known = frozenset(_tokens(knowledge, language))
    shared = row = 0
    for token in [*tokens, None]:
        if token in known:
            row += 1
            continue
        shared += row if row >= run else 0
        row = 0
    return shared / len(tokens) if tokens else 0.0


def _tokens(text: str, language: Language) -> list[str]:
    if language == "en":
        return words(text, language)
    return [character for character in normalise(text) if character.isalnum()]


def is_fit(sample: Sample) -> bool:
    """Whether a sample's knowledge shows well what is to be generated: a short sentence about its topic.

    It names its topic, has no brackets and at most 20 words, and does not open by pointing back ("It ...", 它...). The
    paper does not say so; its authors' released code selects by this where a topic is not in the database.
    """
    text = normalise(sample.knowledge)
    pointing = _POINTING[sample.language]
    opens = text.startswith(pointing) if sample.language == "zh" else text.partition(" ")[0] in pointing
    if opens or _BRACKETS & set(sample.knowledge) or len(words(text, sample.language)) > _LONGEST:
        return False
    return not sample.topic or is_mentioned(sample.topic, [sample.knowledge], sample.language)
