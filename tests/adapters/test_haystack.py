"""The component in pipelines of Haystack's own."""

from __future__ import annotations

import os

import pytest

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
pytest.importorskip("haystack", reason="Haystack is not here: pip install 'dialore[haystack]'")
from haystack import Pipeline
from haystack.components.builders import PromptBuilder

from dialore.adapters.haystack import DialoreRetriever
from tests.adapters.conftest import HANDBOOK

TEMPLATE = "{% for each in documents %}{{ each.content }} ({{ each.meta.section }})\n{% endfor %}Question: {{ query }}"


def joined(asked, **options):
    pipeline = Pipeline()
    pipeline.add_component("retriever", DialoreRetriever(asked, **options))
    pipeline.add_component("prompt", PromptBuilder(TEMPLATE, required_variables="*"))
    pipeline.connect("retriever.documents", "prompt.documents")
    return pipeline


def test_a_pipeline_reads_what_an_agent_found(agent):
    question = "May I bring my dog?"
    asked = {"retriever": {"query": question}, "prompt": {"query": question}}
    made = joined(agent).run(asked, include_outputs_from={"retriever"})
    assert f"{HANDBOOK} (Dogs)" in made["prompt"]["prompt"]
    [first, *_] = made["retriever"]["documents"]
    assert (first.meta["title"], first.meta["url"]) == ("Café", "https://cafe.example/dogs")
    assert first.score == first.meta["probability"]


async def test_an_asynchronous_pipeline_asks_a_source(shelf):
    made = await joined(shelf, top=1).run_async({"retriever": {"query": "dogs"}, "prompt": {"query": "dogs"}})
    assert made["prompt"]["prompt"] == f"{HANDBOOK} (Dogs)\nQuestion: dogs"
