"""A shelf: passages in memory as a source of knowledge."""

from __future__ import annotations

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, UnknownNameError
from dialore.knowledge import Passage
from dialore.sources.base import KnowledgeSource
from dialore.sources.in_memory import InMemoryPassages

ENGLISH = Dialogue(id="1", turns=["How warm is a hive in winter?"])
CHINESE = Dialogue(id="2", turns=["泡绿茶用多热的水？"])
BEES = Passage(
    "In winter honey bees shiver to keep their queen warm.",
    "Bees",
    "https://bees.example/winter",
    provenance="notes",
)
BREAD = Passage("Sourdough rises by wild yeast.", "Bread")
TEA = Passage("泡绿茶的水以八十度左右为宜。", "绿茶")


def shelf(**changes):
    return InMemoryPassages([BREAD, BEES, TEA, BEES], **changes)


def test_it_is_a_source_that_can_be_ranked_otherwise():
    assert isinstance(shelf(), KnowledgeSource)
    assert len(shelf()) == 3


@pytest.mark.parametrize("retriever", ["fused", "bm25", "dense"])
async def test_the_best_comes_first_with_all_that_is_known_of_it(retriever):
    found = await shelf(retriever=retriever).search("warm bees in winter", ENGLISH)
    assert found[0].text == BEES.text
    assert found[0].id == BEES.id
    assert (found[0].kind, found[0].source) == ("passage", "documents")
    assert found[0].location == {"title": "Bees", "url": "https://bees.example/winter"}
    assert found[0].provenance == "notes"
    assert [piece.score for piece in found] == sorted((piece.score for piece in found), reverse=True)
    assert found[0].score > 0


async def test_a_title_is_searched_too_and_bm25_finds_nothing_without_a_word():
    assert [piece.text for piece in await shelf(retriever="bm25").search("bread", ENGLISH)] == [BREAD.text]
    assert await shelf(retriever="bm25").search("volcano", ENGLISH) == []
    assert len(await shelf().search("volcano", ENGLISH, top=2)) == 2
    assert await shelf().search("volcano", ENGLISH, top=0) == []


async def test_passages_of_another_language_are_left_out_where_that_is_wanted():
    own = shelf(own_language=True)
    assert [piece.text for piece in await own.search("bees 绿茶", CHINESE)] == [TEA.text]
    assert TEA.text not in [piece.text for piece in await own.search("绿茶", ENGLISH)]
    assert len(await shelf().search("bees 绿茶", CHINESE)) == 3
    assert len(await own.by("dense").search("bees 绿茶", CHINESE)) == 1


async def test_it_can_stand_in_for_the_web():
    web = shelf(kind="web", name="a shelf")
    assert (web.kind, web.name) == ("web", "a shelf")
    assert (await web.search("bees", ENGLISH))[0].source == "web"
    assert (await web.by("bm25").search("bees", ENGLISH))[0].source == "web"


def test_another_ranking_is_made_once():
    one = shelf()
    assert one.by("fused").retriever is one.retriever
    assert one.by("dense").retriever is one.by("dense").retriever
    assert one.by("dense").retriever.name == "dense"
    assert one.by("dense").passages == one.passages


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: InMemoryPassages([BEES], retriever="bm26"), UnknownNameError),
        (lambda: InMemoryPassages([BEES], kind="graph"), UnknownNameError),
        (lambda: shelf().by("nearest"), UnknownNameError),
        (lambda: InMemoryPassages([" "]), InputError),
    ],
)
def test_what_cannot_be_is_said(make, error):
    with pytest.raises(error):
        make()
