"""Small models of stages, queries and questions: what they learn from, and that methods run with them."""

from __future__ import annotations

import json

import pytest

from dialore.datasets import data_set, split_dialogues
from dialore.dialogue import Dialogue
from dialore.errors import InputError, StageError
from dialore.llm.connection import connect
from dialore.llm.distilled import Row, write_lines
from dialore.methods.dcrag import Dcrag
from dialore.methods.stage_runner import LLMRunner
from dialore.methods.stages import StageContext
from dialore.prompts.library import PromptLibrary
from dialore.sources.declared import default_sources
from dialore.training.finetune import finetune
from dialore.training.generators import RECIPES, find_fixed_lines, missing_marks, stage_targets
from dialore.training.trainer import SCRATCH, Job, Tuning
from tests.learned.test_decision import pairs, write
from tests.llm.test_seq2seq import _t5, _tokenizer
from tests.methods.conftest import ANSWERS, ScriptedModel, small_graph  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore")
TASKS = ("query-production", "topic-planning", "cross-revision", "fact-selection-foreseen")


def dcrag_rows():
    rows = []
    for number in range(30):
        for stage in TASKS:
            task = f"dcrag/{stage.removesuffix('-foreseen')}.en v1 h"
            messages = ["You find entities.\nBe brief.", f"Dialogue history:\nI have a sore throat {number}."]
            rows.append(Row.of(task, messages, json.dumps(ANSWERS[stage]), f"talk-{number}", "capable"))
    return rows


@pytest.fixture
def rows(tmp_path):
    write_lines(tmp_path / "rows.jsonl", [row.model_dump() for row in dcrag_rows()])
    return tmp_path / "rows.jsonl"


def test_targets_of_rows_lack_the_instruction_and_end_in_the_task(rows):
    (train, dev), card = stage_targets(rows)
    assert len(train) + len(dev) == 120
    assert card["fixed"]["dcrag/topic-planning.en"] == ["You find entities.", "Be brief.", "Dialogue history:"]
    (prompt, read), (answer, learnt) = train[1].parts
    assert (prompt, read, learnt) == (
        f"I have a sore throat {train[1].dialogue[5:]}.\ndcrag/topic-planning.en:\n",
        False,
        True,
    )
    assert json.loads(answer) == ANSWERS["topic-planning"]
    assert not {one.dialogue for one in train} & {one.dialogue for one in dev}
    assert find_fixed_lines(["a\nb", "a\nb"]) == []


def test_too_few_dialogues_to_hold_any_out(tmp_path):
    write_lines(tmp_path / "rows.jsonl", [dcrag_rows()[0].model_dump()])
    with pytest.raises(InputError, match="no dialogue is held out"):
        stage_targets(tmp_path / "rows.jsonl")


def test_queries_follow_the_turns_and_questions_their_context(tmp_path):
    path = write(tmp_path / "woi.json", pairs(4, 1))
    dialogues = split_dialogues(data_set("wizard-of-internet").read(path), cut="all")
    found = [target for one in dialogues if (target := RECIPES["query"].make_target(one, default_sources({})))]
    assert found
    assert all(one.parts[1][0].startswith("history of") for one in found)
    assert all("?" in one.parts[0][0].splitlines()[-1] for one in found)
    path = write(tmp_path / "coq.json", [{"context": "Bees make honey.", "questions": ["Why?", "How?"]}])
    (context,) = split_dialogues(data_set("coq").read(path), cut="last")
    one = RECIPES["question"].make_target(context, default_sources({}))
    dialogue = Dialogue(id="x", turns=["Bees make honey."])
    request = (
        PromptLibrary()
        .get("edit/question-generation", "en")
        .render({"history": "Me: Bees make honey.", "limit": 5, "trained": True, "last_turn": dialogue.last.text})
    )
    assert one.parts == ((request.plain_text, False), ("Why? How?", True))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small sequence-to-sequence model that has seen one answer again and again."""
    for needed in ("torch", "transformers", "accelerate"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    folder = tmp_path_factory.mktemp("stages")
    selections = [row.model_dump() for row in dcrag_rows() if row.stage == "dcrag/fact-selection"]
    write_lines(folder / "rows.jsonl", selections)
    targets, card = stage_targets(folder / "rows.jsonl")
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(folder / "base")
    _t5(len(tokenizer)).save_pretrained(folder / "base")
    tuning = Tuning(epochs=2, batch=8, rate=0.01, length=64)
    finetune("seq2seq", Job(str(folder / "base"), folder / "model", tuning), *targets, card)
    return folder / "model"


async def test_dcrag_runs_with_a_trained_stage_and_a_model_that_does_the_rest(model, small_graph):  # noqa: F811
    trained, capable = connect(f"trained:{model}"), ScriptedModel()
    dialogue = Dialogue(id="d", turns=["And now I've got a sore throat."])
    steps = StageContext(LLMRunner(capable, PromptLibrary(), {"fact-selection": trained}), "dcrag", dialogue)
    response = await Dcrag(small_graph).respond(dialogue, steps)
    assert response.text
    done = {step.stage: (step.model, step.outcome) for step in steps.trace if step.messages}
    assert done["fact-selection-unforeseen"] == (trained.name, "ok")
    assert done["response-generation"] == done["query-production"] == (capable.name, "ok")
    steps = StageContext(LLMRunner(trained, PromptLibrary()), "dcrag", dialogue)
    with pytest.raises(StageError, match="was not trained for dcrag"):
        await Dcrag(small_graph).respond(dialogue, steps)
    await trained.close()


def test_what_is_no_model_of_stages_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no trained model"):
        connect(f"trained:{tmp_path}")


def test_marks_that_a_tokenizer_lacks_are_told(tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1, ":": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]").save_pretrained(tmp_path)
    (train, _), _ = stage_targets_of(tmp_path)
    assert missing_marks(SCRATCH, train) == []
    assert set(missing_marks(str(tmp_path), train)) == {"{", "}", '"', "[", "]", ",", "\n"}


def stage_targets_of(folder):
    write_lines(folder / "rows.jsonl", [row.model_dump() for row in dcrag_rows()])
    return stage_targets(folder / "rows.jsonl")
