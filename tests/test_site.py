"""The documentation site is built without a warning, and its pages ask nothing of any host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ASKED = re.compile(
    r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material", reason="the docs extra is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", ROOT / "mkdocs.yml", "-d", folder],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_no_page_asks_another_host(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) >= 20
    assert {found for page in pages for found in ASKED.findall(page.read_text("utf-8"))} == set()
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//|@import", sheet.read_text("utf-8")), sheet


def test_every_public_name_has_its_entry(site):
    import dialore

    page = (site / "api" / "index.html").read_text("utf-8")
    assert [name for name in dialore.__all__ if not re.search(rf'id="dialore\.[\w.]*\b{name}"', page)] == []


def test_what_pages_link_to_outside_docs_is_there(site):
    assert (site / "examples" / "everyday.yaml").exists()
    assert (site / "CONTRIBUTING" / "index.html").exists()
