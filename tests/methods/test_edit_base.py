"""EDIT's part without a model: the nearest sentences of a base by embedding, against the scores that are kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dialore.dialogue import Dialogue
from dialore.knowledge import Knowledge, Passage
from dialore.methods.edit import Edit
from dialore.methods.stage_runner import LLMRunner
from dialore.methods.stages import StageContext
from dialore.prompts.library import PromptLibrary
from dialore.retrieval.embedding import load_embedder
from tests.methods.test_edit import Asked

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "expected" / "edit.json").read_text("utf-8"))
TURNS = {"en": "My throat is sore and I have an interview.", "zh": "我嗓子疼，明天还有面试。"}


class SentenceBase:
    """Sentences by the cosine of their embeddings with the question (Section 3.3.2)."""

    name, kind = "documents", "documents"

    def __init__(self, rows):
        self.rows, self.embedder = rows, load_embedder()
        self.vectors = self.embedder.encode([row["text"] for row in rows])

    async def search(self, query, dialogue, top=10, scope=()):
        scores = self.vectors @ self.embedder.encode([query])[0]
        return [
            Knowledge(
                id=Passage(row["text"], row["title"]).id,
                kind="passage",
                text=row["text"],
                source="documents",
                score=round(float(scores[place]), 4),
                title=row["title"],
            )
            for place in np.argsort(-scores, kind="stable")[:top].tolist()
            for row in [self.rows[place]]
        ]

    def close(self):
        pass


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_the_answers_sentences_are_found_as_often_as_before(language):
    rows = [json.loads(line) for line in (HERE / f"edit_base.{language}.jsonl").read_text("utf-8").splitlines()]
    wanted = {question: Passage(row["text"], row["title"]).id for row in rows for question in row.get("answers", [])}
    model = Asked(question_generation="\n".join(wanted))
    stages = StageContext(LLMRunner(model, PromptLibrary()), "edit", Dialogue(id="d", turns=[TURNS[language]]))
    grounds = await Edit(SentenceBase(rows), questions=len(wanted), top=3, shuffle_answers=False).ground(
        stages.dialogue, stages
    )
    found = {piece.question: piece.sentences for piece in grounds.knowledge}
    assert list(found) == list(wanted)
    assert {len(ids) for ids in found.values()} == {3}
    ranks = [found[question].index(right) + 1 if right in found[question] else 0 for question, right in wanted.items()]
    scores = {
        "questions": len(wanted),
        "recall@1": round(sum(rank == 1 for rank in ranks) / len(ranks), 4),
        "recall@3": round(sum(rank > 0 for rank in ranks) / len(ranks), 4),
        "top cosine": round(sum(piece.score for piece in grounds.knowledge) / len(ranks), 3),
    }
    assert scores == EXPECTED[language]
