"""Front matter is read value by value, without the conversions of YAML 1.1; what cannot be read is named."""

from __future__ import annotations

import json

import pytest

from dialore.retrieval.loaders.front_matter import split_front_matter

BODY = "\nBody of the note.\n"


def read(text):
    notices = []
    front = split_front_matter(text, lambda where, why: notices.append(f"{where}{why}"))
    return front, notices


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("18:35", "18:35"),
        ("12:30:00", "12:30:00"),
        ("01234", "01234"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("no", "no"),
        ("NO", "NO"),
        ("on", "on"),
        ("2024-02-03", "2024-02-03"),
        ("2024-02-30", "2024-02-30"),
        ("1e999", "1e999"),
        (".nan", ".nan"),
        (".inf", ".inf"),
        ("1.10", "1.10"),
        ("9" * 40, "9" * 40),
        ("'2024'", "2024"),
        ("2024", 2024),
        ("-2.5", -2.5),
        ("true", True),
        ("~", None),
        ("[a, 01, 2]", ["a", "01", 2]),
        ("{a: no, b: [1]}", {"a": "no", "b": [1]}),
        ("\n  - a\n  - b", ["a", "b"]),
        ("|\n  two\n  lines", "two\nlines\n"),
        ("!!python/name:os.system x", "x"),
    ],
)
def test_values_stand_as_they_are_written(line, value):
    front, notices = read(f"---\nfield: {line}\ntags: [x]\n---\n{BODY}")
    assert (front.metadata, notices) == ({"field": value, "tags": ["x"]}, [])
    assert front.text == BODY


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("{{date:YYYY-MM-DD}}", "{{date:YYYY-MM-DD}}"),
        ("{% now %}", "{% now %}"),
        ("a: b", "a: b"),
        ("@handle and more", None),
        ("[", None),
        ("*alias", None),
        ('"open', None),
        ("[" * 100 + "]" * 100, None),
    ],
)
def test_a_value_that_cannot_be_read_loses_no_other(line, value):
    front, notices = read(f"---\ntitle: Daily\nfield: {line}\nyear: 2024\n---\n{BODY}")
    assert front.title == "Daily"
    assert front.metadata == {**({"field": value} if value else {}), "year": 2024}
    assert ["field" in notice for notice in notices] == [True]
    assert front.text == BODY


def test_aliases_are_refused_one_by_one():
    lines = ["a: &a [x, x, x, x]", *(f"{name}: &{name} [*{of}, *{of}]" for of, name in ("ab", "bc", "cd"))]
    front, notices = read("\n".join(["---", *lines, "year: 2024", "---", BODY]))
    assert front.metadata == {"a": ["x"] * 4, "year": 2024}
    assert [notice.count("alias") for notice in notices] == [1, 1, 1]


@pytest.mark.parametrize(
    ("text", "metadata", "problems"),
    [
        ("+++\ntitle = 'T'\nday = 2024-02-03\nx = nan\n+++\n", {"day": "2024-02-03", "x": "nan"}, 0),
        ("+++\ntitle = 'T'\nbad = {{ x }}\nyear = 2024\n[more]\na = 1\n+++\n", {"year": 2024, "more": {"a": 1}}, 1),
        ('{"title": "T", "year": 2024, "zip": "01234"}\n', {"year": 2024, "zip": "01234"}, 0),
        ("---json\n{\"title\": \"T\", \"year\": 2024}\n---\n", {"year": 2024}, 0),
        ("---\ntitle: T\nyear: 1\nyear: 2\n---\n", {"year": 2}, 1),
        ("---\ntitle: T\nyear: 1\nneither key nor value\n---\n", {"year": 1}, 1),
        ("---\r\ntitle: T\r\nyear: 1\r\n---\r\n", {"year": 1}, 0),
        ("---\ntitle: T\nmeta:\n  year: 1\n...\n", {"year": 1}, 0),
    ],
)  # fmt: skip
def test_toml_and_json_are_front_matter_too(text, metadata, problems):
    front, notices = read(text + BODY)
    assert (front.title, front.metadata, len(notices)) == ("T", metadata, problems)
    assert front.text == BODY


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nBetween two rules.\n\n---\n\nBelow.\n",
        "\n---\nNote: this is text\n---\n",
        "{not JSON}\n\ntext\n",
        json.dumps({"a": 1}) + " and more text\n",
        "----\na: b\n----\n",
        "# Title\n\n---\n\nText: more\n",
    ],
)
def test_what_is_no_front_matter_stays_text(text):
    front, notices = read(text)
    assert (front.text, front.metadata, notices) == (text, {}, [])
