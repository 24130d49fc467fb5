"""Where real data lies: `DIALORE_DATA`, else `../shared/data` beside the checkout; tests skip where it is absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("DIALORE_DATA") or Path(__file__).parents[2] / "shared" / "data")


def real_file(name: str) -> Path:
    """A file of the real data; skips the test, saying which file is missing, where there is none."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"real data absent: {name} (set DIALORE_DATA)")
    return path
