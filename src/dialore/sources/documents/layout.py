"""How a document index lies on disk: a folder whose `index.json` says what counts, beside files that only grow.

| file | holds |
|---|---|
| `index.json` | the manifest: settings, how much of each file counts, the files that were read, dead rows |
| `lock` | held by the writer |
| `<base>/passages.jsonl` | a passage a line: text, title, url, file, page, ... |
| `<base>/offsets.u64` | where each line ends |
| `<base>/ids.u64` | each passage's id as a number |
| `<base>/owners.u32` | the number of the document that each passage is of |
| `<base>/vectors.i8`, `scales.f32` | each passage's vector: int8 with a scale a row |
| `<base>/sketches.u64` | the vectors' sketches (`retrieval.sketches`) |
| `<base>/terms/` | tantivy's index of the passages' terms |

A change appends behind what counts, then puts a new manifest in the old one's place: that is the moment at which the
change is there, whole. What a writer that was killed left behind the counted part is overwritten by the next one. Rows
keep their numbers, deleted ones are marked dead, so readers go on with what they have mapped. Tantivy commits first:
rows that the manifest does not count are passed over. A base is written anew, under another name, to be rid of dead
rows.
"""

from __future__ import annotations

import base64
import os
import zlib
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from dialore.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

FORMAT = 1
MANIFEST = "index.json"
LOCK = "lock"
TERMS = "terms"
PASSAGES = "passages.jsonl"
ARRAYS = {"offsets.u64": "<u8", "ids.u64": "<u8", "owners.u32": "<u4"}
"""Arrays of a number a row."""
VECTORS, SCALES, SKETCHES = "vectors.i8", "scales.f32", "sketches.u64"
BUILD = "build one with `dialore documents build`"


class Document(BaseModel):
    """A file, or whatever else passages were read of.

    Attributes:
        name: the file's absolute path, or the name that texts were given.
        hash: of its bytes and of how it was cut; empty where it is not known.
        passages: how many live passages are of it; 0 where it was deleted.
        bytes: how large it was.
        modified: when the file was changed last, in nanoseconds; 0 for what is no file.
    """

    name: str
    hash: str = ""
    passages: int = 0
    bytes: int = 0
    modified: int = 0


class Manifest(BaseModel):
    """What an index is at one moment.

    Attributes:
        format: version of the layout.
        name: the index's name, carried by each passage.
        base: the folder of its files.
        rows: rows that count, dead ones included.
        length: bytes of the passages that count.
        live: passages that are alive.
        documents: by number, deleted ones included.
        dead: rows that are dead, packed bits, deflated, in base 64.
        embedder: spec of the embedder; empty where there are no vectors.
        embedder_fingerprint: its fingerprint.
        dimension: components of a vector.
        cutter: how terms are cut.
        chunking: how texts are cut into passages where no other way is asked for.
        changes: how often it was changed.
    """

    kind: Literal["dialore documents"] = "dialore documents"
    format: int = FORMAT
    name: str
    base: str
    rows: int = 0
    length: int = 0
    live: int = 0
    documents: list[Document] = Field(default_factory=list)
    dead: str = ""
    embedder: str = ""
    embedder_fingerprint: str = ""
    dimension: int = 0
    cutter: dict[str, Any] = Field(default_factory=dict)
    chunking: dict[str, Any] = Field(default_factory=dict)
    changes: int = 0

    def dead_rows(self) -> NDArray[np.bool_]:
        """(rows,): which rows are dead."""
        if not self.dead:
            return np.zeros(self.rows, dtype=np.bool_)
        packed = np.frombuffer(zlib.decompress(base64.b64decode(self.dead)), np.uint8)
        return np.unpackbits(packed, count=self.rows).astype(np.bool_)

    def set_dead(self, dead: NDArray[np.bool_]) -> None:
        """Say which rows are dead."""
        self.dead = base64.b64encode(zlib.compress(np.packbits(dead).tobytes())).decode() if dead.any() else ""
        self.live = self.rows - int(np.count_nonzero(dead))


class Stamp(NamedTuple):
    """What tells one manifest from another without reading it."""

    inode: int
    modified: int
    size: int


def stamp(folder: Path) -> Stamp:
    """The manifest's stamp; raises FileNotFoundError where there is none."""
    status = os.stat(folder / MANIFEST)  # noqa: PTH116 - asked before every question: no Path a question
    return Stamp(status.st_ino, status.st_mtime_ns, status.st_size)


def read_manifest(folder: Path) -> Manifest:
    """Read an index's manifest.

    Raises:
        InputError: the folder is no index, damaged, or of another version.
    """
    try:
        raw = (folder / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        what = f"{folder} is not a document index" if folder.exists() else f"no such document index: {folder}"
        raise InputError(what, mend=BUILD) from error
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}", mend="check its permissions") from error
    try:
        manifest = Manifest.model_validate_json(raw)
    except ValidationError as error:
        raise InputError(f"{folder} is not a document index or is damaged", mend="build it again") from error
    if manifest.format != FORMAT:
        raise InputError(f"{folder} has layout {manifest.format}; this version reads {FORMAT}", mend="build it again")
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put a manifest in the old one's place; raises OSError where it cannot be written."""
    temporary = folder / f".{MANIFEST}.tmp"
    with temporary.open("wb") as file:
        file.write(manifest.model_dump_json().encode())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / MANIFEST)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Have the system write a folder's names to disk, where it can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # not on this system
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
