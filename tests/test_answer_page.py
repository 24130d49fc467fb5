"""The page "How an answer is made" lists functions in the order in which an answer calls them."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from pathlib import Path

from benchmarks.endpoint import endpoint

import dialore
from dialore import create_agent
from dialore.llm.connection import connect
from dialore.retrieval.documents.indexing import build_documents

PAGE = Path(__file__).parents[1] / "docs" / "answer.md"
ROOT = Path(dialore.__file__).parent
ROW = re.compile(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)
MAX_FUNCTIONS = 350
# These run at the same time as the functions around them.
CONCURRENT = {"Weave._look_first", "Weave._draft", "read_citations", "DocumentIndex.search", "PromptLibrary.get"}


def record_calls(folder) -> list[tuple[str, str]]:
    """Return the functions that the second answer of an agent calls, by their first call."""
    calls: dict[tuple[str, str], None] = {}

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            calls.setdefault((path.relative_to(ROOT).as_posix(), frame.f_code.co_qualname))

    async def answer_twice(url):
        async with create_agent("weave", model=connect("wait-0", url), sources={"documents": str(folder)}) as agent:
            await agent.respond("When does the library open?")
            sys.setprofile(note)
            threading.setprofile(note)
            try:
                response = await agent.respond("When does the café open?")
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
        assert response.status == "ok"

    build_documents(folder, texts=["The café opens at eight.", "Mara owns the café."])
    with endpoint() as url:
        asyncio.run(answer_twice(url))
    return list(calls)


def test_the_functions_of_the_page_are_called_in_its_order(tmp_path):
    listed = ROW.findall(PAGE.read_text(encoding="utf-8"))
    calls = record_calls(tmp_path / "index")
    assert 15 < len(listed) <= 25
    assert set(listed) <= set(calls)
    positions = [calls.index(row) for row in listed if row[1] not in CONCURRENT]
    assert positions == sorted(positions)
    assert len(calls) <= MAX_FUNCTIONS
