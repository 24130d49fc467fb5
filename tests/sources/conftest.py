"""The server that the stores' tests run against, started once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sources.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL cluster of the tests' own."""
    pytest.importorskip("psycopg_pool", reason="PostgreSQL's driver is not here: pip install 'dialore[postgres]'")
    from tests.sources.postgres_server import PostgresServer, binaries

    folder = binaries()
    if folder is None:
        pytest.skip("PostgreSQL is not here: apt-get install postgresql")
    server = PostgresServer(folder)
    yield server
    server.remove()
