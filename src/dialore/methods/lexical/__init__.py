"""The lexical responder: the stages of `vanilla`, `t-rag` and `dcrag` without a language model."""

from __future__ import annotations

from dialore.methods.lexical.responder import LexicalResponder

__all__ = ["LexicalResponder"]
