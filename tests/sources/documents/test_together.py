"""Questions of one moment are answered as one, and each as if it were alone."""

from __future__ import annotations

import asyncio

import pytest
from dialore.sources.documents.together import Together

from dialore.dialogue import Dialogue
from dialore.errors import SourceError
from dialore.retrieval import StaticEmbedder
from dialore.sources.documents import DocumentIndex, build_documents

ASK = Dialogue.model_validate({"id": "d", "turns": ["What shall we cook?"]})
QUESTIONS = ["what is sour?", "wedding food", "how hot is the oven?", "a drink for the cold", "who baked it?", "", "x"]


class Work:
    def __init__(self) -> None:
        self.done: list[tuple[str, list[str]]] = []

    def __call__(self, key, questions):
        self.done.append((key, list(questions)))
        if key == "broken":
            raise SourceError("it is broken", mend="mend it")
        return [f"{key}: {question}" for question in questions]


async def test_what_comes_at_once_is_one_piece_of_work():
    work = Work()
    together = Together(work)
    answers = await asyncio.gather(
        *(together.ask(key, question) for key, question in zip("aabab", "12345", strict=True))
    )
    assert answers == ["a: 1", "a: 2", "b: 3", "a: 4", "b: 5"]
    assert work.done == [("a", ["1", "2", "4"]), ("b", ["3", "5"])]
    assert await together.ask("a", "later") == "a: later"
    assert work.done[2:] == [("a", ["later"])]


async def test_other_work_has_its_turn_between_many():
    turns, seen = 0, []

    def work(key, questions):
        seen.append((len(questions), turns))
        return list(questions)

    async def other():
        nonlocal turns
        while len(seen) < 3:
            turns += 1
            await asyncio.sleep(0)

    together = Together(work)
    asked = [together.ask("a", str(number)) for number in range(20)]
    *answers, _ = await asyncio.gather(*asked, other())
    assert answers == [str(number) for number in range(20)]
    assert [many for many, _ in seen] == [8, 8, 4]
    assert len({turn for _, turn in seen}) == 3


async def test_a_failure_is_that_of_its_own_key_and_who_left_is_not_answered():
    work = Work()
    together = Together(work)
    keys = ["a", "broken", "broken", "a"]
    asked = [asyncio.create_task(together.ask(key, str(number))) for number, key in enumerate(keys)]
    gone = asyncio.create_task(together.ask("a", "gone"))
    await asyncio.sleep(0)
    gone.cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert answers[::3] == ["a: 0", "a: 3"]
    assert all(isinstance(answer, SourceError) for answer in answers[1:3])
    assert work.done == [("a", ["0", "3"]), ("broken", ["1", "2"])]
    with pytest.raises(asyncio.CancelledError):
        await gone


def test_each_loop_is_answered_by_itself():
    together = Together(Work())
    assert [asyncio.run(together.ask("a", question)) for question in "12"] == ["a: 1", "a: 2"]


@pytest.mark.parametrize("retriever", ["dense", "fused", "bm25"])
async def test_an_index_answers_many_as_it_answers_one(tmp_path, retriever):
    nouns = ["lemon", "bread", "oven", "tea", "cake", "soup", "honey", "rice"]
    texts = [
        f"The {noun} of day {day} was better than the {other}."
        for day in range(40)
        for noun in nouns
        for other in nouns
    ]
    texts += ["Hot tea warms."] * 3
    build_documents(tmp_path / "i", texts=texts, embedder=StaticEmbedder())
    with DocumentIndex(tmp_path / "i", retriever=retriever) as index:
        alone = [index.find(question, 5) for question in QUESTIONS]
        assert await asyncio.gather(*(index.search(question, ASK, 5) for question in QUESTIONS)) == alone
        mixed = await asyncio.gather(
            index.search("tea", ASK, 2), index.search("tea", ASK, 9), index.search("tea", ASK, 0)
        )
        assert [len(found) for found in mixed] == [2, 9, 0]
        assert mixed[0] == mixed[1][:2] == index.find("tea", 2)
