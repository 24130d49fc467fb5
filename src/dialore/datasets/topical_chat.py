"""Topical-Chat (Gopalakrishnan et al., Interspeech 2019): talks over reading sets that the partners share or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Entry, Talk
from dialore.datasets.files import json_entries, read_entries, without_nulls
from dialore.text import split_lines

_LEADS = ("shortened_wiki_lead_section", "summarized_wiki_lead_section")


class _Turn(BaseModel):
    message: str
    agent: str
    knowledge_source: list[str] = []
    sentiment: str | None = None


class _Entry(BaseModel):
    content: list[_Turn]
    article_url: str | None = None
    config: str | None = None


class TopicalChat(DataSet):
    """`conversations/<split>.json`; where `reading_sets/post-build/<split>.json` lies beside it, with its texts.

    A turn's labels (`FS1`, `AS2`, `Personal Knowledge`) are `extra["knowledge_source"]`. They become `knowledge`, as
    `{"text", "title", "section"}`, where the reading sets have been built by the authors' script; without them a turn
    has labels and no `knowledge`.
    """

    name = "topical-chat"
    languages = ("en",)
    paper = "Topical-Chat (Gopalakrishnan et al., Interspeech 2019)"
    licence = "CDLA-Sharing-1.0"
    where = "github.com/alexa/Topical-Chat, conversations (and reading_sets, built)"
    form = "a JSON object of {id: {`content`: [{`message`, `agent`, `knowledge_source`}, ...]}}"
    has = ("knowledge",)

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole dialogues; every turn but the first may be the reference."""
        folder = path.parent.parent / "reading_sets" / "post-build"
        files = [folder / path.name, folder / path.name.removesuffix(".gz"), folder / f"{path.name}.gz"]
        built = next((file for file in files if file.is_file()), None)
        reading_sets = json_entries(built, self.published, keyed=True) if built else iter(())
        passed: dict[str, Any] = {}
        for place, entry in read_entries(path, _Entry, self.published, keyed=True, unused=self.report.unused_keys):
            # They are read along with the conversations, as both files have the same order.
            while place.key not in passed and (reading_set := next(reading_sets, None)):
                passed[reading_set[0].key] = reading_set[1]
            sections = _sections(passed.pop(place.key, {}))
            pool = dict.fromkeys(
                sentence for pieces in sections.values() for piece in pieces for sentence in split_lines(piece["text"])
            )
            talk = Talk(place.key, "en", article_url=entry.article_url, config=entry.config, pool=tuple(pool))
            for turn in entry.content:
                knowledge = [
                    piece
                    for label in turn.knowledge_source
                    for piece in sections.get((turn.agent, label)) or sections.get(("article", label)) or ()
                ]
                extra = {"knowledge_source": turn.knowledge_source, "sentiment": turn.sentiment}
                talk.answer(turn.agent, turn.message, knowledge, extra=extra)
            yield from talk.whole()


def _sections(data: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, str]]]:
    """Return the pieces of each section by who saw it (`agent_1`, `agent_2` or `article`) and its label."""
    data = cast("dict[str, Any]", without_nulls(data))
    sections: dict[tuple[str, str], list[dict[str, str]]] = {}
    for agent in ("agent_1", "agent_2"):
        for label, section in (data.get(agent) or {}).items():
            texts = [section[lead] for lead in _LEADS if section.get(lead)] + list(section.get("fun_facts") or ())
            title = section.get("entity", "")
            sections[agent, label] = [{"text": text, "title": title, "section": label} for text in texts if text]
    article = data.get("article") or {}
    for label, text in article.items():
        if label.startswith("AS") and text:
            title = article.get("headline", "")
            sections["article", label] = [{"text": text, "title": title, "section": label}]
    return sections
