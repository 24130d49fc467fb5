"""Messages are read as a person sees them, however their parts are told from each other."""

from __future__ import annotations

import base64

import pytest

from dialore.retrieval.chunking import Unreadable
from dialore.retrieval.loaders.reading import read_sections

WORDS = "The ferry leaves at 18:35."
HEAD = "From: ann@example.org\nSubject: Ferry\nMIME-Version: 1.0\n"


def read(tmp_path, content: str, ending: str = ".eml", file_format: str = "eml"):
    """Return the texts of a file, its notices and its sections."""
    path = tmp_path / f"file{ending}"
    path.write_bytes(content.encode())
    notices: list[str] = []
    sections = list(read_sections(path, file_format, pytest.fail, lambda where, why: notices.append(f"{where}: {why}")))
    text = "\n".join(paragraph.text for section in sections for paragraph in section.paragraphs)
    return text, notices, sections


def mail(kind: str, *parts: str, boundary: str = "X") -> str:
    """A message of several parts."""
    body = "".join(f"--{boundary}\n{part}\n" for part in parts)
    return f"{HEAD}Content-Type: {kind}\n\n{body}--{boundary}--\n"


PLAIN = f"Content-Type: text/plain; charset=utf-8\n\n{WORDS}\n"


@pytest.mark.parametrize("boundary", ["----=_Next_0093", "a=b/c?d", "(x):y"])
@pytest.mark.parametrize("after", ["", ";\n charset=utf-8"])
def test_boundaries_without_quotes_part_a_message(tmp_path, boundary, after):
    text, notices, _ = read(tmp_path, mail(f"multipart/mixed;\n boundary={boundary}{after}", PLAIN, boundary=boundary))
    assert WORDS in text
    assert boundary not in text
    assert not notices


@pytest.mark.parametrize("kind", ["multipart/mixed", 'multipart/alternative; boundary="other"'])
def test_parts_are_found_by_their_lines_if_the_head_names_no_or_another_boundary(tmp_path, kind):
    encoded = "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\ncaf=C3=A9"
    text, notices, _ = read(tmp_path, mail(kind, encoded))
    assert text.splitlines()[-1] == "café"
    assert len(notices) == 1


def test_what_cannot_be_parted_is_read_as_text_with_a_notice(tmp_path):
    text, notices, _ = read(tmp_path, f"{HEAD}Content-Type: multipart/mixed\n\n{WORDS}\n")
    assert WORDS in text
    assert "plain text" in notices[0]


CALENDAR = r"""BEGIN:VCALENDAR
METHOD:REQUEST
BEGIN:VTIMEZONE
DTSTART:19701025T030000
END:VTIMEZONE
BEGIN:VEVENT
SUMMARY:Trip\, by ferry
LOCATION:Pier 7
DTSTART;TZID=Europe/Berlin:20260501T183500
DTEND:20260501T193500Z
ORGANIZER;CN="Ann: B":mailto:ann@example.org
ATTENDEE;CN=Ben:mailto:ben@example.org
DESCRIPTION:Bring
  a coat.
BEGIN:VALARM
DESCRIPTION:alarm
END:VALARM
END:VEVENT
END:VCALENDAR"""


@pytest.mark.parametrize("kind", ["multipart/alternative", "multipart/mixed"])
def test_invitations_say_what_when_where_and_who_once(tmp_path, kind):
    invitation = f"Content-Type: text/calendar; method=REQUEST\n\n{CALENDAR}"
    attached = f"Content-Type: application/ics\nContent-Disposition: attachment; filename=i.ics\n\n{CALENDAR}"
    text, notices, _ = read(tmp_path, mail(f"{kind}; boundary=X", PLAIN, invitation, attached))
    for expected in (
        WORDS,
        "Trip, by ferry",
        "Pier 7",
        "2026-05-01 18:35 Europe/Berlin",
        "2026-05-01 19:35 UTC",
        "Ann: B <ann@example.org>",
        "Ben <ben@example.org>",
        "Bring a coat.",
    ):
        assert text.count(expected) == 1
    assert "1970" not in text
    assert "alarm" not in text
    assert not notices


