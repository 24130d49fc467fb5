"""The run store: one folder with one SQLite file, which any number of readers and at most one run have open.

A finished response is committed at once, so that a run that is killed loses nothing finished.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.evaluation.base import SampleScore
from dialore.evaluation.judges.comparing import Preference
from dialore.files import create_private, create_private_folder
from dialore.llm.model import Budget, Usage
from dialore.response import Response
from dialore.sqlite_errors import ExplainAs, ExplainedConnection, explain_sqlite_error

FILE = "run.sqlite"
_FORMAT = 1
_LOCK = "lock"
_SCHEMA = """
create table if not exists facts (name text primary key, value text not null) without rowid;
create table if not exists systems (system integer primary key, title text not null, method text not null,
    options text not null, model text not null, unique (title, model));
create table if not exists dialogues (position integer primary key, id text not null unique, content text not null);
create table if not exists responses (system integer not null, position integer not null, repetition integer not null,
    status text not null, content text not null, calls integer, prompt_tokens integer, completion_tokens integer,
    cached integer, retries integer, seconds real, stages text not null,
    primary key (position, system, repetition)) without rowid;
create table if not exists measures (metric text not null, system integer not null, position integer not null,
    repetition integer not null, vals text not null, problem text, reason text not null, detail text not null,
    primary key (metric, system, position, repetition)) without rowid;
create table if not exists batches (file text primary key, batch text not null, keys text not null);
create index if not exists measures_of_one on measures (system, position, repetition);
create table if not exists metrics (place integer primary key, metric text not null unique, about text not null);
create table if not exists preferences (judge text not null, judged text not null, first text not null,
    second text not null, criterion text not null, texts text not null, forward text not null, backward text not null,
    problem text, reason text not null,
    primary key (judge, judged, first, second, criterion, texts)) without rowid;
"""
ADDRESSES = "addresses"
"""The fact that tells by model from which servers its responses are."""
PROMPTS = "prompts"
SPENT = "spent"
"""The fact that tells what all commands of the run have paid, with the calls of unfinished dialogues."""
_CHANGED_PROMPTS = "changed_prompts"
"""The fact that tells of responses by several versions of a prompt, or a method's file: its references, by its name."""
_SAME_DIALOGUES = "use its data set, cut, limit and seed, or name another folder"


@dataclass(frozen=True, slots=True)
class System:
    """One system of a run: a method with its options on a model; `number` is its place in the run."""

    number: int
    title: str
    method: str
    options: dict[str, Any]
    model: str


@dataclass(frozen=True, slots=True, order=True)
class Job:
    """One response to be made: a dialogue's position, a system's number, a repetition."""

    position: int
    system: int
    repetition: int = 0


