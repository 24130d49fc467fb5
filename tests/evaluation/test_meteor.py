"""METEOR with WordNet: parity with nltk's, where WordNet is looked for, and what is said where it is not or is damaged.

The WordNet of most tests is a tiny one of our own writing, in the files' published format.
"""

from __future__ import annotations

import gc
import shutil
import sys
import warnings
from pathlib import Path

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import MissingExtraError
from dialore.evaluation import meteor
from dialore.evaluation.base import Sample
from dialore.evaluation.meteor import Meteor, MeteorExactStem
from dialore.evaluation.overlap import tokens_of
from dialore.evaluation.registry import Context
from dialore.experiments.scoring import measure_run
from dialore.experiments.store import Job, RunStore, System
from dialore.response import Response
from tests.evaluation.test_parity import measured, pairs_of, record

data = pytest.importorskip("nltk.data", reason="the evaluation extra is not installed")
meteor_score = pytest.importorskip("nltk.translate.meteor_score").meteor_score

NOUNS = (("car", "auto"), ("sofa", "couch"), ("ice_cream", "ice"))
VERBS = (("begin", "start"),)


LEXNAMES = "".join(f"{number:02d}\t{number:02d}\t0\n" for number in range(100))
DEBIAN = Path("/usr/share/wordnet")


def write_wordnet(folder, version="9.9", nouns=NOUNS):
    """Files of synsets, each line at the place in bytes that it begins with, their indexes and empty exceptions."""
    folder.mkdir(parents=True)
    for part, sign, synsets in (("noun", "n", nouns), ("verb", "v", VERBS), ("adj", "a", ()), ("adv", "r", ())):
        text = f"  1 WordNet {version} Copyright of its maker\n"
        index: dict[str, list[int]] = {}
        for words in synsets or (("quick",),):
            place = len(text)
            named = " ".join(f"{word} 0" for word in words)
            frames = " 00" if sign == "v" else ""
            text += f"{place:08d} 03 {sign} {len(words):02x} {named} 000{frames} | what it means  \n"
            for word in words:
                index.setdefault(word, []).append(place)
        (folder / f"data.{part}").write_bytes(text.encode())
        lines = [
            f"{word} {sign} {len(at)} 0 {len(at)} 0 {' '.join(f'{place:08d}' for place in at)}  \n"
            for word, at in sorted(index.items())
        ]
        (folder / f"index.{part}").write_text("".join(lines))
        (folder / f"{part}.exc").write_text("mice mouse\n")
    (folder / "lexnames").write_text(LEXNAMES)
    return folder


@pytest.fixture(autouse=True)
def _files_of_nltk():
    """nltk's reader never closes its files: they go here, not in the middle of whatever test runs next."""
    yield
    meteor.find_wordnet.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A machine without WordNet; returns where it may be put in nltk's data."""
    monkeypatch.setattr(data, "path", [str(tmp_path / "nltk_data")])
    meteor.find_wordnet.cache_clear()
    yield tmp_path / "nltk_data" / "corpora" / "wordnet"
    meteor.find_wordnet.cache_clear()


def sample(response, reference):
    return Sample(
        Dialogue(id="d", turns=["?"], language="en", reference=reference), Response(id="d", method="m", text=response)
    )


async def both(response, reference):
    """METEOR with synonyms and without."""
    given = sample(response, reference)
    return await Meteor("meteor", Context()).measure(given), await MeteorExactStem(
        "meteor-exact-stem", Context()
    ).measure(given)


async def test_meteor_with_wordnet_is_nltks_with_the_same_reader(place, record_testsuite_property):
    """With Debian's wordnet-base, which leaves out a list that nltk wants, laid out as nltk's data."""
    if not DEBIAN.is_dir():
        pytest.skip("parity of METEOR with synonyms is not tested: no wordnet-base")
    shutil.copytree(DEBIAN, place)
    (place / "lexnames").write_text(LEXNAMES)
    found = meteor.find_wordnet()
    _, values = await measured("meteor", "en", "character")
    _, without = await measured("meteor-exact-stem", "en", "character")
    differences = []
    for row, pair in zip(values, pairs_of("en"), strict=True):
        response, reference = (list(tokens_of(text, "en")) for text in pair)
        figure = meteor_score([reference], response, wordnet=found) if response and reference else 0.0
        differences.append(abs(row[0] - figure))
    assert len(differences) >= 1000
    assert (values[:, 0] > without[:, 0]).sum() > 100, "synonyms match in many pairs"
    assert (values[:, 0] < without[:, 0]).mean() < 0.05, "a match more is seldom less"
    record(record_testsuite_property, "meteor en", differences)


async def test_synonyms_match_and_their_absence_elsewhere_is_as_before(place):
    write_wordnet(place)
    with_synonyms, without = await both("we start our autos", "we begin our car")
    assert with_synonyms.values[0] > 0.9
    assert without.values[0] < 0.5
    # A lemma of two words is no synonym of one word, and no word is one of a word that WordNet has not.
    with_synonyms, without = await both("ice here", "ice_cream there")
    assert with_synonyms.values == without.values
    assert Meteor("meteor", Context()).identity == "Chinese by character, WordNet 9.9"
    assert MeteorExactStem("meteor-exact-stem", Context()).identity == "Chinese by character"


async def unavailable_for(reason):
    measure, without = await both("we start", "we begin")
    assert measure.problem == "unavailable"
    assert reason in measure.reason
    assert Meteor("meteor", Context()).identity == "Chinese by character, without WordNet"
    assert without.problem is None
    return measure.reason


async def test_without_wordnet_it_is_not_available_and_the_ways_to_it_are_told(place):
    reason = await unavailable_for("nltk.downloader wordnet")
    assert "meteor-exact-stem" in reason


def not_there(folder):
    (folder / "index.verb").unlink()


def no_index(folder):
    (folder / "index.noun").write_text("car n one 0 1 0 00000000\n")


def binary(folder):
    (folder / "index.adj").write_bytes(bytes(range(128, 256)))


DAMAGES = {not_there: "OSError", no_index: "WordNetError", binary: "UnicodeDecodeError"}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_a_broken_wordnet_is_not_available_and_says_what_is_broken(place, damage):
    damage(write_wordnet(place))
    await unavailable_for(f"WordNet of nltk's data cannot be read: {DAMAGES[damage]}")


async def test_without_nltk_the_extra_is_named(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "nltk.corpus.util", None)
    with pytest.raises(MissingExtraError, match="METEOR needs an optional dependency"):
        await both("we start", "we begin")


async def test_meteor_is_measured_anew_once_wordnet_is_there(place, tmp_path):
    with RunStore.create(tmp_path / "run") as store, store.writing():
        dialogue = Dialogue(id="d", turns=["Hello"], reference="we begin")
        store.set_up({}, [System(0, "m", "m", {}, "x")], [dialogue])
        store.add(Job(0, 0), Response(id="d", method="m", text="we start"))
        await measure_run(store, [Meteor("meteor", Context())])
        assert dict(store.measures("meteor", 0))[Job(0, 0)].problem == "unavailable"
        write_wordnet(place)
        meteor.find_wordnet.cache_clear()
        await measure_run(store, [Meteor("meteor", Context())])
        assert dict(store.measures("meteor", 0))[Job(0, 0)].values == pytest.approx((1 - 0.5 / 8,))
