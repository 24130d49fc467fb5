"""The handbook test from end to end: what a model writes is scored, its citations too."""

from __future__ import annotations

from dialore.datasets.handbook import read_items
from dialore.errors import ModelError
from dialore.experiments.benches import handbook_table, run_folders, run_handbook
from dialore.llm.model import Completion, Usage
from dialore.settings import Settings


class Oracle:
    """Answers each prompt with the expected facts of its dialogue, and cites the first two passages it was given."""

    name = "oracle"

    def __init__(self, items):
        self.items = items

    async def complete(self, request, on_token=None):
        prompt = "\n".join(message.content for message in request.messages)
        item = max(self.items, key=lambda item: (item.turns[-1] in prompt, len(item.turns[-1])))
        facts = ", ".join(forms[0] for forms in item.answer)
        text = f"{facts} [1][2]." if facts else "I do not know."
        return Completion(text=text, model=self.name, usage=Usage(calls=1, prompt_tokens=9, completion_tokens=3))

    async def close(self):
        pass


async def test_what_is_known_and_cited_is_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("DIALORE_CACHE", str(tmp_path / "cache"))
    items = read_items(language="en", half="a")
    settings = Settings.model_validate({"method": ["rag"], "model": {"model": "oracle"}})
    folders = run_folders(tmp_path / "run", ("a",), ("en",))
    (ended,) = await run_handbook(settings, folders, lambda _settings, _name: Oracle(items))
    assert (ended.failed, ended.total) == (0, 50)
    (row,) = handbook_table(folders.values())
    assert (row["responses"], row["refused"][0]) == (50, 1.0)
    assert row["right"][0] > 0.95
    assert 1 < row["calls"][0] == row["steps"][0] < 2
    assert 0.2 < row["citation_precision"][0] <= 1
    assert 0.2 < row["citation_recall"][0] <= 1


async def test_a_turn_that_failed_is_neither_right_nor_refused(tmp_path, monkeypatch):
    class Silent(Oracle):
        async def complete(self, request, on_token=None):
            raise ModelError("the endpoint sleeps")

    monkeypatch.setenv("DIALORE_CACHE", str(tmp_path / "cache"))
    settings = Settings.model_validate({"method": ["rag"], "model": {"model": "oracle"}})
    folders = run_folders(tmp_path / "run", ("b",), ("zh",))
    await run_handbook(settings, folders, lambda _settings, _name: Silent([]), limit=9)
    (row,) = handbook_table(folders.values())
    assert (row["responses"], row["failed"], row["right"][0]) == (9, 9, 0.0)
    assert row["right"][1] == 0 < row["right"][2] < 1


def test_two_halves_are_runs_of_their_own(tmp_path):
    assert [path.name for path in run_folders(tmp_path, ("a", "b"), ("zh",)).values()] == ["zh-a", "zh-b"]
    assert [path.name for path in run_folders(tmp_path, ("b",), ("en", "zh")).values()] == ["en", "zh"]
