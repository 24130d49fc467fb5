"""An agent over one shelf, and a model that answers as it is set."""

from __future__ import annotations

import pytest

from dialore import InMemoryPassages, Passage, create_agent
from dialore.errors import ModelError
from tests.server.conftest import Scripted, need

HANDBOOK = "Dogs are welcome on the terrace, and there is always a bowl of water."


@pytest.fixture
def shelf():
    texts = [Passage(HANDBOOK, "Café > Dogs", "https://cafe.example/dogs"), Passage("We open at nine.", "Café > Hours")]
    return InMemoryPassages(texts)


@pytest.fixture
async def agent(shelf):
    model = Scripted(needs=[{**need("dogs on the terrace"), "source": "library"}])
    async with create_agent("weave", model=model, sources={"documents": shelf}) as made:
        yield made


@pytest.fixture
async def broken():
    class Broken(Scripted):
        async def complete(self, request, on_token=None):
            raise ModelError("the model fell over", retryable=True)

    async with create_agent("dcrag", model=Broken()) as made:
        yield made
