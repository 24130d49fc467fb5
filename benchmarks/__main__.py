"""The command line of the benchmarks: `python -m benchmarks --help`."""

import os
import sys

import typer

from benchmarks import documents, expected, faults, graph, growth, pipeline, run, scoring, serve
from dialore.errors import DialoreError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Measure Dialore's own cost. No model is needed.")
app.command()(graph.graph)
app.command()(documents.documents)
app.command()(expected.expected)
app.command()(faults.faults)
app.command()(growth.growth)
app.command()(pipeline.pipeline)
app.command()(run.run)
app.command()(scoring.scoring)
app.command()(serve.serve)

if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the `dialore` command does, and for the same reason
    try:
        app(prog_name="python -m benchmarks")
    except DialoreError as error:
        sys.exit(f"error: {error}")
