"""Holl-E (Moghe et al., EMNLP 2018): talks about films, each answer taken from a span of the film's documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from dialore.datasets.base import DataSet, Entry, Gold, Talk, stated_id
from dialore.datasets.files import Place, read_forms
from dialore.text import split_lines

# What the labels of spans name; 4 is none of them.
_SECTIONS = ("plot", "review", "comments", "fact_table")


class _Documents(BaseModel):
    plot: str = ""
    review: str = ""
    comments: list[str] = []
    fact_table: dict[str, Any] = {}


class _Chat(BaseModel):
    chat_id: str
    movie_name: str
    chat: list[str]
    labels: list[int]
    spans: list[str | None]
    documents: _Documents


class _Example(BaseModel):
    example_id: str
    movie_name: str
    chat: list[str]
    query: str
    response: str
    span: str
    label: int = Field(ge=0, le=3)
    all_documents: _Documents


class HollE(DataSet):
    """Two forms: collected chats (`main_data`: `spans` and `labels` a turn) and examples (`raw_data`: `query`, `span`).

    Speaker1 is `user`; Speaker2, who writes from the documents, is `system`. `knowledge` is the span with its film as
    `title` and the document as `section`; `pool` the sentences of plot, review, comments and fact table.
    """

    name = "holl-e"
    languages = ("en",)
    paper = "Holl-E (Moghe et al., EMNLP 2018)"
    licence = "none stated"
    where = "github.com/nikitacs16/Holl-E, main_data and raw_data"
    form = "a JSON list of {`chat`, `spans`, `labels`, ...} or of {`chat`, `query`, `span`, ...}"
    has = ("knowledge",)

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole dialogues; Speaker2's turns are the references. An example has one."""
        for place, entry in read_forms(
            path, {"spans": _Chat, "span": _Example}, self.published, unused=self.report.unused_keys
        ):
            if isinstance(entry, _Chat):
                yield from _read_chat(entry, place)
            elif isinstance(entry, _Example):
                yield from _read_example(entry, place)


def _read_chat(entry: _Chat, place: Place) -> Iterator[Entry]:
    for field, values in (("labels", entry.labels), ("spans", entry.spans)):
        if len(values) != len(entry.chat):
            raise place.error(f"{len(values)} values for {len(entry.chat)} turns", field)
    talk = Talk(
        stated_id("holl-e", entry.chat_id), "en", topic=entry.movie_name, pool=_pool(entry.movie_name, entry.documents)
    )
    for number, text in enumerate(entry.chat):
        if number % 2 == 0:
            talk.say("user", text)
        else:
            talk.answer("system", text, _gold(entry.movie_name, entry.labels[number], entry.spans[number]))
    yield from talk.whole()


def _read_example(entry: _Example, place: Place) -> Iterator[Entry]:
    # Long responses are shortened in examples, so that the chat's own turn only holds them.
    candidates = (
        number
        for number in range(1, len(entry.chat))
        if entry.chat[number - 1] == entry.query and entry.response in entry.chat[number]
    )
    turn = next(candidates, None)
    if turn is None:
        raise place.error("query and response do not follow each other in the chat", "chat")
    talk = Talk(
        stated_id("holl-e", entry.example_id),
        "en",
        topic=entry.movie_name,
        pool=_pool(entry.movie_name, entry.all_documents),
    )
    for number, text in enumerate(entry.chat[:turn]):
        talk.say("user" if (turn - number) % 2 else "system", text)
    talk.answer("system", entry.response, _gold(entry.movie_name, entry.label, entry.span))
    yield from talk.whole()


def _gold(film: str, label: int, span: str | None) -> list[Gold]:
    if not span or not span.strip() or not 0 <= label < len(_SECTIONS):
        return []
    return [{"text": span.strip(), "title": film, "section": _SECTIONS[label]}]


def _pool(film: str, documents: _Documents) -> tuple[Gold, ...]:
    table = documents.fact_table
    facts = [str(table["box_office"])] if isinstance(table.get("box_office"), str) else []
    for key in ("awards", "taglines", "similar_movies"):
        facts += [item for item in table.get(key) or () if isinstance(item, str)]
    texts = [documents.plot, documents.review, *documents.comments]
    sentences = dict.fromkeys([sentence for text in texts for sentence in split_lines(text)] + facts)
    return tuple({"text": sentence, "title": film} for sentence in sentences)
