"""Fingerprints of graphs: a sum of hashes of the facts, so that order does not matter and facts can be subtracted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def name_hashes(names: Iterable[str]) -> NDArray[np.uint64]:
    """Return a hash of each name, the same in every process."""
    return np.frombuffer(b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names), "<u8")


def fact_hashes(facts: NDArray[np.void], concepts: NDArray[np.uint64], relations: NDArray[np.uint64]) -> int:
    """Return the sum of the hashes of facts: of their names, given by hashes, and their weights."""
    mixed = _mix(concepts[facts["head"]])
    weights = facts["weight"].copy().view("<u4").astype(np.uint64)
    for values in (relations[facts["relation"]], concepts[facts["tail"]], weights):
        mixed = _mix(mixed ^ (values + np.uint64(0x9E3779B97F4A7C15)))
    return int(mixed.sum(dtype=np.uint64))


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the finaliser of SplitMix64 (Steele et al., 2014): each input bit changes half of the output bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def format_fingerprint(total: int) -> str:
    """Return the fingerprint of a graph from the sum of its facts' hashes."""
    return f"{total & ((1 << 64) - 1):016x}"
