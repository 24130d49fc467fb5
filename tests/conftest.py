"""Fixtures that all tests share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.llm.server import FaultyServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sources.postgres_server import PostgresServer

# The workers of `pytest -n auto` are as many as there are cores, and what is trained here is small: a thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture
def faulty_server() -> Iterator[FaultyServer]:
    """A chat endpoint on this machine that misbehaves to order; see tests/llm/server.py."""
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
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL cluster of the tests' own, started once."""
    pytest.importorskip("psycopg_pool", reason="PostgreSQL's driver is not here: pip install 'dialore[postgres]'")
    from tests.sources.postgres_server import PostgresServer, binaries

    folder = binaries()
    if folder is None:
        pytest.skip("PostgreSQL is not here: apt-get install postgresql")
    server = PostgresServer(folder)
    yield server
    server.remove()
