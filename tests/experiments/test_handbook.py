"""The handbook test from end to end: what a model writes is scored, its citations too."""

from __future__ import annotations

from dialore.evaluation.handbook import read_items
from dialore.experiments.handbook import handbook_table, run_handbook
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
    items = [item for item in read_items(language="en") if len(item.turns) == 1]
    items = [item for item in items if item.category in {"newer", "near-miss", "small-talk"}]
    settings = Settings.model_validate({"method": ["rag"], "model": {"model": "oracle"}})
    ended = await run_handbook(settings, items, tmp_path / "run", lambda _settings, _name: Oracle(items))
    assert [run.failed for run in ended] == [0]
    (row,) = handbook_table(tmp_path / "run", items)
    assert (row["responses"], row["right"][0], row["refused"][0]) == (len(items), 1.0, 1.0)
    assert row["calls"] == row["steps"] == (1.0, 1.0, 1.0)
    assert 0.2 < row["citation_precision"][0] <= 1
    assert 0.2 < row["citation_recall"][0] <= 1
