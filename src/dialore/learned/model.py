"""A trained model on disk: a folder with `weights.npz`, `model.json` and `README.md`, and the trees that weights hold.

`model.json` says what the model is, from which data and settings it was made, how well it did in cross-validation, and
the SHA-256 of the weights, without which they are not read. Nothing is ever unpickled.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

FORM = 2
PREFIX = "trained:"
_PICKLED = {".pkl", ".pickle", ".joblib", ".pt", ".pth", ".bin", ".ckpt"}
_MEND = "train it with `dialore train`, or name its folder"


@dataclass
class Trees:
    """Boosted trees as arrays: an inner node leads to the left where its feature is at most its threshold.

    Attributes:
        roots: (trees,) the first node of each tree.
        outputs: how many values a row gets: tree t adds to value t % outputs.
        feature, threshold, left, right, value: of each node; a leaf leads to itself.
    """

    roots: NDArray[np.int64]
    outputs: int
    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: NDArray[np.float64]

    @functools.cached_property
    def _inner(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.uint64], NDArray[np.float64]]:
        """(deepest, trees): feature, threshold and kept leaves of inner nodes; (trees, leaves): the leaves' values.

        The nodes of a tree stand root first, then those of the left: what is left of a node is a range of leaves, and
        a bit mask keeps all others. Of the leaves that no node left out, a row falls into the first.
        """
        leaf = self.left == np.arange(len(self.left))
        before = np.concatenate([[0], np.cumsum(leaf)])
        tree = np.searchsorted(self.roots, np.arange(len(leaf)), "right") - 1
        inner = np.flatnonzero(~leaf)
        row = inner - before[inner] - (self.roots - before[self.roots])[tree[inner]]
        cell = (row, tree[inner])
        first, end = (before[at[inner]] - before[self.roots][tree[inner]] for at in (self.left, self.right))
        unit, shape = np.uint64(1), (int(row.max(initial=0)) + 1, len(self.roots))
        feature, threshold = np.zeros(shape, np.int64), np.full(shape, np.inf)
        kept = np.full(shape, ~np.uint64(0))
        feature[cell], threshold[cell] = self.feature[inner], self.threshold[inner]
        kept[cell] = ~((unit << end.astype(np.uint64)) - (unit << first.astype(np.uint64)))
        value = np.zeros((shape[1], 64))
        value[tree[leaf], (before[:-1] - before[self.roots][tree])[leaf]] = self.value[leaf]
        return feature, threshold, kept, value

    def scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """(rows, outputs): the sum of the leaves that each row falls into; a tree has 64 leaves at most."""
        feature, threshold, kept, value = self._inner
        right = features.T[feature] > threshold[:, :, None]
        left_over = np.bitwise_and.reduce(np.where(right, kept[:, :, None], ~np.uint64(0)), 0)
        first = np.log2((left_over & -left_over).astype(np.float64)).astype(np.int64)
        leaves = value[np.arange(len(value))[:, None], first].T
        summed: NDArray[np.float64] = leaves.reshape(len(features), -1, self.outputs).sum(1)
        return summed

    def arrays(self, name: str) -> Arrays:
        """Return the arrays that they are saved as."""
        saved = {
            "roots": self.roots.astype(np.int32),
            "outputs": np.array(self.outputs),
            "feature": self.feature.astype(np.int16),
            "threshold": self.threshold,
            "left": self.left.astype(np.int32),
            "right": self.right.astype(np.int32),
            "value": self.value,
        }
        return {f"{name}-{part}": array for part, array in saved.items()}

    @classmethod
    def read(cls, saved: Mapping[str, NDArray[Any]], name: str) -> Trees:
        """Return the trees of the arrays of `arrays`."""
        roots, feature, left, right = (
            saved[f"{name}-{part}"].astype(np.int64) for part in ("roots", "feature", "left", "right")
        )
        threshold, value = saved[f"{name}-threshold"], saved[f"{name}-value"]
        return cls(roots, int(saved[f"{name}-outputs"]), feature, threshold, left, right, value)


@dataclass
class Networks:
    """Networks of one hidden layer over standardised features; what they say is averaged.

    Attributes:
        mean, scale: (features,) what features are standardised by.
        hidden, hidden_bias, plans, plans_bias: (networks, ...) the weights of the layers.
    """

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    hidden: NDArray[np.float32]
    hidden_bias: NDArray[np.float32]
    plans: NDArray[np.float32]
    plans_bias: NDArray[np.float32]

    def standardised(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Features with mean 0 and deviation 1, and within 5."""
        scope: NDArray[np.float32] = np.clip((features - self.mean) / self.scale, -5, 5)
        return scope

    def shares(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """(rows, plans): the probability of each plan."""
        hidden = np.maximum(self.standardised(features) @ self.hidden + self.hidden_bias[:, None], 0)
        scores = (hidden @ self.plans + self.plans_bias[:, None]).astype(np.float64)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mean: NDArray[np.float64] = (shares / shares.sum(-1, keepdims=True)).mean(0)
        return mean

    def arrays(self) -> Arrays:
        """Return the arrays that they are saved as."""
        return {f"networks-{field.name}": getattr(self, field.name) for field in fields(self)}

    @classmethod
    def read(cls, saved: Mapping[str, NDArray[Any]]) -> Networks:
        """Return the networks of the arrays of `arrays`."""
        return cls(*(saved[f"networks-{field.name}"] for field in fields(cls)))


def write_model(folder: Path, card: Mapping[str, Any], arrays: Arrays, readme: str) -> None:
    """Write a model whole or not at all; one of an earlier training in the same folder is replaced.

    Raises:
        InputError: the folder holds something else, or cannot be written.
    """
    packed = io.BytesIO()
    np.savez_compressed(packed, **{name: arrays[name] for name in sorted(arrays)})  # type: ignore[arg-type]
    whole = {"form": FORM, **card, "sha256": hashlib.sha256(packed.getvalue()).hexdigest()}

    def fill(being: Path) -> None:
        (being / "weights.npz").write_bytes(packed.getvalue())
        (being / "README.md").write_text(readme, encoding="utf-8")
        text = json.dumps(whole, ensure_ascii=False, indent=1)
        (being / "model.json").write_text(text + "\n", encoding="utf-8")

    replace_folder(folder, fill)


def replace_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Have a model's folder filled beside its place, then moved there whole.

    Raises:
        InputError: as `write_model`.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        being = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            fill(being)
            being.chmod(0o755)
            if folder.exists():
                check_place(folder)
                shutil.rmtree(folder)
            being.rename(folder)
        finally:
            shutil.rmtree(being, ignore_errors=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot write the model: {error.strerror}", hint="choose another --out") from error


def check_place(folder: Path) -> None:
    """Raise InputError where a model cannot go to a folder: it holds something that is no model."""
    if (
        folder.exists()
        and not (folder / "model.json").is_file()
        and not (folder.is_dir() and not any(folder.iterdir()))
    ):
        raise InputError(f"{folder} is there, and no trained model", hint="choose another --out")


def describe(path: Path) -> dict[str, Any]:
    """Return what `model.json` says.

    Raises:
        InputError: no model, one of another form, or a pickle.
    """
    if path.suffix in _PICKLED:
        raise InputError(f"{path}: pickled models are not read", hint="they can run any code when read; " + _MEND)
    try:
        card: dict[str, Any] = json.loads((path / "model.json").read_text(encoding="utf-8"))
        if card["form"] == FORM and {"kind", "settings", "data", "measured", "sha256"} <= card.keys():
            return card
    except OSError as error:
        raise InputError(f"{path} holds no trained model: {error.strerror}: model.json", hint=_MEND) from error
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: its model.json is damaged", hint=_MEND) from error
    raise InputError(f"{path}: a model of another form than this version reads", hint="train it again")


def describe_all(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the models in a folder, and those in folders in it, by path."""
    for path in sorted({file.parent for pattern in ("model.json", "*/model.json") for file in folder.glob(pattern)}):
        if not path.name.startswith("."):
            yield path, describe(path)


def read_model(path: Path, kind: str) -> tuple[dict[str, Any], Arrays]:
    """Return a model's description and arrays.

    Raises:
        InputError: as `describe`, or it is of another kind, or its weights are not those that it was saved with.
    """
    card = describe(path)
    if card["kind"] != kind:
        raise InputError(f"{path} is a trained {card['kind']}, not a {kind}", hint=_MEND)
    try:
        packed = (path / "weights.npz").read_bytes()
    except OSError as error:
        raise InputError(f"{path}: its weights.npz cannot be read: {error.strerror}", hint="train it again") from error
    if hashlib.sha256(packed).hexdigest() != card["sha256"]:
        raise InputError(f"{path}: its weights are not those that it was saved with", hint="train it again")
    with np.load(io.BytesIO(packed), allow_pickle=False) as saved:
        return card, dict(saved)
