"""How a sample base lies on disk: a folder of one text file and arrays that are mapped into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from dialore.errors import InputError
from dialore.text import Language

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "dialore-samples"
VERSION = 1
META, LINES, OFFSETS = "meta.json", "samples.jsonl", "offsets.npy"
VECTORS, OVERLAPS, PERPLEXITIES = "vectors.npy", "overlaps.npy", "perplexities.npy"
MEND = "build it again with `dialore samples build`"


class Group(BaseModel):
    """A stretch of rows: samples of one language, those that are fit for knowledge generation before the others.

    Attributes:
        language: of the samples.
        start: the first row.
        fit: where those that are fit end.
        stop: where all end.
    """

    language: Language
    start: int
    fit: int
    stop: int


class SamplesMeta(BaseModel):
    """What a sample base says of itself.

    Attributes:
        format: what the folder is.
        version: of the layout.
        samples: how many.
        groups: its stretches of rows.
        embedder: the spec of the embedder that made the vectors.
        fingerprint: the embedder's.
        dimension: components of a vector.
        turns: how many last turns of a history are encoded.
        overlap_run: see `overlap`.
        perplexity_by: the model that perplexities are of; empty where there are none.
        graph: the graph that knowledge was aligned with; empty where it is the data's own.
    """

    format: str = FORMAT
    version: int = VERSION
    samples: int
    groups: list[Group]
    embedder: str
    fingerprint: str
    dimension: int
    turns: int
    overlap_run: int = 1
    perplexity_by: str = ""
    graph: str = ""


def read_meta(path: Path) -> SamplesMeta:
    """What the base in a folder says of itself.

    Raises:
        InputError: there is none, or it is of another version.
    """
    if not path.exists():
        raise InputError(f"no such sample database: {path}", mend="build one with `dialore samples build`")
    try:
        meta = SamplesMeta.model_validate_json((path / META).read_bytes())
    except (OSError, ValidationError):
        raise InputError(f"{path} is no sample database", mend="build one with `dialore samples build`") from None
    if meta.format != FORMAT or meta.version != VERSION:
        raise InputError(f"{path} is of version {meta.version}; this program reads {VERSION}", mend=MEND)
    return meta
