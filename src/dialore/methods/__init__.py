"""Methods: one file a paper; a dialogue in, a response out, by stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.methods.base import Method
    from dialore.methods.baselines import QpRag, TRag, Vanilla
    from dialore.methods.dcrag import Dcrag
    from dialore.methods.registry import create_method, method_class, method_names, method_options
    from dialore.methods.stages import Responder, Stages

__all__ = [
    "Dcrag",
    "Method",
    "QpRag",
    "Responder",
    "Stages",
    "TRag",
    "Vanilla",
    "create_method",
    "method_class",
    "method_names",
    "method_options",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.methods.base": ["Method"],
        "dialore.methods.baselines": ["QpRag", "TRag", "Vanilla"],
        "dialore.methods.dcrag": ["Dcrag"],
        "dialore.methods.registry": ["create_method", "method_class", "method_names", "method_options"],
        "dialore.methods.stages": ["Responder", "Stages"],
    },
)
