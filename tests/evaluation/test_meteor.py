"""METEOR with WordNet: parity with nltk's, where WordNet is looked for, and what is said where it is not or is damaged.

The WordNet of most tests is a tiny one of our own writing, in the files' published format.
"""

from __future__ import annotations

import shutil
import sys

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import MissingExtraError
from dialore.evaluation import meteor
from dialore.evaluation.base import Sample
from dialore.evaluation.meteor import Meteor, MeteorExactStem
from dialore.evaluation.overlap import tokens_of
from dialore.experiments.scoring import measure_run
from dialore.experiments.store import Job, RunStore, System
from dialore.response import Response
from tests.evaluation.test_parity import measured, pairs_of, record

data = pytest.importorskip("nltk.data", reason="the evaluation extra is not installed")
meteor_score = pytest.importorskip("nltk.translate.meteor_score").meteor_score

NOUNS = (("car", "auto"), ("sofa", "couch"), ("ice_cream", "ice"))
VERBS = (("begin", "start"),)


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
    return folder


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A machine without WordNet; returns where it may be put: nltk's data, the named folder, Debian's."""
    nltk_data, named, debian = tmp_path / "nltk_data", tmp_path / "named", tmp_path / "debian"
    nltk_data.mkdir()
    monkeypatch.setattr(data, "path", [str(nltk_data)])
    monkeypatch.setattr(meteor, "DEBIAN", debian)
    monkeypatch.delenv(meteor.VARIABLE, raising=False)
    meteor._find.cache_clear()
    yield {"nltk": nltk_data / "corpora" / "wordnet", "named": named, "debian": debian}
    meteor._find.cache_clear()


def sample(response, reference):
    return Sample(
        Dialogue(id="d", turns=["?"], language="en", reference=reference), Response(id="d", method="m", text=response)
    )


async def both(response, reference):
    """METEOR with synonyms and without."""
    given = sample(response, reference)
    return await Meteor().measure(given), await MeteorExactStem().measure(given)


async def test_meteor_with_wordnet_is_nltks_with_the_same_reader(record_testsuite_property):
    found = meteor.find_wordnet()
    if isinstance(found, str):
        pytest.skip(f"parity of METEOR with synonyms is not tested: {found}")
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


async def test_synonyms_match_and_their_absence_elsewhere_is_as_before(places):
    write_wordnet(places["debian"])
    with_synonyms, without = await both("we start our autos", "we begin our car")
    assert with_synonyms.values[0] > 0.9
    assert without.values[0] < 0.5
    # A lemma of two words is no synonym of one word, and no word is one of a word that WordNet has not.
    with_synonyms, without = await both("ice here", "ice_cream there")
    assert with_synonyms.values == without.values
    assert Meteor().identity == "Chinese by character, WordNet 9.9"
    assert MeteorExactStem().identity == "Chinese by character"


async def test_nltks_data_comes_first_then_the_named_folder_then_debians(places, monkeypatch):
    write_wordnet(places["debian"], version="1.0")
    assert meteor.find_wordnet().get_version() == "1.0"
    monkeypatch.setenv(meteor.VARIABLE, str(places["named"]))
    write_wordnet(places["named"], version="2.0")
    assert meteor.find_wordnet().get_version() == "2.0"
    write_wordnet(places["nltk"], version="3.0")
    meteor._find.cache_clear()
    assert meteor.find_wordnet().get_version() == "3.0"


def test_nltks_data_may_be_zipped(places):
    import shutil

    write_wordnet(places["nltk"], version="3.0")
    shutil.make_archive(str(places["nltk"]), "zip", places["nltk"].parent, "wordnet")
    shutil.rmtree(places["nltk"])
    found = meteor.find_wordnet()
    assert found.get_version() == "3.0"
    assert {lemma.name() for each in found.synsets("cars") for lemma in each.lemmas()} == {"car", "auto"}


def test_princetons_archive_has_the_files_in_a_folder_of_its_own(places, monkeypatch):
    write_wordnet(places["named"] / "dict")
    monkeypatch.setenv(meteor.VARIABLE, str(places["named"]))
    assert meteor.find_wordnet().get_version() == "9.9"


async def unavailable_for(reason):
    measure, without = await both("we start", "we begin")
    assert measure.problem == "unavailable"
    assert reason in measure.reason
    assert Meteor().identity == "Chinese by character, without WordNet"
    assert without.problem is None
    return measure.reason


async def test_without_wordnet_it_is_not_available_and_the_ways_to_it_are_told(places):
    reason = await unavailable_for("no WordNet on this machine")
    for way in ("wordnet-base", "nltk", "DIALORE_WORDNET", "meteor-exact-stem"):
        assert way in reason


async def test_a_named_folder_that_is_none_is_not_passed_over(places, monkeypatch):
    write_wordnet(places["debian"])
    monkeypatch.setenv(meteor.VARIABLE, str(places["named"]))
    await unavailable_for("WordNet of DIALORE_WORDNET cannot be read: FileNotFoundError")


def not_there(folder):
    (folder / "index.verb").unlink()


def no_index(folder):
    (folder / "index.noun").write_text("car n one 0 1 0 00000000\n")


def binary(folder):
    (folder / "index.adj").write_bytes(bytes(range(128, 256)))


DAMAGES = {not_there: "FileNotFoundError", no_index: "WordNetError", binary: "UnicodeDecodeError"}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_a_broken_wordnet_is_not_available_and_says_what_is_broken(places, damage):
    damage(write_wordnet(places["debian"]))
    await unavailable_for(f"WordNet of Debian's package cannot be read: {DAMAGES[damage]}")


async def test_nltks_broken_data_are_passed_over_where_there_are_others(places):
    binary(write_wordnet(places["nltk"]))
    reason = await unavailable_for("WordNet of nltk's data cannot be read")
    assert "no WordNet" not in reason
    write_wordnet(places["debian"])
    meteor._find.cache_clear()
    assert meteor.find_wordnet().get_version() == "9.9"


def spoil(folder):
    index = write_wordnet(folder) / "index.verb"
    index.write_text(index.read_text().replace("start v 1 0 1 0 00000", "start v 1 0 1 0 00001"))


async def test_an_index_of_other_files_is_found_out_at_the_word(places):
    spoil(places["debian"])
    measure, _ = await both("we start", "we begin")
    assert (measure.problem, "WordNet is damaged" in measure.reason) == ("failed", True)
    measure, _ = await both("an auto", "a car")
    assert measure.values[0] == pytest.approx(0.5)


async def test_without_nltk_the_extra_is_named(places, monkeypatch):
    monkeypatch.setitem(sys.modules, "nltk.data", None)
    with pytest.raises(MissingExtraError, match="METEOR needs an optional dependency"):
        await both("we start", "we begin")


@pytest.mark.parametrize(("before", "problem"), [(None, "unavailable"), (spoil, "failed")])
async def test_meteor_is_measured_anew_once_wordnet_is_there_and_whole(places, tmp_path, before, problem):
    if before is not None:
        before(places["debian"])
    with RunStore.create(tmp_path / "run") as store, store.writing():
        dialogue = Dialogue(id="d", turns=["Hello"], reference="we begin")
        store.set_up({}, [System(0, "m", "m", {}, "x")], [dialogue])
        store.add(Job(0, 0), Response(id="d", method="m", text="we start"))
        await measure_run(store, [Meteor()])
        assert dict(store.measures("meteor", 0))[Job(0, 0)].problem == problem
        shutil.rmtree(places["debian"], ignore_errors=True)
        write_wordnet(places["debian"])
        meteor._find.cache_clear()
        await measure_run(store, [Meteor()])
        assert dict(store.measures("meteor", 0))[Job(0, 0)].values == pytest.approx((1 - 0.5 / 8,))
