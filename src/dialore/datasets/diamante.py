"""Diamante (Lu et al., 2022): Chinese chit-chat in which people chose or mended what a model proposed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Entry, Talk
from dialore.datasets.files import read_entries


class _ChosenTurn(BaseModel):
    utterance: str
    response_candidates: list[str] = []


class _Chat(BaseModel):
    conversation: list[_ChosenTurn]


class Diamante(DataSet):
    """JSONL of `{"conversation": [{"utterance", "response_candidates"}, ...]}`.

    `extra["candidates"]` holds what the model had proposed for the turn, blanks left out.
    """

    name = "diamante"
    languages = ("zh",)
    paper = "Diamante (Lu et al., 2022)"
    licence = "as LUGE states it"
    where = "luge.ai, Diamante"
    form = "JSONL of {`conversation`: [{`utterance`, `response_candidates`}, ...]}"

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole dialogues; every turn but the first may be the reference."""
        for _, entry in read_entries(path, _Chat, self.published, unused=self.report.unused_keys):
            talk = Talk(None, "zh")
            for number, turn in enumerate(entry.conversation):
                candidates = [text for text in turn.response_candidates if text.strip()]
                talk.answer("AB"[number % 2], turn.utterance, extra={"candidates": candidates or None})
            yield from talk.whole()
