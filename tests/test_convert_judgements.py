"""The converter of published human judgements: what it makes are dialogues, responses and ratings."""

from __future__ import annotations

import gzip
import json
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from dialore.errors import InputError
from dialore.evaluation.base import Sample
from dialore.evaluation.overlap import KnowledgeCopy
from dialore.evaluation.ratings import Rated, agreements
from dialore.evaluation.registry import Context
from dialore.experiments.config import DatasetConfig
from dialore.experiments.import_responses import import_responses
from dialore.experiments.ratings import read_ratings
from dialore.experiments.store import RunStore
from tests.data_folder import real_file

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.response import Response

SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "convert_judgements.py"))
SETS, convert = SCRIPT["SETS"], SCRIPT["convert"]

# Name, judgements, contexts, systems, criteria, and the first response's beginning.
REAL = [
    (
        "topicalchat_usr",
        360,
        60,
        6,
        ["overall", "understandable", "natural", "maintains_context", "engaging", "uses_knowledge"],
        "i recently met",
    ),
    ("begin_dev_wow", 430, 424, 4, ["attributable"], "crayola shifted"),
    ("begin_dev_topicalchat", 383, 382, 4, ["attributable"], "yes, there is no rule"),
    ("xdial_dailydialog_zhao_en", 900, 100, 1, ["overall"], "cash , credit card"),
    ("xdial_dailydialog_zhao_zh", 900, 100, 1, ["overall"], "现金"),
    ("xdial_dailydialog_gupta_en", 500, 100, 1, ["overall"], "great . why"),
    ("xdial_dailydialog_gupta_zh", 500, 100, 1, ["overall"], "太好了"),
    ("alexa_factual_expert", 926, 926, 1, ["factual_correctness", "not_hallucinated"], "the term accounting"),
    (
        "mtrag_human",
        477,
        159,
        3,
        ["naturalness", "appropriateness", "completeness", "faithfulness", "win_rate"],
        "Yes, you can visit the law library",
    ),
]


class Judged(NamedTuple):
    dialogue: Dialogue
    response: Response
    system: str
    ratings: dict


def read_set(path):
    """The responses of a converted set, imported into a run, with their ratings."""
    folder = path.with_suffix("")
    import_responses(folder, [("", path)], DatasetConfig(name="jsonl", path=path))
    ratings = read_ratings(path)
    found = []
    with RunStore.open(folder) as store:
        for _, dialogue, response in store.responses():
            known = ratings.get((dialogue.id, response.method)) or ratings.get((dialogue.id, ""), {})
            found.append(Judged(dialogue, response, response.method, known))
    return found


@pytest.fixture
def judged(tmp_path):
    """The judgements of a published set, converted and read."""

    def read(name):
        path = real_file(f"{'mtrag' if name == 'mtrag_human' else 'judgements'}/{SETS[name].file}.gz")
        convert(name, path, tmp_path / f"{name}.jsonl")
        return read_set(tmp_path / f"{name}.jsonl")

    return read


@pytest.mark.parametrize(("name", "count", "contexts", "systems", "criteria", "begins"), REAL)
def test_a_published_file_is_read_whole(judged, name, count, contexts, systems, criteria, begins):
    found = judged(name)
    assert len(found) == len({one.dialogue.id for one in found}) == count
    assert len({one.dialogue.history for one in found}) == contexts
    assert len({one.system for one in found}) == systems
    assert sorted({key for one in found for key in one.ratings}) == sorted(criteria)
    assert found[0].response.text.startswith(begins)
    assert {one.dialogue.language for one in found} == {SETS[name].language}


def test_what_the_real_files_say_of_their_responses(judged):
    usr = judged("topicalchat_usr")
    assert sum(one.dialogue.reference is None for one in usr) == 60
    assert sum(not one.dialogue.knowledge for one in usr) == 48
    same = [one for one in usr if one.dialogue.history == usr[0].dialogue.history and one.system != usr[0].system]
    assert {one.dialogue.reference for one in same} == {usr[0].response.text}
    begin = judged("begin_dev_wow")
    assert sum(one.ratings["attributable"] for one in begin if one.ratings) == 180
    alexa = judged("alexa_factual_expert")
    assert sum(one.ratings["not_hallucinated"] for one in alexa) == 726
    assert sum("factual_correctness" not in one.ratings for one in alexa) == 1  # a 3 on a scale of 0 to 1
    assert alexa[0].dialogue.last.speaker == "B"
    assert alexa[0].dialogue.responder == "A"


