"""LoCoMo: questions with the turns of a conversation as memory."""

from __future__ import annotations

import json

import pytest

from dialore.datasets import data_set, split_dialogues
from dialore.errors import InputError
from dialore.sources.memory import MemorySource
from tests.data_folder import real_file

SAMPLE = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ann",
        "speaker_b": "Ben",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ann", "dia_id": "D1:1", "text": "I joined a choir."},
            {"speaker": "Ben", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a red boat"},
        ],
        "session_2_date_time": "9:00 am on 3 June, 2023",
        "session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "I left the choir."}],
    },
    "qa": [
        {"question": "What did Ann join?", "answer": "a choir", "evidence": ["D1:1"], "category": 4},
        {"question": "How old is Ben?", "adversarial_answer": "30", "evidence": ["D9:1; D1:2"], "category": 5},
    ],
}


async def test_a_question_has_the_turns_as_memory_and_those_that_answer_it_as_gold(tmp_path):
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([SAMPLE]), "utf-8")
    (first,) = split_dialogues(data_set("locomo").read(path), cut="all")
    assert (first.last.text, first.reference, first.extra["category"]) == (
        "What did Ann join?",
        "a choir",
        "single-hop",
    )
    assert [*first.knowledge] == [{"text": "I joined a choir.", "turn": "D1:1", "session": "D1"}]
    found = await MemorySource().search("joined a choir", first, top=1)
    assert (found[0].text, found[0].said) == ("I joined a choir.", "Ann, 2023-05-08")
    june = await MemorySource().search("What did Ann do in June 2023?", first)
    assert june[0].text == "I left the choir."  # statements of other months stay candidates
    (second,) = split_dialogues(data_set("locomo-adversarial").read(path), cut="all")
    assert (second.reference, [one["turn"] for one in second.knowledge]) == ("not mentioned", ["D1:2"])
    assert second.knowledge[0]["text"] == "Look! [shares a picture: a red boat]"


def test_questions_that_an_audit_found_wrong_are_left_out(tmp_path):
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([SAMPLE]), "utf-8")
    (tmp_path / "errors.json").write_text(json.dumps([{"question_id": "locomo_0_qa0"}]), "utf-8")
    reader = data_set("locomo")
    with pytest.raises(InputError, match="left out"):
        list(reader.read(path))
    assert reader.report.left_out.total() == 1


def test_the_published_file():
    path = real_file("locomo/locomo_1_to_5.json.gz")
    dialogues = split_dialogues(data_set("locomo").read(path), cut="all")
    assert len(dialogues) == 999 - 237 - 85
    assert sum(bool(one.knowledge) for one in dialogues) > 670
    assert len(list(data_set("locomo-adversarial").read(path))) == 237


@pytest.mark.parametrize("text", [None, "", "  "])
def test_a_question_whose_evidence_has_no_text_is_left_out_and_counted(tmp_path, text):
    turn = {"speaker": "Ann", "dia_id": "D1:1", "text": text}
    sample = {**SAMPLE, "conversation": {**SAMPLE["conversation"], "session_1": [turn]}}
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([sample]), "utf-8")
    with pytest.raises(InputError, match="locomo-conv-1-0"):
        list(data_set("locomo").read(path))
    sample["conversation"]["session_1"] = [{**turn, "blip_caption": "a red boat"}]
    path.write_text(json.dumps([sample]), "utf-8")
    (dialogue,) = split_dialogues(data_set("locomo").read(path), cut="all")
    assert dialogue.knowledge[0]["text"] == "[shares a picture: a red boat]"
