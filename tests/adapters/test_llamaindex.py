"""The retriever under a query engine of LlamaIndex's own."""

from __future__ import annotations

import pytest

pytest.importorskip("llama_index.core", reason="LlamaIndex is not here: pip install 'dialore[llamaindex]'")
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine

from dialore.adapters.llamaindex import DialoreRetriever
from tests.adapters.conftest import HANDBOOK


def test_a_query_engine_answers_from_what_an_agent_found(agent):
    engine = RetrieverQueryEngine.from_args(DialoreRetriever(agent), llm=MockLLM())
    made = engine.query("May I bring my dog?")
    assert HANDBOOK in made.response  # the mock repeats its prompt
    [first, *_] = made.source_nodes
    assert (first.node.metadata["title"], first.node.metadata["section"]) == ("Café", "Dogs")
    assert first.score == first.node.metadata["probability"]


async def test_a_source_can_stand_alone(shelf):
    engine = RetrieverQueryEngine.from_args(DialoreRetriever(shelf, top=1), llm=MockLLM())
    made = await engine.aquery("dogs")
    assert [node.text for node in made.source_nodes] == [HANDBOOK]
    assert made.source_nodes[0].score == made.source_nodes[0].metadata["score"]
