"""A full disk is told in one line, without places and tracebacks, at the limit that the system sets for a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import httpx
import pytest

from tests.server.conftest import wait_until

resource = pytest.importorskip("resource", reason="no limits of files here")

START = """
import resource, sys
from dialore.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv = ["dialore", "serve", "--settings", sys.argv[2]]
main()
"""


@pytest.fixture
def full(tmp_path):
    """A service whose files cannot grow beyond some kilobytes, and its log."""
    settings, log = tmp_path / "dialore.toml", tmp_path / "log"
    settings.write_text(f'[server]\nport = 0\nfolder = "{tmp_path / "known"}"\n', "utf-8")
    with log.open("wb") as lines:
        command = [sys.executable, "-c", START, "300000", str(settings)]
        process = subprocess.Popen(command, stderr=lines, stdout=lines, env={**os.environ, "DIALORE_MODEL": ""})
    try:
        wait_until(lambda: "ready to answer" in log.read_text("utf-8") or process.poll() is not None, 60)
        ready = next(line for line in log.read_text("utf-8").splitlines() if "ready to answer" in line)
        with httpx.Client(base_url=json.loads(ready)["event"].split()[-1], timeout=60, trust_env=False) as http:
            yield http, log
    finally:
        process.terminate()
        process.wait(30)


def test_a_full_disk_is_told_in_one_line(full, tmp_path):
    http, log = full
    large = "\n\n".join(f"Paragraph {number} tells of dogs and of tea." for number in range(12_000)).encode()
    answers = [
        http.post("/v1/knowledge/files", files={"file": ("tea.md", large)}),
        http.post("/v1/knowledge/persona", json={"sentences": [f"{'I keep bees. ' * 20}{n}" for n in range(1000)]}),
        http.post("/v1/knowledge/persona", json={"sentences": [f"{'I keep cats. ' * 20}{n}" for n in range(1000)]}),
    ]
    refused = [each for each in answers if each.status_code != 201]
    assert refused
    for each in refused:
        # A limit of files is a full disk to the upload, and an error of input and output to SQLite.
        assert (each.status_code, each.json()["error"]["code"]) in {(507, "no_space"), (503, "storage_failed")}
        assert str(tmp_path) not in each.text
    assert "Traceback" not in log.read_text("utf-8")
    assert http.get("/healthz").status_code == 200
