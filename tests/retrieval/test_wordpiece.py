"""WordPiece against the library that it stands in for."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from dialore.errors import InputError
from dialore.retrieval.graph.starter import starter_facts
from dialore.retrieval.static import WordPiece
from dialore.text import is_chinese

FILE = Path(str(resources.files("dialore") / "data" / "embedding" / "english.tokenizer.json"))
ODD = [
    "",
    "   ",
    "don't stop-believing, e.g. 3.14% of $5 (or more)!",
    "naïve café Ñandú Ångström straße ﬁne",
    "tabs\tand\nlines\r\nand\x00nul\x07bell\x1fsep\x7fdel",
    "zero\u200bwidth soft\u00adhyphen no\u00a0break",
    "日本語 and 한국어 mixed 漢字text",
    "emoji 😀 and symbols ™ © € ½ ² ± × ÷ …—–“quotes”",
    "a" * 101,
    "b" * 100,
    "under_score C++ @home #tag a/b\\c ^~`|{}[]",
    "ελληνικά русский עברית العربية हिन्दी ไทย",
    "ÀÉÎÕÜ İstanbul ǅ ſharp",
]


@pytest.fixture(scope="module")
def pieces():
    return WordPiece.load(FILE)


def test_every_text_is_cut_as_the_library_cuts_it(pieces):
    tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers library is not installed")
    library = tokenizers.Tokenizer.from_file(str(FILE))
    unknown = library.token_to_id("[UNK]")
    facts = [f"{fact.head} {fact.tail}" for fact in starter_facts() if not is_chinese(fact.head + fact.tail)]
    for text in [*ODD, *facts]:
        wanted = [number for number in library.encode(text, add_special_tokens=False).ids if number != unknown]
        assert pieces.ids(text) == wanted, text


def test_the_longest_tokens_are_taken():
    pieces = WordPiece({"un": 1, "##able": 2, "unable": 3, "##a": 4, "!": 5})
    assert pieces.ids("Unable!") == [3, 5]
    assert pieces.ids("una") == [1, 4]
    assert pieces.ids("unz able") == []


@pytest.mark.parametrize("text", ["", "{}", '{"model": {"type": "BPE"}}'])
def test_another_file_is_one_clear_error(tmp_path, text):
    path = tmp_path / "tokenizer.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="token"):
        WordPiece.load(path)
