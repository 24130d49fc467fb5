"""Fingerprints of embedders."""

from __future__ import annotations

import hashlib


def digest(*parts: str) -> str:
    """Return a short stable hash of the parts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
