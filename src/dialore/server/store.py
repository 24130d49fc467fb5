"""The store of a service's users: consent, memory, conversations and traces, in SQLite or PostgreSQL."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError

from dialore.errors import InputError, SourceError, first_line, import_optional
from dialore.files import create_private, create_private_folder, unwritable
from dialore.parallel import Threads
from dialore.sources.statements import Statement, standing, with_intervals
from dialore.sqlite_errors import explain_sqlite_error

log = logging.getLogger(__name__)
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_WAIT = 30  # seconds that a change waits for others' end, in SQLite
_CHECKPOINT_WAIT_MS = 1000
"""How long a deletion waits for readers before the write-ahead log is emptied."""
_ATTEMPT_S = 2.0
"""How long a response waits for the store."""
_BUSY_S = 5.0
"""How long responses do not wait at all after one of them waited in vain: each makes several changes."""
P = ParamSpec("P")
T = TypeVar("T")
_MOST = 1000  # statements of one user; the oldest go, of those that hold no longer first
_TURNS = 500  # the latest turns of a user's other conversations that are searched
_LATEST = 200  # traces of an owner that are shown
_BEGINNING = 80  # characters of a conversation that its title is


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
        return value and value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, capabilities: sa.Dialect) -> datetime | None:
        """As it is read."""
        return value and (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)


TABLES = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    return sa.Table(name, TABLES, *(sa.Column(field, sa.Text, primary_key=True) for field in User._fields), *columns)


def _expiring_table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    return _table(name, sa.Column("id", sa.Text, primary_key=True), sa.Column("made", Moment), *columns, _expiry())


def _expiry() -> sa.Column[datetime]:
    return sa.Column("expires", Moment, index=True)


PEOPLE = _table("people", sa.Column("consents", sa.Boolean, nullable=False))
STATEMENTS = _expiring_table(
    "statements",
    *(sa.Column(name, sa.Text) for name in ("text", "turn", "speaker", "replaces", "doubts")),
    *(sa.Column(name, Moment) for name in ("holds_from", "holds_until")),
)
CONVERSATIONS = _expiring_table("conversations", sa.Column("turns", sa.JSON))
TRACES = _expiring_table("traces", sa.Column("result", sa.JSON))
FEEDBACK = _expiring_table(
    "feedback", sa.Column("good", sa.Boolean), sa.Column("reason", sa.Text), sa.Column("better", sa.Text)
)
USED = _table(
    "used",
    sa.Column("began", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("amount", sa.BigInteger),
    _expiry(),
)
COUNT = sa.text(
    "INSERT INTO used (owner, name, began, amount, expires) VALUES (:owner, :name, :began, :amount, :expires)"
    " ON CONFLICT (owner, name, began) DO UPDATE SET amount = used.amount + excluded.amount RETURNING amount"
).bindparams(sa.bindparam("expires", type_=Moment))
sa.Index("ix_traces_id", TRACES.c.id)  # asked for without a user's name
_ALL = User("dialore: all users", "")
_FIELDS = [name for name in Statement.model_fields if name != "is_turn"]


def _in_thread(
    work: Callable[Concatenate[ServerStore, sa.Connection, P], T], *, changes: bool, deletes: bool = False
) -> Callable[Concatenate[ServerStore, P], Coroutine[Any, Any, T]]:
    """Have a method run in the store's threads, in a transaction: a step for each statement would take far longer.

    After a method that `deletes`, the deleted text is removed from SQLite's write-ahead log as well.
    """

    @functools.wraps(work)
    async def threaded(store: ServerStore, /, *given: P.args, **named: P.kwargs) -> T:
        def doing(connection: sa.Connection) -> T:
            return work(store, connection, *given, **named)

        user = given[0] if changes and given and isinstance(given[0], User) else None
        in_store = functools.partial(store._do, doing, user, changes=changes, deletes=deletes)  # noqa: SLF001
        return await asyncio.get_running_loop().run_in_executor(store._threads, in_store)  # noqa: SLF001

    return threaded


_reading = functools.partial(_in_thread, changes=False)
_changing = functools.partial(_in_thread, changes=True)
_deleting = functools.partial(_in_thread, changes=True, deletes=True)


class ServerStore:
    """Consent, memory, conversations and traces of a service's users, and what its keys have used.

    Any number of workers may have one store open; changes to one user's rows are made one after the other. Statements
    and conversations are kept only of users who consent; withdrawing consent deletes all that there is of a user. What
    has expired is never given, and deleted by `sweep`: statements after `memory_days`, the rest after `kept_days` (0:
    it is not kept at all). Its place is a SQLite file, or a URL of SQLite or PostgreSQL; InputError for another. Every
    method raises SourceError where the database cannot be asked.
    """

    def __init__(
        self,
        place: str | Path,
        *,
        memory_days: int = 365,
        kept_days: int = 7,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        url = read_url(place)
        self._file = url.database or ""
        self._place, self._engine = url.render_as_string(hide_password=True), open_engine(url)
        self._clock = clock
        self._busy_until = 0.0
        self._must_clear_log = False
        self._memory, self._kept = timedelta(days=memory_days), timedelta(days=kept_days)
        self._threads = Threads(self._engine.pool.size(), "store")  # type: ignore[attr-defined]
        self._process = os.getpid()

    @property
    def keeps_conversations(self) -> bool:
        """True where conversations and traces are kept at all."""
        return bool(self._kept)

    async def open(self) -> None:
        """Bring the database to the newest version, and delete what has expired; InputError where it cannot be."""
        try:
            await self._upgrade(_ALL)
        except SourceError as error:
            hint = error.hint or "name a file, or postgresql://user@host/database"
            raise InputError(error.message, hint=hint) from error
        except CommandError as error:
            hint = "install a newer dialore, or name another"
            raise InputError(f"{self._place}: {first_line(error)}", hint=hint) from error
        await self.sweep()

    @_changing
    def _upgrade(self, connection: sa.Connection, _everybody: User) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    async def close(self) -> None:
        """Close the connections once all work under way is done, also work that is no longer awaited."""
        await asyncio.to_thread(self._threads.shutdown)
        self._engine.dispose()

    async def attempt(self, work: Coroutine[Any, Any, T], otherwise: T) -> T:
        """Return the result of a call of this store, or `otherwise` if the store fails or is busy; logs why.

        A call that takes too long is not cancelled: what it changes is stored once the database is free again.
        """
        task = asyncio.ensure_future(work)
        is_busy = time.monotonic() < self._busy_until
        try:
            return await asyncio.wait_for(asyncio.shield(task), 0.05 if is_busy else _ATTEMPT_S)
        except SourceError as error:
            log.warning("%s", error)
        except TimeoutError:
            self._busy_until = time.monotonic() + _BUSY_S
            log.warning("%s is busy: going on without it", self._place)
            task.add_done_callback(_log_late_failure)
        return otherwise

    # --- memory

    @_reading
    def consents(self, connection: sa.Connection, user: User) -> bool:
        """Return whether a user wants to be remembered; False for one who has not said so."""
        return _consents(connection, user)

    @_deleting
    def set_consent(self, connection: sa.Connection, user: User, *, consents: bool) -> None:
        """Say whether a user wants to be remembered; everything that there is of them is deleted where they do not."""
        for table in (PEOPLE,) if consents else (PEOPLE, STATEMENTS, CONVERSATIONS, TRACES, FEEDBACK):
            _delete(connection, table, user)
        if consents:
            connection.execute(PEOPLE.insert().values(**user._asdict(), consents=True))

    @_reading
    def statements(
        self, connection: sa.Connection, user: User, *, history: bool = False, as_of: datetime | None = None
    ) -> list[Statement]:
        """Return what is remembered of a user, the newest first: what holds, what held at a moment, or all of it."""
        told, now = _statements(connection, user), self._clock()
        if as_of is not None:
            return [statement for statement in with_intervals(told, now) if statement.held_at(as_of)]
        return with_intervals(told, now) if history else standing(told, now)

    @_reading
    def turns(self, connection: sa.Connection, user: User, but: str = "") -> list[Statement]:
        """Return the latest turns of a user's conversations but one, as they were said."""
        columns = CONVERSATIONS.c
        query = sa.select(columns.id, columns.made, columns.turns).where(*self._live(CONVERSATIONS, user))
        turns: list[Statement] = []
        for name, made, messages in connection.execute(query.where(columns.id != but).order_by(columns.made.desc())):
            for number, message in reversed([*enumerate(messages, 1)]):
                if len(turns) < _TURNS and message["content"].strip():
                    moment = message.get("said") or made
                    told = {"text": message["content"], "said": moment, "speaker": message["role"]}
                    turns.append(Statement.model_validate({**told, "turn": f"{name}:{number}", "is_turn": True}))
        return turns

    @_changing
    def remember(
        self,
        connection: sa.Connection,
        user: User,
        said: Iterable[Statement],
        replaced: Mapping[str, Statement] | None = None,
    ) -> list[Statement]:
        """Remember statements, and until when those held, by their ids, that they replace; gives those that are kept.

        What a new statement replaces by `with_intervals` is closed, too; where it says the same again the earlier one
        is kept for longer. Nothing is kept of a user who does not consent.
        """
        if not _consents(connection, user):
            return []
        known = {entry.id: entry for entry in _statements(connection, user)}
        last = max((entry.said for entry in known.values()), default=self._clock())
        new = {entry.id: entry for entry in (self._dated(new_statement, last) for new_statement in said)}
        closed = {name: entry for name, entry in (replaced or {}).items() if name in known}
        told = with_intervals((known | closed | new).values(), self._clock())
        told = sorted(told, key=lambda statement: statement.holds_until is not None)[:_MOST]
        changed = [statement for statement in told if known.get(statement.id) != statement]
        gone = known.keys() - {statement.id for statement in told}
        _delete(connection, STATEMENTS, user, STATEMENTS.c.id.in_([*gone, *(entry.id for entry in changed)]))
        if changed:
            connection.execute(STATEMENTS.insert(), [_row(user, statement) for statement in changed])
        return [statement for statement in changed if statement.holds_until is None]

    @_deleting
    def edit(
        self, connection: sa.Connection, user: User, identifier: str, changes: Mapping[str, object]
    ) -> Statement | None:
        """Change a statement's text, or since or until when it holds; gives it as it is then, which changes its id.

        If the text changes, the traces that quote the old text are deleted with their feedback, as `forget` does. The
        statement keeps the message that it was taken from, which hides that message of a stored conversation.

        None where the user has none of that id. Raises InputError where it would end before it begins.
        """
        known = {statement.id: statement for statement in _statements(connection, user)}
        if identifier not in known:
            return None
        old_text = known[identifier].text
        edited = Statement.model_validate({**known[identifier].model_dump(), **changes})
        if edited.holds_until is not None and edited.holds_until <= edited.begins:
            raise InputError("a statement holds until later than since when", hint="give another date")
        if edited.text != old_text:
            _delete_quoting_traces(connection, user, old_text)
        _delete(connection, STATEMENTS, user, STATEMENTS.c.id.in_([identifier, edited.id]))
        connection.execute(STATEMENTS.insert(), _row(user, edited))
        for column in (STATEMENTS.c.replaces, STATEMENTS.c.doubts):
            own = (*_of(STATEMENTS, user), column == identifier)
            connection.execute(STATEMENTS.update().where(*own).values({column: edited.id}))
        return edited

    def _dated(self, statement: Statement, last: datetime) -> Statement:
        if last > self._clock():  # which has gone back: what is said now is the newest all the same
            statement = statement.model_copy(update={"said": last + timedelta(microseconds=1)})
        plain = {"text": statement.text.replace("\0", ""), "turn": statement.turn.replace("\0", "")}
        return statement.model_copy(update={**plain, "expires": statement.expires or statement.said + self._memory})

    @_deleting
    def forget(
        self, connection: sa.Connection, user: User, identifier: str | None = None, table: sa.Table = STATEMENTS
    ) -> int:
        """Delete a user's rows of a table, by id or all, and the traces that quote them with their feedback.

        Traces of a conversation are those of its messages; traces of a statement are those whose text contains it.

        Returns:
            Number of deleted rows of `table`.
        """
        condition = () if identifier is None else (table.c.id == identifier,)
        if table is STATEMENTS and identifier is None:
            _delete_traces(connection, user)
        elif table is STATEMENTS:
            texts = connection.scalars(sa.select(STATEMENTS.c.text).where(*_of(STATEMENTS, user), *condition))
            for text in list(texts):
                _delete_quoting_traces(connection, user, text)
        elif table is CONVERSATIONS:
            stored = connection.scalars(sa.select(CONVERSATIONS.c.turns).where(*_of(CONVERSATIONS, user), *condition))
            traces = [message["trace"] for messages in stored for message in messages if message.get("trace")]
            _delete_traces(connection, user, TRACES.c.id.in_(traces))
        return _delete(connection, table, user, *condition)

    # --- conversations and traces

    @_changing
    def keep_conversation(
        self, connection: sa.Connection, user: User, identifier: str, turns: Sequence[Mapping[str, Any]]
    ) -> None:
        """Keep a conversation as it is now, in place of what it was; nothing of a user who does not consent."""
        if _consents(connection, user):
            _delete(connection, CONVERSATIONS, user, CONVERSATIONS.c.id == identifier)
            self._keep(connection, CONVERSATIONS, user, identifier, turns=list(turns))

    @_reading
    def conversation(self, connection: sa.Connection, user: User, identifier: str) -> list[dict[str, Any]] | None:
        """Return the messages of a conversation; None where the user has none of that id."""
        columns = CONVERSATIONS.c
        query = sa.select(columns.turns).where(*self._live(CONVERSATIONS, user), columns.id == identifier)
        messages: list[dict[str, Any]] | None = connection.scalar(query)
        return messages

    @_reading
    def conversations(self, connection: sa.Connection, user: User) -> list[tuple[str, datetime, str]]:
        """Return the ids of a user's conversations, when each was last kept and how it begins, the latest first."""
        columns = CONVERSATIONS.c
        begins = sa.func.substr(columns.turns[0, "content"].as_string(), 1, _BEGINNING)
        query = sa.select(columns.id, columns.made, begins).where(*self._live(CONVERSATIONS, user))
        rows = connection.execute(query.order_by(columns.made.desc(), columns.id))
        return [(name, made, title or "") for name, made, title in rows]

    @_changing
    def keep_trace(self, connection: sa.Connection, user: User, identifier: str, result: Mapping[str, Any]) -> None:
        """Keep what a response was made of, as plain data."""
        self._keep(connection, TRACES, user, identifier, result=dict(result))

    @_reading
    def trace(self, connection: sa.Connection, owner: str, identifier: str) -> dict[str, Any] | None:
        """Return what a response to one of an owner's users was made of; None where there is no such trace now."""
        columns = TRACES.c
        query = sa.select(columns.result).where(columns.id == identifier, columns.owner == owner)
        kept: dict[str, Any] | None = connection.scalar(query.where(columns.expires > self._clock()))
        return kept

    @_reading
    def traces(self, connection: sa.Connection, owner: str, *fields: str) -> list[dict[str, Any]]:
        """Fields of an owner's latest traces that have them all, each with `trace` and `made`, the latest first."""
        columns = TRACES.c
        wanted = [columns.result[name].label(name) for name in fields]
        query = sa.select(columns.id.label("trace"), columns.made, *wanted).order_by(columns.made.desc()).limit(_LATEST)
        query = query.where(columns.owner == owner, columns.expires > self._clock())
        rows = (row._asdict() for row in connection.execute(query))
        return [row for row in rows if None not in row.values()]

    @_changing
    def give_feedback(
        self, connection: sa.Connection, user: User, trace: str, *, good: bool, reason: str = "", better: str = ""
    ) -> bool:
        """Keep what a user thinks of a response, in place of what they thought before, with its trace.

        Both are kept for as long as a trace is from now on. Returns False where the user has no such response now.
        """
        own = (*self._live(TRACES, user), TRACES.c.id == trace)
        result = connection.scalar(sa.select(TRACES.c.result).where(*own))
        if result is None or "messages" not in result:  # of knowledge alone
            return False
        connection.execute(TRACES.update().where(*own).values(expires=self._clock() + self._kept))
        _delete(connection, FEEDBACK, user, FEEDBACK.c.id == trace)
        self._keep(connection, FEEDBACK, user, trace, good=good, reason=reason, better=better)
        return True

    @_reading
    def feedback(self, connection: sa.Connection, owner: str | None = None) -> list[dict[str, Any]]:
        """Return the feedback of an owner's users, of all owners where None, the latest first, each with its trace."""
        columns, traces = FEEDBACK.c, TRACES.c
        is_own = (columns.owner == traces.owner) & (columns.name == traces.name) & (columns.id == traces.id)
        fields = (columns.made, columns.good, columns.reason, columns.better)
        query = sa.select(columns.id.label("trace"), *fields, traces.result).join_from(FEEDBACK, TRACES, is_own)
        query = query.where(columns.expires > self._clock())
        query = query if owner is None else query.where(columns.owner == owner)
        return [row._asdict() for row in connection.execute(query.order_by(columns.made.desc(), columns.id))]

    # --- what is used

    @_changing
    def count(self, connection: sa.Connection, owner: str, what: str, amount: int, seconds: int) -> int:
        """Add to what an owner has used in this stretch of so many seconds, e.g. of this minute; gives the whole."""
        began = int(self._clock().timestamp()) // seconds * seconds
        expires = datetime.fromtimestamp(began + seconds, UTC)
        row = {"owner": owner, "name": what, "began": began, "amount": amount, "expires": expires}
        return int(connection.execute(COUNT, row).scalar_one())

    @_deleting
    def sweep(self, connection: sa.Connection) -> int:
        """Delete what has expired, of all users; gives how many rows that were."""
        tables = STATEMENTS, CONVERSATIONS, TRACES, FEEDBACK, USED
        expired = (expiring.delete().where(expiring.c.expires <= self._clock()) for expiring in tables)
        return sum(connection.execute(expiring).rowcount for expiring in expired)

    def _keep(self, connection: sa.Connection, table: sa.Table, user: User, identifier: str, **data: object) -> None:
        now = self._clock()
        row = {**user._asdict(), "id": identifier, "made": now, "expires": now + self._kept, **data}
        if self._kept:
            connection.execute(table.insert().values(row))

    def _live(self, table: sa.Table, user: User) -> tuple[sa.ColumnElement[bool], ...]:
        return (*_of(table, user), table.c.expires > self._clock())

    # --- the database

    def _do(self, work: Callable[[sa.Connection], T], user: User | None, *, changes: bool, deletes: bool = False) -> T:
        """Work in a transaction; no other change of the same user runs beside a change."""
        if user and "\0" in "".join(user):
            raise InputError("a user's name has a character that is none")
        if self._process != os.getpid():
            self._engine.dispose(close=False)  # connections of the process that this one was forked from
            self._process = os.getpid()
        try:
            with self._engine.begin() as connection:
                if changes and connection.dialect.name == "sqlite":
                    connection.exec_driver_sql("BEGIN IMMEDIATE")  # it waits for its turn now: later is too late
                elif user:
                    key = sa.func.hashtextextended("\x1f".join(user), 0)
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
                result = work(connection)
            if deletes or (changes and self._must_clear_log):
                self._clear_log()
        except SQLAlchemyError as error:  # in one line, without its password
            cause = getattr(error, "orig", None) or error
            if isinstance(cause, sqlite3.Error):
                explained = explain_sqlite_error(cause, self._file, description="a store")
                raise SourceError(explained.message, hint=explained.hint) from error
            raise SourceError(f"{self._place} cannot be asked: {first_line(cause)}") from error
        return result

    def _clear_log(self) -> None:
        """Empty SQLite's write-ahead log, where deleted text would remain until other changes overwrite it.

        While another connection reads, the log cannot be emptied. It is tried again after the next change.
        """
        if self._engine.dialect.name != "sqlite":
            return
        wait = 0 if self._must_clear_log else _CHECKPOINT_WAIT_MS  # retries do not delay further changes
        with self._engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {wait}")
            try:
                is_busy = bool(connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar_one())
            except OperationalError:  # the deletion itself is committed
                is_busy = True
            finally:
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {_WAIT * 1000}")
        if is_busy and not self._must_clear_log:
            log.warning("%s is being read: deleted text stays in its log until the next change", self._place)
        self._must_clear_log = is_busy


