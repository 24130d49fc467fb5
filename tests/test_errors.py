"""Errors say what was wrong and how to mend it, here and in other processes."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace

import pytest

from dialore.errors import ModelError, StageError, UnknownNameError, install


@pytest.mark.parametrize(
    "error",
    [
        UnknownNameError("method", "dcrog", ["dcrag"]),
        StageError("revision", "d1", ModelError("no answer", hint="ask again", status=500)),
        ModelError("too many requests", retryable=True, retry_after=2.0),
    ],
)
def test_an_error_travels_between_processes_whole(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__.keys()) == (type(error), str(error), error.__dict__.keys())
    assert again.hint == error.hint


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'dialore[serve]'"),
        ({"url": "file:///src/dia%20lore", "dir_info": {}}, "pip install '/src/dia lore[serve]'"),
        ({"url": "file:///src/dialore", "dir_info": {"editable": True}}, "pip install -e '/src/dialore[serve]'"),
        (
            {"url": "https://code.example/dialore.git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            "pip install 'dialore[serve] @ git+https://code.example/dialore.git'",
        ),
        (
            {"url": "file:///tmp/dialore-1.whl", "archive_info": {}},
            "pip install 'dialore[serve] @ file:///tmp/dialore-1.whl'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_the_package_was(monkeypatch, origin, command):
    text = None if origin is None else json.dumps(origin)
    distribution = SimpleNamespace(read_text=lambda _: text)
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: distribution)
    assert install("serve") == command