@pytest.mark.parametrize("kind", ["message/delivery-status", "message/disposition-notification", "text/rfc822-headers"])
def test_reports_are_text(tmp_path, kind):
    report = f"Content-Type: {kind}\n\nReporting-MTA: dns; example.org\nDiagnostic-Code: smtp; 550 mailbox full\n"
    text, notices, _ = read(tmp_path, mail("multipart/report; boundary=X", PLAIN, report))
    assert WORDS in text
    assert "Diagnostic-Code: smtp; 550 mailbox full" in text
    assert not notices


@pytest.mark.parametrize("encoding", ["7bit", "base64", "quoted-printable"])
def test_messages_inside_messages_are_read_however_they_are_encoded(tmp_path, encoding):
    inner = f"From: x@example.org\nSubject: inner\n\n{WORDS}\n"
    if encoding == "base64":
        inner = base64.encodebytes(inner.encode()).decode()
    elif encoding == "quoted-printable":
        inner = inner.replace("18", "=31=38")
    part = f"Content-Type: message/rfc822\nContent-Transfer-Encoding: {encoding}\n\n{inner}"
    text, notices, sections = read(tmp_path, mail("multipart/mixed; boundary=X", part))
    assert WORDS in text
    assert "inner" in sections[-1].title
    assert not notices


@pytest.mark.parametrize(
    ("head", "content", "expected"),
    [
        ("text/markdown", "# Times\n\n*18:35*", "18:35"),
        ("text/csv", "name,price\nTea,3", "name: Tea | price: 3"),
        ("text/plain; name=notes.log\nContent-Disposition: attachment; filename=notes.log", WORDS, WORDS),
        ("text/x-unheard-of", WORDS, WORDS),
        ("text/enriched", f"<bold>{WORDS}</bold>", WORDS),
        ("text/html; name=a.bin\nContent-Disposition: attachment; filename=a.bin", f"<p>{WORDS}</p>", WORDS),
    ],
)
def test_texts_of_any_kind_are_read_by_their_type(tmp_path, head, content, expected):
    part = f"Content-Type: {head}\n\n{content}\n"
    text, notices, _ = read(tmp_path, mail("multipart/mixed; boundary=X", part))
    assert text.strip().splitlines()[-1].strip() == expected
    assert not notices


def test_a_mailbox_is_read_by_messages_and_bad_ones_are_reported(tmp_path):
    separator = "From ann@example.org Sun Oct 21 19:38:13 2007\n"
    good = mail("multipart/mixed; boundary=X", PLAIN + "\n>From here on.\n\nFrom the pier.")
    text, notices, _ = read(
        tmp_path, f"{separator}{good}\n{separator}no head\n\n{separator}{HEAD}\nBye.\n", ".mbox", "mbox"
    )
    for expected in (WORDS, "\nFrom here on.", "From the pier.", "Bye."):
        assert expected in text
    assert [notice.partition(":")[0] for notice in notices] == ["message 2"]
    with pytest.raises(Unreadable):
        read(tmp_path, "Hello.\n\nFrom here on.\n", ".mbox", "mbox")


def test_a_saved_web_page_is_read_without_its_resources(tmp_path):
    page = f"Content-Type: text/html\nContent-Transfer-Encoding: quoted-printable\n\n<p>{WORDS} caf=C3=A9</p>"
    style = "Content-Type: text/css\n\nbody { color: red }"
    content = mail('multipart/related; type="text/html"; boundary=X', page, style)
    content = f"Snapshot-Content-Location: https://example.org/ferry\n{content}"
    text, notices, sections = read(tmp_path, content, ".mht", "mhtml")
    assert text == f"{WORDS} café"
    assert [section.url for section in sections] == ["https://example.org/ferry"]
    assert not notices


def test_groups_in_the_head_of_a_message_hold_for_all_of_it(tmp_path):
    content = mail("multipart/mixed; boundary=X", PLAIN)
    _, _, sections = read(tmp_path, f"Groups: board, staff\n{content}")
    assert {tuple(section.metadata["groups"]) for section in sections} == {("board", "staff")}
