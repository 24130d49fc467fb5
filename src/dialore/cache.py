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
    shared = Path(tempfile.gettempdir()) / "dialore"
    for folder in (Path(wanted), shared):
        with suppress(OSError):
            folder.mkdir(mode=0o700 if folder == shared else 0o777, parents=True, exist_ok=True)
            # What somebody else put into everybody's folder is not to be read.
            own = folder != shared or os.name == "nt" or folder.stat().st_uid == os.getuid()
            if own and os.access(folder, os.W_OK):
                return folder
    return Path(tempfile.mkdtemp(prefix="dialore-"))
