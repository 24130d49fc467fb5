"""The time that a question is about."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dialore.sources.periods import holds_from, is_of_the_past, period_of

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "begins", "ends"),
    [
        ("Where did I live last spring?", "2026-03-01", "2026-06-01"),
        ("What did we say in May 2023?", "2023-05-01", "2023-06-01"),
        ("What happened on 7 May, 2023?", "2023-05-07", "2023-05-08"),
        ("What happened on May 7th, 2023?", "2023-05-07", "2023-05-08"),
        ("What did I do last week?", "2026-11-16", "2026-11-23"),
        ("Three weeks ago I told you my plan.", "2026-11-02", "2026-11-10"),
        ("Where was I yesterday?", "2026-11-26", "2026-11-27"),
        ("My job in 2022?", "2022-01-01", "2023-01-01"),
        ("Where was I in December?", "2025-12-01", "2026-01-01"),
        ("last winter", "2025-12-01", "2026-03-01"),
        ("the summer of 2024", "2024-06-01", "2024-09-01"),
        ("since 2023-05", "2023-05-01", "2023-06-01"),
        ("去年春天我在哪儿住？", "2025-03-01", "2025-06-01"),
        ("2023年5月7日我说了什么？", "2023-05-07", "2023-05-08"),
        ("上个月", "2026-10-01", "2026-11-01"),
        ("上周我买了什么？", "2026-11-16", "2026-11-23"),
        ("三天前", "2026-11-24", "2026-11-25"),
        ("5月3号", "2026-05-03", "2026-05-04"),
        ("2019年夏天", "2019-06-01", "2019-09-01"),
    ],
)
def test_a_time_is_read(text, begins, ends):
    period = period_of(text, NOW)
    assert (period.begins.date().isoformat(), period.ends.date().isoformat()) == (begins, ends)


@pytest.mark.parametrize("text", ["May I ask?", "I have 2023 books.", "on 31 February 2023", "我住哪儿？"])
def test_no_time_is_read_where_none_is_named(text):
    assert period_of(text, NOW) is None


def test_words_of_the_past():
    assert is_of_the_past("Where did I use to live? I used to live by the sea.")
    assert is_of_the_past("我以前住在哪儿？")
    assert not is_of_the_past("Where do I live?")


@pytest.mark.parametrize(
    ("statement", "since"),
    [
        ("My sister is getting married in March.", None),
        ("I work as a baker in January.", None),
        ("My birthday is on May 3.", None),
        ("我妹妹三月要结婚。", None),
        ("I moved to York in March.", "2026-03-01"),
        ("I have lived in York since May.", "2026-05-01"),
        ("我3月搬到了约克。", "2026-03-01"),
    ],
)
def test_only_the_past_tense_and_since_say_since_when_a_statement_holds(statement, since):
    begins = holds_from(statement, NOW)
    assert (begins and begins.date().isoformat()) == since


def test_a_month_of_a_plan_is_the_next_one():
    assert period_of("We will fly in August.", NOW).begins.date().isoformat() == "2027-08-01"
