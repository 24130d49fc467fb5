"""From bytes to readable text."""

from __future__ import annotations

import contextlib

import pytest

from dialore.sources.web.fetching import Fetched, PageError
from dialore.sources.web.reading import decode, read_page
from tests.sources.web.page_server import article

SENTENCE = "Penguins are flightless birds that live almost only in the southern hemisphere, where they hunt fish."
CHINESE = "企鹅是一种不会飞的鸟，几乎只生活在南半球，它们在海里捕食鱼和磷虾。"


def fetched(data: bytes, kind: str = "text/html", charset: str = "") -> Fetched:
    return Fetched("https://example.org/p", data, kind, charset)


def test_the_text_without_menu_and_footer():
    read = read_page(fetched(article("All about penguins", SENTENCE, "They can swim at " + "high speed. " * 3)))
    assert SENTENCE in read.text
    assert read.title == "All about penguins"
    assert "Shop" not in read.text
    assert "Terms and conditions" not in read.text


def test_plain_text_is_read_as_it_is():
    assert read_page(fetched(b" one < two \n", "text/plain")).text == "one < two"


@pytest.mark.parametrize(
    "data", [b"", b"<html></html>", b"\x00\x01\x02", b"<html><body><script>x()</script></body></html>"]
)
def test_a_page_without_text_is_a_page_error(data):
    with pytest.raises(PageError, match="no readable text"):
        read_page(fetched(data))


def test_deep_nesting_breaks_nothing():
    page = b"<div>" * 20_000 + SENTENCE.encode() + b"</div>" * 20_000
    with contextlib.suppress(PageError):
        assert read_page(fetched(page)).text == SENTENCE


@pytest.mark.parametrize(
    ("encoding", "header", "meta"),
    [
        ("utf-8", "utf-8", ""),
        ("utf-8", "", ""),
        ("utf-8", "iso-8859-1", ""),
        ("utf-8-sig", "gbk", ""),
        ("gb18030", "gb2312", ""),
        ("gb18030", "", "gbk"),
        ("gb18030", "utf-8", ""),
        ("gb18030", "", ""),
        ("big5", "big5", ""),
        ("utf-16", "", ""),
        ("gb18030", "rot13", ""),
        ("gb18030", "no-such-thing", "gb2312"),
    ],
)
def test_charsets_true_wrong_and_missing(encoding, header, meta):
    text = "企鵝不會飛" if encoding == "big5" else CHINESE
    html = f'<html><head><meta charset="{meta}"></head><body>{text}</body></html>' if meta else f"<p>{text}</p>"
    assert text in decode(html.encode(encoding), header)


def test_western_pages_without_a_label():
    assert decode("caf\xe9 au lait, 5 \u20ac".encode("cp1252")) == "caf\xe9 au lait, 5 \u20ac"
    assert "d\xe9j\xe0" in decode("d\xe9j\xe0 vu".encode("latin-1"), "iso-8859-1")


def test_one_broken_byte_does_not_spoil_a_page():
    assert decode(f"{CHINESE} caf\xe9 ".encode() + b"\xff", "utf-8").startswith(f"{CHINESE} caf\xe9")


def test_bytes_that_are_no_text_do_not_raise():
    assert isinstance(decode(bytes(range(256)) * 4, "utf-8"), str)


def test_characters_that_hide_words_are_dropped():
    assert read_page(fetched("ig\u200bnore\u202e me".encode(), "text/plain")).text == "ignore me"
