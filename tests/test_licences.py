"""Licences of the declared dependencies, which an Apache-2.0 package may import."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
PERMISSIVE = re.compile(
    r"\b(apache|mit|bsd|isc|psf|python software foundation|python-2\.0|mpl|mozilla public|unlicense|hpnd|zlib|0bsd|"
    r"cnri-python|oldap-2\.8|cc0|blueoak|lgpl|lesser general public)\b",
    re.IGNORECASE,
)
COPYLEFT = re.compile(r"(?<!lesser )\bgeneral public license\b|\b[a]?gpl|affero|\bsspl|non.?commercial", re.IGNORECASE)


def declared():
    extras = PROJECT["optional-dependencies"].values()
    requirements = [*PROJECT["dependencies"], *(requirement for extra in extras for requirement in extra)]
    names = {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}
    return sorted(names - {PROJECT["name"]})


def licence_of(name):
    """What a package states: its licence expression, else its classifiers, else the first line of its licence."""
    meta = metadata.metadata(name)
    if expression := meta.get("License-Expression"):
        return expression
    stated = [entry for entry in meta.get_all("Classifier") or () if entry.startswith("License :: ")]
    stated = [entry for entry in stated if entry != "License :: OSI Approved"]
    return "; ".join(stated) or (meta.get("License") or "").strip().partition("\n")[0]


@pytest.mark.parametrize("name", declared())
def test_a_dependency_has_a_licence_that_may_be_used(name):
    try:
        licence = licence_of(name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    # An alternative that is permissive is enough.
    alternatives = re.split(r"\bOR\b|; ", licence)
    assert any(PERMISSIVE.search(one) and not COPYLEFT.search(one) for one in alternatives), f"{name}: {licence!r}"
