"""The file of a run: its tables, its format, and the lock that one process holds to write."""

from __future__ import annotations

import fcntl
import sqlite3
from typing import TYPE_CHECKING

from dialore.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

FILE = "run.sqlite"
FORMAT = 1
LOCK = "lock"
APPLICATION = 0x444C5255
SCHEMA = """
create table facts (name text primary key, value text not null) without rowid;
create table systems (system integer primary key, title text not null, method text not null, options text not null,
    model text not null, unique (title, model));
create table dialogues (position integer primary key, id text not null unique, content text not null);
create table responses (system integer not null, position integer not null, repetition integer not null,
    status text not null, content text not null, calls integer, prompt_tokens integer, completion_tokens integer,
    cached integer, retries integer, seconds real, stages text not null,
    primary key (position, system, repetition)) without rowid;
create table measures (metric text not null, system integer not null, position integer not null,
    repetition integer not null, vals text not null, problem text, reason text not null, detail text not null,
    primary key (metric, system, position, repetition)) without rowid;
create index measures_of_one on measures (system, position, repetition);
create table metrics (place integer primary key, metric text not null unique, about text not null);
"""


def connect(path: Path) -> sqlite3.Connection:
    """The file, opened and of this format; an empty one is let through.

    Raises:
        InputError: it is no run, of another format, or damaged.
    """
    try:
        database = sqlite3.connect(path, timeout=30.0)
        # A commit in the log survives the death of the process at any point; only a crash of the machine may take the
        # last ones, which a run would then do again.
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = normal")
        application = database.execute("pragma application_id").fetchone()[0]
        version = database.execute("pragma user_version").fetchone()[0]
        is_empty = not database.execute("select count(*) from sqlite_master").fetchone()[0]
    except sqlite3.DatabaseError as error:
        raise InputError(f"the run in {path.parent} cannot be read: {error}", mend="name another folder") from error
    if is_empty:
        return database
    if application != APPLICATION:
        raise InputError(f"{path} is no run of Dialore", mend="name another folder")
    if version != FORMAT:
        raise InputError(
            f"the run in {path.parent} has format {version}; this version reads {FORMAT}",
            mend="score and report it with the version that made it, or run again into another folder",
        )
    return database


def hold(lock: IO[str], folder: Path) -> None:
    """Hold a run's lock for this process until the file is closed; raises InputError where another one holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError(
            f"another process is writing to the run in {folder}", mend="wait for it, or name another folder"
        ) from None
