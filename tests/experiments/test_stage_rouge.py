"""ROUGE of a model's stage outputs against held-out rows."""

from __future__ import annotations

import pytest

from dialore.errors import InputError
from dialore.experiments.stage_rouge import score_stages
from dialore.llm.distilled import Row
from dialore.llm.model import Completion

pytest.importorskip("rouge_score", reason="the evaluation extra is not installed")


class Answers:
    """A model that returns the answer listed for an input."""

    name = "answers"

    def __init__(self, answers):
        self.answers = answers
        self.requests = []

    async def complete(self, request, on_token=None):
        self.requests.append(request)
        return Completion(text=self.answers[request.messages[0].content], model=self.name)

    async def close(self):
        pass


def row(number, output, split="valid", language="en"):
    task = f"scg-qp/query-generation.paper.{language}"
    return Row(
        task=task,
        input=f"prompt {number}",
        output=output,
        dialogue=f"d{number}",
        split=split,
        by="teacher",
        prompt=f"{task} v1",
        fingerprint=str(number),
    )


async def test_scores_are_means_over_held_out_rows():
    rows = [row(1, "history of tea"), row(2, "old boats"), row(3, "unused", split="train")]
    model = Answers({"prompt 1": "history of tea", "prompt 2": "new trains"})
    (result,) = await score_stages(model, rows)
    assert (result.task, result.outputs) == ("scg-qp/query-generation.paper.en", 2)
    assert result.scores == {"rouge1": 0.5, "rouge2": 0.5, "rougeL": 0.5}
    assert {request.sampling.temperature for request in model.requests} == {0.0}


async def test_the_longest_common_subsequence_counts_for_rouge_l_only():
    model = Answers({"prompt 1": "tea of history"})
    (result,) = await score_stages(model, [row(1, "history of tea")])
    assert result.scores["rouge1"] == 1.0
    assert result.scores["rougeL"] == pytest.approx(1 / 3)


async def test_chinese_outputs_are_compared_by_character():
    model = Answers({"prompt 1": "茶的历史"})
    (result,) = await score_stages(model, [row(1, "茶的产地", language="zh")])
    assert result.scores == pytest.approx({"rouge1": 1 / 2, "rouge2": 1 / 3, "rougeL": 1 / 2})


async def test_without_held_out_rows_there_is_nothing_to_score():
    with pytest.raises(InputError):
        await score_stages(Answers({}), [row(1, "x", split="train")])
