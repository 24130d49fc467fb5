"""Trained models on disk: the folder format that all of them share, and the registry that opens them.

A folder holds the weights, `model.json` (the model card) and `README.md` (the card as text). The card states the kind
of model, its use, its data, its settings, how well it did, and the SHA-256 of every weight file. No file is unpickled.
A folder is named as `trained:FOLDER` in settings.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from dialore._version import __version__
from dialore.errors import InputError

PREFIX = "trained:"
FORMAT = 3
_CARD = "model.json"
_TRAIN_HINT = "train it with `dialore train`, or name another folder"
_CLASSES = {
    "planner": "dialore.learned.planner:TrainedPlanner",
    "decision": "dialore.learned.decision:TrainedDecision",
    "ranker": "dialore.learned.ranker:TrainedRanker",
    "dual": "dialore.learned.encoders:TrainedEncoder",
    "nli": "dialore.learned.nli:TrainedEntailment",
    "nli-cross": "dialore.learned.encoders:CrossEntailment",
    "stages": "dialore.llm.distilled:TrainedStages",
}
"""The class that uses each kind of model. It is called with the folder and the card."""
ROLES = {
    "planner": ("planner",),
    "decision": ("decision",),
    "ranker": ("ranker", "dual"),
    "entailment": ("nli", "nli-cross"),
    "stages": ("stages",),
}
"""The kinds of model that can serve in each role."""


def open_trained(spec: str, role: str) -> Any:  # noqa: ANN401 - the class depends on the card
    """Open the model of a spec, `trained:FOLDER`.

    Args:
        spec: The folder, with or without `trained:`.
        role: A key of `ROLES`.

    Raises:
        InputError: The folder holds no model for this role, or a damaged one.
    """
    folder = Path(spec.removeprefix(PREFIX))
    card = read_card(folder)
    kind = card["kind"]
    if kind not in ROLES[role]:
        raise InputError(f"{folder} is a trained {kind}, not a {' or '.join(ROLES[role])}", hint=_TRAIN_HINT)
    for name, digest in card["files"].items():
        # transformers reads safetensors itself, and hashing gigabytes would delay every start.
        if not name.endswith(".safetensors") and _hash_file(folder / name) != digest:
            raise InputError(f"{folder}: {name} is not the file that the model was saved with", hint="train it again")
    module, _, name = _CLASSES[kind].partition(":")
    return getattr(importlib.import_module(module), name)(folder, card)


load_trained = functools.lru_cache(16)(open_trained)
"""`open_trained`, once per process for each model."""


def read_card(folder: Path) -> dict[str, Any]:
    """Return the content of `model.json`.

    Raises:
        InputError: There is no model, or one in another format.
    """
    try:
        card: dict[str, Any] = json.loads((folder / _CARD).read_text(encoding="utf-8"))
        if card["format"] == FORMAT:
            return card
    except OSError as error:
        raise InputError(f"{folder} holds no trained model: {error.strerror}: {_CARD}", hint=_TRAIN_HINT) from error
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{folder}: its {_CARD} is damaged", hint=_TRAIN_HINT) from error
    raise InputError(f"{folder}: this version reads no model of format {card['format']}", hint="train it again")


def list_cards(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the models in a folder and in its subfolders, ordered by path."""
    for path in sorted([*folder.glob(_CARD), *folder.glob(f"*/{_CARD}")]):
        if not path.parent.name.startswith("."):
            yield path.parent, read_card(path.parent)


def check_writable(folder: Path) -> None:
    """Raise InputError if the folder holds anything other than a trained model, which would be replaced."""
    if folder.exists() and not (folder / _CARD).is_file() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder} is there, and no trained model", hint="choose another --out")


def write_trained(folder: Path, card: Mapping[str, Any], write_weights: Callable[[Path], None]) -> dict[str, Any]:
    """Write a model completely or not at all, and return its card. A model already in the folder is replaced.

    Args:
        folder: Target folder.
        card: `kind`, `use`, `data`, `settings`, `seed` and `measured`, and what the kind's class needs besides.
        write_weights: Writes the weight files into the folder that it is called with.

    Raises:
        InputError: The folder holds something else, or cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            write_weights(staging)
            (staging / "README.md").unlink(missing_ok=True)  # that of sentence-transformers
            paths = sorted(path for path in staging.rglob("*") if path.is_file())
            files = {path.relative_to(staging).as_posix(): _hash_file(path) for path in paths}
            complete = {"format": FORMAT, **card, "dialore": __version__, "files": files}
            (staging / "README.md").write_text(_readme(complete), encoding="utf-8")
            (staging / _CARD).write_text(json.dumps(complete, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            staging.chmod(0o755)
            if folder.exists():
                check_writable(folder)
                shutil.rmtree(folder)
            staging.rename(folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot write the model: {error.strerror}", hint="choose another --out") from error
    return complete


def _hash_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise InputError(f"{path.parent}: {path.name} is missing", hint="train it again") from error


def _readme(card: Mapping[str, Any]) -> str:
    data = card["data"]
    lines = [
        f"# A trained {card['kind']} of Dialore",
        "",
        card["use"],
        "",
        f"**Data.** `{data['dataset']}`: {data['responses']:,} responses; SHA-256 of the file `{data['sha256']}`.",
        "",
    ]
    if card["measured"]:
        lines += ["| cross-validation, in percent | mean | lowest fold | highest fold |", "|---|---|---|---|"]
    for name, figures in card["measured"].items():
        lines.append(f"| {name} | {figures['mean']} | {figures['low']} | {figures['high']} |")
    if "loss" in card:
        lines.append(
            "**Loss** on held-out dialogues {dev:.3f}; {epochs} epochs; {parameters:,} weights.".format(**card["loss"])
        )
    lines += ["", f"**Settings**, seed {card['seed']}:", ""]
    lines += [f"- {name}: `{value}`" for name, value in card["settings"].items()]
    return "\n".join([*lines, ""])
