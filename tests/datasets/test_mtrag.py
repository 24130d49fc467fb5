"""MTRAG: conversations of tasks, in both published forms, and the script that measures retrieval over them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from dialore.datasets import data_set, knowledge_pieces, split_dialogues, stream_histories
from dialore.errors import InputError
from dialore.knowledge import Passage
from dialore.response import Response, StageTrace
from dialore.sources.in_memory import InMemoryPassages
from tests.data_folder import real_file

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "measure_mtrag_retrieval.py"))
MUGS = {"document_id": "d1", "title": "Mugs", "text": "Mugs\nThe Tarn mug holds a pint."}
ISLES = {"document_id": "d2", "text": "\nParcels to the islands take a week."}
INPUTS = ["How much does the Tarn hold?", "A pint.", "And who made it?"]


def said(texts):
    return [{"speaker": "agent" if place % 2 else "user", "text": text} for place, text in enumerate(texts)]


def task(number, contexts=(), **fields):
    return {
        "task_id": f"abc<::>{number}",
        "input": said(INPUTS[: 2 * number - 1]),
        "targets": [{"speaker": "agent", "text": ["A pint.", "I do not know."][number - 1]}],
        "contexts": list(contexts),
        "Question Type": ["Factoid"],
        "Multi-Turn": ["Follow-up"] if number > 1 else [],
        "Answerability": ["UNANSWERABLE" if number > 1 else "ANSWERABLE"],
        "Collection": "shop",
        **fields,
    }


OTHER = task(1, [{"document_id": "d2"}], task_id="xyz<::>1")
EVALUATED = {
    "name": "small",
    "tasks": [task(2), task(1, [{"document_id": "d1"}]), OTHER],
    "documents": [MUGS, ISLES],
    "evaluations": [],
}


def write(path, *entries):
    path.write_text("\n".join(map(json.dumps, entries)), "utf-8")
    return path


def read(path):
    return split_dialogues(data_set("mtrag").read(path), cut="all")


def test_tasks_of_a_conversation_are_one_dialogue(tmp_path):
    path = write(tmp_path / "small.json", EVALUATED)
    first, second, _ = read(path)
    assert (first.id, second.id) == ("mtrag-abc@1", "mtrag-abc@3")
    assert second.texts == tuple(INPUTS)
    assert [turn.speaker for turn in second.turns] == ["user", "system", "user"]
    assert first.knowledge == ({"text": "The Tarn mug holds a pint.", "title": "Mugs", "document_id": "d1"},)
    assert (second.knowledge, second.reference) == ((), "I do not know.")
    assert first.extra == {
        "collection": "shop",
        "answerability": "ANSWERABLE",
        "question_type": ["Factoid"],
        "task_id": "abc<::>1",
    }
    assert second.extra["multi_turn"] == ["Follow-up"]
    assert second.extra["answerability"] == "UNANSWERABLE"


def test_the_pool_is_what_the_file_has_of_the_collection(tmp_path):
    path = write(tmp_path / "small.json", EVALUATED)
    *_, last = stream_histories(lambda: data_set("mtrag").read(path), cut="all", pool=True)
    assert [piece["document_id"] for piece in last.extra["pool"]] == ["d1", "d2"]
    pieces = list(knowledge_pieces("mtrag", path))
    assert pieces == [Passage("The Tarn mug holds a pint.", "Mugs"), Passage("Parcels to the islands take a week.")]


def test_generation_tasks_hold_their_texts(tmp_path):
    lines = [task(1, [MUGS], task_id="abc::1"), task(2, task_id="abc::2")]
    for line in lines:
        line["answerability"] = line.pop("Answerability")
    told = read(write(tmp_path / "reference.jsonl", *lines))
    assert told[0].knowledge[0]["text"] == "The Tarn mug holds a pint."
    assert [each.extra["answerability"] for each in told] == ["ANSWERABLE", "UNANSWERABLE"]


def test_a_wrong_entry_names_its_place(tmp_path):
    with pytest.raises(InputError, match="the context 'd2' is none of the documents"):
        read(write(tmp_path / "small.json", {**EVALUATED, "documents": [MUGS]}))
    with pytest.raises(InputError, match=r"entry 1: field input: Field required"):
        read(write(tmp_path / "bad.jsonl", {"task_id": "a"}))
    with pytest.raises(InputError, match="none of the fields tasks, task_id"):
        read(write(tmp_path / "bad.json", {"talk": []}))


def test_the_real_file():
    whole = list(data_set("mtrag").read(real_file("mtrag/human_evaluations.json.gz")))
    assert (len(whole), sum(len(talk.turns) for talk in whole), sum(len(talk.answers) for talk in whole)) == (
        20,
        318,
        159,
    )
    labels = [answer.extra["answerability"] for talk in whole for answer in talk.answers]
    counts = {label: labels.count(label) for label in set(labels)}
    assert counts == {"ANSWERABLE": 135, "PARTIAL": 15, "UNANSWERABLE": 7, "CONVERSATIONAL": 2}
    assert len({piece["document_id"] for talk in whole for piece in talk.pool}) == 350


# --- the script


async def test_retrieval_is_measured_by_hits_over_all_relevant_passages(tmp_path):
    turns, passages = SCRIPT["read"](write(tmp_path / "small.json", EVALUATED))
    assert ([turn.id for turn in turns], len(passages)) == (["mtrag-abc@1", "mtrag-xyz@1"], 2)
    shelf = InMemoryPassages(passages, retriever="bm25")
    ranking = await SCRIPT["ranked"](shelf, ["the Tarn mug", "parcels to islands"], turns[0])
    assert sorted(ranking) == ["d1", "d2"]
    figures = SCRIPT["figures"]
    assert figures(["d1", "d2"], turns[0]) == (1.0, 1.0)
    assert figures(["d2", "x", "y", "d1"], turns[0]) == (0.0, pytest.approx(0.4307, abs=1e-4))
    several = turns[0].model_copy(update={"knowledge": tuple({"document_id": name} for name in "abcd")})
    assert figures(["a", "b", "c", "d"], several) == (0.75, 1.0)
    assert figures([], several) == (0.0, 0.0)
    cells = await SCRIPT["measure"](shelf, {turns[0].id: ["Tarn mug"], turns[1].id: []}, turns)
    assert [cell.split()[0] for cell in cells] == ["0.500", "0.500"]


def test_queries_come_from_the_searches_of_a_trace(tmp_path):
    steps = [
        StageTrace(stage="query-rewriting", output={"text": "Who made the Tarn?"}),
        StageTrace(stage="persona", output={"source": "persona", "query": "A pint. And who made it?", "found": []}),
        StageTrace(stage="retrieval-library", output={"query": "Who made the Tarn?", "found": []}),
        StageTrace(stage="retrieval-web", output={"query": "Who made the Tarn?", "found": []}),
    ]
    assert SCRIPT["queries_of"](Response(trace=steps)) == ["Who made the Tarn?"]
    turns, _ = SCRIPT["read"](write(tmp_path / "small.json", EVALUATED))
    path = write(tmp_path / "rewrite.jsonl", {"_id": "abc<::>1", "text": "|user|: What does the Tarn hold?"})
    assert SCRIPT["file_queries"]([path], turns) == {"mtrag-abc@1": ["What does the Tarn hold?"]}
