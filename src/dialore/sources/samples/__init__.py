"""Samples to prompt with (MSDP, Section 2): topic, history, knowledge and response of other dialogues, in a base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.sources.samples.alignment import aligned_samples
    from dialore.sources.samples.base import SampleBase, open_samples
    from dialore.sources.samples.build import BuildReport, build_samples
    from dialore.sources.samples.fitness import is_fit, overlap
    from dialore.sources.samples.sample import Sample, SampleTurn, samples_of

__all__ = [
    "BuildReport",
    "Sample",
    "SampleBase",
    "SampleTurn",
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
        "dialore.sources.samples.alignment": ["aligned_samples"],
        "dialore.sources.samples.base": ["SampleBase", "open_samples"],
        "dialore.sources.samples.build": ["BuildReport", "build_samples"],
        "dialore.sources.samples.fitness": ["is_fit", "overlap"],
        "dialore.sources.samples.sample": ["Sample", "SampleTurn", "samples_of"],
    },
)
