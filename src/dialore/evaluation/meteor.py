"""METEOR by nltk, with WordNet's synonyms and without (the `evaluation` extra)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from dialore.errors import InputError, MissingExtraError
from dialore.evaluation.base import About, Mean, Measure, unavailable
from dialore.evaluation.ngrams import Worded
from dialore.evaluation.tokens import check_chinese_tokens
from dialore.evaluation.wordnet import Synonyms, find_synonyms

if TYPE_CHECKING:
    from dialore.evaluation.base import Metric, Sample
    from dialore.evaluation.registry import Context


def make(name: str, context: Context) -> Metric:
    """A metric of this file by name."""
    chinese = check_chinese_tokens(context.tokens)
    return Meteor(chinese) if name == "meteor" else MeteorExactStem(chinese)


class MeteorExactStem(Mean, Worded):
    """METEOR with exact and stem matches, by nltk; without WordNet's synonyms, so that it can be had everywhere."""

    @property
    def about(self) -> About:
        """What it is."""
        return About(
            "meteor-exact-stem",
            "Denkowski and Lavie (2011), matchers exact and stem; MSDP (ACL Findings 2022), Section 3.4",
            "METEOR as nltk computes it, of the tokens that f1 counts, with exact and Porter-stem matches alone: lower "
            "than with synonyms.",
            needs=("reference",),
        )

    async def measure(self, sample: Sample) -> Measure:
        """METEOR, 0 to 1."""
        reference = sample.dialogue.reference
        if not reference:
            return unavailable("the dialogue has no reference")
        return self._score(self._cut(reference, sample), self._cut(sample.response.text, sample))

    def _score(self, reference: tuple[str, ...], response: tuple[str, ...]) -> Measure:
        return Measure((_meteor(reference, response, _NoSynonyms()),))


class Meteor(MeteorExactStem):
    """METEOR with WordNet's synonyms too, where this machine has WordNet: see `dialore.evaluation.wordnet`."""

    @property
    def about(self) -> About:
        """What it is."""
        return About(
            "meteor",
            "Denkowski and Lavie (2011); MSDP (ACL Findings 2022), Section 3.4",
            "METEOR as nltk computes it, of the tokens that f1 counts: exact, Porter-stem and WordNet-synonym matches "
            "(English, and of stems: nltk looks up what it has stemmed). WordNet is nltk's data, else the folder "
            "DIALORE_WORDNET, else Debian's wordnet-base.",
            needs=("reference",),
        )

    @property
    def identity(self) -> str:
        """How Chinese is counted, and which WordNet there is: once there is one, what lacked it is measured."""
        found = find_synonyms()
        return f"{super().identity}, {'without WordNet' if isinstance(found, str) else f'WordNet {found.version}'}"

    def _score(self, reference: tuple[str, ...], response: tuple[str, ...]) -> Measure:
        found = find_synonyms()
        if isinstance(found, str):
            return unavailable(found)
        try:
            return Measure((_meteor(reference, response, found),))
        except InputError as error:
            # Not "unavailable", which is kept: the same WordNet, mended, does not change what this metric is.
            return Measure(problem="failed", reason=error.message)


class _NoSynonyms:
    """WordNet without an entry."""

    def synsets(self, _word: str) -> tuple[()]:
        return ()


def _meteor(reference: tuple[str, ...], response: tuple[str, ...], wordnet: _NoSynonyms | Synonyms) -> float:
    try:
        from nltk.translate.meteor_score import single_meteor_score
    except ImportError:
        raise MissingExtraError("METEOR", "evaluation") from None
    if not reference or not response:
        return 0.0
    return float(single_meteor_score(list(reference), list(response), stemmer=_stemmer(), wordnet=wordnet))


class _CachedStemmer:
    """nltk's Porter stemmer, which takes most of METEOR's time, asked once a word."""

    def __init__(self, stemmer: Any) -> None:  # noqa: ANN401 - the library is untyped
        self.stem = functools.lru_cache(maxsize=65536)(stemmer.stem)


@functools.lru_cache(maxsize=1)
def _stemmer() -> _CachedStemmer:
    from nltk.stem.porter import PorterStemmer

    return _CachedStemmer(PorterStemmer())
