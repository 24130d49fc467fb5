"""How sentences become passages."""

from __future__ import annotations

import pytest

from dialore.errors import InputError, UnknownNameError
from dialore.retrieval.chunking import Chunking, Paragraph, Section, count_words


def section(*texts: str, title: str = "Guide") -> Section:
    return Section([Paragraph(text, page) for page, text in enumerate(texts, start=1)], title, "http://x/y", {"k": 1})


def test_passages_keep_sentences_whole_and_overlap_by_one():
    sentences = [f"Sentence number {at} has exactly seven words." for at in range(10)]
    pieces = list(Chunking(words=22, overlap=1).split(section(" ".join(sentences)), "a.txt"))
    assert [piece.text for piece in pieces] == [" ".join(sentences[start : start + 3]) for start in (0, 2, 4, 6)] + [
        " ".join(sentences[8:])
    ]
    assert pieces[0].title == "Guide"
    assert (pieces[0].url, pieces[0].file, pieces[0].metadata) == ("http://x/y", "a.txt", {"k": 1})
    apart = list(Chunking(words=22, overlap=0).split(section(" ".join(sentences))))
    assert " ".join(piece.text for piece in apart) == " ".join(sentences)


def test_the_units():
    two = section("One is here. Two is here.", "Three is here.")
    assert [(p.text, p.page) for p in Chunking("sentence").split(two)] == [
        ("One is here.", 1),
        ("Two is here.", 1),
        ("Three is here.", 2),
    ]
    assert [p.text for p in Chunking("whole", words=1).split(two)] == ["One is here. Two is here. Three is here."]
    assert [p.text for p in Chunking().split(section("今天很好。", "明天 下雨。"))] == ["今天很好。明天 下雨。"]
    assert list(Chunking().split(section("", "  "))) == []
    assert list(Chunking("whole").split(Section([]))) == []
    with pytest.raises(UnknownNameError, match="did you mean sentence"):
        Chunking("sentences")
    with pytest.raises(InputError, match="0 words"):
        Chunking(words=0)


def test_what_never_ends_is_cut_after_all():
    endless = "word, " * 2000
    pieces = list(Chunking(words=50, overlap=0).split(section(endless)))
    assert all(count_words(piece.text) <= 150 for piece in pieces)
    assert " ".join(piece.text for piece in pieces).split() == endless.split()
    unspaced = "字" * 5000
    assert "".join(piece.text for piece in Chunking(words=50, overlap=0).split(section(unspaced))) == unspaced
    code = "x" * 100_000
    pieces = list(Chunking(words=50, overlap=0).split(section(code)))
    assert len(pieces) > 100
    assert "".join(piece.text for piece in pieces).replace(" ", "") == code


def test_words_are_counted_by_script():
    assert count_words("three small words") == 3
    assert count_words("北京大学图书馆里") == 5
    assert count_words("去 Beijing 玩") == 2
