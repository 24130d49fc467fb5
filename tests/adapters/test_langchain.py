"""The retriever in a chain of LangChain's own."""

from __future__ import annotations

import pytest

pytest.importorskip("langchain_core", reason="LangChain is not here: pip install 'dialore[langchain]'")
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from dialore.adapters.langchain import DialoreRetriever
from dialore.errors import DialoreError
from tests.adapters.conftest import HANDBOOK


def chain(retriever, seen):
    prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
    joined = retriever | (lambda found: "\n".join(each.page_content for each in found))
    asked = {"context": joined, "question": RunnablePassthrough()} | prompt
    noted = RunnableLambda(lambda value: seen.append(value.to_string()) or value)
    return asked | noted | FakeListChatModel(responses=["Yes, on the terrace."]) | StrOutputParser()


def test_a_chain_reads_what_an_agent_found(agent):
    seen = []
    assert chain(DialoreRetriever(asked=agent), seen).invoke("May I bring my dog?") == "Yes, on the terrace."
    assert HANDBOOK in seen[0]


async def test_a_document_tells_where_it_is_from_and_how_likely_it_is_of_use(agent):
    [first, *_] = await DialoreRetriever(asked=agent, top=1).ainvoke("May I bring my dog?")
    told = first.metadata
    assert (first.page_content, first.id.split(":")[0]) == (HANDBOOK, "passage")
    assert (told["title"], told["section"], told["url"]) == ("Café", "Dogs", "https://cafe.example/dogs")
    assert (told["kind"], told["source"], 0 < told["probability"] <= 1) == ("passage", "documents", True)


async def test_a_source_can_stand_alone(shelf):
    seen = []
    retriever = DialoreRetriever(asked=shelf, top=1)
    assert await chain(retriever, seen).ainvoke("dogs")
    assert HANDBOOK in seen[0]
    assert "nine" not in seen[0]


def test_a_failure_is_told(broken):
    with pytest.raises(DialoreError, match="fell over"):
        DialoreRetriever(asked=broken).invoke("May I bring my dog?")
