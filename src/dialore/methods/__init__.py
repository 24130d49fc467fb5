"""Methods: one file a paper; a dialogue in, a response out, by stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.methods.base import Draft, Grounds, Method
    from dialore.methods.dcrag import Dcrag
    from dialore.methods.rag import QpRag, TRag
    from dialore.methods.registry import create_method, method_class, method_names, method_options
    from dialore.methods.stages import Responder, Stages
    from dialore.methods.vanilla import Vanilla

__all__ = [
    "Dcrag",
    "Draft",
    "Grounds",
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
        "dialore.methods.base": ["Draft", "Grounds", "Method"],
        "dialore.methods.dcrag": ["Dcrag"],
        "dialore.methods.rag": ["QpRag", "TRag"],
        "dialore.methods.registry": ["create_method", "method_class", "method_names", "method_options"],
        "dialore.methods.stages": ["Responder", "Stages"],
        "dialore.methods.vanilla": ["Vanilla"],
    },
)