class RunStore:
    """A run's folder. Make one with `create`, open one with `open`; close it, or use it as a context."""

    def __init__(self, folder: Path, database: sqlite3.Connection) -> None:
        self.folder = folder
        self._database = database

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Make an empty run; raises InputError where the folder holds something else, or cannot be written."""
        try:
            create_private_folder(folder)
            if not (folder / FILE).exists() and any(path.name != _LOCK for path in folder.iterdir()):
                raise InputError(f"{folder} is not empty and holds no run", hint="name another folder")
            database = _connect(folder / FILE)
            with database:
                # Of two that begin at once the second finds the tables of the first.
                database.execute("begin immediate")
                _make_tables(database)
                database.execute(f"pragma user_version = {_FORMAT}")
        except OSError as error:
            is_in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
            hint = "name another folder: a file is in the way" if is_in_the_way else "name another"
            raise InputError(f"cannot make the run folder {folder}: {error.strerror}", hint=hint) from error
        return cls(folder, database)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a run; raises InputError where there is none, it is of another version, or it is damaged."""
        if (folder / FILE).is_file():
            may_write = os.access(folder, os.W_OK) and os.access(folder / FILE, os.W_OK)
            database = _connect(folder / FILE, may_write=may_write)
            if _version(database):
                if may_write:
                    _make_tables(database)  # those that a run of an earlier day does not have
                return cls(folder, database)
            database.close()
        raise InputError(f"no run in {folder}", hint="make one with `dialore run`")

    @classmethod
    @contextmanager
    def resumed(cls, folder: Path) -> Iterator[Self]:
        """Yield the run of a folder, held for writing; made if need be.

        A run that was made here and ends in an error, or is interrupted, before its first response, or batch that may
        bring some, leaves nothing behind, so that the next may be of other dialogues.
        """
        is_new = not (folder / FILE).exists()
        outer = [above for above in folder.parents if not above.exists()]
        with cls.create(folder) as store, store.writing():
            try:
                yield store
            except BaseException:
                kept = (
                    "select 1 from responses union all select 1 from batches"
                    " union all select 1 from facts where name = 'spent' limit 1"
                )
                if is_new and store._database.execute(kept).fetchone() is None:  # noqa: SLF001 - its own
                    store.close()
                    for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
                        (folder / name).unlink(missing_ok=True)
                    with suppress(OSError):  # Windows deletes no lock that is held
                        (folder / _LOCK).unlink(missing_ok=True)
                with suppress(OSError):  # as far as they are empty
                    for empty in (folder, *outer):
                        empty.rmdir()
                raise

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the run for writing responses or measures; raises InputError where another process holds it."""
        try:
            held = FileLock(self.folder / _LOCK).acquire(timeout=0)
        except Timeout:
            problem = f"another process is writing to the run in {self.folder}"
            raise InputError(problem, hint="wait for it, or name another folder") from None
        except OSError as error:
            raise InputError(f"the run in {self.folder} may only be read: {error}", hint="copy it") from error
        with held:
            yield

    @contextmanager
    def together(self) -> Iterator[None]:
        """Keep all that is set up in it, or nothing where it ends in an error."""
        if self._database.in_transaction:
            yield
            return
        with self._database:
            self._database.execute("begin immediate")
            yield

    # What is to be done, and what is done

    def set_up(
        self,
        facts: Mapping[str, object],
        systems: Sequence[System],
        dialogues: Iterable[Dialogue],
        accept_changed_prompts: bool = False,
        accept_changed_server: bool = False,
    ) -> dict[int, int]:
        """Write what the run is; in a run that is resumed, check that it is the same.

        Systems and repetitions may be added; dialogues, what sources hold, prompts and models' servers may not change,
        the last two but where that is accepted, which the facts then tell. Gives the systems' numbers in the run by
        those given.
        """
        known = {(system.title, system.model): system for system in self.systems()}
        free = 1 + max((system.number for system in known.values()), default=-1)
        numbers: dict[int, int] = {}
        database = self._database
        with self.together():
            for system in systems:
                before = known.get((system.title, system.model))
                numbers[system.number] = free if before is None else before.number
                if before is None:
                    added = (free, system.title, system.method, json.dumps(system.options), system.model)
                    database.execute("insert into systems values (?, ?, ?, ?, ?)", added)
                    free += 1
                elif (before.method, before.options) != (system.method, system.options):
                    problem = f"the run in {self.folder} has other options for {system.title!r}"
                    raise InputError(problem, hint="give the system another name, or the run another folder")
            languages = self._set_dialogues(dialogues)
            kept = self._check_facts(facts, languages, accept_changed_prompts)
            if addresses := self._addresses(facts.get(ADDRESSES, {}), accept_changed_server):
                kept[ADDRESSES] = addresses
            self.keep(kept)
        return numbers

    def keep(self, facts: Mapping[str, object]) -> None:
        """Keep facts, each in the place of that of its name."""
        rows = [(name, json.dumps(value, ensure_ascii=False, default=str)) for name, value in facts.items()]
        with self.together():
            self._database.executemany("insert or replace into facts values (?, ?)", rows)

    def _set_dialogues(self, dialogues: Iterable[Dialogue]) -> set[str]:
        """Write the dialogues, or check them; gives their languages."""
        database = self._database
        has_any = bool(self.size)
        languages: set[str] = set()
        position = -1
        for position, dialogue in enumerate(dialogues):
            languages.add(dialogue.language)
            # What was not said stays unsaid: a plan of no source is another thing than no gold plan.
            content = dialogue.model_dump_json(exclude_unset=True)
            if not has_any:
                try:
                    database.execute("insert into dialogues values (?, ?, ?)", (position, dialogue.id, content))
                except sqlite3.IntegrityError:
                    raise InputError(f"two dialogues have the id {dialogue.id!r}", hint="ids must differ") from None
                continue
            row = database.execute("select content from dialogues where position = ?", (position,)).fetchone()
            if row is None or row[0] != content:
                other = f"the run in {self.folder} has other dialogues (the first that differs is {dialogue.id})"
                raise InputError(other, hint=_SAME_DIALOGUES)
        if self.size != position + 1:
            problem = f"the run in {self.folder} has {self.size} dialogues, not {position + 1}"
            raise InputError(problem, hint=_SAME_DIALOGUES)
        return languages

    def _addresses(self, asked: Any, accept: bool) -> dict[str, list[str]]:  # noqa: ANN401 - of the facts
        """Return the servers that answered, and will, by model; refuse another one for a model that has answers."""
        kept: dict[str, list[str]] = dict(self.facts().get(ADDRESSES, {}))
        answered = "select 1 from responses join systems using (system) where status = 'ok' and model = ? limit 1"
        for model, places in asked.items():
            has_any = self._database.execute(answered, (model,)).fetchone() is not None
            before = kept.get(model, []) if has_any else []
            if before and not accept and not set(places) <= set(before):
                raise InputError(
                    f"the run in {self.folder} has answers of {model} from {before[-1]}, not {places[0]}",
                    hint="name another folder; if the same model has moved, accept the changed server",
                )
            kept[model] = list(dict.fromkeys([*before, *places]))
        return kept

    def _check_facts(self, facts: Mapping[str, Any], languages: Iterable[str], accept: bool) -> dict[str, Any]:
        """Return the facts, with sources and prompts not asked for now; refuse what changed under responses."""
        before, kept = self.facts(), dict(facts)
        answered = self._database.execute("select 1 from responses where status = 'ok' limit 1").fetchone() is not None
        known, marks = before.get("fingerprints", {}), facts.get("fingerprints", {})
        others = [name for name, mark in marks.items() if known.get(name, mark) != mark]
        if others and answered:
            problem = f"the run in {self.folder} was made with another {others[0]}"
            raise InputError(problem, hint="use the one that it was made with, or name another folder")
        if known:
            kept["fingerprints"] = {**known, **marks}
        prompts: dict[str, str] = facts.get(PROMPTS, {})
        if not answered or PROMPTS not in facts:
            return kept
        were: dict[str, str] = before.get(PROMPTS, {})
        changed = [
            name
            for name, reference in prompts.items()
            if were.get(name, reference) != reference and name.rpartition(".")[2] in {*languages, "py"}
        ]
        if changed and not accept:
            kind = "methods" if all(name.endswith(".py") for name in changed) else "prompts"
            changes = "; ".join(f"{were[name]}, now {prompts[name].removeprefix(f'{name} ')}" for name in changed)
            raise InputError(
                f"the run in {self.folder} was made with other {kind}: {changes}",
                hint="use those that it was made with, name another folder, or accept the changed prompts",
            )
        versions: dict[str, list[str]] = dict(before.get(_CHANGED_PROMPTS, {}))
        for name in changed:
            versions[name] = list(dict.fromkeys([*versions.get(name, [were[name]]), prompts[name]]))
        kept[PROMPTS] = {**were, **prompts}
        return {**kept, _CHANGED_PROMPTS: versions} if versions else kept

    def done(self) -> set[Job]:
        """Return the jobs whose responses are there and did not fail."""
        rows = self._database.execute("select position, system, repetition from responses where status = 'ok'")
        return {Job(*row) for row in rows}

    def add(self, job: Job, response: Response) -> None:
        """Keep a response, in place of a failed one; it is on disk when this returns."""
        usage = response.usage
        stages = Counter(traced.outcome for traced in response.trace)
        key = (job.system, job.position, job.repetition)
        spent = (usage.calls, usage.prompt_tokens, usage.completion_tokens, usage.cached, usage.retries)
        row = (*key, response.status, response.model_dump_json(), *spent, response.seconds, json.dumps(stages))
        with self._database as database:
            database.execute("insert or replace into responses values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            database.execute("delete from measures where system = ? and position = ? and repetition = ?", key)

    def count_spending(self, budget: Budget) -> None:
        """Continue a budget with what the run has paid so far, and keep what is paid from now on.

        That includes the calls of dialogues that are never finished.
        """
        row = self._database.execute("select value from facts where name = ?", (SPENT,)).fetchone()
        if row is not None:
            spent = json.loads(row[0])
            budget.cost = spent["cost"]
            budget.spent = Usage.model_validate(spent["usage"])

        def keep(changed: Budget) -> None:
            self.keep({SPENT: {"cost": changed.cost, "usage": changed.spent.model_dump()}})

        budget.on_spend = keep

    def put_dialogue(self, dialogue: Dialogue) -> int:
        """Keep a dialogue, in place of the one of its id, else after the last; gives its position."""
        with self._database as database:
            row = database.execute("select position from dialogues where id = ?", (dialogue.id,)).fetchone()
            position = self.size if row is None else int(row[0])
            # As it is when it has been read: a resumed run compares it with that.
            read = Dialogue.model_validate_json(dialogue.model_dump_json(exclude_unset=True))
            content = read.model_dump_json(exclude_unset=True)
            database.execute("insert or replace into dialogues values (?, ?, ?)", (position, dialogue.id, content))
            database.execute("delete from measures where position = ?", (position,))
        return position

    def batches(self) -> list[tuple[str, str, list[str]]]:
        """Return every batch of calls: its input file, its id (empty: perhaps never begun), the calls' keys by line."""
        rows = self._database.execute("select file, batch, keys from batches order by rowid")
        return [(file, batch, json.loads(keys)) for file, batch, keys in rows]

    def keep_batch(self, file: str, batch: str, keys: Sequence[str]) -> None:
        """Keep a batch, or the id of one that is there; it is on disk when this returns."""
        sql = "insert into batches values (?, ?, ?) on conflict do update set batch = excluded.batch"
        with self._database as database:
            database.execute(sql, (file, batch, json.dumps(keys)))
            database.execute("insert or replace into facts select 'batches', count(*) from batches")

    # What is there

    @property
    def size(self) -> int:
        """How many dialogues the run has."""
        return int(self._database.execute("select count(*) from dialogues").fetchone()[0])

    def systems(self) -> list[System]:
        """Return every system, in the run's order."""
        rows = self._database.execute("select * from systems order by system")
        return [System(number, title, method, json.loads(given), model) for number, title, method, given, model in rows]

    def facts(self) -> dict[str, Any]:
        """Return what the run keeps of itself: configuration, versions, prompt hashes, seeds, fingerprints."""
        return {name: json.loads(value) for name, value in self._database.execute("select * from facts")}

    def dialogue_ids(self) -> list[str]:
        """Return every dialogue's id, by position."""
        return [row[0] for row in self._database.execute("select id from dialogues order by position")]

    def dialogue(self, position: int) -> Dialogue:
        """Return the dialogue at a position."""
        row = self._database.execute("select content from dialogues where position = ?", (position,)).fetchone()
        return Dialogue.model_validate_json(row[0])

    def jobs(self, system: int | None = None, *, without_metric: str | None = None) -> list[Job]:
        """Return the jobs with a response, in order; `without_metric`: with no measure of it, or one that failed."""
        sql = (
            "select position, system, repetition from responses r where (?1 is null or system = ?1) and (?2 is null or "
            "not exists (select 1 from measures m where m.metric = ?2 and m.system = r.system and "
            "m.position = r.position and m.repetition = r.repetition and m.problem is not 'failed')) "
            "order by position, system, repetition"
        )
        return [Job(*row) for row in self._database.execute(sql, (system, without_metric))]

    def responses(self, system: int | None = None) -> Iterator[tuple[Job, Dialogue, Response]]:
        """Responses with their dialogues, in the data set's order, one at a time."""
        for job in self.jobs(system):
            yield job, self.dialogue(job.position), self.response(job)

    def response(self, job: Job) -> Response:
        """Return the response of a job that is done."""
        sql = "select content from responses where position = ? and system = ? and repetition = ?"
        row = self._database.execute(sql, (job.position, job.system, job.repetition)).fetchone()
        return Response.model_validate_json(row[0])

    def counts(self, system: int) -> tuple[dict[str, int], dict[str, float]]:
        """Return a system's responses and stages by outcome, and its calls, tokens and seconds in all."""
        sql = (
            "select status, count(*) from responses where system = ?1 group by 1 union all "
            "select 'stage ' || key, sum(value) from responses, json_each(stages) where system = ?1 group by 1"
        )
        counts = dict(self._database.execute(sql, (system,)).fetchall())
        names = ("calls", "prompt_tokens", "completion_tokens", "cached", "retries", "seconds")
        sums = ", ".join(f"total({name})" for name in names)
        row = self._database.execute(f"select {sums} from responses where system = ?", (system,)).fetchone()  # noqa: S608
        return counts, dict(zip(names, row, strict=True))

    def costs(self, system: int, name: str) -> list[float]:
        """Return `seconds`, `calls`, `prompt_tokens` or `completion_tokens` of each response that did not fail."""
        query = f"select {name} from responses where system = ? and status = 'ok'"  # noqa: S608 - a name of ours
        return [float(value) for (value,) in self._database.execute(query, (system,))]

    # Measures

    def measure(self, measures: Mapping[str, Mapping[Job, SampleScore]]) -> None:
        """Keep measures of several metrics, all or none; they are on disk when this returns."""
        with self._database as database:
            for metric, by_job in measures.items():
                for job, score in by_job.items():
                    values = (json.dumps(score.values), score.problem, score.reason, score.detail)
                    row = (metric, job.system, job.position, job.repetition, *values)
                    database.execute("insert or replace into measures values (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def measures(self, metric: str, system: int) -> Iterator[tuple[Job, SampleScore]]:
        """Yield a system's measures of a metric, in the data set's order."""
        sql = (
            "select position, repetition, vals, problem, reason, detail from measures "
            "where metric = ? and system = ? order by position, repetition"
        )
        for position, repetition, values, problem, reason, detail in self._database.execute(sql, (metric, system)):
            yield Job(position, system, repetition), SampleScore(tuple(json.loads(values)), problem, reason, detail)

    def measures_of(self, job: Job) -> dict[str, SampleScore]:
        """Return every measure of one response, by metric."""
        sql = (
            "select metric, vals, problem, reason, detail from measures "
            "where system = ? and position = ? and repetition = ?"
        )
        rows = self._database.execute(sql, (job.system, job.position, job.repetition))
        return {name: SampleScore(tuple(json.loads(v)), problem, why, detail) for name, v, problem, why, detail in rows}

    def set_metric(self, metric: str, about: Mapping[str, object]) -> None:
        """Keep what a metric is; where that changed (its judge, say), its measures are dropped: they no longer hold."""
        description = json.dumps(dict(about), ensure_ascii=False, sort_keys=True)
        with self._database as database:
            row = database.execute("select about from metrics where metric = ?", (metric,)).fetchone()
            if row is not None and row[0] != description:
                database.execute("delete from measures where metric = ?", (metric,))
            sql = "insert into metrics (metric, about) values (?, ?) on conflict do update set about = excluded.about"
            database.execute(sql, (metric, description))

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Return what each metric is that was scored; one that failed at once is none."""
        rows = self._database.execute("""
            select metric, about from metrics
            where exists (select 1 from measures where measures.metric = metrics.metric) order by place""")
        return {name: json.loads(about) for name, about in rows}

    # Preferences

    def preferences(self) -> dict[tuple[str, str, str, str, str], dict[str, Preference]]:
        """Return preferences by judge, what was judged, systems and criterion, then by a hash of what was compared."""
        kept: dict[tuple[str, str, str, str, str], dict[str, Preference]] = {}
        for *known, texts, forward, backward, problem, reason in self._database.execute("select * from preferences"):
            judge, judged, first, second, criterion = known
            choice = Preference(criterion, first, second, (forward, backward), problem, reason)
            kept.setdefault((judge, judged, first, second, criterion), {})[texts] = choice
        return kept

    def prefer(self, judge: str, judged: str, texts: str, found: Iterable[Preference]) -> None:
        """Keep preferences of one pair of texts; they are on disk when this returns."""
        rows = [
            (judge, judged, vote.first, vote.second, vote.criterion, texts, *vote.picks, vote.problem, vote.reason)
            for vote in found
        ]
        with self._database as database:
            database.executemany("insert or replace into preferences values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __enter__(self) -> Self:
        """Return the store itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()


# --- the file


def _connect(path: Path, *, may_write: bool = True) -> sqlite3.Connection:
    """Return the file, opened and of this format; one that is not set up, whose version is 0, is let through.

    One that may only be read is read: where no log stands beside it, it is whole, and SQLite wants no file of its own.
    """
    explain_as: ExplainAs = {"path": path, "description": "a run", "other_file": "name another folder"}
    try:
        if may_write:
            create_private(path)
            database = sqlite3.connect(path, timeout=30.0, factory=ExplainedConnection)
        else:
            whole = "" if path.with_name(f"{FILE}-wal").exists() else "&immutable=1"
            uri = f"{path.absolute().as_uri()}?mode=ro{whole}"
            database = sqlite3.connect(uri, uri=True, timeout=30.0, factory=ExplainedConnection)
        database.explain_as = explain_as
        # A commit in the log survives the death of the process at any point; only a crash of the machine may take the
        # last ones, which a run would then do again.
        if may_write:
            database.execute("pragma journal_mode = wal")
            database.execute("pragma synchronous = normal")
        version = _version(database)
    except sqlite3.Error as error:
        raise explain_sqlite_error(error, **explain_as) from error
    if version not in {0, _FORMAT}:
        problem = f"the run in {path.parent} has format {version}; this version reads {_FORMAT}"
        hint = "score and report it with the version that made it, or run again into another folder"
        raise InputError(problem, hint=hint)
    return database


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("pragma user_version").fetchone()[0])


def _make_tables(database: sqlite3.Connection) -> None:
    for statement in _SCHEMA.split(";"):
        database.execute(statement)
