"""Measure embedders: how well they rank facts for a dialogue, how fast and how large they are.

    python scripts/measure_embeddings.py [--embedder SPEC ...] [--json]

The items are our own (`tests/retrieval/ranking_pairs.<language>.jsonl`): a short history, one relevant fact and
irrelevant ones, of which some share a word with the history. Two numbers are taken, each with a 95% bootstrap
interval over the items: *choice*, how often the relevant fact is ranked above the item's irrelevant ones, and *pool*,
the mean reciprocal rank of the relevant fact among all facts of all items of the language.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.retrieval.embedding import load_embedder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.retrieval.embedding import Embedder

PAIRS = Path(__file__).parent.parent / "tests" / "retrieval"
LANGUAGES = ("en", "zh")


def read_items(language: str) -> list[dict[str, Any]]:
    """Read the labelled items of a language."""
    lines = (PAIRS / f"ranking_pairs.{language}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def score(embedder: Embedder, items: list[dict[str, Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each item's choice (0 or 1) and reciprocal rank in the pool; a tie counts against the relevant fact."""
    facts = sorted({fact for item in items for fact in (item["relevant"], *item["irrelevant"])})
    at = {fact: index for index, fact in enumerate(facts)}
    vectors = embedder.encode(facts)
    queries = embedder.encode(["\n".join(item["history"]) for item in items])
    scores = np.round(queries @ vectors.T, 4)
    choice, reciprocal = [], []
    for row, item in zip(scores, items, strict=True):
        own = row[at[item["relevant"]]]
        choice.append(float(own > max(row[at[fact]] for fact in item["irrelevant"])))
        reciprocal.append(1.0 / float((row >= own).sum()))
    return np.array(choice), np.array(reciprocal)


def interval(values: NDArray[np.float64], draws: int = 2000) -> dict[str, float]:
    """Return the mean and its 95% bootstrap interval (percentiles, fixed seed)."""
    picks = np.random.default_rng(0).integers(0, len(values), (draws, len(values)))
    low, high = np.percentile(values[picks].mean(axis=1), [2.5, 97.5])
    return {"mean": float(values.mean()), "low": float(low), "high": float(high)}


def measure(spec: str) -> dict[str, Any]:
    """Measure one embedder on every language, and its load time and speed."""
    started = time.perf_counter()
    embedder = load_embedder(spec)
    embedder.encode(["hello"])
    row: dict[str, Any] = {"embedder": spec, "dimension": embedder.dimension}
    row["load_ms"] = (time.perf_counter() - started) * 1000
    for language in LANGUAGES:
        items = read_items(language)
        choice, reciprocal = score(embedder, items)
        row[language] = {"items": len(items), "choice": interval(choice), "pool": interval(reciprocal)}
        facts = [fact for item in items for fact in (item["relevant"], *item["irrelevant"])] * 5
        started = time.perf_counter()
        embedder.encode(facts)
        row[language]["facts_per_second"] = len(facts) / (time.perf_counter() - started)
        started = time.perf_counter()
        for fact in facts[:100]:
            embedder.encode([fact])
        row[language]["single_us"] = (time.perf_counter() - started) * 1e4
    return row


def shown(value: dict[str, float]) -> str:
    """Write a mean and its interval."""
    return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--embedder", action="append", help="spec for load_embedder; repeat for several")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measure(spec) for spec in options.embedder or ["static"]]
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print(
        "| embedder | language | choice | pool (MRR) | facts/s | us a text | load ms |\n|---|---|---|---|---|---|---|"
    )
    for row in rows:
        for language in LANGUAGES:
            part = row[language]
            print(
                f"| {row['embedder']} | {language} ({part['items']}) | {shown(part['choice'])} | {shown(part['pool'])} "
                f"| {part['facts_per_second']:,.0f} | {part['single_us']:.0f} | {row['load_ms']:.0f} |"
            )


if __name__ == "__main__":
    main()
