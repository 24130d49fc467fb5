"""The tables of a document index: what is kept, and the SQL that SQLite and PostgreSQL have in common."""

from __future__ import annotations

import functools
import itertools
import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from dialore.errors import InputError
from dialore.knowledge import GROUPS, Passage
from dialore.retrieval.bm25 import split_terms
from dialore.retrieval.documents.filters import ALL, COLUMNS, Condition, Filter, comparisons
from dialore.retrieval.documents.metadata import decode_metadata, encode_metadata

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LAYOUT = 3
TERMS = {"stems": True, "stop_words": False, "chinese": "search", "others": "unicode"}
"""How texts become terms (see `split_terms`), as an index has it written."""
BUILD = "build one with `dialore documents build`"
AGAIN = "build it again with `dialore documents build`"
MOST_MATCHES = 20_000
"""Passages that the terms of one query may have together; beyond them, its most frequent terms only add to scores."""


def id_number(identifier: str) -> int:
    """Return the number of an id such as `passage:0123456789ab`; -1 for one that no passage can have."""
    match = re.fullmatch("(?:passage:)?([0-9a-f]{12})", identifier)
    return int(match[1], 16) if match else -1


class Document(BaseModel):
    """A file, by its absolute path, or other texts by their name; these have no hash (of bytes and splitting)."""

    name: str
    hash: str = ""
    passages: int = 0
    bytes: int = 0
    modified: int = 0


class Approximate(BaseModel):
    """The approximate index of the vectors: its file, beside the index, the last passage in it, how many it has."""

    file: str
    last: int
    passages: int


class IndexSettings(BaseModel):
    """The settings of an index: its embedder (none where empty), and how texts become passages."""

    layout: int = LAYOUT
    name: str
    embedder: str = ""
    embedder_fingerprint: str = ""
    dimension: int = 0
    tokeniser: dict[str, Any] = TERMS
    chunking: dict[str, Any] = Field(default_factory=dict)
    approximate: Approximate | None = None


class State(NamedTuple):
    """An index at one moment: settings as JSON, changes, removals (from its building's time on), counts, and terms."""

    settings: str
    version: int
    removals: int
    passages: int
    length: int
    last: int


_COLUMNS = (
    "number, text, title, url, file, page, "
    "(SELECT content FROM metadata WHERE metadata.number = passages.metadata_number)"
)
_SCANNED = "(metadata_number IN (SELECT number FROM metadata WHERE {}))"
"""Compares each row of metadata once, which many passages may share."""
_SELECTED = "EXISTS (SELECT 1 FROM metadata WHERE metadata.number = passages.metadata_number AND ({}))"
"""Compares the metadata of each passage that is reached."""
Row = tuple[int, int, int, int, str, str, str, str, int, int]
"""A row of the table of passages, up to `metadata_number`."""
_RECENT_METADATA = 1000
"""Metadata among which a further passage of the same document looks for its own."""