def _log_late_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("%s", error)


def _of(table: sa.Table, user: User) -> tuple[sa.ColumnElement[bool], ...]:
    return (table.c.owner == user.owner, table.c.name == user.name)


def _delete(connection: sa.Connection, table: sa.Table, user: User, *where: sa.ColumnElement[bool]) -> int:
    return (connection.execute(table.delete().where(*_of(table, user), *where))).rowcount


def _delete_traces(connection: sa.Connection, user: User, *where: sa.ColumnElement[bool]) -> None:
    """Delete traces and the feedback about them, which may quote the same text."""
    traces = sa.select(TRACES.c.id).where(*_of(TRACES, user), *where)
    _delete(connection, FEEDBACK, user, FEEDBACK.c.id.in_(traces))
    _delete(connection, TRACES, user, *where)


def _delete_quoting_traces(connection: sa.Connection, user: User, text: str) -> None:
    """Delete a user's traces that contain a text, and the feedback about them."""
    in_json = json.dumps(text)[1:-1]
    _delete_traces(connection, user, sa.cast(TRACES.c.result, sa.Text).contains(in_json, autoescape=True))


def _consents(connection: sa.Connection, user: User) -> bool:
    return bool(connection.scalar(sa.select(PEOPLE.c.consents).where(*_of(PEOPLE, user))))


def _statements(connection: sa.Connection, user: User) -> list[Statement]:
    rows = connection.execute(STATEMENTS.select().where(*_of(STATEMENTS, user))).mappings()
    given = ({name: row["made" if name == "said" else name] for name in _FIELDS} for row in rows)
    return [Statement.model_validate(fields) for fields in given]


def _row(user: User, statement: Statement) -> dict[str, Any]:
    fields = {"made" if name == "said" else name: getattr(statement, name) for name in _FIELDS}
    return {**user._asdict(), "id": statement.id, **fields}


# --- opening it


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
    try:
        create_private_folder(file.parent)
        create_private(file)
    except OSError as error:
        raise unwritable(file, error) from error
    # One connection, for SQLite has one writer: what waits here wakes at once, what waits there sleeps and tries again.
    waits = {"timeout": _WAIT, "isolation_level": None}
    engine = sa.create_engine(url, connect_args=waits, pool_size=1, max_overflow=0)

    @sa.event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:  # noqa: ANN401 - a driver's
        # What is deleted is overwritten. A crash of the program loses nothing; of the machine, the latest changes.
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")

    return engine
