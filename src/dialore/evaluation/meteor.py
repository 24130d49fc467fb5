"""METEOR by nltk, with WordNet's synonyms and without (the `evaluation` extra).

WordNet is read by nltk from nltk's own data, from the folder that `DIALORE_WORDNET` names, or from Debian's package.
"""

from __future__ import annotations

import functools
import io
import os
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.errors import MissingExtraError
from dialore.evaluation.base import About, Measure, unavailable
from dialore.evaluation.overlap import Compared, check_chinese_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import Metric
    from dialore.evaluation.registry import Context

    _Folder = Path | zipfile.Path

VARIABLE = "DIALORE_WORDNET"
DEBIAN = Path("/usr/share/wordnet")
"""Where Debian's package `wordnet-base` puts the files."""
ABSENT = (
    "no WordNet on this machine (Debian's wordnet-base, nltk's wordnet, or a folder that DIALORE_WORDNET names): "
    "meteor-exact-stem does without"
)
# Debian leaves this list out, and synonyms do not need it: each lexicographer's file is called by its number.
_LEXNAMES = "".join(f"{number:02d}\t{number:02d}\t0\n" for number in range(100)).encode()


def make(name: str, context: Context) -> Metric:
    """A metric of this file by name."""
    chinese = check_chinese_tokens(context.tokens)
    return Meteor(chinese) if name == "meteor" else MeteorExactStem(chinese)


class MeteorExactStem(Compared):
    """METEOR with exact and stem matches, by nltk; without WordNet's synonyms, so that it can be had everywhere."""

    about = About(
        "meteor-exact-stem",
        "Denkowski and Lavie (2011), matchers exact and stem; MSDP (ACL Findings 2022), Section 3.4",
        "METEOR as nltk computes it, of the tokens that f1 counts, with exact and Porter-stem matches alone: lower "
        "than with synonyms.",
        needs=("reference",),
    )

    def figure(self, response: tuple[str, ...], other: tuple[str, ...]) -> float:
        """METEOR."""
        return _meteor(other, response, _NoSynonyms())


class Meteor(MeteorExactStem):
    """METEOR with WordNet's synonyms too, where this machine has WordNet."""

    about = About(
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
        found = find_wordnet()
        which = "without WordNet" if isinstance(found, str) else f"WordNet {found.get_version()}"
        return f"{super().identity}, {which}"

    def compare(self, response: str, other: str, dialogue: Dialogue) -> Measure:
        """METEOR, or why there is none."""
        found = find_wordnet()
        if isinstance(found, str):
            return unavailable(found)
        try:
            return Measure((_meteor(self._split(other, dialogue), self._split(response, dialogue), found),))
        except Exception as error:  # noqa: BLE001 - nltk says in many ways that an index does not fit its files
            # Not "unavailable", which is kept: the same WordNet, mended, does not change what this metric is.
            return Measure(problem="failed", reason=f"WordNet is damaged, install it again: {error}")


class _NoSynonyms:
    """WordNet without an entry."""

    def synsets(self, _word: str) -> tuple[()]:
        return ()


def find_wordnet() -> Any:  # noqa: ANN401 - the library is untyped
    """The first WordNet that can be read, by nltk's reader, or in words why there is none.

    nltk's own data come first, then the folder that `DIALORE_WORDNET` names, then Debian's.

    Raises:
        MissingExtraError: nltk is not installed.
    """
    return _find(os.environ.get(VARIABLE, "").strip())


@functools.lru_cache(maxsize=4)
def _find(named: str) -> Any:  # noqa: ANN401 - the library is untyped
    wrong = []
    for place, root in _places(named):
        try:
            return _reader(root)
        except Exception as error:  # noqa: BLE001 - damaged files fail wherever nltk or zipfile stumbles over them
            wrong.append(f"WordNet of {place} cannot be read: {error!r}")
    return "; ".join(wrong) or ABSENT


def _places(named: str) -> Iterator[tuple[str, _Folder]]:
    """Where WordNet may lie, in order; what a user named is not passed over in silence."""
    try:
        import nltk.data
    except ImportError:
        raise MissingExtraError("METEOR", "evaluation") from None
    for corpora in (Path(folder) / "corpora" for folder in nltk.data.path):
        if (corpora / "wordnet").is_dir():
            yield "nltk's data", corpora / "wordnet"
        elif zipfile.is_zipfile(corpora / "wordnet.zip"):
            yield "nltk's data", zipfile.Path(corpora / "wordnet.zip", "wordnet/")
    if named:
        yield VARIABLE, Path(named).expanduser()
    elif DEBIAN.is_dir():
        yield "Debian's package", DEBIAN


def _reader(root: _Folder) -> Any:  # noqa: ANN401 - the library is untyped
    """WordNet of a folder by nltk's reader, each word looked up once; nltk opens no file outside its own data."""
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    from nltk.data import SeekableUnicodeStreamReader

    root = root / "dict" if (root / "dict").is_dir() else root  # as in Princeton's archive

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        def open(self, file: str) -> Any:  # noqa: ANN401 - the library is untyped
            content = _LEXNAMES if file == "lexnames" else (root / file).read_bytes()
            return SeekableUnicodeStreamReader(io.BytesIO(content), self._ENCODING)

        def map_wn(self, version: str = "wordnet") -> None:
            """No mapping to WordNet 3.0: only other languages want it, and it wants a file that Debian leaves out."""

        def synsets(self, word: str) -> Any:  # noqa: ANN401 - the library is untyped
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # a synset that is not where the index says
                return super().synsets(word)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other languages, which METEOR does not ask for
        reader: Any = Reader("", None)
    reader.synsets = functools.lru_cache(maxsize=65536)(reader.synsets)
    return reader


def _meteor(reference: tuple[str, ...], response: tuple[str, ...], wordnet: Any) -> float:  # noqa: ANN401
    try:
        from nltk.translate.meteor_score import single_meteor_score
    except ImportError:
        raise MissingExtraError("METEOR", "evaluation") from None
    if not reference or not response:
        return 0.0
    return float(single_meteor_score(list(reference), list(response), stemmer=_stemmer(), wordnet=wordnet))


@functools.lru_cache(maxsize=1)
def _stemmer() -> Any:  # noqa: ANN401 - the library is untyped
    """The Porter stemmer of nltk, which takes most of METEOR's time, asked once a word."""
    from nltk.stem.porter import PorterStemmer

    stemmer = PorterStemmer()
    stemmer.stem = functools.lru_cache(maxsize=65536)(stemmer.stem)
    return stemmer
