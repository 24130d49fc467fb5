"""`dialore ask` imports what its answer needs, and nothing of other commands, methods or optional stores."""

from __future__ import annotations

import json
import subprocess
import sys

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
    "dialore.evaluation.human",
    "dialore.evaluation.registry",
    "dialore.evaluation.report.build",
    "dialore.llm.endpoint",
    "dialore.llm.recording",
    "dialore.methods.dcrag",
    "dialore.methods.safari",
    "dialore.pages",
    "dialore.retrieval.chunking",
    "dialore.retrieval.documents.indexing",
    "dialore.retrieval.documents.postgres",
    "dialore.retrieval.loaders.reader",
    "dialore.retrieval.loaders.reading",
    "dialore.sources.web",
)
MAX_FILES, MAX_LINES = 96, 20_000
"""The limits of what one answer loads: lower them when it loads less."""


def test_one_answer_loads_what_it_needs():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120)
    lines = json.loads(done.stdout)
    loaded = [name for name in lines if name.startswith(UNUSED)]
    assert loaded == []
    assert len(lines) <= MAX_FILES
    assert sum(lines.values()) <= MAX_LINES
