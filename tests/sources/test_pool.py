"""Bases of data sets: sentences with their titles, one base for all or each dialogue's own."""

from __future__ import annotations

import pytest

from dialore.cli import main
from dialore.dialogue import Dialogue
from dialore.experiments.config import make_config
from dialore.experiments.systems import load_dialogues, open_systems
from dialore.llm.fake import FakeModel
from dialore.sources.documents import DocumentIndex, open_documents
from tests.example_data import write_data


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path)


async def test_a_dialogues_own_sentences_are_ranked_for_a_question(data):
    given = {"name": "wizard-of-wikipedia", "path": data / "wizard_of_wikipedia" / "train.json", "pool": True}
    run = {"name": "r", "dataset": given, "sources": {"documents": "pool:bm25"}, "systems": ["edit"]}
    config = make_config(run | {"models": [{"model": "rehearsal"}]})
    dialogues = list(load_dialogues(config.dataset))
    sentences = ["Tea is a drink of leaves.", "Tea is liked by many people."]
    assert dialogues[0].extra["pool"] == [{"text": text, "title": "Tea"} for text in sentences]
    async with open_systems(config, lambda settings, name: FakeModel()) as opened:
        agent = opened.agents[0, 0]
        found = await agent.method.documents.search("What are leaves?", dialogues[0])
        response = await agent.respond(dialogues[0])
    assert [(piece.text, piece.title) for piece in found] == [(text, "Tea") for text in sentences]
    assert any(stage.stage == "base-answer-1" for stage in response.trace)
    plain = make_config(run | {"dataset": given | {"pool": False}}).dataset
    assert "pool" not in next(load_dialogues(plain)).extra


async def test_a_dialogue_without_sentences_has_an_empty_base():
    source = open_documents(["pool:"])
    assert await source.search("What is tea?", Dialogue(id="d", turns=["Hello."])) == []
    texts = ["Tea is hot.", {"text": "It is brewed.", "title": "Coffee"}]
    found = await source.search("coffee", Dialogue(id="d", turns=["Hello."], extra={"pool": texts}), 1)
    assert [piece.text for piece in found] == ["It is brewed."]


@pytest.mark.parametrize(
    ("name", "path", "title"),
    [
        ("wizard-of-wikipedia", "wizard_of_wikipedia/train.json", "Tea"),
        ("holl-e", "holl_e/train_data.json", "The tea"),
        ("wizard-of-internet", "wizard_of_internet/test.jsonl", "tea"),
    ],
)
async def test_a_base_of_a_data_set_has_titles(data, tmp_path, name, path, title):
    with pytest.raises(SystemExit) as left:
        main(["documents", "build", str(tmp_path / "base"), str(data / path), "--dataset", name, "--chunk", "sentence"])
    assert not left.value.code
    index = DocumentIndex(tmp_path / "base")
    found = await index.search("Tea is a drink of leaves.", Dialogue(id="d", turns=["Hello."]), 1)
    index.close()
    assert (found[0].text, found[0].title) == ("Tea is a drink of leaves.", title)
