"""Distillation: rows of runs and recordings, and what becomes of them."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import dialore
from dialore.dialogue import Dialogue
from dialore.errors import InputError, UnknownNameError
from dialore.experiments.distill import coq_entries, coq_splits, read_answers, rows_of, stages_of
from dialore.llm.distilled import Row, read_rows, shorten_prompt, write_lines
from dialore.prompts.library import PromptLibrary
from dialore.response import StageTrace

RECORDINGS = PromptLibrary()._folders[0].parent / "data" / "demo" / "recordings.jsonl"


def test_the_stages_before_the_response_are_meant_by_a_method_and_one_by_its_name():
    assert stages_of("weave") == {"weave/needs"}
    assert "dcrag/response-generation" not in stages_of("dcrag")
    assert stages_of("dcrag/response-generation") == {"dcrag/response-generation"}
    with pytest.raises(UnknownNameError, match="did you mean dcrag/cross-revision"):
        stages_of("dcrag/cross-revison")


def test_a_recording_gives_a_row_an_answer(tmp_path):
    rows = list(read_answers(RECORDINGS))
    revised = [row for row in rows if row.task == "dcrag/cross-revision.en"]
    assert all(json.loads(row.output).keys() >= {"explicit", "extended"} for row in revised)
    assert all("Dialogue history:" in row.input for row in revised)
    assert {row.by for row in rows} == {"a capable instruction-tuned model"}
    assert len({row.fingerprint for row in rows}) == len(set(map(Row.model_dump_json, rows)))
    assert write_lines(tmp_path / "rows.jsonl", [row.model_dump() for row in [*rows, *rows]]) == 2 * len(rows)
    assert len(read_rows(tmp_path / "rows.jsonl")) == len({row.fingerprint for row in rows})


def test_a_whole_dialogue_is_held_out_or_not():
    rows = [Row.of("a/b.en v1 c", ["x"], "y", f"talk-{number}@{turn}", "m") for number in range(200) for turn in (1, 3)]
    assert all(rows[at].split == rows[at + 1].split for at in range(0, 400, 2))
    assert 20 < Counter(row.split for row in rows)["valid"] < 80


def test_what_a_fallback_stood_in_for_is_no_row():
    kept = StageTrace(stage="s", prompt="m/s.en v1 h", messages=[{"content": "asked"}], output={"a": 1})
    fell = kept.model_copy(update={"outcome": "unparsed"})
    own = StageTrace(stage="retrieval", output={"found": []})
    rows = list(rows_of(dialore.Response(id="d", trace=[kept, fell, own])))
    assert [(row.stage, row.output) for row in rows] == [("m/s", '{"a": 1}')]


def test_questions_that_are_not_fit_go():
    said = "What helps honey keep?\nDo you like honey?\nWhy do cats purr?\nHow is honey made?\nHow did he find honey?"
    row = Row.of("edit/question-generation.en v1 h", ["asked"], said, "c1", "m")
    other = Row.of("edit/question-generation.en v1 h", ["asked"], "Do you?", "c2", "m")
    contexts = {name: Dialogue(id=name, turns=["Bees make honey in summer."]) for name in ("c1", "c2")}
    assert list(coq_entries([row, other], contexts)) == [
        {"context": "Bees make honey in summer.", "questions": ["What helps honey keep?", "How is honey made?"]}
    ]


def test_the_questions_of_edits_table_6_are_fit():
    turns = [
        "I love reading! It's a means of sharing information and ideas",
        "Reading is one of my favorite ways to spend my time. My favorite book series is Harry Potter by J.K. Rowling.",
        "Many people love that series! Reading requires continuous practice development and refinement",
        "So reading can help widen your vocabulary? Are there any other benefits to reading?",
    ]
    asked = [
        "What are some other ways to spend time besides reading?",
        "How does reading help develop specific skills?",
        "Are there any specific genres of books that are particularly popular among readers?",
        "What are some benefits of reading as a means of sharing information and ideas?",
        "How does reading differ from other forms of entertainment, such as movies or television?",
    ]
    row = Row.of("edit/question-generation.en v1 h", ["asked"], "\n".join(asked), "c", "m")
    (entry,) = coq_entries([row], {"c": Dialogue(id="c", turns=turns)})
    assert entry["questions"] == asked


def test_coq_is_split_as_edits_table_1_has_it():
    made = coq_splits({"context": f"Context {number}.", "questions": ["Why?"]} for number in range(6730))
    assert {name: len(some) for name, some in made.items()} == {"train": 5878, "dev": 435, "test": 417}
    again = coq_splits({"context": f"Context {number}.", "questions": ["Why?"]} for number in range(6729, -1, -1))
    assert again == made
    assert {name: len(some) for name, some in coq_splits(made["dev"][:3]).items()} == dict.fromkeys(made, 1)
    with pytest.raises(InputError, match="too few to split"):
        coq_splits(made["dev"][:2])


def test_coqs_questions_are_asked_by_the_printed_prompt():
    """EDIT, Section 3.2.1: the context, and questions "unrelated to the person in the context"."""
    shown = {"history": "Me: x", "last_turn": "Ann sailed.", "limit": 5, "trained": False}
    request = PromptLibrary().get("edit/question-generation", "en", "coq").render(shown)
    assert "unrelated to the person in the context" in request.messages[0].content
    assert "Context: Ann sailed." in request.messages[1].content
    assert "Me:" not in request.messages[1].content


def test_a_trained_model_reads_what_changes_and_the_task():
    text = "Do this.\n- like so\n\nHistory:\nHi\n- like so"
    assert shorten_prompt("a/b.en", text, ["Do this.", "History:"]) == "- like so\nHi\n- like so\na/b.en:\n"


@pytest.mark.parametrize("text", ['{"task": "x"}', "no json", '{"messages": 3}'])
def test_a_file_of_something_else_is_refused(tmp_path, text):
    path = tmp_path / "rows.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"rows.jsonl, line 1"):
        list(read_answers(path))
    with pytest.raises(InputError, match=r"rows.jsonl, line 1"):
        read_rows(path)


def test_nothing_is_no_file(tmp_path):
    with pytest.raises(InputError, match="nothing was gathered"):
        write_lines(tmp_path / "rows.jsonl", [])
    assert not list(tmp_path.iterdir())
