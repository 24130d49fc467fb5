"""The package does not become denser. The limits are lowered as it becomes plainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_house import load_script

DENSITY = load_script(Path(__file__).parents[1] / "scripts" / "measure_density.py")
LIMITS = {
    "tokens": 414_500,
    "tokens_per_line": 10.6,
    "dense_functions_percent": 18.2,
    "branching_functions_percent": 7.3,
    "bare_names_percent": 8.6,
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_package_does_not_become_denser(name):
    density, _ = DENSITY.measure()
    assert density.figures[name] <= LIMITS[name]


@pytest.mark.parametrize(
    ("source", "branches"),
    [
        ("def f(): return 1", 0),
        ("def f(x): return [y for y in x if y and y > 1 or y < 0]", 4),
        ("def f(x):\n    for y in x:\n        if y:\n            return y", 2),
        ("def f(x): return 1 if x else 2", 1),
    ],
)
def test_branches_in_expressions_count(source, branches):
    assert DENSITY.count_branches(DENSITY.ast.parse(source)) == branches
