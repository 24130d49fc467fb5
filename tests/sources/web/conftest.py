"""Fixtures of the web tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dialore.dialogue import Dialogue
from dialore.sources.web.fetching import AddressRules, PageFetcher
from tests.sources.web.page_server import Site

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def site() -> Iterator[Site]:
    """A web server on this machine that misbehaves to order."""
    server = Site()
    yield server
    server.close()


@pytest.fixture
def fetcher(site: Site) -> PageFetcher:
    """A fetcher that may fetch from the site, by name, and from no other private address."""
    return PageFetcher(rules=AddressRules(frozenset({site.host})), timeout=10.0, read_timeout=2.0)


@pytest.fixture
def dialogue() -> Dialogue:
    return Dialogue.model_validate({"id": "d1", "turns": ["Where do penguins live?"]})
