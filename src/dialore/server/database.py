"""The tables of what a service keeps of its users, and the database that they lie in: SQLite or PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from dialore.errors import InputError, import_optional

_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_WAIT = 30  # seconds that a change waits for others' end, in SQLite


class User(NamedTuple):
    """A user: the key that the request has, and the name that the caller gives them, which another key may share."""

    owner: str
    name: str


class Moment(sa.TypeDecorator[datetime]):
    """A moment in UTC: SQLite knows no time zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, capabilities: sa.Dialect) -> datetime | None:
        """As it is written."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, capabilities: sa.Dialect) -> datetime | None:
        """As it is read."""
        return value if value is None else (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)


TABLES = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    return sa.Table(name, TABLES, *(sa.Column(field, sa.Text, primary_key=True) for field in User._fields), *columns)


def _kept(name: str, *columns: sa.Column[Any]) -> sa.Table:
    return _table(name, sa.Column("id", sa.Text, primary_key=True), sa.Column("made", Moment), *columns, _ends())


def _ends() -> sa.Column[datetime]:
    return sa.Column("expires", Moment, index=True)


PEOPLE = _table("people", sa.Column("consents", sa.Boolean, nullable=False))
STATEMENTS = _kept(
    "statements",
    *(sa.Column(name, sa.Text) for name in ("text", "turn", "speaker", "replaces", "doubts")),
    *(sa.Column(name, Moment) for name in ("holds_from", "holds_until")),
)
CONVERSATIONS = _kept("conversations", sa.Column("turns", sa.JSON))
TRACES = _kept("traces", sa.Column("result", sa.JSON))
FEEDBACK = _kept("feedback", sa.Column("good", sa.Boolean), sa.Column("reason", sa.Text), sa.Column("better", sa.Text))
USED = _table(
    "used",
    sa.Column("began", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("amount", sa.BigInteger),
    _ends(),
)
COUNT = sa.text(
    "INSERT INTO used (owner, name, began, amount, expires) VALUES (:owner, :name, :began, :amount, :expires)"
    " ON CONFLICT (owner, name, began) DO UPDATE SET amount = used.amount + excluded.amount RETURNING amount"
).bindparams(sa.bindparam("expires", type_=Moment))
sa.Index("ix_traces_id", TRACES.c.id)  # asked for without a user's name


def read_url(place: str | Path) -> sa.URL:
    """Return the address of a database, a file's too; raise InputError where it is none."""
    if "://" not in str(place):
        return sa.URL.create(_DRIVERS["sqlite"], database=str(place))
    try:
        url = sa.make_url(str(place))
        return url.set(drivername=_DRIVERS[url.drivername.partition("+")[0]])
    except (ArgumentError, KeyError) as error:
        hint = "name a file, sqlite:///FILE, or postgresql://user@host/database"
        raise InputError("the store's address is no URL of SQLite or PostgreSQL", hint=hint) from error


def open_engine(url: sa.URL) -> sa.Engine:
    """Return the connections to a database; raise InputError where its driver is not installed."""
    if url.drivername != _DRIVERS["sqlite"]:
        import_optional("psycopg", "a store in PostgreSQL", "postgres")
        return sa.create_engine(url, pool_pre_ping=True)
    file = Path(url.database or "")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    # One connection, for SQLite has one writer: what waits here wakes at once, what waits there sleeps and tries again.
    waits = {"timeout": _WAIT, "isolation_level": None}
    engine = sa.create_engine(url, connect_args=waits, pool_size=1, max_overflow=0)

    @sa.event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:  # noqa: ANN401 - a driver's
        # What is deleted is overwritten. A crash of the program loses nothing; of the machine, the latest changes.
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")

    return engine
