"""A PostgreSQL cluster of the tests' own: made in a temporary folder, reached through a Unix socket in it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPTIONS = "-c listen_addresses='' -c fsync=off"


def binaries() -> Path | None:
    """The folder of `initdb` and `pg_ctl`, the newest version's; None where PostgreSQL is not installed."""
    folders: Iterator[Path] = Path("/usr/lib/postgresql").glob("*/bin")
    newest = sorted(folders, key=lambda folder: float(folder.parent.name), reverse=True)
    found = shutil.which("initdb")
    candidates = [*newest, *([Path(found).resolve().parent] if found else [])]
    return next((folder for folder in candidates if (folder / "pg_ctl").exists()), None)


class PostgresServer:
    """A cluster, started when made. PostgreSQL does not run as root: there another user runs it."""

    def __init__(self, folder: Path) -> None:
        self._bin = folder
        # Not pytest's folder: others cannot enter it, and a socket's path must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="dialore-pg-"))
        self._user: str | None = None
        if os.geteuid() == 0:
            names = {entry.pw_name for entry in pwd.getpwall()}
            self._user = "postgres" if "postgres" in names else "nobody"
            shutil.chown(self.folder, self._user)
        try:
            self._do("initdb", "-D", "data", "-A", "trust", "-U", "dialore", "-E", "UTF8", "--no-sync", "--locale=C")
            self.start()
        except BaseException:
            self.remove()
            raise

    def url(self, name: str = "", database: str = "postgres") -> str:
        """The URL of a graph in a database of the cluster."""
        return f"postgresql://dialore@/{database}?host={self.folder}" + (f"#{name}" if name else "")

    def start(self) -> None:
        """Start the cluster and wait until it answers."""
        self._do("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", f"{_OPTIONS} -k {self.folder}", "start")

    def stop(self) -> None:
        """Stop the cluster; its connections are cut."""
        self._do("pg_ctl", "-D", "data", "-w", "-m", "fast", "stop")

    def remove(self) -> None:
        """Stop the cluster, if it runs, and remove its folder."""
        if (self.folder / "data" / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.folder)

    def _do(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._bin / program, *arguments],
            cwd=self.folder,
            user=self._user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # not a pipe: the server would keep it open
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        if done.returncode:
            log = self.folder / "log"
            raise RuntimeError(f"{program} failed: {log.read_text() if log.exists() else done.returncode}")
