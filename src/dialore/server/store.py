"""What a service keeps of its users: consent, memory, conversations and traces, in SQLite or PostgreSQL."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from dialore.errors import InputError, SourceError, first_line, import_optional
from dialore.sources.memory import Statement, standing

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_WAIT = 30
"""Seconds that a change waits for others' end, in SQLite."""
_MOST = 1000
"""Statements of one user; the oldest go."""
_BEGINNING = 80
"""Characters of a conversation that its title is."""


class User(NamedTuple):
    """Somebody who talks to a service: whose key the request has, and what the caller calls him.

    The same name under two keys is two users.
    """

    owner: str
    name: str


_ALL = User("dialore: all users", "")


class _Moment(sa.TypeDecorator[datetime]):
    """A moment in UTC: SQLite knows no time zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """As it is written."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """As it is read."""
        return value if value is None else (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)


TABLES = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    """A table each of whose rows belongs to one user."""
    return sa.Table(name, TABLES, *(sa.Column(each, sa.Text, primary_key=True) for each in User._fields), *columns)


def _kept(name: str, *columns: sa.Column[Any]) -> sa.Table:
    """A table whose rows are deleted when their time has come."""
    return _table(name, sa.Column("id", sa.Text, primary_key=True), sa.Column("made", _Moment), *columns, _ends())


def _ends() -> sa.Column[datetime]:
    return sa.Column("expires", _Moment, index=True)


_PEOPLE = _table("people", sa.Column("consents", sa.Boolean, nullable=False))
_STATEMENTS = _kept("statements", sa.Column("text", sa.Text), sa.Column("turn", sa.Text))
_CONVERSATIONS = _kept("conversations", sa.Column("turns", sa.JSON))
_TRACES = _kept("traces", sa.Column("result", sa.JSON))
_USED = _table(
    "used",
    sa.Column("began", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("amount", sa.BigInteger),
    _ends(),
)
_COUNT = sa.text(
    "INSERT INTO used (owner, name, began, amount, expires) VALUES (:owner, :name, :began, :amount, :expires)"
    " ON CONFLICT (owner, name, began) DO UPDATE SET amount = used.amount + excluded.amount RETURNING amount"
).bindparams(sa.bindparam("expires", type_=_Moment))
sa.Index("ix_traces_id", _TRACES.c.id)  # asked for without a user's name


def _threaded(
    work: Callable[Concatenate[ServerStore, sa.Connection, P], T], *, changes: bool
) -> Callable[Concatenate[ServerStore, P], Coroutine[Any, Any, T]]:
    """Have a method run in the store's threads, in a transaction: a step for each statement would take far longer."""

    @functools.wraps(work)
    async def threaded(store: ServerStore, /, *given: P.args, **named: P.kwargs) -> T:
        def doing(connection: sa.Connection) -> T:
            return work(store, connection, *given, **named)

        user = given[0] if changes and given and isinstance(given[0], User) else None
        in_store = functools.partial(store._do, doing, user, changes=changes)  # noqa: SLF001 - its own
        return await asyncio.get_running_loop().run_in_executor(store._threads, in_store)  # noqa: SLF001

    return threaded


_reading = functools.partial(_threaded, changes=False)
_changing = functools.partial(_threaded, changes=True)


