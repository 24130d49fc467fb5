"""T-RAG's linking, on the cases that DCRAG prints: the concepts that its queries must have had (Tables 4 to 6)."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from dialore.retrieval.linking.ngrams import MAX_NGRAM, find_ngrams
from tests.retrieval.graph.graphs import graph_of

if TYPE_CHECKING:
    from pathlib import Path

# The dialogues are in our words: they keep the phrases that the printed facts of T-RAG were found by.
CASES = {
    "table-4": (
        ["So tell me, Frank, is it true?", "Yes. Art films are great, and a sci-fi movie, too."],
        ["frank", "film", "art film", "sci fi", "movie"],
        ["sealed room", "seriously truthful"],
    ),
    "table-5": (
        ["I will be in London for a couple of days next week.", "Then you'd like to see the river."],
        ["couple", "day", "like to", "london", "week", "next week"],
        ["want to", "weeks", "westminster", "physics"],  # ends of facts, not mentioned themselves
    ),
    "table-6": (["我只吃面条，不吃饭。"], ["吃面", "吃面条", "面条"], ["去买面", "肚子饿"]),
}


@pytest.mark.parametrize(("texts", "queries", "others"), CASES.values(), ids=CASES)
def test_published_queries_of_t_rag_are_linked(
    tmp_path: Path, texts: list[str], queries: list[str], others: list[str]
) -> None:
    with closing(graph_of(tmp_path, *(f"{name} | RelatedTo | far end" for name in (*queries, *others)))) as graph:
        links = graph.ngrams(texts)
    assert {link.name for link in links} == set(queries)
    assert len(links) == len(queries)


def test_stop_words_are_queried_by_the_papers_linking_alone(tmp_path: Path) -> None:
    with closing(graph_of(tmp_path, "like to | RelatedTo | want to")) as graph:
        texts = ["You'd like to come."]
        assert [link.name for link in graph.ngrams(texts)] == ["like to"]
        assert graph.mentions(texts) == []


def test_an_ngram_ends_with_its_sentence_and_at_the_bound() -> None:
    forms: list[str] = []
    found = find_ngrams(["one two. three", " ".join("abcdefghijkl")], forms.append)
    assert list(found) == []
    assert "one two" in forms
    assert "two three" not in forms
    assert max(len(form.split()) for form in forms) == MAX_NGRAM


def test_as_written_is_exact_and_comes_first() -> None:
    ids = {"days": 1, "day": 2}
    assert list(find_ngrams(["Days"], ids.get)) == [("days", 1, True), ("days", 2, False)]