class Transaction(ABC):
    """One state of an index, or a change of it; passages that its filter leaves out are not there."""

    mark = "?"
    """How the database writes a parameter."""
    field_items: str
    """SELECT of a row for each item of a field in a row of the table of metadata; its parameter is the field's path.

    Columns: `text`, `number` (null if it is none) and `day` (the text if it begins with a year and a month, else null).
    """
    day_of: str
    """SQL of a `text` that begins with a year and a month; null for any other."""

    def __init__(self, connection: Any, path: str, filter_: Filter = ALL) -> None:  # noqa: ANN401 - a driver's
        self._connection, self._path, self.filter = connection, path, filter_
        self._metadata_numbers: dict[tuple[int, str], int] = {}
        self.has_removed = False
        # The same condition for all passages, and for the few that another condition selects.
        self._seen, self._seen_values = self._condition(filter_, _SCANNED)
        self._seen_each, _ = self._condition(filter_, _SELECTED)

    def _condition(self, filter_: Filter, metadata_matches: str) -> tuple[str, list[object]]:
        """Return a filter as a condition of SQL on passages, beginning with AND, with its parameters.

        `metadata_matches` is the SQL of passages whose metadata fulfils a condition.
        """
        sql, values = "", list[object]()
        for condition in filter_.conditions:
            condition_sql, condition_values = self._condition_sql(condition, metadata_matches)
            sql += f" AND {condition_sql}"
            values += condition_values
        if filter_.groups is not None:
            groups_path = self._path_of(GROUPS)
            among, own_groups = self.among("text", filter_.groups)
            items = self.field_items
            is_closed = f"EXISTS ({items}) AND NOT EXISTS ({items} WHERE {among})"
            sql += f" AND NOT {metadata_matches.format(is_closed)}"
            values += [groups_path, groups_path, own_groups]
        return sql, values

    def _condition_sql(self, condition: Condition, metadata_matches: str) -> tuple[str, list[object]]:
        """Return a condition as SQL; of a list any item counts, and `!=` holds where none is equal."""
        any_of, compared = comparisons(condition)
        negated = "NOT " if condition.operator == "!=" else ""
        if condition.field in COLUMNS:
            number = "page" if condition.field == "page" else "NULL"
            column = f"SELECT CAST({condition.field} AS TEXT) AS text, {number} AS number"
            item = f"SELECT 1 FROM (SELECT text, number, {self.day_of} AS day FROM ({column}) AS own) AS item"
            return f"{negated}EXISTS ({item} WHERE {any_of})", compared
        sql, values = "", list[object]()
        for path in self._paths_of(condition.field):
            sql += f"{' OR ' if sql else ''}EXISTS ({self.field_items} WHERE {any_of})"
            values += [path, *compared]
        return f"{negated}{metadata_matches.format(sql)}", values

    def _paths_of(self, field: str) -> list[object]:
        """Return the paths that a field may stand for.

        `a.b` is a field of that name, or `b` in the object `a`. `metadata.b` is also `b`, because readers may have
        lifted it from there.
        """
        paths = [self._path_of(field)]
        steps = field.split(".")
        if len(steps) > 1 and all(steps):
            paths.append(self._path_of(*steps))
            if steps[0] == "metadata":
                paths.append(self._path_of(*steps[1:]))
        return paths

    @abstractmethod
    def _path_of(self, *steps: str) -> object:
        """Return the database's path of a field of the metadata, or of a field in objects."""

    def ask(self, sql: str, *values: object) -> Any:  # noqa: ANN401 - a cursor of either library
        """Execute a statement whose parameters are written `?`."""
        return self._connection.execute(sql.replace("?", self.mark), values)

    # --- what differs between databases

    @abstractmethod
    def among(self, column: str, values: Collection[Any]) -> tuple[str, object]:
        """Return the condition that a column has one of the values, and its parameter."""

    @abstractmethod
    def vocabulary(self, letter: str) -> list[str]:
        """Return the terms of all passages that begin with a letter."""

    @abstractmethod
    def by_terms(self, terms: Counter[str], top: int) -> list[tuple[int, float]]:
        """Return the numbers and scores of the best passages by BM25, ties by number."""

    @abstractmethod
    def by_vector(self, query: NDArray[np.float32], top: int) -> list[tuple[int, float]]:
        """Return the numbers and scores of the passages nearest by cosine, ties by number."""

    @abstractmethod
    def update_approximate(self, on_added: Callable[[int, int], None]) -> None:
        """Bring the approximate index of the vectors up to date; `on_added` is told how many, and of how many."""

    @abstractmethod
    def _insert(self, rows: Sequence[Row], terms: Sequence[Sequence[str]], vectors: NDArray[np.float32] | None) -> None:
        """Add rows to the table of passages, with the terms that each is found by, and their vectors."""

    @abstractmethod
    def _insert_metadata(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """Add metadata: its number, its document's number, and its JSON."""

    @abstractmethod
    def _remove(self, condition: str, value: object) -> None: ...

    # --- questions

    def state(self) -> State:
        """Return settings and counts."""
        return State(*self.ask("SELECT settings, version, removals, passages, length, last FROM state").fetchone())

    def settings(self) -> IndexSettings:
        """Return what the index was built with; raise InputError where another version wrote it."""
        try:
            settings = _parse_settings(self.state().settings)
        except ValidationError as error:
            raise InputError(f"{self._path} is damaged", hint=AGAIN) from error
        if (settings.layout, settings.tokeniser) != (LAYOUT, TERMS):
            raise InputError(f"{self._path} was made by another version (layout {settings.layout})", hint=AGAIN)
        return settings

    def documents(self) -> dict[int, Document]:
        """Return the documents that have passages, by number, in the order in which they came."""
        rows = self.ask(
            "SELECT d.number, name, hash, bytes, modified, (SELECT COUNT(*) FROM passages "
            f"WHERE document = d.number{self._seen}) FROM documents d ORDER BY d.number",
            *self._seen_values,
        )
        return {
            number: Document(name=name, hash=digest, bytes=size, modified=modified, passages=count)
            for number, name, digest, size, modified, count in rows
            if count or not self.filter
        }

    def count(self) -> int:
        """Return how many passages there are."""
        if not self.filter:
            return self.state().passages
        return int(self.ask(f"SELECT COUNT(*) FROM passages WHERE TRUE{self._seen}", *self._seen_values).fetchone()[0])

    def passages(self, values: Collection[int] | None = None, column: str = "number") -> Iterator[tuple[int, Passage]]:
        """Yield the passages whose `number`, `id` or `document` is among the values, with their numbers.

        They come in order. Without values, all are yielded.
        """
        condition, value = ("number > ?", 0) if values is None else self.among(column, values)
        seen = self._seen if values is None else self._seen_each
        sql = f"SELECT {_COLUMNS} FROM passages WHERE {condition}{seen} ORDER BY number"
        for number, text, title, url, file, page, metadata in self.ask(sql, value, *self._seen_values):
            yield number, Passage(text, title, url, file, page, decode_metadata(metadata))

    def titles(self, most: int) -> list[str]:
        """Return the first titles of passages, each once, in the order of the passages."""
        rows = self.ask(
            f"SELECT title FROM passages WHERE title <> ''{self._seen} GROUP BY title ORDER BY MIN(number) LIMIT ?",
            *self._seen_values,
            most,
        )
        return [title for (title,) in rows]

    def content(self) -> tuple[int, int]:
        """Return a count and a sum over the passages' ids: other content has others."""
        sql = f"SELECT COUNT(*), SUM(id & 4294967295) FROM passages WHERE TRUE{self._seen}"
        count, total = self.ask(sql, *self._seen_values).fetchone()
        return int(count), int(total or 0)

    # --- changes

    def add_document(self, number: int, document: Document) -> None:
        """Add a document, without its passages."""
        values = document.name, document.hash, document.bytes, document.modified
        self.ask("INSERT INTO documents VALUES (?, ?, ?, ?, ?)", number, *values)

    def owners(self, ids: Collection[str]) -> list[tuple[int, str]]:
        """Return the numbers of the documents that have passages of those ids, each with the id."""
        by_number = {id_number(identifier): identifier for identifier in ids}
        condition, value = self.among("id", by_number)
        rows = self.ask(f"SELECT document, id FROM passages WHERE {condition}", value)
        return [(document, by_number[number]) for document, number in rows]

    def insert(self, passages: Sequence[tuple[int, Passage]], vectors: NDArray[np.float32] | None) -> None:
        """Add passages, each with the number of its document, and their vectors (n, dimension)."""
        first = self.state().last + 1
        metadata_numbers = self._store_metadata(passages)
        rows: list[Row] = []
        terms: list[list[str]] = []
        length = 0
        for offset, (document, passage) in enumerate(passages):
            own_terms = split_terms(passage.searched)
            location = (passage.title, passage.url, passage.file, passage.page)
            key = (first + offset, id_number(passage.id), document, len(own_terms))
            rows.append((*key, passage.text, *location, metadata_numbers[offset]))
            terms.append(own_terms)
            length += len(own_terms)
        self._insert(rows, terms, vectors)
        self.ask("UPDATE state SET passages = passages + ?, length = length + ?, last = last + ?",
                 len(passages), length, len(passages))  # fmt: skip

    def _store_metadata(self, passages: Sequence[tuple[int, Passage]]) -> list[int]:
        """Store the metadata of passages, once for each document that repeats it, and return its numbers (0: none)."""
        numbers: list[int] = []
        rows: list[tuple[int, int, str]] = []
        last = int(self.ask("SELECT COALESCE(MAX(number), 0) FROM metadata").fetchone()[0])
        previous: dict[str, Any] | None = None
        content = ""
        for document, passage in passages:
            if passage.metadata is not previous:
                previous = passage.metadata
                content = encode_metadata(previous)
            if not content:
                numbers.append(0)
                continue
            key = (document, content)
            number = self._metadata_numbers.get(key)
            if number is None:
                last += 1
                number = last
                if len(self._metadata_numbers) >= _RECENT_METADATA:
                    self._metadata_numbers.clear()
                self._metadata_numbers[key] = number
                rows.append((number, document, content))
            numbers.append(number)
        self._insert_metadata(rows)
        return numbers

    def remove(self, column: str, values: Collection[Any]) -> int:
        """Remove the passages whose `document`, `id` or `url` is among the values; returns how many there were."""
        condition, value = self.among(column, values)
        selection = f"FROM passages WHERE {condition}"
        count, length = self.ask(f"SELECT COUNT(*), COALESCE(SUM(length), 0) {selection}", value).fetchone()
        if count:
            self.has_removed = True
            # A document that lost passages is no longer what its file says: it is read again when it is added again.
            self.ask(f"UPDATE documents SET hash = '' WHERE number IN (SELECT document {selection})", value)
            self._remove(selection, value)
            self.ask(f"DELETE {selection}", value)
            self.ask("UPDATE state SET passages = passages - ?, length = length - ?, removals = removals + 1",
                     count, int(length))  # fmt: skip
        return int(count)

    def finish(self) -> None:
        """Count the change, and delete documents and metadata without passages."""
        if self.has_removed:
            self.ask(
                "DELETE FROM metadata WHERE NOT EXISTS"
                " (SELECT 1 FROM passages WHERE passages.metadata_number = metadata.number)"
            )
            self._metadata_numbers.clear()
        self.ask("DELETE FROM documents WHERE NOT EXISTS (SELECT 1 FROM passages WHERE document = documents.number)")
        self.ask("UPDATE state SET version = version + 1")

    def begin(self, settings: IndexSettings) -> None:
        """Make the tables that both databases have, empty."""
        for name, columns in _TABLES.items():
            self.ask(f"DROP TABLE IF EXISTS {name}")
            self.ask(f"CREATE TABLE {name} ({columns})")
        self.ask("INSERT INTO state VALUES (?, 0, ?, 0, 0, 0)", settings.model_dump_json(), time.time_ns())


@functools.lru_cache(maxsize=64)  # each question reads them
def _parse_settings(text: str) -> IndexSettings:
    return IndexSettings.model_validate_json(text)


_TABLES = {
    "state": "settings TEXT, version BIGINT, removals BIGINT, passages BIGINT, length BIGINT, last BIGINT",
    "documents": "number BIGINT PRIMARY KEY, name TEXT, hash TEXT, bytes BIGINT, modified BIGINT",
}


def selective(terms: Counter[str], frequencies: dict[str, int]) -> list[str]:
    """Return the rarest terms of a query, up to `MOST_MATCHES`; to rank what has any word takes a second."""
    rare = sorted((term for term in terms if frequencies.get(term)), key=lambda term: (frequencies[term], term))
    matches = itertools.accumulate(frequencies[term] for term in rare)
    return [term for at, (term, count) in enumerate(zip(rare, matches, strict=True)) if not at or count <= MOST_MATCHES]
