"""Misspelt words of a query, replaced by terms of what is searched."""

from __future__ import annotations

import pytest

from dialore.knowledge import Passage
from dialore.retrieval.bm25 import correct
from dialore.retrieval.documents.indexing import build_documents
from dialore.sources.documents import DocumentIndex

TERMS = ["carbon", "filter", "lake", "bike", "open", "quiet", "chang", "car"]


def vocabulary(letter: str) -> list[str]:
    return [term for term in TERMS if term.startswith(letter)]


@pytest.mark.parametrize(
    ("query", "corrected"),
    [
        ("how do i change the carbn filtr", "how do i change the carbon filter"),
        ("is the lkae on a bkie", "is the lake on a bike"),
        ("when is it opne", "when is it open"),
        # English words stay, though a term is near.
        ("may i quit the car", "may i quit the car"),
        # So do names, short words, and what nothing is near to.
        ("is Filtr the best carbn brand", "is Filtr the best carbon brand"),
        ("does my cra go to xyzzyx", "does my cra go to xyzzyx"),
        # Other languages are left alone.
        ("wo liegt das filtr und der lkae", "wo liegt das filtr und der lkae"),
        ("滤芯多久换一次", "滤芯多久换一次"),
        ("", ""),
    ],
)
def test_words_that_english_does_not_know_become_the_nearest_term(query, corrected):
    assert correct(query, vocabulary) == corrected


def test_a_document_index_finds_what_a_misspelt_query_means(tmp_path):
    texts = [Passage("Change the carbon filter every six weeks.", "Filter"), Passage("The round of the lake is 9 km.")]
    texts += [Passage(f"Room {number} has a view of the harbour.") for number in range(20)]
    build_documents(tmp_path / "d.idx", texts=texts, name="d")
    with DocumentIndex(tmp_path / "d.idx", retriever="bm25") as index:
        assert [piece.text for piece in index.find("how oftn is the carbn filtr changed", 1)] == [texts[0].text]
        assert not index.find("zzyzzy carbxx", 1)
