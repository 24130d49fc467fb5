"""A conversation may be long; how long a cell others may read is not OpenDialKG's business."""

from __future__ import annotations

import csv
import json

from dialore.datasets import data_set


def test_a_long_conversation_is_read_and_the_limit_stays_as_it_was(tmp_path):
    said = [
        {"type": "chat", "sender": "user", "message": "word " * 40_000},
        {"type": "chat", "sender": "assistant", "message": "Yes."},
    ]
    path = tmp_path / "valid.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["Messages"], [json.dumps(said)]])
    before = csv.field_size_limit()
    dialogues = data_set("opendialkg").read(path)
    assert len(next(iter(dialogues)).turns[0].text) > 131_072
    assert csv.field_size_limit() == before
