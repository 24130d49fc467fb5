"""What an experiment file wants that is not here, each with the command that makes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.datasets.files import archive_of
from dialore.sources.registry import KINDS
from dialore.workbench import REHEARSAL

if TYPE_CHECKING:
    from dialore.experiments.config import RunConfig

_COMMAND = re.compile(r"^#\s+(dialore .+)$", re.MULTILINE)
_DATA = re.compile(r"^# Data:(.+\n(?:#.*\S.*\n)*)", re.MULTILINE)
_EXTRAS = {"hf": ("torch", "local"), "cross": ("sentence_transformers", "sentence-transformers")}
_EXTRAS["st"] = _EXTRAS["cross"]


def missing_inputs(config: RunConfig, file: Path) -> list[str]:
    """Everything that a run of an experiment file would stop for, each with what makes it.

    Files are made by the commands in the comments of the experiment file; its comment `# Data:` says where data sets
    are to be had.
    """
    return list(dict.fromkeys([*_files(config, file.read_text("utf-8")), *_extras(config)]))


def _files(config: RunConfig, comments: str) -> Iterator[str]:
    if not (archive_of(config.dataset.path) or (config.dataset.path,))[0].exists():
        said = _DATA.search(comments)
        where = " ".join(said[1].replace("\n#", " ").split()) if said else f"the data set {config.dataset.name}"
        yield f"{config.dataset.path}: {where}"
    for kind in KINDS.values():
        for place in config.sources.places(kind.name):
            path = Path(place.removeprefix(kind.prefix))
            named = place.startswith(kind.prefix) and (len(path.parts) > 1 or path.suffix)
            if named and ":" not in str(path) and not path.exists():
                made = (text for text in _COMMAND.findall(comments) if str(path) in text.split())
                yield f"{path}: {next(made, f'give another by {kind.flag}')}"


def _extras(config: RunConfig) -> Iterator[str]:
    rehearsed = any(model.model == REHEARSAL for model in config.models)
    named = [*(system.stages for system in config.systems), *(model.stages for model in config.models)]
    stages = [] if rehearsed else [name for of in named for name in of.values()]
    options = {str(value): name for system in config.systems for name, value in system.options.items()}
    for spec in (*stages, *options, "" if rehearsed else config.sources.embedder or ""):
        needed = [_EXTRAS[part] for part in spec.split(":") if part in _EXTRAS]
        if needed and find_spec(needed[0][0]) is None:
            other = f", or leave it: -o {options[spec]}=fused" if spec in options else ""
            yield f"{spec}: pip install 'dialore[{needed[0][1]}]'{other}"
