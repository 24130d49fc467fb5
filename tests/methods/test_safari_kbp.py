"""SAFARI's retrieval on real data: scores as in `expected/safari.json`, which `measure_persona_retrieval.py` writes."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from tests.data_folder import real_file

EXPECTED = json.loads((Path(__file__).parent / "expected" / "safari.json").read_text(encoding="utf-8"))
SCRIPTS = Path(__file__).parents[2] / "scripts"
# Percent of some hundred responses; a tie that falls otherwise changes it by some tenths.
TOLERANCE = 0.3
FIRST = 200
# What the authors' own code gives on the development split. In 11 of 1,036 responses another text comes first there: of
# equal scores the one that numpy's unstable sort puts last, or one with a space at its end, which is not read here.
AUTHORS = {"persona": 48.00, "both: persona": 53.13, "documents": 13.39, "documents†": 14.71}


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("measure_persona_retrieval")
    finally:
        sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def responses(script):
    return script.read_responses(real_file("kbp/dev.json.gz"))


def test_the_split_is_the_published_one(responses):
    counts = {"persona": 0, "both": 0}
    for dialogue in responses:
        counts["both" if len(dialogue.sources) > 1 else "persona"] += 1
    assert counts == EXPECTED["dev"]["responses"] == {"persona": 125, "both": 911}


async def test_the_paper_s_bm25_finds_what_the_authors_code_finds(script, responses):
    found = await script.measure(responses, **script.ROWS["bm25 of the paper"])
    assert script.percents(found) == pytest.approx(AUTHORS, abs=0.4)
    assert script.percents(found) == pytest.approx(EXPECTED["dev"]["recall@1"]["bm25 of the paper"], abs=0.01)
    # The paper prints it the other way round: with the dependency more documents, not fewer.
    assert found["documents"].value < found["documents†"].value
    assert script.TARGET["documents"] < script.TARGET["documents†"]


async def test_the_default_retrieval_scores_as_expected(script, responses):
    found = await script.measure(responses[:FIRST])
    wanted = EXPECTED[f"dev, first {FIRST}"]["recall@1"]["dialogue (the default)"]
    assert script.percents(found) == pytest.approx(wanted, abs=2 * TOLERANCE)


def test_each_part_of_the_ranking_is_worth_its_place():
    scores = EXPECTED["dev"]["recall@1"]
    default = scores["dialogue (the default)"]
    assert default["both: persona"] > scores["dialogue without the documents under a sentence"]["both: persona"] + 10
    assert default["documents"] > scores["dialogue without what was told"]["documents"] + 1
    assert default["documents"] > scores["fused, last turn"]["documents"] + 20
    # What the paper's trained retriever reaches with its documents (Table 5, DPR: 51.67, and 39.33 without dependency).
    assert default["documents"] > 51.67
    assert default["documents†"] > 39.33
