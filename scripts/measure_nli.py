"""Measure a trained consistency model on KBP's development split, by the paper's protocol and by the hard one.

    python scripts/measure_nli.py MODEL --data DATA

MODEL is what `dialore train nli` made; DATA holds kbp/dev.json.gz. Each figure is an accuracy with as many positives as
negatives; 95% bootstrap intervals over whole dialogues.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from dialore.learned.examples import read_examples
from dialore.learned.nli import make_pairs, protocol_rows
from dialore.trained import open_trained

RESAMPLES = 1000
PAPER = {"persona, random": 95.94, "documents, random": 96.95}
"""The paper's, on its test split, where its checkpoint was chosen."""


def measure_nli(path: Path, dev: Path) -> dict[str, tuple[float, float, float]]:
    """Accuracy in percent by protocol, with its interval."""
    examples = read_examples("kbp", dev)
    pairs = make_pairs(examples)
    labels = np.array([pair.is_positive for pair in pairs])
    entailed = open_trained(str(path), "entailment").entails([(pair.piece, pair.text) for pair in pairs])
    right = np.array(entailed) == labels
    numbers = examples.numbers[[pair.response for pair in pairs]]
    draws = np.random.default_rng(0).multinomial(
        numbers.max() + 1, [1 / (numbers.max() + 1)] * (numbers.max() + 1), RESAMPLES
    )
    found = {}
    for name, at in protocol_rows(pairs).items():
        figures = []
        for weights in (np.ones((1, numbers.max() + 1)), draws):
            of_class = []
            for value in (0, 1):
                rows = at & (labels == value)
                counts = np.bincount(numbers[rows], None, numbers.max() + 1)
                hits = np.bincount(numbers[rows], right[rows], numbers.max() + 1)
                of_class.append(100 * (weights @ hits) / np.maximum(weights @ counts, 1))
            figures.append(np.mean(of_class, 0))
        low, high = np.percentile(figures[1], [2.5, 97.5])
        found[name] = float(figures[0][0]), float(low), float(high)
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    options = parser.parse_args()
    print("| protocol | dev | 95% interval | paper, test |\n|---|---|---|---|")
    for name, (figure, low, high) in measure_nli(options.model, options.data / "kbp" / "dev.json.gz").items():
        print(f"| {name} | {figure:.1f} | {low:.1f} to {high:.1f} | {PAPER.get(name, '-')} |")


if __name__ == "__main__":
    main()
