"""Fixtures that all tests share."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer

from dialore.llm.capabilities import dialect_of
from tests.llm.server import FaultyServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.postgres_server import PostgresServer

# The workers of `pytest -n auto` are as many as there are cores, and what is trained here is small: a thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A tree of all commands takes 50 ms to build, and some 1,500 command lines are run in these processes.
typer.main.get_command = functools.cache(typer.main.get_command)


@pytest.fixture
def faulty_server() -> Iterator[FaultyServer]:
    """A chat endpoint on this machine that misbehaves to order; see tests/llm/server.py."""
    dialect_of.cache_clear()  # another server may have had the port
    server = FaultyServer()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def no_endpoint_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may reach the endpoint of whoever runs it."""
    for owner in ("DIALORE", "OPENAI"):
        for name in ("MODEL", "BASE_URL", "API_KEY"):
            monkeypatch.delenv(f"{owner}_{name}", raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="session")
def new_cache(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """Make cache folders that hold the starter graph, which takes seconds to build, and nothing else."""
    from dialore.retrieval.graph.starter import starter_graph

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIALORE_CACHE", str(tmp_path_factory.mktemp("built")))
        built = starter_graph()

    def made() -> str:
        return str(Path(shutil.copy(built, tmp_path_factory.mktemp("cache"))).parent)

    return made


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL cluster of the tests' own, started once."""
    pytest.importorskip("psycopg_pool", reason="PostgreSQL's driver is not here: pip install 'dialore[postgres]'")
    from tests.postgres_server import PostgresServer, binaries

    folder = binaries()
    if folder is None:
        pytest.skip("PostgreSQL is not here: apt-get install postgresql")
    server = PostgresServer(folder)
    yield server
    server.remove()
