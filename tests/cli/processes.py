"""The command as a process of its own."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.llm.server import FaultyServer

DIALORE = [sys.executable, "-m", "dialore"]


def interrupted(server: FaultyServer, *arguments: object, calls: int = 1) -> str:
    """What the command says on standard error when Ctrl-C comes at its model's so-many-th call; it ends quietly."""
    # A job in the background of a shell ignores Ctrl-C and so would its children: give it back to this one.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        [*DIALORE, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed,  # noqa: PLW1509
    ) as process:
        limit = time.monotonic() + 40
        while len(server.calls) < calls and time.monotonic() < limit:
            time.sleep(0.05)
        assert len(server.calls) >= calls
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    return err
