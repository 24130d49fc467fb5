"""The folder of what can be made or fetched again: built graphs, completions, data sets."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def cache_folder() -> Path:
    """Where derived files go: `DIALORE_CACHE`, else the user's cache folder, else a temporary one."""
    from platformdirs import user_cache_path

    wanted = os.environ.get("DIALORE_CACHE") or user_cache_path("dialore", appauthor=False)
    for folder in (Path(wanted), Path(tempfile.gettempdir()) / "dialore"):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return Path(tempfile.mkdtemp(prefix="dialore-"))
