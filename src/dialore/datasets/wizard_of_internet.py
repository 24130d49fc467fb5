"""Wizard of the Internet (Komeili et al., ACL 2022): a wizard who searches the web talks with an apprentice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Entry, Gold, Talk, stated_id
from dialore.datasets.files import Place, json_entries, validate

_NOBODY = "none"
"""Stands in the benchmark's first pair for the apprentice's turn where the wizard opens the dialogue."""


class _Page(BaseModel):
    url: str = ""
    title: str = ""
    content: list[str]


class _Context(BaseModel):
    contents: list[_Page] = []
    selected_contents: list[list[bool]] = []


class _Message(BaseModel):
    action: str
    text: str
    context: _Context = _Context()


class _Talk(BaseModel):
    apprentice_persona: str = ""
    dialog_history: list[_Message]


class _Pairs(BaseModel):
    id: str
    meta: list[str]
    dialogue: list[tuple[str, str]]
    query: list[list[str]]
    KB: list[list[str]]


class WizardOfInternet(DataSet):
    """Two forms: ParlAI's JSONL (`{id: {"dialog_history", ...}}`) and the few-shot bot benchmark's JSON list.

    The apprentice is `user`, the wizard `system`. A wizard who opens the dialogue answers nothing there: that turn is
    history, never a reference, and what was searched for it is left out. Of a wizard's later turn `extra["query"]` is
    the last query that the wizard typed for it (`extra["queries"]` all, if several; `extra["checked_topic"]` the last
    before, where none was typed) and `knowledge` the sentences selected from the pages found, with `title` and `url`
    where the file has them. The persona of both forms is the apprentice's, who is to be answered, so it is no
    `persona` of the responder but `extra["user_persona"]`.
    """

    name = "wizard-of-internet"
    version = 3
    languages = ("en",)
    paper = "Wizard of the Internet (Komeili et al., ACL 2022)"
    licence = "see ParlAI"
    where = "parl.ai/projects/sea (train split); github.com/andreamad8/FSB, data/wit (re-release of valid and test)"
    form = "JSONL of {id: {`dialog_history`, ...}}, or a JSON list of {`dialogue`, `query`, `KB`, ...}"
    has = ("knowledge", "query")

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole dialogues; the wizard's turns are the references."""
        for place, data in json_entries(path, self.published):
            if isinstance(data, dict) and "dialogue" not in data:
                if len(data) != 1:
                    raise place.error("neither an object with `dialogue` nor one dialogue under its id")
                ((identifier, whole),) = data.items()
                yield from _read_talk(validate(whole, _Talk, place), stated_id(self.name, identifier), place)
            else:
                yield from _read_pairs(validate(data, _Pairs, place), self.name, place)


def _read_talk(entry: _Talk, identifier: str | None, place: Place) -> Iterator[Entry]:
    persona = [line.strip() for line in entry.apprentice_persona.split("\n") if line.strip()]
    pages = [page for message in entry.dialog_history for page in message.context.contents]
    lines = dict.fromkeys((line, page.title, page.url) for page in pages for line in page.content)
    pool = tuple({"text": text, "title": title, "url": url} for text, title, url in lines)
    talk = Talk(identifier, "en", user_persona=persona or None, pool=pool)
    queries: list[str] = []
    last = ""
    for number, message in enumerate(entry.dialog_history):
        match message.action.casefold():
            case "apprentice => wizard":
                talk.say("user", message.text)
            case "wizard => searchagent":
                queries.append(message.text)
                last = message.text.strip() or last
            case "wizard => apprentice":
                knowledge = list(_selected_sentences(message.context, place, f"dialog_history[{number}].context"))
                talk.answer("system", message.text, knowledge, extra=_queries(queries, last))
                queries = []
            case "searchagent => wizard":
                pass
            case _:
                raise place.error(f"unknown action {message.action!r}", f"dialog_history[{number}].action")
    yield from talk.whole()


def _selected_sentences(context: _Context, place: Place, field: str) -> Iterator[Gold]:
    """Yield the selected sentences. The first selections are the box for "none"; then there is a list a page."""
    none, pages = context.selected_contents[:1], context.selected_contents[1:]
    if not pages or any(none[0][:1]):
        return
    for page, picks in zip(context.contents, pages, strict=False):
        if len(picks) < len(page.content):
            raise place.error(
                f"{len(picks)} selections for {len(page.content)} sentences", f"{field}.selected_contents"
            )
        for text, picked in zip(page.content, picks, strict=False):
            if picked:
                yield {"text": text, "title": page.title, "url": page.url}


def _queries(queries: list[str], last: str) -> dict[str, object]:
    typed = [query for query in queries if query.strip()]
    if not typed:
        return {"checked_topic": last or None}
    return {"query": typed[-1], "queries": typed if len(typed) > 1 else None}


def _read_pairs(entry: _Pairs, name: str, place: Place) -> Iterator[Entry]:
    for field, lists in (("query", entry.query), ("KB", entry.KB)):
        if len(lists) != len(entry.dialogue):
            raise place.error(f"{len(lists)} lists for {len(entry.dialogue)} pairs of turns", field)
    talk = Talk(stated_id(name, entry.id), "en", user_persona=entry.meta or None)
    pairs = zip(entry.dialogue, entry.query, entry.KB, strict=True)
    last = ""
    for number, ((user, wizard), queries, knowledge) in enumerate(pairs):
        last = next((query.strip() for query in reversed(queries) if query.strip()), last)
        talk.pair(user if number or user != _NOBODY else "", wizard, knowledge, extra=_queries(queries, last))
    yield from talk.whole()
