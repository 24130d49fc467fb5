"""METEOR: version 1.5 itself, and nltk's, with WordNet's synonyms and without."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import shutil
import subprocess
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dialore.errors import MissingExtraError, import_optional, install
from dialore.evaluation.base import Sample, SampleScore, Summed, unavailable
from dialore.evaluation.overlap import NO_REFERENCE, Compared, MeasuredLanguage, measured_language, on_one_line
from dialore.evaluation.registry import OwnMetric

# Of Meteor 1.5's English setting (Denkowski and Lavie, 2014, Table 1): alpha, beta, gamma, delta, and the weights of
# exact, stem, synonym and paraphrase matches.
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])


class MeteorExactStem(Compared):
    """nltk's METEOR with exact and stem matches; without WordNet's synonyms, so that it can be had everywhere."""

    def figure(self, response: tuple[str, ...], other: tuple[str, ...]) -> float:
        """METEOR."""
        return _meteor(other, response, SimpleNamespace(synsets=lambda _word: ()))  # WordNet without an entry


class Meteor(MeteorExactStem):
    """nltk's METEOR with WordNet's synonyms too, where nltk's data hold WordNet."""

    @property
    def identity(self) -> str:
        """How Chinese is counted, and which WordNet there is: once there is one, what lacked it is measured."""
        try:
            wordnet = find_wordnet()
        except MissingExtraError as error:  # raised again when it measures
            wordnet = str(error)
        which = "without WordNet" if isinstance(wordnet, str) else f"WordNet {wordnet.get_version()}"
        return f"{super().identity}, {which}"

    def compare(self, response: str, other: str, language: MeasuredLanguage) -> SampleScore:
        """METEOR, or why there is none."""
        wordnet = find_wordnet()
        if isinstance(wordnet, str):
            return unavailable(wordnet)
        return SampleScore((_meteor(self._split(other, language), self._split(response, language), wordnet),))


@functools.lru_cache(maxsize=1)
def find_wordnet() -> Any:  # noqa: ANN401 - the library is untyped
    """WordNet of nltk's data, each word looked up once, or in words why there is none."""
    loaders = import_optional("nltk.corpus.util", "METEOR", "evaluation")
    readers = import_optional("nltk.corpus.reader.wordnet", "METEOR", "evaluation")

    class Reader(readers.WordNetCorpusReader):  # type: ignore[misc,name-defined]
        def map_wn(self, version: str = "wordnet") -> None:
            """No mapping to other versions: only other languages want it, and it takes seconds."""

    reader: Any = loaders.LazyCorpusLoader("wordnet", Reader, None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other languages, which METEOR does not ask for
            reader.ensure_loaded()
    except LookupError:
        return "nltk's data have no WordNet (python -m nltk.downloader wordnet): meteor-exact-stem does without"
    except Exception as error:  # noqa: BLE001 - damaged files fail wherever nltk stumbles over them
        return f"WordNet of nltk's data cannot be read: {error!r}"
    reader.synsets = functools.lru_cache(maxsize=65536)(reader.synsets)
    return reader


def _meteor(reference: tuple[str, ...], response: tuple[str, ...], wordnet: Any) -> float:  # noqa: ANN401
    library = import_optional("nltk.translate.meteor_score", "METEOR", "evaluation")
    if not reference or not response:
        return 0.0
    return float(library.single_meteor_score(list(reference), list(response), stemmer=_stemmer(), wordnet=wordnet))


@functools.lru_cache(maxsize=1)
def _stemmer() -> Any:  # noqa: ANN401 - the library is untyped
    """Return the Porter stemmer of nltk, which takes most of METEOR's time, asked once a word."""
    from nltk.stem.porter import PorterStemmer

    stemmer = PorterStemmer()
    stemmer.stem = functools.lru_cache(maxsize=65536)(stemmer.stem)
    return stemmer


class Meteor15(OwnMetric, Summed):
    """Meteor 1.5 by its authors' own program, with its paraphrase table, as nlg-eval and coco-caption run it.

    The measure of a response is the 23 statistics of its alignment, which add up; the figure is made of them here.
    """

    async def measure(self, sample: Sample) -> SampleScore:
        """Return the statistics of the alignment."""
        dialogue = sample.dialogue
        if not dialogue.reference:
            return unavailable(NO_REFERENCE)
        if measured_language(dialogue) != "en":
            return unavailable("Meteor 1.5 is run for English alone")
        program = find_program()
        if isinstance(program, str):
            return unavailable(program)
        references = map(_as_field, dialogue.accepted_responses)
        # The program takes the best of several references.
        sums = np.array(program.align(" ||| ".join(references), _as_field(sample.response.text)))
        is_whole = (sums[4:20].reshape(4, 2, 2).sum(axis=(0, 1)) == sums[:2]).all() and sums[20] == 1
        sums[20] *= not is_whole  # where all is matched in one piece nothing is fragmented, in a sum neither
        return SampleScore(tuple(map(float, sums)))

    def of_sums(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Meteor 1.5 from summed statistics (Denkowski and Lavie, 2014, Section 2)."""
        lengths, functions = sums[..., 0:2], sums[..., 2:4]
        # By matcher: content words of response and reference, then function words of both.
        matches = sums[..., 4:20].reshape(*sums.shape[:-1], 4, 2, 2)
        weighted = np.einsum("...mkt,m,k->...t", matches, _WEIGHTS, np.array([_DELTA, 1 - _DELTA]))
        with np.errstate(divide="ignore", invalid="ignore"):
            precision, recall = np.moveaxis(
                weighted / (_DELTA * (lengths - functions) + (1 - _DELTA) * functions), -1, 0
            )
            mean = 1 / ((1 - _ALPHA) / precision + _ALPHA / recall)
            chunks = sums[..., 20] / (sums[..., 21:23].sum(axis=-1) / 2)
            figure = mean * (1 - _GAMMA * chunks**_BETA)
        scores: NDArray[np.float64] = np.nan_to_num(figure, nan=0.0)
        return scores


def _as_field(text: str) -> str:
    """Return a text as a field of the program's protocol."""
    return on_one_line(text).replace("|||", " ")


class _Program:
    """The program, started once; it answers a line for a line."""

    def __init__(self, java: str, jar: Path) -> None:
        command = [java, "-Xmx2G", "-jar", jar.name, "-", "-", "-stdio", "-l", "en", "-norm"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, cwd=jar.parent, text=True, encoding="utf-8", **pipes)  # type: ignore[call-overload] # noqa: S603 - our own words
        self._turn = threading.Lock()
        atexit.register(self._process.kill)

    def align(self, reference: str, response: str) -> tuple[float, ...]:
        """Return the statistics of one alignment."""
        with self._turn:
            self._process.stdin.write(f"SCORE ||| {reference} ||| {response}\n")
            self._process.stdin.flush()
            return tuple(map(float, self._process.stdout.readline().split()))


@functools.lru_cache(maxsize=1)
def find_program() -> _Program | str:
    """Meteor 1.5, started; or in words why it cannot be had."""
    java, package = shutil.which("java"), importlib.util.find_spec("pycocoevalcap")
    if java is None or package is None:
        lacking = "Java" if java is None else f"the package pycocoevalcap ({install('meteor')})"
        return f"Meteor 1.5 wants {lacking}; meteor and meteor-exact-stem do without"
    folder = next(iter(package.submodule_search_locations or ()))
    return _Program(java, Path(folder) / "meteor" / "meteor-1.5.jar")