class ServerStore:
    """Consent, memory, conversations and traces of a service's users, and what its keys have used.

    Any number of workers may have one store open; changes to one user's rows are made one after the other. Statements
    and conversations are kept of users who consent, and of nobody else; withdrawing consent deletes all that there is
    of a user. What has expired is never given, and is deleted by `sweep`.

    Args:
        place: a SQLite file, or a URL: `sqlite:///FILE`, `postgresql://USER@HOST/DATABASE`.
        memory_days: how long statements are kept.
        kept_days: how long conversations and traces are kept; 0: not at all.
        clock: what time it is.

    Raises:
        InputError: the place is no such URL. Every method raises SourceError where the database cannot be asked.
    """

    def __init__(
        self,
        place: str | Path,
        *,
        memory_days: int = 365,
        kept_days: int = 7,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        url = _url(place)
        self._place, self._engine = url.render_as_string(hide_password=True), _engine(url)
        self._clock = clock
        self._memory, self._kept = timedelta(days=memory_days), timedelta(days=kept_days)
        self._threads = ThreadPoolExecutor(self._engine.pool.size(), "store")  # type: ignore[attr-defined]

    @property
    def keeps_conversations(self) -> bool:
        """Whether conversations and traces are kept at all."""
        return bool(self._kept)

    async def open(self) -> None:
        """Bring the database to the newest version, and delete what has expired.

        Raises:
            InputError: it cannot be reached, or is of a newer version than this program.
        """
        try:
            await self._upgrade(_ALL)
        except SourceError as error:
            raise InputError(error.message, mend="name a file, or postgresql://user@host/database") from error
        except CommandError as error:
            mend = "install a newer dialore, or name another"
            raise InputError(f"{self._place}: {first_line(error)}", mend=mend) from error
        await self.sweep()

    @_changing
    def _upgrade(self, connection: sa.Connection, _everybody: User) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.get_running_loop().run_in_executor(self._threads, self._engine.dispose)

    # --- memory

    @_reading
    def consents(self, connection: sa.Connection, user: User) -> bool:
        """Whether a user wants to be remembered; nobody does who has not said so."""
        return _consents(connection, user)

    @_changing
    def set_consent(self, connection: sa.Connection, user: User, *, consents: bool) -> None:
        """Say whether a user wants to be remembered; everything that there is of him is deleted where he does not."""
        for table in (_PEOPLE,) if consents else (_PEOPLE, _STATEMENTS, _CONVERSATIONS, _TRACES):
            _delete(connection, table, user)
        if consents:
            connection.execute(_PEOPLE.insert().values(**user._asdict(), consents=True))

    @_reading
    def statements(self, connection: sa.Connection, user: User) -> list[Statement]:
        """What is remembered of a user and stands, the newest first."""
        return standing(_statements(connection, user), self._clock())

    @_changing
    def remember(
        self, connection: sa.Connection, user: User, said: Iterable[Statement], replaced: Sequence[str] = ()
    ) -> list[Statement]:
        """Remember statements in the place of others, by their ids; gives those that are kept.

        What a new statement replaces by `standing` is deleted, too. Nothing is kept of a user who does not consent.
        """
        if not _consents(connection, user):
            return []
        known = {each.id: each for each in _statements(connection, user)}
        new = {each.id: each for each in map(self._dated, said)}
        left = {name: each for name, each in known.items() if name not in replaced} | new
        stand = {each.id for each in standing(left.values(), self._clock())[:_MOST]}
        gone = [name for name in known if name not in stand or name in new]
        _delete(connection, _STATEMENTS, user, _STATEMENTS.c.id.in_(gone))
        kept = [each for name, each in new.items() if name in stand]
        rows = [
            {"id": each.id, "made": each.said, "text": each.text, "turn": each.turn, "expires": each.expires}
            for each in kept
        ]
        if rows:
            connection.execute(_STATEMENTS.insert(), [user._asdict() | row for row in rows])
        return kept

    def _dated(self, statement: Statement) -> Statement:
        plain = {"text": statement.text.replace("\0", ""), "turn": statement.turn.replace("\0", "")}
        return statement.model_copy(update={**plain, "expires": statement.expires or statement.said + self._memory})

    @_changing
    def forget(self, connection: sa.Connection, user: User, statement: str | None = None) -> int:
        """Delete a statement by its id, or all of a user's; gives how many there were."""
        named = () if statement is None else (_STATEMENTS.c.id == statement,)
        return _delete(connection, _STATEMENTS, user, *named)

    # --- conversations and traces

    @_changing
    def keep_conversation(
        self, connection: sa.Connection, user: User, identifier: str, turns: Sequence[Mapping[str, Any]]
    ) -> None:
        """Keep a conversation as it is now, its messages as plain data, in the place of what it was.

        Nothing is kept of a user who does not consent.
        """
        if _consents(connection, user):
            _delete(connection, _CONVERSATIONS, user, _CONVERSATIONS.c.id == identifier)
            self._keep(connection, _CONVERSATIONS, user, identifier, turns=list(turns))

    @_reading
    def conversation(self, connection: sa.Connection, user: User, identifier: str) -> list[dict[str, Any]] | None:
        """The messages of a conversation; None where the user has none of that id."""
        columns = _CONVERSATIONS.c
        query = sa.select(columns.turns).where(*self._live(_CONVERSATIONS, user), columns.id == identifier)
        found: list[dict[str, Any]] | None = connection.scalar(query)
        return found

    @_reading
    def conversations(self, connection: sa.Connection, user: User) -> list[tuple[str, datetime, str]]:
        """The ids of a user's conversations, when each was last kept and how it begins, the latest first."""
        columns = _CONVERSATIONS.c
        begins = sa.func.substr(columns.turns[0, "content"].as_string(), 1, _BEGINNING)
        query = sa.select(columns.id, columns.made, begins).where(*self._live(_CONVERSATIONS, user))
        rows = connection.execute(query.order_by(columns.made.desc(), columns.id))
        return [(name, made, title or "") for name, made, title in rows]

    @_changing
    def keep_trace(self, connection: sa.Connection, user: User, identifier: str, result: Mapping[str, Any]) -> None:
        """Keep what a response was made of, as plain data."""
        self._keep(connection, _TRACES, user, identifier, result=dict(result))

    @_reading
    def trace(self, connection: sa.Connection, owner: str, identifier: str) -> dict[str, Any] | None:
        """What a response to one of an owner's users was made of; None where there is no such trace, or no longer."""
        columns = _TRACES.c
        query = sa.select(columns.result).where(columns.id == identifier, columns.owner == owner)
        found: dict[str, Any] | None = connection.scalar(query.where(columns.expires > self._clock()))
        return found

    @_reading
    def traces(self, connection: sa.Connection, owner: str, *fields: str, most: int = 200) -> list[dict[str, Any]]:
        """Fields of an owner's latest traces that have them all, each with `trace` and `made`, the latest first."""
        columns = _TRACES.c
        wanted = [columns.result[name].label(name) for name in fields]
        query = sa.select(columns.id.label("trace"), columns.made, *wanted).order_by(columns.made.desc()).limit(most)
        query = query.where(columns.owner == owner, columns.expires > self._clock())
        rows = (row._asdict() for row in connection.execute(query))
        return [row for row in rows if None not in row.values()]

    @_changing
    def delete_conversation(self, connection: sa.Connection, user: User, identifier: str) -> int:
        """Delete a conversation; gives how many there were."""
        return _delete(connection, _CONVERSATIONS, user, _CONVERSATIONS.c.id == identifier)

    # --- what is used

    @_changing
    def count(self, connection: sa.Connection, owner: str, what: str, amount: int, seconds: int) -> int:
        """Add to what an owner has used in this stretch of so many seconds, e.g. of this minute; gives the whole."""
        began = int(self._clock().timestamp()) // seconds * seconds
        expires = datetime.fromtimestamp(began + seconds, UTC)
        row = {"owner": owner, "name": what, "began": began, "amount": amount, "expires": expires}
        return int(connection.execute(_COUNT, row).scalar_one())

    @_changing
    def sweep(self, connection: sa.Connection) -> int:
        """Delete what has expired, of all users; gives how many rows that were."""
        tables = _STATEMENTS, _CONVERSATIONS, _TRACES, _USED
        expired = (each.delete().where(each.c.expires <= self._clock()) for each in tables)
        return sum(connection.execute(each).rowcount for each in expired)

    def _keep(self, connection: sa.Connection, table: sa.Table, user: User, identifier: str, **data: object) -> None:
        now = self._clock()
        row = {**user._asdict(), "id": identifier, "made": now, "expires": now + self._kept, **data}
        if self._kept:
            connection.execute(table.insert().values(row))

    def _live(self, table: sa.Table, user: User) -> tuple[sa.ColumnElement[bool], ...]:
        return (*_of(table, user), table.c.expires > self._clock())

    # --- the database

    def _do(self, work: Callable[[sa.Connection], T], user: User | None, *, changes: bool) -> T:
        """Work in a transaction; no other change of the same user runs beside a change."""
        if user and "\0" in "".join(user):
            raise InputError("a user's name has a character that is none")
        try:
            with self._engine.begin() as connection:
                if changes and connection.dialect.name == "sqlite":
                    connection.exec_driver_sql("BEGIN IMMEDIATE")  # it waits for its turn now: later is too late
                elif user:
                    key = sa.func.hashtextextended("\x1f".join(user), 0)
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
                return work(connection)
        except SQLAlchemyError as error:  # in one line, without its password
            said = first_line(getattr(error, "orig", None) or error)
            raise SourceError(f"{self._place} cannot be asked: {said}") from error


async def tried(work: Awaitable[T], otherwise: T) -> T:
    """What the store gives; where it cannot be asked, the log says so and the service goes on."""
    try:
        return await work
    except SourceError as error:
        log.warning("%s", error)
        return otherwise


def _url(place: str | Path) -> sa.URL:
    if "://" not in str(place):
        return sa.URL.create(_DRIVERS["sqlite"], database=str(place))
    try:
        url = sa.make_url(str(place))
        return url.set(drivername=_DRIVERS[url.drivername.partition("+")[0]])
    except (ArgumentError, KeyError) as error:
        mend = "name a file, sqlite:///FILE, or postgresql://user@host/database"
        raise InputError("the store's address is no URL of SQLite or PostgreSQL", mend=mend) from error


def _engine(url: sa.URL) -> sa.Engine:
    if url.drivername != _DRIVERS["sqlite"]:
        import_optional("psycopg", "a store in PostgreSQL", "postgres")
        return sa.create_engine(url, pool_pre_ping=True)
    file = Path(url.database or "")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    # One connection, for SQLite has one writer: what waits here wakes at once, what waits there sleeps and tries again.
    engine = sa.create_engine(
        url, connect_args={"timeout": _WAIT, "isolation_level": None}, pool_size=1, max_overflow=0
    )

    @sa.event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:  # noqa: ANN401 - a driver's
        # What is deleted is overwritten. A crash of the program loses nothing; of the machine, the latest changes.
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")

    return engine


def _of(table: sa.Table, user: User) -> tuple[sa.ColumnElement[bool], ...]:
    return (table.c.owner == user.owner, table.c.name == user.name)


def _delete(connection: sa.Connection, table: sa.Table, user: User, *where: sa.ColumnElement[bool]) -> int:
    return (connection.execute(table.delete().where(*_of(table, user), *where))).rowcount


def _consents(connection: sa.Connection, user: User) -> bool:
    return bool(connection.scalar(sa.select(_PEOPLE.c.consents).where(*_of(_PEOPLE, user))))


def _statements(connection: sa.Connection, user: User) -> list[Statement]:
    rows = connection.execute(_STATEMENTS.select().where(*_of(_STATEMENTS, user)))
    return [Statement(text=row.text, said=row.made, turn=row.turn, expires=row.expires) for row in rows]
