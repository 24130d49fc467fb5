"""Errors say what was wrong and how to mend it, here and in other processes."""

from __future__ import annotations

import pickle

import pytest

from dialore.errors import ModelError, StageError, UnknownNameError


@pytest.mark.parametrize(
    "error",
    [
        UnknownNameError("method", "dcrog", ["dcrag"]),
        StageError("revision", "d1", ModelError("no answer", mend="ask again", status=500)),
        ModelError("too many requests", retryable=True, retry_after=2.0),
    ],
)
def test_an_error_travels_between_processes_whole(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__.keys()) == (type(error), str(error), error.__dict__.keys())
    assert again.mend == error.mend
