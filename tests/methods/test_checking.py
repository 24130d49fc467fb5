"""Numbers that mean nothing are refused before anything is asked."""

from __future__ import annotations

import pytest

from dialore.errors import InputError
from dialore.methods.registry import create_method


@pytest.mark.parametrize("value", [0, -3])
@pytest.mark.parametrize(
    ("method", "option"), [("t-rag", "top"), ("qp-rag", "top"), ("dcrag", "top"), ("dcrag", "limit")]
)
def test_no_facts_at_all_or_fewer_is_no_number_of_facts(small_graph, method, option, value):
    with pytest.raises(InputError, match=f"{option} of .* must be at least 1, not {value}"):
        create_method(method, {"graph": small_graph}, {option: value})
