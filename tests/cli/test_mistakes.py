"""Every mistake of `mistakes.yaml` gets its line on standard error, its exit code, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import random
import re
import shlex
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from dialore.cli import main
from dialore.experiments.store import FILE
from tests.cli.conftest import LONDON, SOUP, THROAT, Done
from tests.llm.server import FaultyServer, garbage, half_body, html, raw, say, status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Mistake = dict[str, Any]
MISTAKES: list[Mistake] = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text("utf-8"))
"""Each with what is `run`, what it `says` (`…` is anything), and perhaps its `code` (2), the endpoint's `reply` or
`models`, `env`, `stdin`, and whether it `shows` a result beside, the failed one."""
REPLIES = {
    "say": say(),
    "400": status(400, "too many tokens"),
    "401": status(401, "Incorrect API key provided: a-secret-key"),
    "403": status(403, "not for you"),
    "404": status(404, "The model `m` does not exist"),
    "429": status(429, "slow down", Retry_After="0"),
    "500": status(500, "oops"),
    "page": html(),
    "half": half_body(),
    "garbage": garbage(),
    "empty": raw(b""),
    "list": raw(b"[]"),
    "nothing": raw(b'{"choices": []}'),
}


def quietly(*arguments: object) -> None:
    """Run a command that must succeed."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    assert not left.value.code, said.getvalue()


def write(name: str, content: str | bytes) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, cache_folder: Path) -> Path:
    """A folder of files, right and wrong, that the mistakes are made with."""
    folder = tmp_path_factory.mktemp("mistakes")
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIALORE_CACHE", str(cache_folder))
        for name, content in yaml.safe_load(Path(__file__).with_name("mistakes_files.yaml").read_text("utf-8")).items():
            write(name, content if isinstance(content, str) else json.dumps(content))
        _more_files()
        _products()
    return folder


def _more_files() -> None:
    write("talks.jsonl", "".join(json.dumps(each) + "\n" for each in (THROAT, LONDON, SOUP)))
    write("binary", random.Random(0).randbytes(3000))
    write("binary.gz", random.Random(0).randbytes(3000))
    write("cut.jsonl.gz", gzip.compress(json.dumps(THROAT).encode() * 9)[:60])
    write("latin.jsonl", '{"turns": ["Café."]}'.encode("latin-1"))
    write("long.jsonl", json.dumps({"turns": ["word " * 300_000]}))
    write("deep.json", "[" * 100_000)
    Path("folder").mkdir()
    Path("full").symlink_to("/dev/full")


def _products() -> None:
    """What commands made, some of it by another version, some of it damaged."""
    quietly("graph", "build", "facts.tsv", "--out", "my.graph")
    write("cut.graph", Path("my.graph").read_bytes()[:5000])
    quietly("documents", "build", "base", "notes.txt")
    quietly("run", "-M", "vanilla", "-M", "dcrag", "--dataset", "jsonl", "--data", "two.jsonl", "-m", "lexical",
            "--out", "run")  # fmt: skip
    quietly("run", "-M", "vanilla", "--dataset", "jsonl", "--data", "two.jsonl", "-m", "rehearsal", "--out", "scored")
    quietly("score", "scored", "-x", "f1")
    shutil.copytree("run", "old")
    for place in (Path("old") / FILE, Path("old.idx")):
        if place.name == "old.idx":
            shutil.copy("base", place)
        with contextlib.closing(sqlite3.connect(place)) as database, database:
            database.execute("pragma user_version = 77")
    with contextlib.closing(sqlite3.connect("foreign.sqlite")) as database, database:
        database.execute("create table tea (cup)")
    write("noise/" + FILE, random.Random(0).randbytes(3000))
    quietly("annotate", "export", "run", "--out", "sheets", "--annotators", 1)
    quietly("samples", "build", "my.samples", "known.jsonl")


def _state(folder: Path) -> dict[str, str]:
    """Every file below a folder with what it holds; locks and journals of databases come and go."""
    passing = ("-shm", "-wal", "-lock", ".sqlite")
    return {
        str(path): "" if path.is_dir() or path.is_symlink() else hashlib.sha1(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if not path.name.endswith(passing)
    }


@pytest.fixture(scope="session")
def endpoint() -> Iterator[FaultyServer]:
    server = FaultyServer()
    yield server
    server.close()


def said(made: Mistake, endpoint: FaultyServer, call: Callable[..., Done], patch: pytest.MonkeyPatch) -> Done:
    """What comes of a mistake, the endpoint's address put as URL or ROOT."""
    endpoint.always = REPLIES[made.get("reply", "say")]
    endpoint.models = made.get("models", ["served-model"])
    for name, value in made.get("env", {}).items():
        patch.setenv(name, value)
    places = {"URL": endpoint.url, "ROOT": endpoint.root}
    words = [places.get(word, word) for word in shlex.split(made["run"])]
    done = call(*words, stdin=made.get("stdin", ""))
    return Done(done.code, done.out, done.err.replace(endpoint.url, "URL").replace(endpoint.root, "ROOT"))


@pytest.mark.parametrize("made", MISTAKES, ids=[str(made["run"]) for made in MISTAKES])
def test_a_mistake_gets_its_line(made, world, endpoint, call, monkeypatch):
    monkeypatch.chdir(world)
    before = _state(world)
    done = said(made, endpoint, call, monkeypatch)
    line = re.escape(made["says"]).replace("…", ".*")
    assert re.fullmatch(f"dialore: {line}\n", done.err), done.err
    assert "Traceback" not in done.err
    assert done.code == made.get("code", 2)
    assert bool(done.out) is made.get("shows", False), done.out
    assert _state(world) == before


def test_there_are_many_of_them():
    assert len({made["run"] + str(made) for made in MISTAKES}) >= 300
