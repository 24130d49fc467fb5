"""A browser for the tests of pages: Debian's Chromium, driven by Playwright, and axe."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

CHROMIUM = "/usr/bin/chromium"
AXE = Path(__file__).parents[2] / "page" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def browser():
    if not Path(CHROMIUM).exists():
        pytest.skip("chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="the clients extra is not installed")
    with playwright.sync_playwright() as playing:
        opened = playing.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser):
    """A page that may not log an error, nor load anything from elsewhere."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, locale="en-GB")
    shown, wrong = context.new_page(), []
    shown.set_default_timeout(20_000)
    shown.on("pageerror", lambda error: wrong.append(str(error)))
    yield shown
    context.close()
    assert not wrong


def checked(page, name=""):
    """Axe's findings, light and dark, wide and narrow; with $SHOTS, pictures of it."""
    if AXE.exists():
        page.evaluate(AXE.read_text("utf-8"))
    for theme in ("light", "dark"):
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        for width in (1400, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(200)  # colours fade over
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} {width}: too wide"
            if "SHOTS" in os.environ:
                page.screenshot(path=f"{os.environ['SHOTS']}/{name}-{theme}-{width}.png", full_page=True)
            found = page.evaluate("axe.run()")["violations"] if AXE.exists() else []
            assert not found, json.dumps(found, indent=1)[:3000]
    page.set_viewport_size({"width": 1400, "height": 900})
