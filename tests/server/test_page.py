"""The page: its files, that they are what `page/` is built into, and every page of it in Chromium."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import dialore
from tests.server.conftest import Scripted

ROOT = Path(__file__).parents[2]
BUILT = Path(dialore.__file__).parent / "server" / "page"


def test_the_page_is_served_to_all_and_may_run_its_own_script_alone(serving):
    key = {"name": "app", "sha256": "0" * 64}
    running = serving(Scripted(), server={"keys": [key]})
    for path, kind in {"/": "text/html", "/app.js": "text/javascript", "/app.css": "text/css"}.items():
        first = running.http.get(path)
        assert first.status_code == 200
        assert first.headers["content-type"].startswith(kind)
        policy = first.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "unsafe" not in policy
        again = running.http.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert running.http.get("/v1/models").status_code == 401
    assert "<script>" not in (BUILT / "index.html").read_text("utf-8")


@pytest.mark.skipif(not (shutil.which("npm") and (ROOT / "page").is_dir()), reason="npm is not installed")
def test_what_is_committed_is_what_is_built(tmp_path):
    shutil.copytree(ROOT / "page", tmp_path / "page", ignore=shutil.ignore_patterns("node_modules"))
    for words in (["npm", "ci"], ["npm", "run", "check"], ["npm", "run", "build"]):
        done = subprocess.run(words, cwd=tmp_path / "page", capture_output=True, text=True, check=False, timeout=300)
        assert not done.returncode, done.stdout + done.stderr
    for file in BUILT.iterdir():
        fresh = tmp_path / "src" / "dialore" / "server" / "page" / file.name
        assert fresh.read_bytes() == file.read_bytes(), f"{file.name} is old: cd page && npm ci && npm run build"
