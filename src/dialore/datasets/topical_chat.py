"""Topical-Chat (Gopalakrishnan et al., Interspeech 2019): talks over reading sets that the partners share or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Gold, Talk, WholeDialogue
from dialore.datasets.files import json_entries, read_entries
from dialore.text import split_lines

_LEADS = ("shortened_wiki_lead_section", "summarized_wiki_lead_section")


class _Turn(BaseModel):
    message: str
    agent: str
    knowledge_source: list[str]
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

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Whole dialogues; every turn but the first may be the reference."""
        sets = _ReadingSets(path, self.published)
        for place, entry in read_entries(path, _Entry, self.published, keyed=True):
            sections = sets.of(place.key)
            pool = dict.fromkeys(
                sentence
                for pieces in sections.values()
                for piece in pieces
                if isinstance(piece, dict)
                for sentence in split_lines(str(piece["text"]))
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


Sections = dict[tuple[str, str], list[Gold]]


class _ReadingSets:
    """The reading sets that go with a file of conversations, read along with it, as both have the same order."""

    def __init__(self, path: Path, form: str) -> None:
        folder = path.parent.parent / "reading_sets" / "post-build"
        files = [folder / path.name, folder / path.name.removesuffix(".gz"), folder / f"{path.name}.gz"]
        file = next((file for file in files if file.is_file()), None)
        self._entries = json_entries(file, form, keyed=True) if file else iter(())
        self._passed: dict[str, Any] = {}

    def of(self, conversation: str) -> Sections:
        """Return the pieces of each section by who saw it (`agent_1`, `agent_2` or `article`) and its label."""
        while conversation not in self._passed:
            entry = next(self._entries, None)
            if entry is None:
                return {}
            self._passed[entry[0].key] = entry[1]
        data = self._passed.pop(conversation)
        sections: Sections = {}
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
