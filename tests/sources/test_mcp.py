"""Tools and resources of MCP servers as sources: a server that misbehaves, and two public ones."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

pytest.importorskip("mcp.client.client", reason="the MCP SDK is not here: pip install 'dialore[mcp]'")

from dialore.dialogue import Dialogue
from dialore.errors import InputError, SourceError
from dialore.sources.base import KnowledgeSource
from dialore.sources.documents import MultiDocuments, open_documents
from dialore.sources.in_memory import InMemoryPassages
from dialore.sources.mcp import open_mcp

ODD = [sys.executable, str(Path(__file__).with_name("mcp_server.py"))]
DIALOGUE = Dialogue.model_validate({"id": "d1", "turns": ["Which birds swim?"]})


@pytest.fixture
def ask(tmp_path):
    """Opens a source of what a file says, and asks it; all are closed at the end."""
    opened = []

    def make(**said):
        said = {} if {"command", "url"} & said.keys() else {"command": ODD} | said
        file = tmp_path / "birds.yaml"
        file.write_text(yaml.safe_dump({"tool": "find", "call_seconds": 5, **said}), "utf-8")
        opened.append(open_mcp(file))
        return opened[-1]

    yield make
    for source in opened:
        source.close()
