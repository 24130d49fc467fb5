"""Samples to prompt with (MSDP, Section 2): topic, history, knowledge and response of other dialogues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.sources.samples.database import SampleDatabase, build_samples, open_samples
    from dialore.sources.samples.sample import Sample, aligned_samples, is_fit, overlap, samples_of

__all__ = [
    "Sample",
    "SampleDatabase",
    "aligned_samples",
    "build_samples",
    "is_fit",
    "open_samples",
    "overlap",
    "samples_of",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.sources.samples.database": ["SampleDatabase", "build_samples", "open_samples"],
        "dialore.sources.samples.sample": ["Sample", "aligned_samples", "is_fit", "overlap", "samples_of"],
    },
)
