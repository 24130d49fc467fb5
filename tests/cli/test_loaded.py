"""`dialore ask` imports what its answer needs, and nothing of other commands, methods or optional stores."""

from __future__ import annotations

import json
import subprocess
import sys

from dialore.retrieval.graph.starter import starter_graph

SCRIPT = """
import contextlib, io, json, sys
from pathlib import Path
from dialore.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["ask", "What helps against a sore throat?", "--model", "rehearsal"])
files = {name: sys.modules[name].__file__ for name in sys.modules if name.split(".")[0] == "dialore"}
print(json.dumps({name: len(Path(file).read_text("utf-8").splitlines()) for name, file in files.items()}))
"""
UNUSED = (
    "dialore.cli.run",
    "dialore.experiments",
    "dialore.training",
    "dialore.server",
    "dialore.adapters",
    "dialore.evaluation",
    "dialore.llm.endpoint",
    "dialore.llm.http",
    "dialore.llm.loose_json",
    "dialore.llm.recording",
    "dialore.methods.dcrag",
    "dialore.methods.safari",
    "dialore.pages",
    "dialore.plugins",
    "dialore.retrieval.chunking",
    "dialore.retrieval.documents",
    "dialore.retrieval.graph.facts",
    "dialore.retrieval.graph.writing",
    "dialore.retrieval.loaders",
    "dialore.retrieval.reranking",
    "dialore.sources.documents",
    "dialore.sources.statements",
    "dialore.sources.web",
    "dialore.trained",
)
MAX_FILES, MAX_LINES = 64, 13_200
"""The limits of what one answer loads: lower them when it loads less."""


def test_one_answer_loads_what_it_needs():
    starter_graph()  # building it loads more than an answer does
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120)
    lines = json.loads(done.stdout)
    loaded = [name for name in lines if name.startswith(UNUSED)]
    assert loaded == []
    assert len(lines) <= MAX_FILES
    assert sum(lines.values()) <= MAX_LINES
