"""What benchmarks ask: an endpoint in a process of its own, a model there, and responses that may not fail."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dialore.cli.page import longest_chain
from dialore.errors import InputError
from dialore.llm.connection import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dialore.llm.model import LanguageModel
    from dialore.response import Response


@contextmanager
def endpoint() -> Iterator[str]:
    """An endpoint in a process of its own; gives its base URL. It ends with us, however we end."""
    command = [sys.executable, "-m", "dialore.cli.bench.endpoint"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            url = process.stdout.readline().strip() if process.stdout else ""
            if not url:
                raise InputError("the benchmark's endpoint did not start", mend="is a local port free?")
            yield url
        finally:
            if process.stdin:
                process.stdin.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()


def connected(name: str, url: str, concurrency: int = 64) -> LanguageModel:
    """The endpoint's model of that name, which says how long it waits (see `endpoint`); raises InputError for none."""
    model = connect(name, url, concurrency=concurrency)
    if model is None:
        raise InputError("the benchmark's endpoint cannot be reached", mend="is a proxy in the way?")
    return model


def good(response: Response) -> Response:
    """The response, if it is one; raises InputError where it failed."""
    if response.status == "failed":
        raise InputError(f"a response of the benchmark failed: {response.error}", mend="report this")
    return response


def steps_of(response: Response) -> int:
    """Model calls of a response that had to wait for one another."""
    return longest_chain([stage for stage in response.trace if stage.usage.calls])