def test_mtrag_keeps_what_its_metrics_need(judged):
    found = judged("mtrag_human")
    people = found[0]
    gpt = next(one for one in found if one.system == "gpt-4o" and one.dialogue.history == people.dialogue.history)
    assert {one.system for one in found} == {"reference", "llama-3.1-405b-instruct", "gpt-4o"}
    assert people.dialogue.reference is None
    assert gpt.dialogue.reference == people.response.text
    assert people.ratings["naturalness"] == 4
    assert 1 <= gpt.ratings["faithfulness"] <= 4
    assert len(gpt.response.knowledge) == 2
    labels = [one.dialogue.extra["answerability"] for one in found]
    assert (labels.count("UNANSWERABLE"), labels.count("PARTIAL")) == (21, 45)


async def test_what_copies_its_knowledge_is_attributable(judged):
    judgements, metric = judged("begin_dev_wow"), KnowledgeCopy("knowledge-copy", Context())
    measures = [await metric.measure(Sample(one.dialogue, one.response)) for one in judgements]
    rated = [Rated(one.dialogue.history, one.system, one.ratings) for one in judgements]
    over_responses, over_systems = agreements(metric, rated, measures, resamples=200)
    area = over_responses.figures["auc"]
    assert area.low < area.value < area.high
    assert area.value > 0.9
    assert (over_systems.level, over_systems.n) == ("system", 4)
    assert over_systems.figures["pearson"].value > 0.9


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("topicalchat_usr", "{}", "expected a list"),
        ("topicalchat_usr", "[", "not valid JSON"),
        ("topicalchat_usr", '[{"model": "m"}]', "entry 1: field dialog_history: no text"),
        (
            "topicalchat_usr",
            '[{"model": "m", "dialog_history": "Hi.", "response": "Yo.", "fact": "_nofact", "overall": "good"}]',
            "entry 1: field overall: 'good' is no number",
        ),
        ("topicalchat_usr", "[]", "no judgement"),
        ("begin_dev_wow", "model_name\tmessage\tresponse\tknowledge\n a\tb\tc\td\n", "line 2: field begin_label"),
        (
            "begin_dev_wow",
            "model_name\tmessage\tresponse\tknowledge\tbegin_label\na\tb\tc\td\tMaybe\n",
            "'Maybe' is none of",
        ),
        ("xdial_dailydialog_zhao_zh", "english_ctx,english_res,ratings\nHi.,Yo.,4\n", "line 2: field chinese_ctx"),
        ("xdial_dailydialog_zhao_en", 'english_ctx,english_res,ratings\n"Hi', "line"),
        (
            "alexa_factual_expert",
            "context,response,knowledge,Hallucination\nA: x,y,z,perhaps\n",
            "'perhaps' is none of",
        ),
        ("alexa_factual_expert", "context,response,knowledge,Hallucination\nx,y,z,No\n", "field context: no turn"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_a_malformed_file_names_line_and_field(tmp_path, name, text, wanted, zipped):
    path = tmp_path / (SETS[name].file + ".gz" * zipped)
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    with pytest.raises(InputError, match=wanted) as caught:
        convert(name, path, tmp_path / "out.jsonl")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_folder_is_converted(tmp_path, monkeypatch, capsys):
    entry = {"model": "m", "dialog_history": "Hi.\nHo.\n", "response": "Yo.", "fact": "F.", "overall": 3}
    entry |= dict.fromkeys(("understandable", "uses_knowledge"), 1)
    entry |= dict.fromkeys(("natural", "maintains_context", "engaging"), 2)
    truth = {**entry, "model": "Original Ground Truth", "response": "Right.", "fact": "_nofact\n"}
    (tmp_path / "topicalchat_usr.json").write_text(json.dumps([entry, truth]), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["convert", str(tmp_path), str(tmp_path / "out")])
    SCRIPT["main"]()
    assert "2 judgements" in capsys.readouterr().out
    one, other = read_set(tmp_path / "out" / "topicalchat_usr.jsonl")
    assert (one.dialogue.texts, one.dialogue.reference, one.dialogue.knowledge) == (("Hi.", "Ho."), "Right.", ("F.",))
    assert (one.response.knowledge[0].text, one.ratings["overall"]) == ("F.", 3.0)
    assert (other.dialogue.reference, other.dialogue.knowledge, other.response.knowledge) == (None, (), [])


def test_a_row_that_lacks_one_label_is_kept(tmp_path):
    columns = ["context", "response", "knowledge", "Hallucination", "Avg Factual Correctness"]
    rows = [["A: Hi", "Yo.", "k", "", "0.5"], ["A: Hi", "Yo.", "k", "no", ""]]
    text = "\n".join(",".join(row) for row in [columns, *rows])
    (tmp_path / "alexa_factual_expert.csv").write_text(text, "utf-8")
    assert convert("alexa_factual_expert", tmp_path / "alexa_factual_expert.csv", tmp_path / "out.jsonl") == 2
    first, second = read_set(tmp_path / "out.jsonl")
    assert first.ratings == {"factual_correctness": 0.5}
    assert second.ratings == {"not_hallucinated": True}
