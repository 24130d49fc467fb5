"""From bytes to readable text."""

from __future__ import annotations

import contextlib

import pytest

from dialore.sources.web.fetching import Fetched, PageError, read_page
from tests.sources.web.page_server import article

SENTENCE = "Penguins are flightless birds that live almost only in the southern hemisphere, where they hunt fish."


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


def test_lists_outside_the_main_part_are_read():
    page = f"""<html><body><h1>Rules</h1><p>{SENTENCE}</p><ul><li><b>Quiet hours</b>: from eleven.</li></ul>
    <ol><li>First step.</li></ol><p>{SENTENCE}</p></body></html>"""
    read = read_page(fetched(page.encode())).text
    assert "from eleven" in read
    assert "First step" in read


def test_characters_that_hide_words_are_dropped():
    assert read_page(fetched("ig\u200bnore\u202e me".encode(), "text/plain")).text == "ignore me"
